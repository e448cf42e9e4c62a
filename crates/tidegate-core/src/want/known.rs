//! The answers that a decision begins with.

use super::{Loaded, Loader, Want};
use std::collections::HashMap;

/// What was loaded for a request before it is decided.
///
/// Answers are those of one instant. A decision with everything known gives the same as one that loads
/// as it goes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known(HashMap<Want, Loaded>);

impl Known {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an answer.
    pub fn add_answer(&mut self, want: Want, loaded: Loaded) {
        self.0.insert(want, loaded);
    }

    /// The answer to a want, if it is known.
    pub fn find_answer(&self, want: &Want) -> Option<&Loaded> {
        self.0.get(want)
    }

    /// Whether the answer to a want is known.
    pub fn has_answer(&self, want: &Want) -> bool {
        self.0.contains_key(want)
    }

    /// How many answers are known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A loader that has only what is known, and stops with the want that it misses.
impl Loader for Known {
    type Stop = Want;

    fn load(&mut self, want: &Want) -> Result<Loaded, Want> {
        self.find_answer(want).cloned().ok_or_else(|| want.clone())
    }
}
