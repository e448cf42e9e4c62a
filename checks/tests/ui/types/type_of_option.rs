//! Expressions of the wrong type.

use std::time::Duration;
use tidegate::{Context, TaskError, task};

const MANY: u64 = 9;
const PAUSE: Duration = Duration::from_secs(1);
const RULES: (&str,) = ("all_done",);

#[task(timeout = Some(5), retries = MANY, backoff = PAUSE, when = RULES.0)]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
