//! The writer's connection: transactions, what it remembers between them, workers.
//!
//! What is remembered is true as long as nobody else has written, which the database tells at the
//! beginning of each transaction; and it is forgotten when a transaction is rolled back.

use crate::bell::Bells;
use crate::columns::{Belongs, worker_id};
use crate::error::{Error, is_busy};
use crate::lanes::{Lane, Paused, Served};
use crate::lock::{LOOK_EVERY, Locks};
use crate::open::Opened;
use crate::plans::{self, Catalog, Plans};
use crate::sql::Statements;
use rusqlite::{ErrorCode, OptionalExtension};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use tidegate_core::Timestamp;
use tidegate_core::decision::{self, Decision};
use tidegate_core::delta::PauseChange;
use tidegate_core::graph::TaskIndex;
use tidegate_core::keys::KeyMap;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Limit;
use tidegate_core::plan::Plan;
use tidegate_core::rows::{Gate, Row};
use tidegate_core::store::{Bytes, Knows, NewWorker, News, Reply, Request, TaskKey};
use tidegate_core::want::{Known, ServedTasks};

/// The writer's connection.
pub(crate) struct Ledger<'c> {
    pub(crate) opened: &'c Opened,
    pub(crate) sql: Statements<'c>,
    pub(crate) catalog: Catalog,
    plans: Plans,
    pub(crate) seen: Seen,
    /// Workers as they have presented themselves, which they do once.
    workers: HashMap<WorkerId, Served>,
    pub(crate) stirred: Stirred,
    /// Whom to tell of what once the transaction counts.
    news: BTreeMap<WorkerId, News>,
    bells: Bells,
    locks: Locks,
    /// What the database last said about others that write.
    data_version: i64,
}

/// What is remembered until somebody else writes.
#[derive(Default)]
pub(crate) struct Seen {
    /// The last numbers given.
    pub(crate) last_task: Option<i64>,
    pub(crate) last_record: Option<i64>,
    pub(crate) last_signal: Option<u64>,
    last_lane: Option<i64>,
    paused: Option<Paused>,
    /// The workers that are known.
    known: Option<Arc<HashSet<WorkerId>>>,
    /// Lanes in which nothing stands behind an open gate.
    pub(crate) empty: HashSet<(Gate, i64)>,
    /// Whether there is something behind the gate of runs that some task waits for.
    pub(crate) awaited: Option<bool>,
    /// Workers for whom there are words.
    pub(crate) words: Option<BTreeSet<WorkerId>>,
    /// Limits by name; `None` is one that was not declared.
    pub(crate) limits: HashMap<String, Option<Limit>>,
    /// The earliest alarm of all limits.
    pub(crate) limit_alarm: Option<Option<Timestamp>>,
    /// Tasks that workers own, as they were last written here: their end is usually the next thing
    /// that is heard of them.
    owned: KeyMap<TaskKey, Row>,
    /// By queue, how many runs wait at the most.
    pub(crate) waiting: HashMap<Arc<str>, u32>,
    /// The input that was read last. It never changes, and many tasks may be given it.
    pub(crate) input: Option<(TaskKey, Bytes)>,
}

/// What a request has done that may concern others than whose request it is.
#[derive(Default)]
pub(crate) struct Stirred {
    /// Whether there is anybody else.
    pub(crate) has_others: bool,
    /// Workers for whom there are words.
    pub(crate) words: BTreeSet<WorkerId>,
    /// Lanes in which something can be claimed.
    pub(crate) lanes: HashSet<i64>,
    /// Whether what was paused goes on: then there may be something in any lane.
    pub(crate) unpaused: bool,
    /// Whether a run has ended.
    pub(crate) ended: bool,
}

/// Tasks that are remembered. Those of a worker that has more wait long, and are looked up.
const OWNED_MAX: usize = 16_384;

impl Seen {
    /// Remembers a task that was written, if a worker owns it; otherwise forgets it.
    pub(crate) fn remember(&mut self, row: Row) {
        if row.life.owner().is_none() {
            self.owned.remove(&row.key);
            return;
        }
        if self.owned.len() >= OWNED_MAX {
            self.owned.clear();
        }
        self.owned.insert(row.key, row);
    }

    /// A task as it was last written here. It is about to be changed, and remembered anew.
    pub(crate) fn recall(&mut self, task: TaskKey) -> Option<Row> {
        self.owned.remove(&task)
    }
}

impl<'c> Ledger<'c> {
    pub(crate) fn new(opened: &'c Opened) -> rusqlite::Result<Self> {
        Ok(Ledger {
            opened,
            sql: Statements::prepare(&opened.connection)?,
            catalog: Catalog::default(),
            plans: Plans::default(),
            seen: Seen::default(),
            workers: HashMap::new(),
            stirred: Stirred::default(),
            news: BTreeMap::new(),
            bells: Bells::new(opened.place.locks.clone()),
            locks: Locks::new(opened.place.locks.clone()),
            data_version: -1,
        })
    }

    /// Locks the database for writing. Waits for others, but not for ever.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        let inside = self.opened.turnstile.enter();
        loop {
            match self.sql.begin.raw_execute() {
                Ok(_) => break,
                Err(error) if is_busy(&error) && began.elapsed() < self.opened.busy_timeout => {
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(inside);
        let data_version = self.sql.data_version.query_row([], |row| row.get(0))?;
        if data_version != self.data_version {
            self.data_version = data_version;
            self.seen = Seen::default();
        }
        Ok(())
    }

    /// Once this returns without an error, all that was written since the beginning survives.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        self.opened.place.check()?;
        self.sql.commit.raw_execute().map_err(|error| match error.sqlite_error_code() {
            // The log may have got as far as the mark that ends a transaction. It does not count
            // while this process lives; after a crash it might.
            Some(ErrorCode::SystemIoFailure) => Error::HalfCommitted(error),
            _ => Error::Sqlite(error),
        })?;
        self.locks.committed();
        std::mem::take(&mut self.news)
            .into_iter()
            .for_each(|(who, what)| self.bells.ring(who, what));
        Ok(())
    }

    /// Takes a request, and finds out whom else it concerns.
    pub(crate) fn take(&mut self, request: &Request) -> Result<Reply, Error> {
        let known = self.known()?;
        let others = known.iter().filter(|worker| Some(**worker) != request.worker);
        let others: Vec<WorkerId> = others.copied().collect();
        self.stirred = Stirred { has_others: !others.is_empty(), ..Stirred::default() };
        let Decision { mut delta, mut reply, fill } =
            decision::decide(request, Known::new(), self)?;
        self.apply_delta(&mut delta)?;
        reply.records = delta.records;
        decision::complete_reply(self, &mut reply, &fill)?;
        let stirred = std::mem::take(&mut self.stirred);
        for worker in others {
            let opened = |lane: &Lane| stirred.unpaused || stirred.lanes.contains(&lane.id);
            let ready = (stirred.unpaused || !stirred.lanes.is_empty()) && {
                let served = self.served(worker)?;
                served.is_some_and(|served| served.lanes.iter().any(opened))
            };
            let news = News { word: stirred.words.contains(&worker), ready, ended: stirred.ended };
            if news != News::default() {
                let before = self.news.entry(worker).or_default();
                before.word |= news.word;
                before.ready |= news.ready;
                before.ended |= news.ended;
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
        self.seen = Seen::default();
        self.workers.clear();
        self.news.clear();
        self.catalog = Catalog::default();
        self.plans = Plans::default();
    }

    /// The length of the log in bytes.
    pub(crate) fn log_size(&mut self, page: u64) -> rusqlite::Result<u64> {
        let pages = self.sql.log_size.query_row([], |row| row.get::<_, i64>(1))?;
        Ok(u64::try_from(pages).unwrap_or(0) * page)
    }

    /// Where a task belongs; what is missing for that is added.
    pub(crate) fn belongs(
        &mut self,
        queue: &Arc<str>,
        plan: &Arc<Plan>,
        task: TaskIndex,
    ) -> Result<Belongs, Error> {
        if self.plans.known(plan).is_none() {
            let id = self.plan_id(plan)?;
            self.plans.add(plan, id);
            self.catalog.add_plan(id, plan.clone());
        }
        if self.plans.known(plan).is_none_or(|known| known.filed(queue).is_none()) {
            let (workflow, lanes) = self.lanes_of(queue, plan)?;
            let known = self.plans.known(plan).expect("it was just added");
            known.file(queue.clone(), workflow, lanes);
        }
        let known = self.plans.known(plan).expect("it was just added");
        let filed = known.at(known.filed(queue).expect("it was just filed"));
        let lane = filed.lanes[task.as_usize()];
        Ok(Belongs { plan: known.id, workflow: filed.workflow, lane })
    }

    fn plan_id(&mut self, plan: &Plan) -> Result<i64, Error> {
        let body = plan.encode();
        let hash = plans::hash(&body);
        let mut alike = self.sql.find_plan.query([hash])?;
        while let Some(row) = alike.next()? {
            if row.get_ref(1)?.as_bytes().is_ok_and(|stored| stored == body) {
                return Ok(row.get(0)?);
            }
        }
        drop(alike);
        Ok(self.sql.add_plan.insert((hash, body))?)
    }

    fn lanes_of(&mut self, queue: &str, plan: &Plan) -> Result<(i64, Vec<i64>), Error> {
        let name = plan.workflow();
        let found = self.sql.find_workflow.query_row((queue, name), |row| row.get(0));
        let workflow = match found.optional()? {
            Some(workflow) => workflow,
            None => self.sql.add_workflow.insert((queue, name))?,
        };
        let mut lanes = Vec::with_capacity(plan.task_count());
        for task in plan.graph().tasks() {
            if let (Some(_), Some(&lane)) = (plan.items_of(), lanes.first()) {
                lanes.push(lane);
                continue;
            }
            let lane = (workflow, plan.known_as(task), plan.task(task).weight);
            let found = self.sql.find_lane.query_row(lane, |row| row.get(0)).optional()?;
            lanes.push(match found {
                Some(lane) => lane,
                None => {
                    let id = self.sql.add_lane.insert(lane)?;
                    self.seen.last_lane = Some(id);
                    id
                }
            });
        }
        Ok((workflow, lanes))
    }

    /// What is paused.
    pub(crate) fn paused(&mut self) -> Result<&Paused, Error> {
        if self.seen.paused.is_none() {
            let mut paused = Paused::default();
            let mut rows = self.sql.open_pauses.query([])?;
            while let Some(row) = rows.next()? {
                match row.get(0)? {
                    QUEUE => drop(paused.queues.insert(row.get(1)?)),
                    _ => paused.store = true,
                }
            }
            self.seen.paused = Some(paused);
        }
        Ok(self.seen.paused.as_ref().expect("it was just looked up"))
    }

    /// What is paused has changed.
    pub(crate) fn forget_paused(&mut self) {
        self.seen.paused = None;
    }

    /// The workers that are known.
    fn known(&mut self) -> Result<Arc<HashSet<WorkerId>>, Error> {
        if let Some(known) = &self.seen.known {
            return Ok(known.clone());
        }
        let known = self.sql.workers.query_map([], |row| row.get(0).map(worker_id))?;
        let known = Arc::new(known.collect::<rusqlite::Result<HashSet<_>>>()?);
        self.workers.retain(|worker, _| known.contains(worker));
        self.bells.keep(|worker| known.contains(&worker));
        Ok(self.seen.known.insert(known).clone())
    }

    /// What a worker serves, with all lanes there are; `None` if there is no such worker.
    pub(crate) fn served(&mut self, worker: WorkerId) -> Result<Option<&Served>, Error> {
        if !self.known()?.contains(&worker) {
            return Ok(None);
        }
        let Ledger { sql, seen, workers, .. } = self;
        let served = match workers.entry(worker) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(load_worker(sql, worker)?),
        };
        let last = match seen.last_lane {
            Some(last) => last,
            None => *seen.last_lane.insert(sql.last_lane.query_row([], |row| row.get(0))?),
        };
        if served.last < last {
            let mut rows = sql.worker_lanes.query((worker.0 as i64, served.last))?;
            while let Some(row) = rows.next()? {
                let (id, queue, weight) = (row.get(0)?, row.get(1)?, row.get(2)?);
                served.lanes.push(Lane { id, queue, weight });
            }
            served.last = last;
        }
        Ok(Some(served))
    }

    /// The lanes behind these gates in which there may be something for a worker; both it and what is
    /// paused were looked up.
    pub(crate) fn lanes(
        &self,
        worker: WorkerId,
        heaviest: u32,
        gates: &[Gate],
        pauses: &[PauseChange],
    ) -> Vec<(Gate, i64)> {
        let Some(served) = self.workers.get(&worker) else { return Vec::new() };
        let may_run = |lane: &&Lane| {
            let paused = self.seen.paused.as_ref();
            let stopped = paused.is_some_and(|paused| paused.stops_after(pauses, &lane.queue));
            lane.weight <= heaviest && !stopped
        };
        let lanes = served.lanes.iter().filter(may_run);
        let lanes = lanes.flat_map(|lane| gates.iter().map(|&gate| (gate, lane.id)));
        lanes.filter(|lane| !self.seen.empty.contains(lane)).collect()
    }

    /// Adds a worker, alive.
    pub(crate) fn enlist(&mut self, new: &NewWorker) -> Result<WorkerId, Error> {
        let (knows_all, knows) = match &new.knows {
            Knows::All => (true, [].as_slice()),
            Knows::These(tasks) => (false, tasks.as_slice()),
        };
        let about = (&new.name, new.now.as_micros(), new.slots, knows_all);
        let id = self.sql.enlist.insert(about)?;
        for queue in &new.queues {
            self.sql.add_worker_queue.execute((id, queue))?;
        }
        for (workflow, task) in knows {
            self.sql.add_worker_knows.execute((id, workflow, task))?;
        }
        self.seen.known = None;
        let (worker, known) = (worker_id(id), self.known()?);
        self.locks.take(worker, |worker| known.contains(&worker))?;
        Ok(worker)
    }

    /// A worker that goes. If it still owns something it stays known, as dead, until that is taken
    /// over.
    pub(crate) fn dismiss(&mut self, worker: WorkerId) -> Result<(), Error> {
        if self.sql.owned.exists((worker.0 as i64, 1))? {
            self.locks.doom(worker);
            return Ok(());
        }
        self.forget_worker(worker)
    }

    /// Forgets a worker.
    pub(crate) fn forget_worker(&mut self, worker: WorkerId) -> Result<(), Error> {
        let id = worker.0 as i64;
        self.sql.forget.execute([id])?;
        self.sql.forget_queues.execute([id])?;
        self.sql.forget_knows.execute([id])?;
        self.forget_words(worker)?;
        self.seen.known = None;
        self.locks.doom(worker);
        Ok(())
    }
}

fn load_worker(sql: &mut Statements<'_>, worker: WorkerId) -> Result<Served, Error> {
    let id = worker.0 as i64;
    let queues = sql.worker_queues.query_map([id], |row| row.get(0))?;
    let queues = queues.collect::<rusqlite::Result<_>>()?;
    let knows_all: bool = sql.knows_all.query_row([id], |row| row.get(0))?;
    let mut knows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut rows = sql.worker_knows.query([id])?;
    while let Some(row) = rows.next()? {
        knows.entry(row.get(0)?).or_default().insert(row.get(1)?);
    }
    let tasks = Arc::new(ServedTasks { queues, tasks: (!knows_all).then_some(knows) });
    Ok(Served { tasks, lanes: Vec::new(), last: 0 })
}

/// What a pause stops, as the number that is kept.
pub(crate) const RUN: i64 = 0;
/// See [`RUN`].
pub(crate) const QUEUE: i64 = 1;
/// See [`RUN`].
pub(crate) const STORE: i64 = 2;
