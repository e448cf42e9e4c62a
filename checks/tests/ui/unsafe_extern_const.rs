//! Words that a task cannot have.

use tidegate::{Context, TaskError, task};

#[task]
async unsafe fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task]
extern "C" fn foreign(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task]
const fn constant(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
