//! The SQLite store of tidegate: one file, one writer, nothing lost.
//!
//! [`SqliteStore`] implements [`Store`](tidegate_core::store::Store) on a SQLite database. One thread
//! owns the connection that writes; what callers have queued meanwhile it commits together. Reading
//! is done by threads of its own on connections that cannot write. Any number of processes on one
//! machine may use the same file.
//!
//! The parts, from the outside in:
//!
//! - `store`: [`SqliteStore`] itself, which only passes on.
//! - `open`, `migrate`, `mounts`: whether a file can be used, and making it so.
//! - `writer`: the thread that writes: transactions, group commit, folding back the log.
//! - `loader`, `rows`, `waits`, `limits`, `waiting`, `explain`, `stored`: the rows that a request, a
//!   view, an explanation or an audit [loads](tidegate_core::want::Loader) in one transaction, on any connection.
//! - `ledger`, `apply`, `repair`: one transaction of the writer, and how a request's delta is written
//!   in it; `prune`: one that removes rows.
//! - `plans`, `lanes`: parts of what a connection remembers between transactions.
//! - `sql`, `columns`: the statements, and rows from and to columns.
//! - `reader`: the threads that read; `views`, `audit`, `backup`: what they read.
//! - `private`: how files beside the database are opened.
//! - `lock`, `bell`: which workers are alive; whose turn it is to write; how a worker hears of others.
//!
//! Invariants: nothing here knows what a state means; nothing is answered before it is committed;
//! what is remembered between transactions is forgotten when one is rolled back.

mod apply;
mod audit;
mod backup;
mod bell;
mod columns;
mod error;
mod explain;
mod files;
mod lanes;
mod ledger;
mod limits;
mod loader;
mod lock;
mod migrate;
mod mounts;
mod open;
mod plans;
mod private;
mod prune;
mod reader;
mod repair;
mod rows;
mod sql;
mod store;
mod stored;
mod views;
mod waiting;
mod waits;
mod writer;

pub use files::SqliteFiles;
pub use open::{OpenError, Options, Synchronous};
pub use store::SqliteStore;
