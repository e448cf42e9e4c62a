//! The answers that a decision begins with.

use super::{Loaded, Loader, Want};
use std::collections::HashMap;

/// What was loaded for a request before it is decided.
///
/// Answers are those of one instant. A decision with everything known gives the same as one that loads
/// as it goes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    answers: HashMap<Want, Loaded>,
    pub(crate) takes_orders: bool,
}

impl Known {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same for a store that carries out [`ClaimOrder`](crate::decision::ClaimOrder)s, or does not.
    pub fn taking_orders(self, takes_orders: bool) -> Self {
        Known { takes_orders, ..self }
    }

    /// Adds an answer.
    pub fn add_answer(&mut self, want: Want, loaded: Loaded) {
        self.answers.insert(want, loaded);
    }

    /// The answer to a want, if it is known.
    pub fn find_answer(&self, want: &Want) -> Option<&Loaded> {
        self.answers.get(want)
    }

    /// Whether the answer to a want is known.
    pub fn has_answer(&self, want: &Want) -> bool {
        self.answers.contains_key(want)
    }

    /// How many answers are known.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// A loader that has only what is known, and stops with the want that it misses.
impl Loader for Known {
    type Stop = Want;

    fn load(&mut self, want: &Want) -> Result<Loaded, Want> {
        self.find_answer(want).cloned().ok_or_else(|| want.clone())
    }
}
