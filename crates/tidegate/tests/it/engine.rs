//! The engine: what is promised, tried from outside, on every store.

mod events;
mod shutdown;
mod support;
