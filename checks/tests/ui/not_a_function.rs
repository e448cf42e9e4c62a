//! Things that are no functions, and a function without a body.

use tidegate::{Context, TaskError, task};

#[task]
#[derive(Clone)]
pub struct Load {
    pub rows: u64,
}

#[task]
impl Load {}

#[task]
const ROWS: u64 = 1;

trait Loads {
    #[task]
    async fn load(context: &mut Context) -> Result<(), TaskError>;
}

fn main() {
    let load = Load { rows: ROWS };
    let _ = load.clone();
}
