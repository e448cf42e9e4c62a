//! A method.

use tidegate::{Context, TaskError, task};

struct Shop;

impl Shop {
    #[task]
    async fn load(&self, _: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
}

fn main() {
    let _ = Shop::load;
}
