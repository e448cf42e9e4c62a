//! The engine: what is promised, tried from outside, on every store.

mod blocking;
mod cancel;
mod clocks;
#[cfg(unix)]
mod commands;
mod context;
#[cfg(feature = "sqlite")]
mod disk;
mod events;
mod faults;
mod gates;
mod items;
mod life;
mod many;
mod pauses;
mod scene;
mod shutdown;
mod support;
mod versions;
mod workflow;
