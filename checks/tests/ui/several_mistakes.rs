//! Several mistakes are reported at once.

use tidegate::{TaskError, task};

#[task(retires = 3, timeout = "soon", when = never)]
fn load<T>() -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    let _ = load::task();
}
