//! A function of nothing.

use tidegate::{TaskError, task};

#[task]
async fn load() -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
