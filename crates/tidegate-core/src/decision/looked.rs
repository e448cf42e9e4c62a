//! The tasks and runs that a request has looked at, by number.

use super::changed::ChangedTasks;
use super::overlay::Overlay;
use super::{Run, Taking, Task};
use crate::graph::TaskIndex;
use crate::keys::KeyMap;
use crate::plan::Plan;
use crate::rows::{Head, Payload, Row};
use crate::store::{Bytes, Reply, Request, RunKey, TaskKey};
use crate::want::{Loader, LookUps, ServedTasks};
use crate::{RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

impl<'t, L: Loader> Taking<'t, L> {
    /// Nothing was looked at yet.
    pub(super) fn new(
        rows: Overlay<'t, L>,
        request: &'t Request,
        now: Timestamp,
        served: Option<Arc<ServedTasks>>,
    ) -> Self {
        let is_unknown_worker = request.worker.is_some() && served.is_none();
        Taking {
            rows,
            request,
            now,
            served,
            tasks: Vec::new(),
            runs: Vec::new(),
            task_at: KeyMap::default(),
            changed: ChangedTasks::default(),
            new_keys: HashMap::new(),
            new_items: HashMap::new(),
            waiting: HashMap::new(),
            inputs: Vec::new(),
            limits: BTreeMap::new(),
            freed: BTreeSet::new(),
            cascades: VecDeque::new(),
            answer: Reply { now, is_unknown_worker, ..Reply::default() },
        }
    }

    /// Where the task is among those looked at.
    pub(super) fn task(&mut self, key: TaskKey) -> Result<Option<usize>, L::Stop> {
        if let Some(&at) = self.task_at.get(&key) {
            return Ok(Some(at));
        }
        let Some(row) = self.rows.load_task(key)? else { return Ok(None) };
        let run = match self.run_at(row.run()) {
            Some(run) => run,
            None if row.head.is_some() => self.add_run(row.run(), &row.plan),
            None => match self.find_run(row.run())? {
                Some(run) => run,
                // A run that is pruned is gone with its first task, be there others still.
                None => return Ok(None),
            },
        };
        Ok(Some(self.add_task(row, run)))
    }

    /// Where the run is among those looked at: its first task always is, too.
    pub(super) fn run_at(&self, key: RunKey) -> Option<usize> {
        let first = self.task_at.get(&key.task(TaskIndex::from_u32(0)))?;
        Some(self.tasks[*first].run)
    }

    /// Where the task is among those looked at. Its run has all its tasks.
    pub(super) fn existing(&mut self, key: TaskKey) -> Result<usize, L::Stop> {
        self.task(key).map(|at| at.expect("a run has all its tasks"))
    }

    /// Where the run is among those looked at. It exists.
    pub(super) fn run(&mut self, key: RunKey) -> Result<usize, L::Stop> {
        self.find_run(key).map(|run| run.expect("a run has a first task"))
    }

    /// Where the run is among those looked at. One that has ended may have been pruned since.
    pub(super) fn find_run(&mut self, key: RunKey) -> Result<Option<usize>, L::Stop> {
        if let Some(run) = self.run_at(key) {
            return Ok(Some(run));
        }
        let first = self.task(key.task(TaskIndex::from_u32(0)))?;
        Ok(first.map(|first| self.tasks[first].run))
    }

    pub(super) fn find(&mut self, id: RunId) -> Result<Option<usize>, L::Stop> {
        // What was begun in this request is not among the rows yet.
        if let Some(&run) = self.new_items.get(&id) {
            return Ok(Some(run));
        }
        match self.rows.load_run(id)? {
            Some(key) => self.run(key).map(Some),
            None => Ok(None),
        }
    }

    /// Looks at all tasks of a run; where they are, by index.
    pub(super) fn whole(&mut self, run: usize) -> Result<Rc<[usize]>, L::Stop> {
        if self.runs[run].whole.is_none() {
            let mut whole = Rc::from([self.runs[run].first]);
            if self.runs[run].plan.task_count() > 1 {
                let rows = self.rows.load_whole_run(self.runs[run].key)?;
                assert_eq!(rows.len(), self.runs[run].plan.task_count(), "a run has all its tasks");
                // What was looked at before may have changed since.
                let place = |row: Row| match self.task_at.get(&row.key) {
                    Some(&at) => at,
                    None => self.add_task(row, run),
                };
                whole = rows.into_iter().map(place).collect();
            }
            self.runs[run].whole = Some(whole);
        }
        Ok(self.runs[run].whole.clone().expect("it was just looked at"))
    }

    pub(super) fn add_run(&mut self, key: RunKey, plan: &Arc<Plan>) -> usize {
        let (run, first) = (self.runs.len(), self.tasks.len());
        let plan = plan.clone();
        let (ended, unsettled) = (Vec::new(), false);
        self.runs.push(Run { key, plan, first, whole: None, ended, unsettled, new: None });
        run
    }

    pub(super) fn add_task(&mut self, row: Row, run: usize) -> usize {
        let at = self.tasks.len();
        self.task_at.insert(row.key, at);
        self.tasks.push(Task { row, run, dirty: false, stood_still: Duration::ZERO });
        at
    }

    pub(super) fn head(&self, run: usize) -> &Head {
        let first = &self.tasks[self.runs[run].first].row;
        first.head.as_ref().expect("the first task of a run carries its head")
    }

    pub(super) fn head_mut(&mut self, run: usize) -> &mut Head {
        let first = self.runs[run].first;
        self.mark_changed(first);
        let first = &mut self.tasks[first];
        first.row.head.as_mut().expect("the first task of a run carries its head")
    }

    pub(super) fn input(&mut self, run: usize) -> Result<Option<Bytes>, L::Stop> {
        match self.runs[run].new {
            Some(new) => Ok(new.input.clone()),
            None => {
                let first = self.runs[run].key.task(TaskIndex::from_u32(0));
                self.rows.find_payload(first, Payload::Input)
            }
        }
    }
}
