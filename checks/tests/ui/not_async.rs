//! A function that is not async.

use tidegate::{Context, TaskError, task};

#[task]
fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
