//! A crate that is no path.

use tidegate::{Context, TaskError, task};

#[task(crate = "tidegate")]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
