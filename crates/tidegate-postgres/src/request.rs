//! The way of a request through PostgreSQL: lock and load, decide, apply and commit.
//!
//! Locks have one order, and a transaction waits only in it: the store (advisory, shared), the worker
//! (advisory, shared), edges (advisory), task rows by number, limit rows by number. Rows that are found
//! on the way (ready, due) are skipped where another transaction has them. A decision that asks for an
//! earlier lock than the last one taken is rolled back, and begins again with everything that it has
//! asked for so far; after [`MISSES_MAX`] such rounds it has the store to itself, where the order does not
//! matter.
//!
//! Nothing is written before the decision: its rows and the commit are one trip. The usual request of a
//! worker has no other: it is decided by what is remembered, and checked where it is written (`guess.rs`).

use crate::batch::StatementBatch;
use crate::claim::{OrderedQueue, find_ordered_queue};
use crate::commit::{DecidedRequest, commit_decision};
use crate::error::Error;
use crate::guess::{CHECK_GUESS, CHECK_VERSIONS, Guess, guess_decision};
use crate::loader::{RowLocks, WantLoader};
use crate::state::StoreState;
use deadpool_postgres::Object;
use futures_util::future::join;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tidegate_core::decision;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Operation, Reply, Request, Scope, TaskKey};
use tidegate_core::wakeup::Wakeups;
use tidegate_core::want::{Foresight, Known, Loaded, Want};

/// Rounds in which a decision asked for an earlier lock, before it gets the store to itself.
const MISSES_MAX: u32 = 5;

/// Conflicts with other transactions after which a request fails. Each is a transaction of another worker
/// that was committed, or a deadlock that the server has ended.
const CONFLICTS_MAX: u32 = 100;

/// The longest pause before a transaction is tried again after a conflict.
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Everything that the rounds of a request have asked for so far, each want once.
#[derive(Default)]
struct WantList {
    wants: Vec<Want>,
    listed: HashSet<Want>,
}

impl WantList {
    fn add_wants(&mut self, wants: impl IntoIterator<Item = Want>) {
        for want in wants {
            if self.listed.insert(want.clone()) {
                self.wants.push(want);
            }
        }
    }
}

/// The advisory locks that a transaction takes at its beginning, besides those of its workers.
#[derive(Debug, Clone, Copy)]
struct LockMode {
    /// The store to itself: no other request is under way.
    is_exclusive: bool,
    /// The lock under which waits for other runs begin, so that two cannot close a circle.
    has_edges: bool,
}

/// The outcome of one transaction of a request.
enum Round {
    /// It is committed.
    Committed(Box<(Reply, Wakeups)>),
    /// It needs an earlier lock. Nothing was written.
    Again { wants: Vec<Want>, needs_edges: bool },
}

impl Round {
    fn of_commit(answered: (Reply, Wakeups)) -> Self {
        Round::Committed(Box::new(answered))
    }
}

/// Answers a request.
///
/// # Errors
/// Nothing of it has happened, unless the error says that this is unknown.
pub(crate) async fn answer_request(state: &StoreState, request: &Request) -> Result<Reply, Error> {
    state.catalog.note_clock(request.clock);
    let mut list = WantList::default();
    let mut mode = LockMode { is_exclusive: is_rare(request), has_edges: false };
    let mut misses = 0;
    let mut conflicts = 0;
    let mut ordered_queue = find_ordered_queue(state, request).await;
    let mut guess = guess_decision(state, request, ordered_queue.is_some()).await;
    loop {
        let queue = ordered_queue.as_ref();
        let client = state.take_connection().await?;
        let is_guess = guess.is_some();
        let round = match guess.take() {
            Some(guess) => commit_guess(state, &client, request, guess, queue).await,
            None => try_request(state, &client, request, &list, mode, queue).await,
        };
        match round {
            Ok(Round::Committed(answered)) => {
                drop(client);
                let (reply, wakeups) = *answered;
                state.notifier.notify_workers(&wakeups, request.worker);
                return Ok(reply);
            }
            Ok(Round::Again { wants, needs_edges }) => {
                list.add_wants(wants);
                misses += 1;
                mode.has_edges |= needs_edges;
                mode.is_exclusive |= misses > MISSES_MAX;
                roll_back(client).await;
            }
            // Another transaction was faster, or what was guessed did not hold: rows are loaded now.
            Err(error) if is_guess && error.is_conflict() => {
                roll_back(client).await;
                state.count_conflict(&error);
                give_up_order(state, &mut ordered_queue);
            }
            Err(error) => {
                roll_back(client).await;
                if !error.is_conflict() || conflicts >= CONFLICTS_MAX {
                    return Err(error);
                }
                conflicts += 1;
                state.count_conflict(&error);
                give_up_order(state, &mut ordered_queue);
                mode.is_exclusive |= conflicts > CONFLICTS_MAX / 2;
                let pause = Duration::from_millis(1 << conflicts.min(6)).min(CONFLICT_PAUSE_MAX);
                tokio::time::sleep(pause.mul_f64(fastrand::f64())).await;
            }
        }
    }
}

/// Decides the claim of a request with loaded candidates: an order that was not carried out would not be the
/// next time either.
fn give_up_order(state: &StoreState, ordered_queue: &mut Option<OrderedQueue>) {
    if let Some(queue) = ordered_queue.take() {
        queue.give_up(state);
    }
}

/// Ends a transaction. A connection that cannot do that is closed, which ends it too.
async fn roll_back(client: Object) {
    if client.batch_execute("ROLLBACK").await.is_err() {
        drop(Object::take(client));
    }
}

/// Whether a request changes rows that other requests read without locking them.
fn is_rare(request: &Request) -> bool {
    let is_rare = |operation: &Operation| match operation {
        Operation::Pause(scope) | Operation::Unpause(scope) => !matches!(scope, Scope::Run(_)),
        Operation::Declare(_) | Operation::Resize(_) | Operation::Repair(_) => true,
        Operation::Cancel(_) | Operation::Signal(_) => false,
    };
    request.prune.is_some() || request.operations.iter().any(is_rare)
}

/// One transaction of a request.
struct RequestAttempt<'a> {
    state: &'a StoreState,
    client: &'a Object,
    loader: WantLoader<'a>,
    request: &'a Request,
    foresight: Foresight<'a>,
    known: Known,
    locks: TakenLocks,
    mode: LockMode,
}

async fn try_request(
    state: &StoreState,
    client: &Object,
    request: &Request,
    list: &WantList,
    mode: LockMode,
    queue: Option<&OrderedQueue>,
) -> Result<Round, Error> {
    let mut attempt = RequestAttempt {
        state,
        client,
        loader: WantLoader::new(client, &state.catalog, RowLocks::Rows),
        request,
        foresight: Foresight::new(request).taking_orders(queue.is_some()),
        known: Known::new(),
        locks: TakenLocks::default(),
        mode,
    };
    if let Some(again) = attempt.begin_transaction(list).await? {
        return Ok(again);
    }
    loop {
        let known = Known::new().taking_orders(queue.is_some());
        match decision::decide(request, known, &mut attempt.known) {
            Ok(decision) => {
                let batch = StatementBatch::default();
                let decided = DecidedRequest { request, decision, versions: HashMap::new(), queue };
                return Ok(Round::of_commit(commit_decision(state, client, decided, batch).await?));
            }
            Err(missed) => {
                let wants = attempt.foresight.next_wants(missed);
                if let Some(again) = attempt.load_in_place(wants).await? {
                    return Ok(again);
                }
            }
        }
    }
}

impl RequestAttempt<'_> {
    /// Begins the transaction, takes its advisory locks, and loads everything that was asked for so far:
    /// one trip.
    async fn begin_transaction(&mut self, list: &WantList) -> Result<Option<Round>, Error> {
        let RequestAttempt { state, client, request, mode, .. } = self;
        let batch = queue_locks(state, client, request, *mode).await?;
        let mut first = WantList::default();
        first.add_wants(self.foresight.first_wants());
        first.add_wants(list.wants.iter().cloned());
        self.pause_before_load(&first.wants);
        let send = join(batch.send_all(self.client), self.loader.load_wants(&first.wants));
        let (begun, loaded) = self.state.watch_blocked(self.client, send).await;
        begun?;
        self.locks.note_wants(&first.wants);
        let joined = self.add_answers(loaded?);
        self.load_in_place(joined).await
    }

    /// Loads wants and those that follow from their answers, level by level; or says that the
    /// transaction has to begin again, because an earlier lock is needed.
    async fn load_in_place(&mut self, mut wants: Vec<Want>) -> Result<Option<Round>, Error> {
        loop {
            wants.retain(|want| self.known.find_answer(want).is_none());
            if wants.is_empty() {
                return Ok(None);
            }
            let needs_edges = !self.mode.has_edges
                && wants.iter().any(|want| matches!(want, Want::EdgesFrom { .. }));
            if !self.mode.is_exclusive && (needs_edges || !self.locks.allow_wants(&wants)) {
                return Ok(Some(Round::Again { wants, needs_edges }));
            }
            self.pause_before_load(&wants);
            let load = self.loader.load_wants(&wants);
            let loaded = self.state.watch_blocked(self.client, load).await?;
            self.locks.note_wants(&wants);
            wants = self.add_answers(loaded);
        }
    }

    /// Adds answers, and finds the wants that follow from them.
    fn add_answers(&mut self, loaded: Vec<(Want, Loaded)>) -> Vec<Want> {
        let mut following = Vec::new();
        for (want, loaded) in loaded {
            if self.known.find_answer(&want).is_none() {
                following.extend(self.foresight.joined_wants(&want, &loaded));
                self.known.add_answer(want, loaded);
            }
        }
        following
    }

    fn pause_before_load(&self, wants: &[Want]) {
        if let (Some(points), Some(want)) = (&self.state.points, wants.first()) {
            points.before_load(want);
        }
    }
}

/// A batch with the beginning of a transaction and the advisory locks of a request, in order.
async fn queue_locks(
    state: &StoreState,
    client: &Object,
    request: &Request,
    mode: LockMode,
) -> Result<StatementBatch, Error> {
    let store = state.server.store_id;
    let mut locks = vec![(store, mode.is_exclusive)];
    // The lock of a dead worker is exclusive: requests that it has sent come to their end before.
    // So is that of a request that is sent again, which so waits for its first try.
    let mut workers: Vec<(WorkerId, bool)> = Vec::new();
    workers.extend(request.worker.map(|worker| (worker, request.again)));
    workers.extend(request.recover.map(|dead| (dead, true)));
    workers.sort_unstable_by_key(|(worker, _)| *worker);
    for (worker, is_exclusive) in workers {
        // A worker without a row has no requests under way either.
        let known = state.catalog.find_worker(worker).await?;
        locks.extend(known.map(|known| (known.id, is_exclusive)));
    }
    if mode.has_edges {
        locks.push((store.wrapping_add(1), true));
    }
    let mut batch = StatementBatch::default();
    batch.add_statement(client.prepare_cached("BEGIN").await?, Vec::new());
    for (key, is_exclusive) in locks {
        let lock = if is_exclusive {
            "SELECT pg_advisory_xact_lock($1)"
        } else {
            "SELECT pg_advisory_xact_lock_shared($1)"
        };
        batch.add_statement(client.prepare_cached(lock).await?, vec![Box::new(key)]);
    }
    Ok(batch)
}

/// Checks and applies a decision that was made without a trip, and commits: one trip.
async fn commit_guess(
    state: &StoreState,
    client: &Object,
    request: &Request,
    guess: Guess,
    queue: Option<&OrderedQueue>,
) -> Result<Round, Error> {
    let mode = LockMode { is_exclusive: false, has_edges: false };
    let mut batch = queue_locks(state, client, request, mode).await?;
    let check = client.prepare_cached(CHECK_GUESS).await?;
    batch.add_statement(check, guess.check_parameters());
    let (tasks, versions) = guess.unwritten_rows();
    if !tasks.is_empty() {
        let check = client.prepare_cached(CHECK_VERSIONS).await?;
        batch.add_statement(check, vec![Box::new(tasks), Box::new(versions)]);
    }
    let Guess { decision, versions, .. } = guess;
    let decided = DecidedRequest { request, decision, versions, queue };
    Ok(Round::of_commit(commit_decision(state, client, decided, batch).await?))
}

/// The row locks that a transaction has, as far as their order matters.
#[derive(Debug, Default)]
struct TakenLocks {
    last_task: Option<TaskKey>,
    /// Rows that were found on the way. They may have any number.
    has_found: bool,
    has_limits: bool,
}

impl TakenLocks {
    fn note_wants(&mut self, wants: &[Want]) {
        for want in wants {
            match RowLock::of_want(want) {
                RowLock::None => {}
                RowLock::Task(task) => self.last_task = self.last_task.max(Some(task)),
                RowLock::Unnumbered | RowLock::Skipping => self.has_found = true,
                RowLock::Limit => self.has_limits = true,
            }
        }
    }

    /// Whether these wants can be loaded now: every lock that they take comes behind those that were
    /// taken, or is not waited for.
    fn allow_wants(&self, wants: &[Want]) -> bool {
        let is_free = !self.has_found && !self.has_limits;
        wants.iter().all(|want| match RowLock::of_want(want) {
            RowLock::None | RowLock::Skipping => true,
            RowLock::Task(task) => is_free && self.last_task.is_none_or(|last| last < task),
            RowLock::Unnumbered => is_free && self.last_task.is_none(),
            // Limits are locked by number, which a want does not tell.
            RowLock::Limit => !self.has_limits,
        })
    }
}

/// The row lock that a want takes.
enum RowLock {
    None,
    Task(TaskKey),
    /// Tasks of any number: all of a run, or of a worker.
    Unnumbered,
    /// Rows that are skipped where another transaction has them.
    Skipping,
    Limit,
}

impl RowLock {
    fn of_want(want: &Want) -> Self {
        match want {
            Want::Task(task) => RowLock::Task(*task),
            Want::WholeRun(_) | Want::OwnedBy { .. } => RowLock::Unnumbered,
            Want::Ready { .. } | Want::DueTasks { .. } | Want::BlockedOn { .. } => {
                RowLock::Skipping
            }
            Want::LimitUsage(_) => RowLock::Limit,
            _ => RowLock::None,
        }
    }
}
