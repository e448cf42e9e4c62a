//! Literals that are neither text nor whole number.

use tidegate::{Context, TaskError, task};

#[task(timeout = 1.5, queue_timeout = -5, deadline = 90s, backoff = true)]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
