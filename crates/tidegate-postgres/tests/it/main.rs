//! The promises of the PostgreSQL store beyond those of every store, tried from outside.
//!
//! All of it is in the module `postgres`, by which `./test quick` leaves out the tests that need a server.

#![allow(clippy::unwrap_used, reason = "what cannot happen in a test fails it")]

mod postgres;
