//! Comparing the tasks that the store says a worker owns with those that it has.

use super::words::Todo;
use super::{Dispatcher, OwnTask};
use crate::lifecycle::{Event, Fence};
use crate::rows::Owned;
use crate::store::{Change, TaskKey};
use std::collections::HashMap;
use std::time::Duration;

impl Dispatcher {
    /// Hands back tasks that the store says it owns and it does not have, and lets go of those that the
    /// store does not know to be its. Without this, a claim whose reply was lost would stay for ever.
    pub(super) fn reconcile_tasks(&mut self, roll: &[Owned]) {
        for &Owned { task: key, index, fence, .. } in roll {
            if self.tasks.get(&key).is_none_or(|task| task.fence != fence) {
                self.readings.strays += 1;
                let (active, pause) = (Duration::ZERO, Duration::ZERO);
                let event = Event::HandBack { fence, active, pause };
                self.strays.push(Change::new(key, index, event));
            }
        }
        if std::mem::take(&mut self.asks_all) {
            let asking = self.tasks.iter().filter(|(_, task)| task.asks);
            let mut asking: Vec<_> = asking.map(|(&key, task)| (key, task.fence)).collect();
            asking.sort_unstable();
            self.todos.extend(asking.into_iter().map(|(key, fence)| Todo::AskAgain(key, fence)));
        }
        let roll: HashMap<TaskKey, Fence> =
            roll.iter().map(|owned| (owned.task, owned.fence)).collect();
        let is_gone = |(&key, task): (&TaskKey, &OwnTask)| {
            (roll.get(&key) != Some(&task.fence)).then_some(key)
        };
        let mut gone: Vec<TaskKey> = self.tasks.iter().filter_map(is_gone).collect();
        gone.sort_unstable();
        for key in gone {
            self.readings.lost_races += 1;
            self.let_go(key);
        }
    }
}
