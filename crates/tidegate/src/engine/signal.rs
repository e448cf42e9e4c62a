//! What is asked of a store besides runs: signals and limits.

use super::{Engine, LimitState};
use crate::context::{PAYLOAD_MAX, encode};
use serde::Serialize;
use std::fmt;
use tidegate_core::RunId;
use tidegate_core::limit::{InvalidLimit, Limit};
use tidegate_core::store::{Operation, OperationOutcome, StoreError};
use tidegate_core::wait::NewSignal;

/// Why a signal was not sent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SignalError {
    /// There is no such run.
    Unknown(RunId),
    /// The run is over: nobody would ever receive it.
    Over(RunId),
    /// What it is to bring cannot be written as JSON, or is too large.
    Payload(String),
    /// The store cannot be used.
    Store(StoreError),
}

impl fmt::Display for SignalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignalError::Unknown(id) => write!(f, "there is no run {id} in this store"),
            SignalError::Over(id) => {
                write!(f, "run {id} is over; nobody would receive the signal")
            }
            SignalError::Payload(why) => {
                write!(f, "{why} (a signal brings at most {PAYLOAD_MAX} bytes of JSON)")
            }
            SignalError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SignalError {}

/// Why a limit was not changed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LimitError {
    /// There is no limit of this name.
    Unknown(String),
    /// It makes no sense.
    Invalid(InvalidLimit),
    /// The store cannot be used.
    Store(StoreError),
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Unknown(name) => write!(
                f,
                "there is no limit \"{name}\" in this store; it is declared when an engine starts \
                 (Engine::builder(..).limit(..))"
            ),
            LimitError::Invalid(error) => error.fmt(f),
            LimitError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LimitError {}

impl Engine {
    /// Sends a signal to a run. See [`Run::signal`](crate::Run::signal).
    ///
    /// # Errors
    /// The run is over or unknown; the payload is too large; the store cannot be written.
    pub async fn signal(
        &self,
        run: RunId,
        name: impl AsRef<str>,
        payload: impl Serialize,
    ) -> Result<(), SignalError> {
        let body = encode("what the signal brings", &payload);
        let body = body.map_err(|error| SignalError::Payload(error.to_string()))?;
        let (id, name) = (fastrand::u128(..), name.as_ref().into());
        let operation = Operation::Signal(NewSignal { id, run, name, body });
        match self.shared.ask(operation).await.map_err(SignalError::Store)? {
            OperationOutcome::Yes => Ok(()),
            OperationOutcome::Already | OperationOutcome::Differs => Err(SignalError::Over(run)),
            OperationOutcome::Unknown => Err(SignalError::Unknown(run)),
        }
    }

    /// The limits of the store, by name, each once for every key that is in use or waited for.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn limits(&self) -> Result<Vec<LimitState>, StoreError> {
        self.shared.store.limits().await
    }

    /// Changes a limit, for all workers of the store, from now on. What is held stays held: after it
    /// was made smaller nothing begins under it until there is room. False if it was so already.
    ///
    /// # Errors
    /// There is no limit of this name; it makes no sense; the store cannot be written.
    pub async fn set_limit(&self, limit: Limit) -> Result<bool, LimitError> {
        limit.check().map_err(LimitError::Invalid)?;
        let name = limit.name().to_owned();
        match self.shared.ask(Operation::Resize(limit)).await.map_err(LimitError::Store)? {
            OperationOutcome::Yes => Ok(true),
            OperationOutcome::Already | OperationOutcome::Differs => Ok(false),
            OperationOutcome::Unknown => Err(LimitError::Unknown(name)),
        }
    }
}
