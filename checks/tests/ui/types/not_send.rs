//! A future that cannot change threads.

use std::rc::Rc;
use std::time::Duration;
use tidegate::{Context, TaskError, TaskHandle, task};

#[task]
async fn load(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let rows = Rc::new(7);
    handle.sleep(Duration::from_secs(*rows)).await?;
    drop(rows);
    Ok(())
}

#[task]
async fn plain(_: &mut Context) -> Result<(), TaskError> {
    let rows = Rc::new(7);
    std::future::ready(()).await;
    drop(rows);
    Ok(())
}

fn main() {
    let _ = load::task();
}
