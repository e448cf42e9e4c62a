//! The same option twice.

use tidegate::{Context, TaskError, task};

#[task(retries = 3, timeout = "5s", retries = 4)]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
