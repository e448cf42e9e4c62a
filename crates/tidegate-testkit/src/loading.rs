//! Decisions whose rows are loaded in several ways.
//!
//! - [`decide_with_misses`]: decides through a loader that cannot answer every want, as a store does that
//!   cannot read in the middle of its transaction.
//! - [`MissingDecider`]: a memory store decides every request so, with misses by chance, or as a store over
//!   a network does ([`decide_in_trips`]).
//! - [`ComparingDecider`]: a memory store decides every request in several ways, which must give the same.

use crate::simulation::chance::Chance;
use crate::trips::decide_in_trips;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidegate_core::decision::{Decision, decide};
use tidegate_core::delta::Delta;
use tidegate_core::store::{Operation, Request};
use tidegate_core::testing::{AnyLoader, Decider, describe_answers};
use tidegate_core::want::{Known, Loaded, Loader, Want};

/// Known answers that all decisions of one request begin with, together; further wants are answered in
/// place. Each miss decides again from the start, so that the cost of a request of ten thousand runs would
/// grow with the square.
const KNOWN_MAX: usize = 4_096;

/// Wants of a request up to which its decisions are compared, so that large ones stay cheap.
const COMPARED_MAX: usize = 100;

/// Decides a request through a loader that misses: it stops the decision with a want, which is then loaded
/// and added to what is known, and the request is decided again from the start.
///
/// # Panics
/// If a decision asks for what is known, or for a number twice.
pub fn decide_with_misses(
    request: &Request,
    loader: &mut AnyLoader<'_>,
    mut is_missing: impl FnMut(&Want) -> bool,
) -> Decision {
    let mut known = Known::new();
    let mut numbers = HashSet::new();
    let mut begun_with = 0;
    loop {
        begun_with += known.len();
        let is_missing = |want: &Want| begun_with < KNOWN_MAX && is_missing(want);
        let mut missing = MissingLoader { loader, is_missing, answered: HashMap::new() };
        let decided = decide(request, known.clone(), &mut missing);
        for (want, loaded) in missing.answered {
            add_new(&mut known, &mut numbers, want, loaded);
        }
        match decided {
            Ok(decision) => return decision,
            Err(want) => {
                let Ok(loaded) = loader.load(&want);
                add_new(&mut known, &mut numbers, want, loaded);
            }
        }
    }
}

fn add_new(known: &mut Known, numbers: &mut HashSet<Want>, want: Want, loaded: Loaded) {
    assert!(known.find_answer(&want).is_none(), "a known want was loaded again: {want:?}");
    // A second load of a number would give another one.
    let number = match &want {
        Want::TaskNumbers { nth, .. } | Want::SignalNumber { nth } => Some(*nth),
        _ => None,
    };
    let is_new = number.is_none_or(|nth| numbers.insert(Want::SignalNumber { nth }));
    assert!(is_new, "two numbers of one request have the same place: {want:?}");
    known.add_answer(want, loaded);
}

/// A loader that misses some wants and answers the others in place.
struct MissingLoader<'l, 'a, M> {
    loader: &'l mut AnyLoader<'a>,
    is_missing: M,
    answered: HashMap<Want, Loaded>,
}

impl<M: FnMut(&Want) -> bool> Loader for MissingLoader<'_, '_, M> {
    type Stop = Want;

    fn load(&mut self, want: &Want) -> Result<Loaded, Want> {
        if let Some(loaded) = self.answered.get(want) {
            return Ok(loaded.clone());
        }
        if (self.is_missing)(want) {
            return Err(want.clone());
        }
        let Ok(loaded) = self.loader.load(want);
        self.answered.insert(want.clone(), loaded.clone());
        Ok(loaded)
    }
}

/// Decides every request through a loader that misses by chance, the same for the same seed.
#[derive(Debug)]
pub struct MissingDecider {
    chance: Mutex<Chance>,
    /// Of this many wants one is missing; 1: all are.
    one_in: u32,
    /// Wants are loaded in trips, as they are foreseen.
    in_trips: bool,
}

impl MissingDecider {
    /// A decider for this seed. With every fourth seed a request begins with nothing known and every
    /// want is missing, with every other fourth one it begins with the wants that are foreseen.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(!seed);
        let one_in = if seed.is_multiple_of(4) { 1 } else { chance.small(2, 9) };
        MissingDecider { chance: Mutex::new(chance), one_in, in_trips: seed % 4 == 1 }
    }
}

impl Decider for MissingDecider {
    fn decide_request(&self, request: &Request, loader: &mut AnyLoader<'_>) -> Decision {
        if self.in_trips {
            return decide_in_trips(request, loader).0;
        }
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        decide_with_misses(request, loader, |_| chance.one_in(self.one_in))
    }

    fn check_applied(&self, _: &mut AnyLoader<'_>) {}
}

/// A property of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionProperty {
    /// A decision that loads as it goes, one that begins with nothing known, one that misses by chance, one
    /// that loads foreseen wants in trips and one with everything known are equal.
    AnyLoading,
    /// Two decisions on the same known rows are equal.
    Repetition,
    /// Loading after the delta was applied gives the loaded rows overlaid with the delta.
    AppliedDelta,
    /// Rows of which nothing can change any more do not change, unless they are repaired.
    FinalRows,
}

impl DecisionProperty {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AnyLoading, Self::Repetition, Self::AppliedDelta, Self::FinalRows];
}

/// Decides every request in several ways and compares the decisions.
#[derive(Debug)]
pub struct ComparingDecider {
    properties: Vec<DecisionProperty>,
    chance: Mutex<Chance>,
    /// Wants of the last request and their answers, overlaid with its delta.
    overlaid: Mutex<OverlaidAnswers>,
}

type OverlaidAnswers = (Vec<Want>, Vec<Option<String>>);

impl ComparingDecider {
    /// A decider that checks these properties. Misses are the same for the same seed.
    pub fn new(seed: u64, properties: &[DecisionProperty]) -> Self {
        ComparingDecider {
            properties: properties.to_vec(),
            chance: Mutex::new(Chance::new(!seed)),
            overlaid: Mutex::default(),
        }
    }

    fn has_property(&self, property: DecisionProperty) -> bool {
        self.properties.contains(&property)
    }

    fn lock_overlaid(&self) -> MutexGuard<'_, OverlaidAnswers> {
        self.overlaid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compare_loadings(
        &self,
        request: &Request,
        recorder: &mut RecordingLoader<'_, '_>,
        expected: &Decision,
    ) {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let one_in = chance.small(2, 9);
        let with_nothing = decide_with_misses(request, recorder, |_| true);
        assert_same(&with_nothing, expected, "begins with nothing known", request);
        let with_some = decide_with_misses(request, recorder, |_| chance.one_in(one_in));
        assert_same(&with_some, expected, "misses by chance", request);
        let (in_trips, _) = decide_in_trips(request, recorder);
        assert_same(&in_trips, expected, "loads foreseen wants in trips", request);
        let with_all = decide_known(request, recorder.to_known());
        assert_same(&with_all, expected, "has everything known", request);
    }
}

impl Decider for ComparingDecider {
    fn decide_request(&self, request: &Request, loader: &mut AnyLoader<'_>) -> Decision {
        let mut recorder = RecordingLoader { loader, wants: Vec::new(), answers: HashMap::new() };
        let Ok(decision) = decide(request, Known::new(), &mut recorder);
        *self.lock_overlaid() = Default::default();
        if self.has_property(DecisionProperty::FinalRows) {
            check_final_rows(request, &decision.delta, recorder.loader);
        }
        if recorder.wants.len() > COMPARED_MAX {
            return decision;
        }
        // Wants that were only foreseen are not among them.
        let asked = recorder.wants.clone();
        if self.has_property(DecisionProperty::AnyLoading) {
            self.compare_loadings(request, &mut recorder, &decision);
        }
        if self.has_property(DecisionProperty::Repetition) {
            let [once, again] = [(); 2].map(|()| decide_known(request, recorder.to_known()));
            assert_same(&again, &once, "decides again", request);
        }
        if self.has_property(DecisionProperty::AppliedDelta) {
            let answers = describe_answers(&asked, &decision.delta, recorder.loader);
            *self.lock_overlaid() = (asked, answers);
        }
        decision
    }

    fn check_applied(&self, loader: &mut AnyLoader<'_>) {
        let overlaid = self.lock_overlaid();
        let (wants, expected) = &*overlaid;
        let applied = describe_answers(wants, &Delta::default(), loader);
        for ((want, expected), applied) in wants.iter().zip(expected).zip(applied) {
            if expected.is_some() {
                assert_eq!(&applied, expected, "the overlay differs from the store: {want:?}");
            }
        }
    }
}

/// Checks that a delta leaves final rows alone.
fn check_final_rows(request: &Request, delta: &Delta, loader: &mut AnyLoader<'_>) {
    if request.operations.iter().any(|operation| matches!(operation, Operation::Repair(_))) {
        return;
    }
    let written = delta.tasks.iter().filter(|write| !write.is_new).map(|write| write.row.key);
    let beside = delta.waits.keys().chain(delta.holds.keys()).copied();
    let payloads = delta.payloads.iter().map(|(task, ..)| *task);
    for task in written.chain(beside).chain(payloads) {
        let Ok(loaded) = loader.load(&Want::Task(task));
        let is_final = matches!(loaded, Loaded::Task(Some(row)) if row.is_final());
        assert!(!is_final, "a final row changes: {task:?}\nrequest: {request:#?}");
    }
}

/// Decides with everything known.
fn decide_known(request: &Request, mut known: Known) -> Decision {
    match decide(request, Known::new(), &mut known) {
        Ok(decision) => decision,
        Err(want) => panic!("a decision on the same rows has another want: {want:?}"),
    }
}

fn assert_same(decision: &Decision, expected: &Decision, difference: &str, request: &Request) {
    assert!(
        decision == expected,
        "a decision that {difference} differs\nrequest: {request:#?}\n\
         decision: {decision:#?}\nexpected: {expected:#?}"
    );
}

/// A loader that keeps each answer and gives the same for the same want.
struct RecordingLoader<'l, 'a> {
    loader: &'l mut AnyLoader<'a>,
    /// In the order in which they were first loaded.
    wants: Vec<Want>,
    answers: HashMap<Want, Loaded>,
}

impl RecordingLoader<'_, '_> {
    fn to_known(&self) -> Known {
        let mut known = Known::new();
        for (want, loaded) in &self.answers {
            known.add_answer(want.clone(), loaded.clone());
        }
        known
    }
}

impl Loader for RecordingLoader<'_, '_> {
    type Stop = Infallible;

    fn load(&mut self, want: &Want) -> Result<Loaded, Infallible> {
        if let Some(loaded) = self.answers.get(want) {
            return Ok(loaded.clone());
        }
        let loaded = self.loader.load(want)?;
        self.wants.push(want.clone());
        self.answers.insert(want.clone(), loaded.clone());
        Ok(loaded)
    }
}
