//! What a batch runs with: the caller's word, else the environment's, else the default.

use super::{Batch, OnFailure, OnProgress, OnTimeout};
use crate::deadline::FAR;
use crate::slot::SlotPool;
use std::env::VarError;
use std::fmt;
use std::time::Duration;
use tidegate_core::duration;
use tokio_util::sync::CancellationToken;

const PARALLEL_LIMIT: u32 = 4;
const TASK_TIMEOUT: Duration = Duration::from_secs(300);

/// A setting of a batch that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchError {
    /// A value that is not possible.
    Setting {
        /// The setting, or the variable of the environment.
        name: &'static str,
        /// The value that is wrong.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A limit of its own and a pool that has one.
    LimitAndPool {
        /// The batch's limit.
        parallel_limit: u32,
        /// The pool's capacity.
        capacity: u32,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchError::Setting { name, value, expected } => {
                write!(f, "{name} cannot be \"{value}\"; it must be {expected}")
            }
            BatchError::LimitAndPool { parallel_limit, capacity } => write!(
                f,
                "parallel_limit {parallel_limit} and a pool of {capacity} slots were both given; \
                 with a pool, its capacity is the limit"
            ),
        }
    }
}

impl std::error::Error for BatchError {}

/// What one run of a batch runs with.
pub(super) struct Settings {
    pub(super) pool: SlotPool,
    /// Whether others may use the pool too.
    pub(super) shared: bool,
    pub(super) parallel_limit: u32,
    pub(super) timeout: Option<Duration>,
    pub(super) on_failure: OnFailure,
    pub(super) cancel: Option<CancellationToken>,
    pub(super) on_timeout: Option<OnTimeout>,
    pub(super) on_progress: Option<OnProgress>,
}

impl Batch {
    pub(super) fn settings(&self) -> Result<Settings, BatchError> {
        let pool = match (&self.pool, self.parallel_limit) {
            (Some(pool), None) => pool.clone(),
            (Some(pool), Some(parallel_limit)) => {
                let capacity = pool.capacity();
                return Err(BatchError::LimitAndPool { parallel_limit, capacity });
            }
            (None, limit) => own_pool(limit)?,
        };
        let timeout = match self.task_timeout {
            Some(limit) => limit,
            None => Some(match variable("TIDEGATE_TASK_TIMEOUT")? {
                Some(text) => parse_timeout(text)?,
                None => TASK_TIMEOUT,
            }),
        };
        if timeout == Some(Duration::ZERO) {
            return Err(invalid_timeout("task_timeout", "0s".to_owned()));
        }
        Ok(Settings {
            parallel_limit: pool.capacity(),
            pool,
            shared: self.pool.is_some(),
            // Longer is as good as for ever, and no clock overflows.
            timeout: timeout.map(|limit| limit.min(FAR)),
            on_failure: self.on_failure,
            cancel: self.cancel.clone(),
            on_timeout: self.on_timeout.clone(),
            on_progress: self.on_progress.clone(),
        })
    }
}

fn own_pool(limit: Option<u32>) -> Result<SlotPool, BatchError> {
    let (name, limit, text) = match (limit, variable("TIDEGATE_PARALLEL_LIMIT")?) {
        (Some(limit), _) => ("parallel_limit", Some(limit), limit.to_string()),
        (None, Some(text)) => ("TIDEGATE_PARALLEL_LIMIT", text.trim().parse().ok(), text),
        (None, None) => ("parallel_limit", Some(PARALLEL_LIMIT), PARALLEL_LIMIT.to_string()),
    };
    let invalid =
        || BatchError::Setting { name, value: text, expected: "a whole number of at least 1" };
    limit.and_then(|limit| SlotPool::new(limit).ok()).ok_or_else(invalid)
}

fn parse_timeout(text: String) -> Result<Duration, BatchError> {
    match duration::parse(&text) {
        Ok(limit) if !limit.is_zero() => Ok(limit),
        _ => Err(invalid_timeout("TIDEGATE_TASK_TIMEOUT", text)),
    }
}

fn invalid_timeout(name: &'static str, value: String) -> BatchError {
    let expected = "a duration above 0, such as \"90s\", \"5m\" or a whole number of seconds";
    BatchError::Setting { name, value, expected }
}

fn variable(name: &'static str) -> Result<Option<String>, BatchError> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(raw)) => {
            let value = raw.to_string_lossy().into_owned();
            Err(BatchError::Setting { name, value, expected: "text" })
        }
    }
}
