//! Things that are no tasks.

use tidegate::{Context, TaskError, task};

#[task(after = [7])]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(after = extract())]
async fn call(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(after = [""])]
async fn nameless(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
