//! An error that cannot become that of a task.

use tidegate::{Context, task};

struct Broken;

#[task]
async fn load(_: &mut Context) -> Result<(), Broken> {
    Err(Broken)
}

fn main() {
    let _ = load::task();
}
