//! Wake-ups by other processes.

use super::{Heard, LOOKED_UP_MAX, Worker};
use tidegate_core::dispatcher::Input;
use tidegate_core::store::Wakeup;

impl Worker {
    pub(super) fn listen(&self) -> Heard {
        let (store, id) = (self.shared.store.clone(), self.id);
        Box::pin(async move { store.wait_for_wakeup(id).await })
    }

    /// Another process has changed something that concerns this worker.
    pub(super) fn rung(&mut self, wakeup: Wakeup) {
        self.bell = Some(self.listen());
        if wakeup.is_notified {
            self.dispatcher.handle(Input::Alarm);
        }
        if wakeup.has_ready {
            self.dispatcher.handle(Input::Ready);
        }
        if wakeup.has_ended && !self.cells.is_empty() {
            match self.look {
                None => self.look_at_store(LOOKED_UP_MAX),
                Some(_) => self.looks_again = true,
            }
        }
    }
}
