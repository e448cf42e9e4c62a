//! One call per store: requests of two connections that race.
//!
//! A race is two requests on one store, each through a connection of its own. One party is stopped at a
//! pause point inside the store (before a load, the apply or the commit); meanwhile the other goes on until
//! it is answered or the store makes it wait for the first. Every race is run with each party as the first
//! and stopped at each of its points, on a new store every time; and once point by point in turns. That a
//! party has to wait is learnt from the store ([`PausePoints::on_blocked`]), never from time.
//!
//! The store is prepared through the connection of the second party, so that all that it remembers of its
//! own writes is out of date once the first has committed.

pub mod cases;
mod party;

use crate::{Harness, TestPart, World};
use party::{Party, PartyControl, PartyStage, PointKind};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_core::store::{Reply, Request, Store};
use tidegate_core::testing::PausePoints;

/// A store under test to which several connections can be made.
pub trait ConnectHarness: Harness {
    /// A further connection to the store, whose requests stop at these points. However long the other
    /// one is stopped, a request waits for it.
    fn connect(&self, points: Arc<dyn PausePoints>) -> Arc<dyn Store>;
}

/// How the requests of two parties alternate.
#[derive(Debug, Clone, Copy)]
enum Interleaving {
    /// The first stops at the point with this number, from 0, until the other is answered or blocked.
    PausedAfter(usize),
    /// Both pass one point in turns, until one is answered or blocked.
    InTurns,
}

/// Two connections to one store, and a world around it.
pub struct Race {
    /// Everything before and after the race.
    pub world: World,
    parties: [Party; 2],
    commits: Arc<Mutex<Vec<usize>>>,
    /// The party that begins.
    first: usize,
    interleaving: Interleaving,
    /// Whether the first was stopped; `None` before the race.
    was_paused: Option<bool>,
}

/// The outcome of two requests that raced.
pub struct Meeting {
    /// The reply to each.
    pub replies: [Reply; 2],
    /// The one whose transaction was committed first: 0 or 1.
    pub first: usize,
}

impl Meeting {
    /// Of two things, one for each party, that of the party which was first, and that of the other.
    pub fn in_order<T>(&self, [one, two]: [T; 2]) -> [T; 2] {
        if self.first == 0 { [one, two] } else { [two, one] }
    }
}

impl Race {
    async fn prepare_race(
        harness: Box<dyn ConnectHarness>,
        first: usize,
        interleaving: Interleaving,
    ) -> Self {
        let commits = Arc::<Mutex<Vec<usize>>>::default();
        let parties = [0, 1].map(|party| {
            let control = Arc::new(PartyControl::new(party, commits.clone()));
            Party { connection: harness.connect(control.clone()), control }
        });
        let mut world = World::new(harness);
        world.use_connection(parties[1 - first].connection.clone());
        Race { world, parties, commits, first, interleaving, was_paused: None }
    }

    /// Hands in both requests, so that they race, and looks whether the store is sound afterwards.
    ///
    /// # Panics
    /// If a request fails, or the store passes no pause points.
    pub async fn race_requests(&mut self, requests: [Request; 2]) -> Meeting {
        let (one, two) = (self.first, 1 - self.first);
        let [first, second] = [one, two].map(|party| &self.parties[party].control);
        let mut requests = requests.map(Some);
        let mut start = |party: usize| {
            let request = requests[party].take().expect("a request is handed in once");
            self.parties[party].start_request(request)
        };
        let threads = match self.interleaving {
            Interleaving::PausedAfter(passes) => {
                first.begin_race(Some(passes));
                second.begin_race(None);
                let first_thread = start(one);
                self.was_paused = Some(first.wait_for_stop() == PartyStage::Paused);
                let second_thread = start(two);
                second.wait_for_stop();
                [first_thread, second_thread]
            }
            Interleaving::InTurns => {
                first.begin_race(Some(0));
                second.begin_race(Some(0));
                self.was_paused = Some(true);
                let first_thread = start(one);
                let mut stages = [first.wait_for_stop(), PartyStage::Running];
                let second_thread = start(two);
                stages[1] = second.wait_for_stop();
                while stages == [PartyStage::Paused; 2] {
                    stages = [first, second].map(|control| {
                        control.let_pass(Some(1));
                        control.wait_for_stop()
                    });
                }
                [first_thread, second_thread]
            }
        };
        first.let_pass(None);
        second.let_pass(None);
        let replies = threads.map(|thread| match thread.join() {
            Ok(reply) => reply.expect("a request can be taken"),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        for party in &self.parties {
            // A store may decide by what it remembers, and load nothing.
            let mut kinds = party.control.end_race();
            kinds.remove(&PointKind::Load);
            let is_whole = kinds.iter().eq(&[PointKind::Apply, PointKind::Commit]);
            assert!(is_whole, "the store passes all kinds of pause points: {kinds:?}");
        }
        let [reply_of_first, reply_of_second] = replies;
        let replies = if one == 0 {
            [reply_of_first, reply_of_second]
        } else {
            [reply_of_second, reply_of_first]
        };
        let first = self.find_first_commit();
        self.world.catch_up().await;
        Meeting { replies, first }
    }

    /// The party that committed first. One that had to begin again has committed the last time.
    fn find_first_commit(&self) -> usize {
        let commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let last = |party| commits.iter().rposition(|committed| *committed == party);
        let [one, two] = [last(0), last(1)].map(|at| at.expect("both parties have committed"));
        usize::from(two < one)
    }
}

impl Drop for Race {
    /// A test that fails leaves no party behind that holds a lock.
    fn drop(&mut self) {
        self.parties.iter().for_each(|party| party.control.let_pass(None));
    }
}

/// Runs a race in both orders, with the first party stopped at each of its pause points.
///
/// # Panics
/// If the race comes out in a way that it must not, or the store contradicts itself afterwards.
pub fn check_race(
    open: fn() -> TestPart<'static, Box<dyn ConnectHarness>>,
    case: for<'r> fn(&'r mut Race) -> TestPart<'r, ()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        for first in [0, 1] {
            let interleavings = (0..).map(Interleaving::PausedAfter);
            for interleaving in std::iter::once(Interleaving::InTurns).chain(interleavings) {
                let mut race = Race::prepare_race(open().await, first, interleaving).await;
                case(&mut race).await;
                if !race.was_paused.expect("the case has raced") {
                    // The outcomes before were audited too; opening the store again is dear.
                    race.world.finish().await;
                    break;
                }
            }
        }
    });
}

/// All races that every store must decide, as a module of tests.
///
/// ```
/// use std::sync::Arc;
/// use tidegate_core::lifecycle::WorkerId;
/// use tidegate_core::memory::MemoryStore;
/// use tidegate_core::store::Store;
/// use tidegate_core::testing::PausePoints;
/// use tidegate_testkit::{ConnectHarness, Harness, Later, races};
///
/// struct Memory(Arc<MemoryStore>);
///
/// impl Harness for Memory {
///     fn store(&self) -> Arc<dyn Store> {
///         self.0.clone()
///     }
///     fn kill(&self, worker: WorkerId) {
///         self.0.kill(worker);
///     }
///     fn reopen(&mut self) -> Later<'_, ()> {
///         Box::pin(async {})
///     }
/// }
///
/// impl ConnectHarness for Memory {
///     fn connect(&self, points: Arc<dyn PausePoints>) -> Arc<dyn Store> {
///         Arc::new(self.0.connect_with(points))
///     }
/// }
///
/// races!(memory_races, async || Memory(Arc::default()));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! races {
    ($name:ident, $open:expr) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "how the store is opened may need them or not")]
            use super::*;

            $crate::races! { @cases $open;
                last_parents_that_end_at_once_release_their_child
                claims_at_once_never_exceed_a_limit
                task_starts_although_the_limit_is_released_while_it_gets_in_line
                signal_reaches_a_wait_that_begins_at_the_same_time
                end_of_a_run_reaches_a_wait_that_begins_at_the_same_time
                ends_at_once_end_their_run_exactly_once
                alarm_that_two_workers_see_has_one_effect
                worker_that_is_recovered_while_it_claims_owns_nothing
                claim_takes_nothing_once_a_pause_is_committed
                waits_that_begin_at_once_never_close_a_cycle
            }
        }
    };
    (@cases $open:expr; $($case:ident)+) => {
        fn open_store() -> $crate::TestPart<'static, Box<dyn $crate::ConnectHarness>> {
            Box::pin(async { Box::new(($open)().await) as Box<dyn $crate::ConnectHarness> })
        }

        $(
            #[test]
            fn $case() {
                $crate::check_race(open_store, |race| Box::pin($crate::race_cases::$case(race)));
            }
        )+
    };
}
