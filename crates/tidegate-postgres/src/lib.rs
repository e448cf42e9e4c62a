//! The PostgreSQL store of tidegate, for workers on several machines.
//!
//! A request is one transaction: it locks and loads rows (`loader.rs`), decides in core, and applies the
//! delta with its commit in one trip (`request.rs`, `apply.rs`, `commit.rs`). The usual request of a worker
//! loads nothing (`guess.rs`), and its claims are part of the last trip (`claim.rs`). Live tasks and ended
//! ones are two tables; the row of an ended task is the record of its end. The tables are described in
//! `migrations/0003_tables.sql`.
//!
//! Everything runs on a thread with a runtime of its own (`thread.rs`): requests, views, the listener for
//! notifications, the connection that keeps the workers of this process alive, and the watcher that
//! vacuums the live table.

mod apply;
mod batch;
mod catalog;
mod claim;
mod clock;
mod columns;
mod commit;
mod config;
mod error;
mod explain;
mod guess;
mod in_place;
mod items;
mod limits;
mod loader;
mod machine;
mod migrate;
mod notifier;
mod open;
mod open_error;
mod others;
mod pauses;
mod prune;
#[cfg(test)]
mod query_plans;
mod records;
mod remembered;
mod request;
mod rows;
mod snapshot;
mod state;
mod store;
mod stored;
mod sweep;
mod thread;
mod tls;
mod views;
mod waiting;
mod waits;
mod watcher;
mod workers;

pub use config::PostgresConfig;
pub use open_error::PostgresOpenError;
pub use store::PostgresStore;
