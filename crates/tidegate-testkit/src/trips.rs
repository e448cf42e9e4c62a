//! Decisions whose rows are loaded in trips, as by a store over a network.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tidegate_core::decision::{Decision, decide};
use tidegate_core::store::Request;
use tidegate_core::testing::{AnyLoader, Decider};
use tidegate_core::want::{Foresight, Known, Loaded, Loader, Want};

/// The costs of a decision whose rows are loaded in trips.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TripCount {
    /// Trips: the first, and one more for each miss.
    pub trips: u32,
    /// Wants that were loaded in them.
    pub loaded: u32,
    /// Wants that were loaded and that the decision did not ask for.
    pub unused: u32,
    /// The wants that were missed.
    pub missed: Vec<Want>,
}

impl TripCount {
    fn add_costs(&mut self, other: TripCount) {
        self.trips += other.trips;
        self.loaded += other.loaded;
        self.unused += other.unused;
        self.missed.extend(other.missed);
    }
}

/// Decides a request as a store over a network does: the wants that are foreseen are loaded in one trip,
/// with those that their answers join; on a miss the missed want is loaded in the next trip, with all that
/// are foreseen by then. Numbers are taken from a block that the store has, without a trip.
pub fn decide_in_trips(request: &Request, loader: &mut AnyLoader<'_>) -> (Decision, TripCount) {
    let mut foresight = Foresight::new(request);
    let mut known = Known::new();
    let mut trip = foresight.first_wants();
    let mut count = TripCount::default();
    loop {
        count.trips += 1;
        let mut at = 0;
        while let Some(want) = trip.get(at).cloned() {
            at += 1;
            if is_number(&want) {
                continue;
            }
            assert!(!known.has_answer(&want), "a known want is foreseen: {want:?}");
            let Ok(loaded) = loader.load(&want);
            trip.extend(foresight.joined_wants(&want, &loaded));
            known.add_answer(want, loaded);
            count.loaded += 1;
        }
        let mut missing = TripLoader { known: &mut known, loader, asked: HashSet::new() };
        match decide(request, Known::new(), &mut missing) {
            Ok(decision) => {
                let asked = missing.asked.iter().filter(|want| !is_number(want));
                count.unused = count.loaded - asked.count() as u32;
                return (decision, count);
            }
            Err(missed) => {
                count.missed.push(missed.clone());
                trip = foresight.next_wants(missed);
            }
        }
    }
}

fn is_number(want: &Want) -> bool {
    matches!(want, Want::TaskNumbers { .. } | Want::SignalNumber { .. })
}

/// A loader that has the wants of the trips, and numbers.
struct TripLoader<'l, 'a> {
    known: &'l mut Known,
    loader: &'l mut AnyLoader<'a>,
    asked: HashSet<Want>,
}

impl Loader for TripLoader<'_, '_> {
    type Stop = Want;

    fn load(&mut self, want: &Want) -> Result<Loaded, Want> {
        if is_number(want) && !self.known.has_answer(want) {
            let Ok(loaded) = self.loader.load(want);
            self.known.add_answer(want.clone(), loaded);
        }
        self.asked.insert(want.clone());
        self.known.load(want)
    }
}

/// Decides every request in trips, and counts them.
#[derive(Debug, Default)]
pub struct TripDecider {
    count: Mutex<TripCount>,
}

impl TripDecider {
    /// The costs since the last call.
    pub fn take_count(&self) -> TripCount {
        std::mem::take(&mut *self.count.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Decider for TripDecider {
    fn decide_request(&self, request: &Request, loader: &mut AnyLoader<'_>) -> Decision {
        let (decision, count) = decide_in_trips(request, loader);
        self.count.lock().unwrap_or_else(PoisonError::into_inner).add_costs(count);
        decision
    }

    fn check_applied(&self, _: &mut AnyLoader<'_>) {}
}
