//! What can go wrong, as narrow as each call.
//!
//! Messages are fragments that read after "cannot …: "; each names the value that is wrong and what
//! would be right.

pub use crate::batch::BatchError;
pub use crate::context::ContextError;
pub use crate::engine::{
    ConfigError, InvalidLimit, LimitError, Missed, OutputError, SignalError, StartError,
    SubmitError, WaitRunError,
};
pub use crate::wait::InvalidWait;
pub use crate::workflow::WorkflowError;
pub use tidegate_core::InvalidId;
pub use tidegate_core::duration::InvalidDuration;
pub use tidegate_core::graph::GraphError;
pub use tidegate_core::store::{Refusal, StoreError};

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The pool of slots is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool of slots is closed")
    }
}

impl std::error::Error for Closed {}

/// A pool cannot have 0 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidCapacity;

impl fmt::Display for InvalidCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a capacity of 0 slots would never run anything; it must be at least 1")
    }
}

impl std::error::Error for InvalidCapacity {}

/// A weight that no pool, or not this one, could ever grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidWeight {
    /// What was asked for.
    pub weight: u32,
    /// What the pool has in all.
    pub capacity: u32,
}

impl fmt::Display for InvalidWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidWeight { weight, capacity } = self;
        write!(f, "a weight of {weight} does not fit a capacity of {capacity}; ")?;
        write!(f, "it must be between 1 and {capacity}")
    }
}

impl std::error::Error for InvalidWeight {}

/// Why a slot was not acquired.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The pool is closed.
    Closed,
    /// The weight is 0 or above the capacity.
    Weight(InvalidWeight),
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Closed => Closed.fmt(f),
            AcquireError::Weight(weight) => weight.fmt(f),
        }
    }
}

impl std::error::Error for AcquireError {}

impl From<InvalidWeight> for AcquireError {
    fn from(weight: InvalidWeight) -> Self {
        AcquireError::Weight(weight)
    }
}

/// Why a slot was not acquired at once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryAcquireError {
    /// The pool is closed.
    Closed,
    /// The weight is 0 or above the capacity.
    Weight(InvalidWeight),
    /// Not so many slots are free, or they are being kept for somebody.
    NoSlot {
        /// What was asked for.
        weight: u32,
        /// What is free.
        available: u32,
    },
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryAcquireError::Closed => Closed.fmt(f),
            TryAcquireError::Weight(weight) => weight.fmt(f),
            TryAcquireError::NoSlot { weight, available } if weight <= available => {
                write!(f, "the {available} free slots are being kept for a heavier waiter")
            }
            TryAcquireError::NoSlot { weight, available } => {
                write!(f, "{weight} slots were asked for and {available} are free")
            }
        }
    }
}

impl std::error::Error for TryAcquireError {}

impl From<InvalidWeight> for TryAcquireError {
    fn from(weight: InvalidWeight) -> Self {
        TryAcquireError::Weight(weight)
    }
}

/// A panic that was contained, with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    message: String,
    refused: bool,
}

impl Panic {
    pub(crate) fn from_payload(payload: Box<dyn Any + Send>) -> Self {
        let payload = match payload.downcast::<ContextError>() {
            Ok(refused) => return Panic { message: refused.to_string(), refused: true },
            Err(payload) => payload,
        };
        let message = match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => match payload.downcast_ref::<&str>() {
                Some(text) => (*text).to_owned(),
                None => {
                    // A value of another type may panic again when it is dropped.
                    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                        std::mem::forget(again);
                    }
                    "a value that is not text".to_owned()
                }
            },
        };
        Panic { message, refused: false }
    }

    /// Whether it is how the context said no, where it could not return an error.
    pub(crate) fn is_refusal(&self) -> bool {
        self.refused
    }

    /// What the panic said.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message)
    }
}

impl std::error::Error for Panic {}

/// How work on a slot ended when not with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work returned this error.
    Failed(E),
    /// The work panicked.
    Panicked(Panic),
    /// The work was cancelled before it ended.
    Cancelled,
    /// The slot could not be acquired, or not be reclaimed after a wait.
    Slot(AcquireError),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Failed(error) => error.fmt(f),
            RunError::Panicked(panic) => panic.fmt(f),
            RunError::Cancelled => f.write_str("cancelled"),
            RunError::Slot(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RunError<E> {}

impl<E> From<AcquireError> for RunError<E> {
    fn from(error: AcquireError) -> Self {
        RunError::Slot(error)
    }
}

impl<E> From<Closed> for RunError<E> {
    fn from(_: Closed) -> Self {
        RunError::Slot(AcquireError::Closed)
    }
}

/// Something took longer than it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut {
    /// What it was given.
    pub limit: Duration,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timed out after {:?}", self.limit)
    }
}

impl std::error::Error for TimedOut {}
