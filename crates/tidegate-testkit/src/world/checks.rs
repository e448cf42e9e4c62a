//! Checks of everything that must hold after a request and at the end of a case.

use super::{WATCHED_MAX, WATCHED_TASKS_MAX, Watched, World, time_of};
use crate::replay::{self, Subject};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_core::audit::Repair;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Kind, Life};
use tidegate_core::limit::{LimitKey, LimitState};
use tidegate_core::store::{
    Change, NewRun, Operation, OperationOutcome, Reply, Request, RunView, RunsPage, TaskKey,
};
use tidegate_core::{RunId, Timestamp};

impl World {
    pub(super) fn watch(&mut self, new: &NewRun) {
        if new.plan.task_count() > WATCHED_TASKS_MAX || self.watched.len() >= WATCHED_MAX {
            self.crowded = true;
        } else {
            let watched = Watched { not_before: new.not_before, view: None };
            self.watched.entry(new.id).or_insert(watched);
        }
    }

    pub(super) async fn check_records(&mut self, reply: &Reply) {
        let new = self.store.records(None, self.recorded, u32::MAX).await;
        let new = new.expect("records can be read");
        assert_eq!(new, reply.records, "a request tells what it has recorded, and nothing else");
        assert!(new.is_sorted_by_key(|record| record.seq));
        assert_eq!(reply.plans.len(), new.len(), "each record comes with its plan");
        self.recorded = new.last().map_or(self.recorded, |record| record.seq);
    }

    pub(super) async fn check_runs(&mut self, request: &Request, reply: &Reply) {
        let mut views = BTreeMap::new();
        for (&id, watched) in &self.watched {
            // An ended run stays as it is: looked at again when the case is over.
            if let Some(view) = watched.view.as_ref().filter(|view| view.run.ended.is_some()) {
                views.insert(id, view.clone());
                continue;
            }
            let view = self.store.run(id).await.expect("a run can be looked at");
            views.extend(view.map(|view| (id, view)));
        }
        for (id, watched) in &mut self.watched {
            let Some(view) = views.get(id) else {
                assert!(watched.view.is_none(), "a run does not go away");
                continue;
            };
            let is_orphan = view.run.parent.is_some_and(|parent| is_orphaned(&views, parent));
            assert!(!is_orphan || view.run.ended.is_some(), "who is left alone is over");
            check_run(request, reply, watched, view, (self.latest, is_orphan));
            watched.view = Some(view.clone());
        }
    }

    pub(super) async fn check_audit(&self) {
        let findings = self.store.audit().await.expect("a store can be audited");
        assert!(findings.is_empty(), "the store contradicts itself: {findings:#?}");
    }

    /// What must hold at the end of every case: the store is sound, and a store that is closed and
    /// opened again is what it was.
    pub(crate) async fn finish(&mut self) {
        self.check_audit().await;
        let counts = self.store.counts().await.expect("tasks can be counted");
        let mut views = Vec::new();
        for (&id, watched) in &self.watched {
            let view = self.store.run(id).await.expect("a run can be looked at");
            let seen = watched.view.as_ref().filter(|view| view.run.ended.is_some());
            assert!(seen.is_none() || seen == view.as_ref(), "an ended run stays as it is");
            views.push((id, view));
        }
        let (records, limits) = (self.records().await, self.store.limits().await);
        self.harness.reopen().await;
        self.store = self.harness.store();
        for (id, view) in views {
            let after = self.store.run(id).await.expect("a run can be looked at");
            assert_eq!(after, view, "a run is the same after the store was opened again");
        }
        assert_eq!(self.records().await, records, "nothing recorded is lost");
        let (before, after) = (limits, self.store.limits().await);
        let limits = [before, after].map(|limits| limits.expect("limits can be listed"));
        assert_eq!(limits[0], limits[1], "limits are the same after the store was opened again");
        let after = self.store.counts().await.expect("tasks can be counted");
        assert_eq!(after, counts, "the counts are the same after the store was opened again");
        self.check_audit().await;
        self.check_repairs().await;
    }

    /// Nothing is wrong, so that whatever is asked to be repaired stays as it is.
    async fn check_repairs(&mut self) {
        /// Runs that are looked at, of which there may be very many.
        const RUNS_MAX: u32 = 100;
        let now = self.latest;
        let look = Request { clock: now.into(), ..self.request() };
        self.store.request(Arc::new(look)).await.expect("a request can be taken");
        let page = RunsPage { limit: RUNS_MAX, ..RunsPage::default() };
        let runs = self.store.runs(page).await.expect("runs can be listed");
        let limits = self.store.limits().await.expect("limits can be listed");
        let limit = |state: LimitState| LimitKey::new(state.limit.name(), state.key);
        let mut repairs: Vec<_> = limits.into_iter().map(limit).map(Repair::Limit).collect();
        for run in runs {
            let tasks = run.plan.graph().tasks().take(RUNS_MAX as usize);
            repairs.extend(tasks.map(|task| Repair::Task(run.key.task(task))));
            repairs.push(Repair::Run(run.key));
        }
        let records = self.records().await;
        let operations = repairs.iter().cloned().map(Operation::Repair).collect();
        let request = Request { clock: now.into(), operations, ..self.request() };
        let reply = self.store.request(Arc::new(request)).await.expect("a request can be taken");
        for (repair, granted) in repairs.iter().zip(reply.operations) {
            assert_eq!(granted, OperationOutcome::Already, "{repair} was right");
        }
        assert_eq!(self.records().await, records, "nothing has happened");
        self.check_audit().await;
    }
}

/// Whether a task that has begun a run has ended, other than by success.
fn is_orphaned(views: &BTreeMap<RunId, RunView>, parent: TaskKey) -> bool {
    let mut tasks = views.values().flat_map(|view| &view.tasks);
    let kind = tasks.find(|task| task.key == parent).map(|task| task.life.state.kind());
    kind.is_some_and(|kind| kind.is_terminal() && kind != Kind::Succeeded)
}

/// Whether a request may have ended waits of tasks.
fn something_came(request: &Request, reply: &Reply) -> bool {
    let is_signal = |operation: &Operation| matches!(operation, Operation::Signal(_));
    let waits = |change: &Change| !change.waits.is_empty() || !change.parks_on.is_empty();
    let ended = !reply.ended.is_empty();
    ended || request.operations.iter().any(is_signal) || request.changes.iter().any(waits)
}

fn check_run(
    request: &Request,
    reply: &Reply,
    watched: &Watched,
    view: &RunView,
    (latest, is_orphan): (Timestamp, bool),
) {
    let before = watched.view.as_ref();
    for (at, task) in (0..).zip(&view.tasks) {
        let index = TaskIndex::from_u32(at);
        let new = Life::blocked();
        let from = before.map_or(&new, |before| &before.tasks[at as usize].life);
        let rules = &view.run.plan.task(index).rules;
        let not_before = watched.not_before;
        let (key, run) = (task.key, view.run.id);
        let something_came = something_came(request, reply);
        let is_new_retry = before.is_none() && view.run.retry_of.is_some();
        let subject = Subject {
            key,
            run,
            rules,
            not_before,
            is_new_retry,
            is_orphan,
            something_came,
            latest,
        };
        assert!(
            replay::allows(&subject, request, from, &task.life),
            "the lifecycle does not allow what a request has made of a task\n\
             request: {request:#?}\nfrom: {from:#?}\nto: {:#?}",
            task.life
        );
        let times_claimed = reply.claimed.iter().filter(|claimed| claimed.key == task.key).count();
        assert!(times_claimed <= 1, "a task is taken once");
        for claimed in reply.claimed.iter().filter(|claimed| claimed.key == task.key) {
            assert_eq!(claimed.life, task.life, "what is taken is told as it is stored");
            assert_eq!((claimed.index, claimed.run), (index, view.run.id));
            assert_eq!(claimed.plan, view.run.plan);
        }
    }
    let ended_before = before.and_then(|before| before.run.ended);
    let told = reply.ended.iter().filter(|ended| ended.id == view.run.id).collect::<Vec<_>>();
    match (ended_before, view.run.ended) {
        (None, Some((outcome, at))) => {
            assert_eq!((told.len(), told[0].outcome, at), (1, outcome, time_of(request)));
            assert_eq!(told[0].key, view.run.key);
        }
        (before, after) => {
            assert_eq!(before, after, "what has ended stays so");
            // A request that is handed in again may tell again what it told.
            assert!(told.len() <= usize::from(request.again), "a run ends once");
            let outcomes = told.iter().map(|ended| Some(ended.outcome));
            assert!(outcomes.eq(told.iter().map(|_| after.map(|(outcome, _)| outcome))));
        }
    }
}
