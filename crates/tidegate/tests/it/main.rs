//! What tidegate promises, tried from outside through its public API.

#![allow(clippy::unwrap_used)]

mod batch;
mod batch_panics;
mod cancel_safety;
mod engine;
#[cfg(feature = "testing")]
mod errors;
mod extreme_values;
mod extremes;
mod pool;
mod support;
#[cfg(feature = "testing")]
mod testing;
mod wait;
#[cfg(all(feature = "watch", target_os = "linux"))]
mod watch;
