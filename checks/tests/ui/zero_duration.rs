//! Limits of nothing, in text and number. A pause of nothing is possible.

use tidegate::{Context, TaskError, task};

#[task(timeout = "0s", queue_timeout = 0, deadline = "0", backoff = "0s")]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
