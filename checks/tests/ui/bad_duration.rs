//! Texts that are no durations.

use tidegate::{Context, TaskError, task};

#[task(timeout = "ten minutes", queue_timeout = "", deadline = "1.5h", backoff = "5x")]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
