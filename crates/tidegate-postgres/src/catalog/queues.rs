//! Queues by their numbers, each with the task groups that are filed in it.

use super::{NumberCatalog, groups::read_group};
use crate::error::Error;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::want::{ServedTasks, TaskGroup};

/// Queues whose task groups are remembered.
pub(super) const VIEWS_MAX: usize = 64;

/// Version and task groups in one look: a group that is added later changes the version.
const VIEW_QUEUE: &str = "SELECT g.number, q.name, g.workflow, g.task, g.weight, q.number, q.version \
     FROM queue q LEFT JOIN task_group g ON g.queue = q.name WHERE q.name = $1";

/// A queue as it was at one of its versions.
#[derive(Debug)]
pub(crate) struct QueueView {
    pub(crate) number: i32,
    pub(crate) name: Arc<str>,
    pub(crate) version: i64,
    /// The weights of its tasks, each once.
    pub(crate) weights: BTreeSet<u32>,
    groups: Vec<TaskGroup>,
    /// The last worker that was asked about, and whether it knows the names of all tasks.
    known_by: Mutex<Option<(WorkerId, bool)>>,
}

impl QueueView {
    /// Whether a worker knows the names of all tasks of the queue.
    pub(crate) fn is_known_by(&self, worker: WorkerId, served: &ServedTasks) -> bool {
        let mut known_by = self.known_by.lock().unwrap_or_else(PoisonError::into_inner);
        match *known_by {
            Some((of, knows)) if of == worker => knows,
            _ => {
                let knows =
                    self.groups.iter().all(|group| served.knows_task(&group.workflow, &group.task));
                *known_by = Some((worker, knows));
                knows
            }
        }
    }
}

impl NumberCatalog {
    /// A queue as it is or was; `None` if nothing was ever filed in it.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn view_queue(&self, name: &str) -> Result<Option<Arc<QueueView>>, Error> {
        if let Some(view) = self.lock_entries().queue_views.get(name) {
            return Ok(Some(view.clone()));
        }
        let client = self.take_connection().await?;
        let statement = client.prepare_cached(VIEW_QUEUE).await?;
        let rows = client.query(&statement, &[&name]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let (number, version) = (first.try_get(5)?, first.try_get(6)?);
        let mut groups = Vec::with_capacity(rows.len());
        for row in &rows {
            if row.try_get::<_, Option<i32>>(0)?.is_some() {
                groups.push(read_group(row)?.1);
            }
        }
        let weights = groups.iter().map(|group| group.weight).collect();
        let (name, known_by): (Arc<str>, _) = (name.into(), Mutex::default());
        let view = QueueView { number, name: name.clone(), version, weights, groups, known_by };
        let view = Arc::new(view);
        let mut entries = self.lock_entries();
        if entries.queue_views.len() >= VIEWS_MAX {
            entries.queue_views.clear();
        }
        entries.queue_views.insert(name, view.clone());
        Ok(Some(view))
    }

    /// Looks at a queue anew when it is next asked for.
    pub(crate) fn forget_queue(&self, name: &str) {
        self.lock_entries().queue_views.remove(name);
    }
}
