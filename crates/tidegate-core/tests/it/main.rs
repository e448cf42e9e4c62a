//! The core, tried from outside: one module for each of its parts.

mod dispatcher;
mod explain;
mod graph;
mod lifecycle;
mod load;
mod memory;
mod plan;
mod settling;
mod slot_book;
