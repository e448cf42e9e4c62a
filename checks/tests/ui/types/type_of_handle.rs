//! A second parameter that is no handle.

use tidegate::{Context, TaskError, TaskHandle, task};

#[task]
async fn load(_: &mut Context, _: TaskHandle) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
