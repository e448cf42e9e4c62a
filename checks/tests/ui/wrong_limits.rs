//! Limits that are none.

use tidegate::{Context, TaskError, task};

#[task(limits = [""])]
async fn empty(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(limits = 2)]
async fn number(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(parkable = "yes")]
async fn word(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = empty::task();
}
