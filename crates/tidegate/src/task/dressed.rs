//! A body with what was said of it besides: who hears of it, and that what it returns is not kept.

use super::{Body, Entered, Manner, Returned, Task};
use crate::context::Around;
use crate::engine::Hook;
use crate::handle::TaskHandle;
use std::sync::Arc;

/// The body of a task as it is entered.
pub(crate) fn dress(task: &Task) -> Arc<dyn Body> {
    let Task { body, hook, keeps_output, .. } = task;
    match (hook, keeps_output) {
        (None, true) => body.clone(),
        _ => Arc::new(Dressed {
            body: body.clone(),
            hook: hook.clone(),
            keeps_output: *keeps_output,
        }),
    }
}

struct Dressed {
    body: Arc<dyn Body>,
    hook: Option<Hook>,
    keeps_output: bool,
}

impl Body for Dressed {
    fn enter(&self, around: Around, handle: TaskHandle) -> Entered {
        let entered = self.body.enter(around, handle);
        match self.keeps_output {
            true => entered,
            false => Box::pin(async { Ok(Returned { output: None, ..entered.await? }) }),
        }
    }

    fn manner(&self) -> Manner {
        self.body.manner()
    }

    fn hook(&self) -> Option<Hook> {
        self.hook.clone()
    }
}
