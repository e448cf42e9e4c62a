//! A function that returns nothing.

use tidegate::{Context, task};

#[task]
async fn load(_: &mut Context) {}

fn main() {
    let _ = load::task();
}
