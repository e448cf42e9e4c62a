//! Properties of decisions, over the requests of simulated worlds and of the conformance suite.

use proptest::prelude::*;
use std::sync::Arc;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::Store;
use tidegate_testkit::simulation::{self, Loading, Options, Summary};
use tidegate_testkit::{ComparingDecider, DecisionProperty, Harness, Later, conformance};

fn check_world(seed: u64, steps: u32, property: DecisionProperty) -> Result<(), TestCaseError> {
    let loading = Loading::Compared(property);
    let ran = simulation::run(seed, Options { steps, loading, ..Options::default() });
    ran.map(drop).map_err(|failure| TestCaseError::fail(failure.to_string()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lazily_and_fully_loaded_decisions_are_equal(seed: u64, steps in 1..500u32) {
        check_world(seed, steps, DecisionProperty::AnyLoading)?;
    }

    #[test]
    fn decisions_on_the_same_rows_are_equal(seed: u64, steps in 1..500u32) {
        check_world(seed, steps, DecisionProperty::Repetition)?;
    }

    #[test]
    fn rows_that_are_final_do_not_change(seed: u64, steps in 1..500u32) {
        check_world(seed, steps, DecisionProperty::FinalRows)?;
    }

    #[test]
    fn applied_delta_gives_the_rows_that_the_overlay_showed(seed: u64, steps in 1..500u32) {
        check_world(seed, steps, DecisionProperty::AppliedDelta)?;
    }
}

fn assert_same_world(expected: &Summary, summary: &Summary, seed: u64) {
    let differs = expected.trace.iter().zip(&summary.trace).position(|(one, other)| one != other);
    if let Some(at) = differs {
        let from = at.saturating_sub(8);
        let [one, other] = [expected, summary].map(|summary| summary.trace[from..=at].join("\n"));
        panic!("seed {seed} has another trace\nexpected:\n{one}\nfound:\n{other}");
    }
    assert_eq!(expected, summary, "seed {seed}");
}

#[test]
fn neither_misses_nor_orders_change_a_world() {
    let loadings = [Loading::InPlace, Loading::Missing, Loading::Ordered];
    for seed in 0..24 {
        let [in_place, missing, ordered] = loadings.map(|loading| {
            let options = Options { loading, keeps_trace: true, ..Options::default() };
            simulation::run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))
        });
        assert_same_world(&in_place, &missing, seed);
        assert_same_world(&in_place, &ordered, seed);
    }
}

struct ComparedMemory(Arc<MemoryStore>);

impl Harness for ComparedMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn kill(&self, worker: WorkerId) {
        self.0.kill(worker);
    }

    fn reopen(&mut self) -> Later<'_, ()> {
        Box::pin(async {})
    }
}

// Repairs, retries of runs and depths that the simulation does not draw.
conformance!(compared_memory, async || {
    let decider = ComparingDecider::new(1, &DecisionProperty::ALL);
    ComparedMemory(Arc::new(MemoryStore::with_decider(Arc::new(decider))))
});
