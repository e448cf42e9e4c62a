//! A first parameter that is no context.

use tidegate::{Context, TaskError, task};

#[task]
async fn load(_: &mut String) -> Result<(), TaskError> {
    Ok(())
}

#[task]
async fn owned(_: Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
