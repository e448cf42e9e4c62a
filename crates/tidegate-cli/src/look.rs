//! Looking at runs and steering them: from beside the process that works on them, or after it.
//!
//! - `args`: what can be said; `target`: which run or task is meant; `whole`: a run with the tasks as
//!   their file has them; `text`: columns and paragraphs.
//! - `list`, `show`, `logs`, `why`, `limits` look; `steer` cancels, signals, pauses and waits; `keep` is
//!   for the store as a whole.
//!
//! What is written as JSON has `"version": 1` at its top; fields may be added under the same version.
//! Times are RFC 3339 in UTC, durations whole milliseconds. Deliberately absent: a store that is made
//! by looking at it.

pub(crate) mod args;
mod keep;
mod limits;
mod list;
mod logs;
mod show;
mod steer;
pub(crate) mod target;
mod text;
mod whole;
mod why;

pub(crate) use keep::{check, store};
pub(crate) use limits::limits;
pub(crate) use list::list;
pub(crate) use logs::logs;
pub(crate) use show::show;
pub(crate) use steer::{cancel, pause, signal, unpause, wait};
pub(crate) use target::{called, run};
pub(crate) use why::why;

use crate::Failure;
use crate::store::{self as place, Place};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use tidegate::error::StartError;
use tidegate::{Engine, EngineBuilder, Timestamp};

/// The version of what is written as JSON.
const VERSION: u32 = 1;

/// A store that is there, with who looks at it.
pub(crate) struct Look {
    pub(crate) engine: Engine,
    now: Timestamp,
}

/// Looks at the store that is named, or at the nearest. That changes nothing.
///
/// # Errors
/// There is no store, it cannot be used, or whatever went wrong with the work.
fn at<T>(
    named: &args::Store,
    work: impl AsyncFnOnce(&Look) -> Result<T, Failure>,
) -> Result<T, Failure> {
    at_place(&place::nearest(named.store.as_deref())?, work)
}

/// The same for a store at this place.
fn at_place<T>(
    place: &Place,
    work: impl AsyncFnOnce(&Look) -> Result<T, Failure>,
) -> Result<T, Failure> {
    open(place, async |builder| builder.look().await, work)
}

/// Takes part in the work on the store that is named, or on the nearest: what a dead process has left
/// is taken over meanwhile.
///
/// # Errors
/// As [`at`].
pub(crate) fn beside<T>(
    named: &args::Store,
    work: impl AsyncFnOnce(&Look) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let place = place::nearest(named.store.as_deref())?;
    open(&place, async |builder| builder.connect().await, work)
}

fn open<T>(
    place: &Place,
    open: impl AsyncFnOnce(EngineBuilder) -> Result<Engine, StartError>,
    work: impl AsyncFnOnce(&Look) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if place.is_memory() {
        let what = "a store in memory: is gone with its process; name another with --store";
        return Err(Failure::Undone(what.to_owned()));
    }
    if !place.may_be_store() {
        let what = format!(
            "there is no store at {}; begin a run first, or name another store with --store",
            place.name()
        );
        return Err(Failure::Undone(what));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Undone(error.to_string()))?;
    let done = runtime.block_on(async {
        let engine = open(Engine::builder(&place.address)).await.map_err(not_opened)?;
        let look = Look { engine, now: SystemTime::now().into() };
        let done = work(&look).await;
        look.engine.shutdown(Duration::ZERO).await;
        done
    });
    // A thread that still reads keeps nobody waiting.
    runtime.shutdown_background();
    done
}

fn not_opened(error: StartError) -> Failure {
    match error {
        StartError::Address { .. } => Failure::Wrong(error.to_string()),
        _ => Failure::Store(error.to_string()),
    }
}

/// The store could not be read or written.
fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::Store(error.to_string())
}

/// JSON as it is written: with the version, by lines.
fn document(mut value: Value) -> String {
    value["version"] = json!(VERSION);
    format!("{value:#}\n")
}

/// A time as it stands in JSON.
fn time(at: Timestamp) -> Value {
    json!(at.to_string())
}

/// A duration as it stands in JSON, in milliseconds.
fn millis(time: Duration) -> Value {
    json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
