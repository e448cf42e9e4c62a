//! One party of a race: a connection whose request is stopped and let go by the test.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidegate_core::store::{Reply, Request, Store, StoreError};
use tidegate_core::testing::PausePoints;
use tidegate_core::want::Want;

/// A party that is neither stopped, blocked nor answered for this long never will be: the test fails
/// instead of hanging. Nothing else depends on time.
const WATCHDOG: Duration = Duration::from_secs(120);

/// A kind of pause point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PointKind {
    Load,
    Apply,
    Commit,
}

/// Where the request of a party stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PartyStage {
    #[default]
    Running,
    /// At a pause point.
    Paused,
    /// The store makes it wait for the other party.
    Blocked,
    Answered,
}

#[derive(Debug, Default)]
struct PartyState {
    /// Whether the race is on: requests before and after it pass every point.
    is_racing: bool,
    /// Pause points that it may pass; `None`: all.
    passes: Option<usize>,
    stage: PartyStage,
    /// The kinds of points that the store has come to.
    kinds: BTreeSet<PointKind>,
}

/// The pause points of one party, as the store sees them and as the test does.
#[derive(Debug)]
pub(super) struct PartyControl {
    party: usize,
    state: Mutex<PartyState>,
    changed: Condvar,
    /// The parties that have committed, in order; both share it.
    commits: Arc<Mutex<Vec<usize>>>,
}

impl PartyControl {
    pub(super) fn new(party: usize, commits: Arc<Mutex<Vec<usize>>>) -> Self {
        PartyControl { party, state: Mutex::default(), changed: Condvar::new(), commits }
    }

    /// The race is on: the party passes this number of pause points before it stops; `None`: it does not stop.
    pub(super) fn begin_race(&self, passes: Option<usize>) {
        let mut state = self.lock_state();
        *state = PartyState { is_racing: true, passes, ..PartyState::default() };
    }

    /// The race is over; the kinds of points that the store came to.
    pub(super) fn end_race(&self) -> BTreeSet<PointKind> {
        std::mem::take(&mut *self.lock_state()).kinds
    }

    /// Lets a party pass one more point, or all.
    pub(super) fn let_pass(&self, passes: Option<usize>) {
        let mut state = self.lock_state();
        state.passes = passes;
        if state.stage == PartyStage::Paused {
            state.stage = PartyStage::Running;
        }
        self.changed.notify_all();
    }

    /// Waits until the party is stopped, blocked or answered, and says which.
    pub(super) fn wait_for_stop(&self) -> PartyStage {
        let is_running = |state: &mut PartyState| state.stage == PartyStage::Running;
        let waited = self.changed.wait_timeout_while(self.lock_state(), WATCHDOG, is_running);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "the store does not say what party {} waits for", self.party);
        state.stage
    }

    fn enter_stage(&self, stage: PartyStage) {
        self.lock_state().stage = stage;
        self.changed.notify_all();
    }

    fn pause_at(&self, kind: PointKind) {
        let mut state = self.lock_state();
        if !state.is_racing {
            return;
        }
        state.kinds.insert(kind);
        if state.passes == Some(0) {
            state.stage = PartyStage::Paused;
            self.changed.notify_all();
            let is_held = |state: &mut PartyState| state.passes == Some(0);
            let let_go = self.changed.wait_while(state, is_held);
            state = let_go.unwrap_or_else(PoisonError::into_inner);
        }
        state.passes = state.passes.map(|passes| passes - 1);
        state.stage = PartyStage::Running;
        if kind == PointKind::Commit {
            self.commits.lock().unwrap_or_else(PoisonError::into_inner).push(self.party);
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, PartyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PausePoints for PartyControl {
    fn before_load(&self, _: &Want) {
        self.pause_at(PointKind::Load);
    }

    fn before_apply(&self) {
        self.pause_at(PointKind::Apply);
    }

    fn before_commit(&self) {
        self.pause_at(PointKind::Commit);
    }

    fn on_blocked(&self) {
        let mut state = self.lock_state();
        if state.is_racing && state.stage == PartyStage::Running {
            state.stage = PartyStage::Blocked;
            self.changed.notify_all();
        }
    }
}

/// A connection to the store, and the control of its requests.
pub(super) struct Party {
    pub(super) connection: Arc<dyn Store>,
    pub(super) control: Arc<PartyControl>,
}

impl Party {
    /// Hands a request in, in a thread of its own.
    pub(super) fn start_request(&self, request: Request) -> JoinHandle<Result<Reply, StoreError>> {
        let (connection, control) = (self.connection.clone(), self.control.clone());
        thread::spawn(move || {
            let _answered = AnsweredOnDrop(control);
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.expect("a runtime can be built");
            runtime.block_on(connection.request(Arc::new(request)))
        })
    }
}

/// A party whose thread is over is answered, also when it has panicked.
struct AnsweredOnDrop(Arc<PartyControl>);

impl Drop for AnsweredOnDrop {
    fn drop(&mut self) {
        self.0.enter_stage(PartyStage::Answered);
    }
}
