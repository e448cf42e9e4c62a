//! Words that are no rules.

use tidegate::{Context, TaskError, task};

#[task(when = al_done)]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(when = "sometimes")]
async fn text(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(when = 3)]
async fn number(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
