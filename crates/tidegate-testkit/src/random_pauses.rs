//! Pauses of a random length at every pause point.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tidegate_core::testing::PausePoints;
use tidegate_core::want::Want;

/// The variable with the longest pause, in microseconds.
const LONGEST_PAUSE: &str = "TIDEGATE_TEST_PAUSES";

/// Pause points at which requests pause for a random time, so that connections to the same store meet in
/// orders that no test has thought of. Other points may follow each pause.
pub struct RandomPauses {
    longest: Duration,
    then: Option<Arc<dyn PausePoints>>,
    random: RandomState,
    count: AtomicU64,
}

impl RandomPauses {
    /// Random pauses before these points, if the environment asks for pauses; otherwise the points.
    pub fn from_environment(then: Option<Arc<dyn PausePoints>>) -> Option<Arc<dyn PausePoints>> {
        let longest = std::env::var(LONGEST_PAUSE).ok().filter(|longest| !longest.is_empty());
        let Some(longest) = longest else { return then };
        let micros = longest.parse().unwrap_or_else(|_| {
            panic!("{LONGEST_PAUSE} is \"{longest}\": expected a number of microseconds")
        });
        let (random, count) = (RandomState::new(), AtomicU64::new(0));
        Some(Arc::new(RandomPauses { longest: Duration::from_micros(micros), then, random, count }))
    }

    fn pause_randomly(&self) {
        let drawn = self.random.hash_one(self.count.fetch_add(1, Ordering::Relaxed));
        // Every other point has none: a pause everywhere would keep all connections in step.
        if drawn & 1 == 0 {
            thread::sleep(self.longest.mul_f64((drawn >> 11) as f64 / (1_u64 << 53) as f64));
        }
    }
}

impl fmt::Debug for RandomPauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomPauses").field("longest", &self.longest).finish_non_exhaustive()
    }
}

impl PausePoints for RandomPauses {
    fn before_load(&self, want: &Want) {
        self.pause_randomly();
        self.then.iter().for_each(|then| then.before_load(want));
    }

    fn before_apply(&self) {
        self.pause_randomly();
        self.then.iter().for_each(|then| then.before_apply());
    }

    fn before_commit(&self) {
        self.pause_randomly();
        self.then.iter().for_each(|then| then.before_commit());
    }

    fn on_blocked(&self) {
        self.then.iter().for_each(|then| then.on_blocked());
    }
}
