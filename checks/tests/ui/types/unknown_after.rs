//! Paths behind which there is no task.

use tidegate::{Context, TaskError, task};

mod steps {}

async fn plain(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

struct NoTask;

#[task(after = [extract, steps::clean, plain, NoTask])]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
