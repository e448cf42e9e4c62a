//! The binary as it is used: what it prints, and how it ends.

#![allow(clippy::unwrap_used, reason = "what cannot happen in a test fails it")]

mod dry_run;
mod each;
mod examples;
mod extremes;
mod failing_store;
mod keeping;
mod looking;
mod mistakes;
mod old_stores;
mod places;
mod queues;
mod rest;
mod resume;
mod retrying;
mod run;
mod running;
mod screen;
mod settings;
mod signals;
mod steering;
mod support;
mod suspended;
mod telling;
mod terminal;
mod traps;
