//! Options that are no name with a value.

use tidegate::{Context, TaskError, task};

#[task("load")]
async fn text(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(retries = 3, weight)]
async fn word(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(retries(3))]
async fn call(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(retries = 3 weight = 2)]
async fn comma(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = (text::task(), word::task(), call::task(), comma::ID);
}
