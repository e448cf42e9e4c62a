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
//! - `loader`: a connection that [loads](tidegate_core::want::Loader) rows in one transaction, for a
//!   request, a view, an explanation or an audit; `rows`, `groups`, `waits`, `limits`, `records`,
//!   `explain`, `prune`, `stored`: which rows, by topic.
//! - `ledger`, `apply`: one transaction of the writer, and how a request's delta is written in it.
//! - `catalog`: names and plans that a connection remembers between transactions.
//! - `sql`, `fetch`, `columns`: the statements, and values and rows from and to columns.
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
mod catalog;
mod columns;
mod error;
mod explain;
mod fetch;
mod files;
mod groups;
mod ledger;
mod limits;
mod loader;
mod lock;
mod machine;
mod migrate;
mod mounts;
mod open;
mod open_error;
mod private;
mod prune;
mod reader;
mod records;
mod rows;
mod sql;
mod store;
mod stored;
mod sweep;
pub mod testing;
mod views;
mod waits;
mod writer;

pub use files::SqliteFiles;
pub use migrate::MigrationProgress;
pub use open::{MigrationHook, Options, Synchronous};
pub use open_error::OpenError;
pub use store::SqliteStore;
