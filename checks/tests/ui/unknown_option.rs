//! An option that does not exist, near to one and far from all.

use tidegate::{Context, TaskError, task};

#[task(retires = 3, time_out = "5s", retry = 3, colour = "red")]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
