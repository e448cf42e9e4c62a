//! The engine: what is promised, tried from outside, on every store.

mod support;
