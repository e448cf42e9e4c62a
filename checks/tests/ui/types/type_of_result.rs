//! Results that are none.

use tidegate::{Context, TaskHandle, task};

#[task]
async fn load(_: &mut Context) -> u64 {
    7
}

#[task]
async fn never(_: &mut Context, _: &TaskHandle) -> Option<u64> {
    None
}

fn main() {
    let _ = load::task();
}
