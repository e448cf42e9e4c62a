//! Tests on the PostgreSQL server for tests, each in a schema of its own.

mod audit;
mod conformance;
mod notify;
mod open;
mod orders;
mod proxy;
mod support;
mod sweep;
mod tls;
mod trips;
mod trouble;
mod workers;
