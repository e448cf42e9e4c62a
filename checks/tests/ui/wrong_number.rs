//! Numbers that are none, or not possible.

use tidegate::{Context, TaskError, task};

#[task(retries = "3", weight = 0, priority = 1.5)]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(retries = -1, weight = 4_294_967_296, priority = -2_147_483_649)]
async fn far(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
