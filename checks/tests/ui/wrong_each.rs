//! Names of lists that are none.

use tidegate::{Context, TaskError, task};

#[task(each = "")]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(each = items)]
async fn word(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
