//! A function of four things.

use tidegate::{Context, TaskError, TaskHandle, task};

#[task]
async fn load(
    _: &mut Context,
    _: &TaskHandle,
    rows: u64,
    (a, b): (u8, u8),
) -> Result<(), TaskError> {
    let _ = (rows, a, b);
    Ok(())
}

fn main() {
    let _ = load::task();
}
