//! The writer: transactions, where tasks are filed, workers, and who is to be told of a request.

use crate::bell::Bells;
use crate::catalog::{FiledPlan, Filing, PLANS_MAX};
use crate::error::{Error, is_busy};
use crate::fetch::{Fetch, FromColumns};
use crate::loader::RowLoader;
use crate::lock::{LOOK_EVERY, Locks};
use crate::machine::{boot_id, host_name};
use crate::open::Opened;
use crate::sql::WriteStatements;
use rusqlite::ErrorCode;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tidegate_core::Timestamp;
use tidegate_core::graph::TaskIndex;
use tidegate_core::keys::hash_bytes;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::plan::Plan;
use tidegate_core::store::{Clock, Knows, NewWorker, Reply, Request, Wakeup};
use tidegate_core::sweep::{is_stale, is_trusted};
use tidegate_core::transaction::answer_request;

/// Queues that are remembered for a plan.
const QUEUES_MAX: usize = 64;

/// The writer's connection, and all that it does besides loading rows.
pub(crate) struct Ledger<'c> {
    pub(crate) opened: &'c Opened,
    pub(crate) loader: RowLoader<'c>,
    pub(crate) sql: WriteStatements<'c>,
    /// Plans by their addresses in memory, for each queue that they were met in.
    plans: HashMap<usize, Vec<FiledPlan>>,
    /// The workers to wake once the transaction is committed.
    wakeups: BTreeMap<WorkerId, Wakeup>,
    bells: Bells,
    locks: Locks,
    /// Whether a run was numbered in this transaction.
    pub(crate) has_new_run: bool,
    /// The time of the request.
    now: Timestamp,
}

impl<'c> Ledger<'c> {
    pub(crate) fn new(opened: &'c Opened) -> rusqlite::Result<Self> {
        Ok(Ledger {
            opened,
            loader: RowLoader::new(&opened.connection, &opened.place)?,
            sql: WriteStatements::prepare(&opened.connection)?,
            plans: HashMap::new(),
            wakeups: BTreeMap::new(),
            bells: Bells::new(opened.place.locks.clone()),
            locks: Locks::new(opened.place.locks.clone()),
            has_new_run: false,
            now: Timestamp::default(),
        })
    }

    /// Locks the database for writing. Waits for others, but not for ever.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        let points = self.opened.points.as_deref();
        let inside = self.opened.turnstile.enter(points);
        loop {
            match self.sql.begin.raw_execute() {
                Ok(_) => break,
                Err(error) if is_busy(&error) && began.elapsed() < self.opened.busy_timeout => {
                    if let Some(points) = points {
                        points.on_blocked();
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(inside);
        self.loader.drop_stale_cache()
    }

    /// Once this returns without an error, all that was written since the beginning survives.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        if let Some(points) = &self.opened.points {
            points.before_commit();
        }
        self.opened.place.check()?;
        self.store_run_number()?;
        self.sql.commit.raw_execute().map_err(|error| match error.sqlite_error_code() {
            // The log may have got as far as the mark that ends a transaction. It does not count
            // while this process lives; after a crash it might.
            Some(ErrorCode::SystemIoFailure) => Error::HalfCommitted(error),
            _ => Error::Sqlite(error),
        })?;
        self.locks.committed();
        for (worker, wakeup) in std::mem::take(&mut self.wakeups) {
            self.bells.ring(worker, wakeup);
        }
        Ok(())
    }

    /// Decides a request, applies its delta, and notes the workers to wake.
    pub(crate) fn take(&mut self, request: &Request) -> Result<Reply, Error> {
        self.now = match request.clock {
            Clock::Given(now) => now,
            Clock::Store => SystemTime::now().into(),
        };
        let known = self.known_workers()?;
        let others = known.iter().filter(|worker| Some(**worker) != request.worker);
        let others: Vec<WorkerId> = others.copied().collect();
        let (reply, wakeups) = answer_request(request, self, self.opened.points.as_deref())?;
        for worker in others {
            let Some(served) = self.loader.find_served(worker)? else { continue };
            let wakeup = wakeups.for_worker(worker, served);
            if wakeup != Wakeup::default() {
                self.wakeups.entry(worker).or_default().add_reasons(wakeup);
            }
        }
        Ok(reply)
    }

    /// Nothing that was written since the beginning has happened. Also good after a failed commit,
    /// and where nothing was begun.
    pub(crate) fn roll_back(&mut self) {
        self.locks.roll_back();
        // SQLite ends a transaction by itself after some errors.
        if !self.opened.connection.is_autocommit()
            && let Err(error) = self.sql.rollback.raw_execute()
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
        self.loader.forget_everything();
        self.wakeups.clear();
        self.plans.clear();
        self.has_new_run = false;
    }

    /// The numbers under which a task is filed; what has none is given one.
    pub(crate) fn file_task(
        &mut self,
        queue: &Arc<str>,
        plan: &Arc<Plan>,
        task: TaskIndex,
    ) -> Result<Filing, Error> {
        let address = Arc::as_ptr(plan).addr();
        let is_it = |filed: &FiledPlan| Arc::ptr_eq(&filed.queue, queue) || filed.queue == *queue;
        if let Some(filed) = self.plans.get(&address).and_then(|all| all.iter().find(|f| is_it(f)))
            && is_trusted(filed.verified_at, self.now)
        {
            return Ok(filed.find_filing(task));
        }
        let plan_id = self.plan_id(plan)?;
        self.loader.catalog.add_plan(plan_id, plan);
        let queue_id = self.queue_id(queue)?;
        let groups = self.file_groups(queue, plan)?;
        let (_plan, verified_at) = (plan.clone(), self.now);
        let filed =
            FiledPlan { _plan, queue: queue.clone(), plan_id, queue_id, groups, verified_at };
        let filing = filed.find_filing(task);
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        let queues = self.plans.entry(address).or_default();
        queues.retain(|filed| !is_it(filed));
        if queues.len() >= QUEUES_MAX {
            queues.clear();
        }
        queues.push(filed);
        Ok(filing)
    }

    fn plan_id(&mut self, plan: &Plan) -> Result<i64, Error> {
        let body = plan.encode();
        let hash = hash_bytes(&body) as i64;
        let mut alike = self.sql.find_plan.query([hash])?;
        while let Some(row) = alike.next()? {
            if row.get_ref(2)?.as_bytes().is_ok_and(|stored| stored == body) {
                let (plan_id, used_at): (i64, Timestamp) = FromColumns::from_columns(row)?;
                if is_stale(used_at, self.now) {
                    self.sql.use_plan.execute((plan_id, self.now.as_micros()))?;
                }
                return Ok(plan_id);
            }
        }
        drop(alike);
        let (tasks, now) = (plan.task_count() as i64, self.now.as_micros());
        Ok(self.sql.add_plan.insert((hash, tasks, body, now))?)
    }

    fn queue_id(&mut self, queue: &str) -> Result<i64, Error> {
        let now = self.now.as_micros();
        match self.sql.find_queue.fetch_first([queue])? {
            Some((queue_id, used_at)) => {
                if is_stale(used_at, self.now) {
                    self.sql.use_queue.execute((queue_id, now))?;
                }
                Ok(queue_id)
            }
            None => Ok(self.sql.add_queue.insert((queue, now))?),
        }
    }

    fn file_groups(&mut self, queue: &str, plan: &Plan) -> Result<Vec<i64>, Error> {
        let now = self.now.as_micros();
        let mut groups = Vec::with_capacity(plan.task_count());
        for task in plan.graph().tasks() {
            if let (Some(_), Some(&group)) = (plan.items_of(), groups.first()) {
                groups.push(group);
                continue;
            }
            let (workflow, name) = (plan.workflow(), plan.known_as(task));
            let weight = plan.task(task).weight;
            groups.push(
                match self.sql.find_group.fetch_first((queue, workflow, name, weight))? {
                    Some((group, used_at)) => {
                        if is_stale(used_at, self.now) {
                            self.sql.use_group.execute((group, now))?;
                        }
                        group
                    }
                    None => {
                        let group = (queue, workflow, name, weight, now);
                        *self.loader.cache.last_group.insert(self.sql.add_group.insert(group)?)
                    }
                },
            );
        }
        Ok(groups)
    }

    /// The workers that are known. Bells of others are let go.
    fn known_workers(&mut self) -> Result<Arc<HashSet<WorkerId>>, Error> {
        let is_cached = self.loader.cache.known.is_some();
        let known = self.loader.known_workers()?;
        if !is_cached {
            self.bells.keep(|worker| known.contains(&worker));
        }
        Ok(known)
    }

    /// Adds a worker, alive.
    pub(crate) fn enlist(&mut self, new: &NewWorker) -> Result<WorkerId, Error> {
        let (knows_all, knows) = match &new.knows {
            Knows::All => (true, [].as_slice()),
            Knows::These(tasks) => (false, tasks.as_slice()),
        };
        let (pid, host, boot_id) = (std::process::id(), host_name(), boot_id());
        let about = (&new.name, new.now.as_micros(), new.slots, knows_all, pid, host, boot_id);
        let id = self.sql.add_worker.insert(about)?;
        for queue in &new.queues {
            self.sql.add_worker_queue.execute((id, queue))?;
        }
        for (workflow, task) in knows {
            self.sql.add_worker_task.execute((id, workflow, task))?;
        }
        self.loader.cache.known = None;
        let (worker, known) = (WorkerId(id as u64), self.known_workers()?);
        self.locks.take(worker, |worker| known.contains(&worker))?;
        Ok(worker)
    }

    /// A worker that goes. If it still owns something it stays known, as dead, until that is taken
    /// over.
    pub(crate) fn dismiss(&mut self, worker: WorkerId) -> Result<(), Error> {
        if self.loader.sql.owned.exists((worker.0 as i64, 1))? {
            self.locks.doom(worker);
            return Ok(());
        }
        self.forget_worker(worker)
    }

    /// Forgets a worker.
    pub(crate) fn forget_worker(&mut self, worker: WorkerId) -> Result<(), Error> {
        let id = worker.0 as i64;
        self.sql.forget_worker.execute([id])?;
        self.sql.forget_queues.execute([id])?;
        self.sql.forget_tasks.execute([id])?;
        self.drop_notifications(worker)?;
        self.loader.cache.known = None;
        self.bells.keep(|other| other != worker);
        self.locks.doom(worker);
        Ok(())
    }
}
