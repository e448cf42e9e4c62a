//! What the SQLite store promises beyond what every store does, tried from outside.

#![allow(clippy::unwrap_used, reason = "what cannot happen in a test fails it")]

mod audit;
mod backup;
#[cfg(target_os = "linux")]
mod bells;
mod conformance;
mod depth;
mod files;
#[cfg(unix)]
mod foreign;
#[cfg(unix)]
mod locks;
#[cfg(target_os = "linux")]
mod migration;
mod opening;
mod processes;
mod statements;
mod support;
mod sweep;
mod trouble;
mod waiting;
