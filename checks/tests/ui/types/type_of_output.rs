//! An output that cannot be written.

use tidegate::{Context, TaskError, TaskHandle, task};

struct Rows;

#[task]
async fn load(_: &mut Context) -> Result<Rows, TaskError> {
    Ok(Rows)
}

#[task]
async fn handled(_: &mut Context, _: &TaskHandle) -> Result<Rows, TaskError> {
    Ok(Rows)
}

fn main() {
    let _ = load::task();
}
