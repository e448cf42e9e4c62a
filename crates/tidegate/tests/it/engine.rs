//! The engine: what is promised, tried from outside, on every store.

mod cancel;
mod clocks;
mod context;
#[cfg(feature = "sqlite")]
mod disk;
mod events;
mod faults;
mod gates;
mod life;
mod many;
mod pauses;
mod scene;
mod shutdown;
mod support;
mod workflow;
