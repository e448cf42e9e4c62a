//! An input that cannot be read.

use tidegate::{Context, TaskError, task};

struct Order;

#[task]
async fn load(_: &mut Context<Order>) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
