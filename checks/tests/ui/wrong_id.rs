//! Names of tasks that are none.

use tidegate::{Context, TaskError, task};

#[task(id = "")]
async fn load(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

#[task(id = 7)]
async fn seven(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn main() {
    assert_eq!(load::ID, seven::ID);
}
