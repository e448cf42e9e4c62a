//! A function in an `impl`, where no type can stand beside it.

use tidegate::{Context, TaskError, task};

struct Shop;

impl Shop {
    #[task]
    async fn load(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
}

fn main() {
    let _ = Shop::load;
}
