//! What tests of tidegate share.
//!
//! - [`conformance!`]: what every store must do, as one test per sentence. A store's test is one
//!   call; there is no list of what to leave out.
//! - [`FakeClock`]: time that goes on when it is told to.
//! - [`Faulty`]: a store that fails, loses its answer or keeps it back, on demand.
//! - [`decide_with_misses`]: a request decided through a loader that cannot answer every want;
//!   [`MissingDecider`], [`ComparingDecider`]: a memory store that decides so, or in several ways.
//! - [`decide_in_trips`]: a request decided as by a store over a network, which loads many wants in one
//!   trip; [`TripDecider`]: a memory store that decides so, and counts the trips.
//! - [`plan`] and its shapes ([`one`], [`chain`], [`diamond`], [`fan`]): workflows in a line.
//! - [`PostgresSchema`]: a schema for one test on the PostgreSQL server for tests.
//! - [`races!`]: the races of two connections that every store must decide, one call per store too.
//! - [`RandomPauses`]: requests that pause for random times, where the environment asks for it.
//! - [`simulation`]: several workers and faults by chance, the same for the same seed.
//! - [`check_sweep`], [`check_remembered_numbers`]: sweeps of stores whose rows refer to others by numbers.
//! - [`World`]: a store, a clock and everybody who uses them, in one hand; it checks what must hold
//!   after every request.

#[doc(hidden)]
pub mod cases;
mod clock;
mod conformance;
mod faulty;
mod forward;
mod loading;
mod plans;
mod postgres;
mod races;
mod random_pauses;
mod replay;
pub mod simulation;
mod sweeps;
mod trips;
mod world;

pub use clock::FakeClock;
pub use conformance::{Harness, Later, TestPart, check, check_with};
pub use faulty::{Fault, Faulty, Held};
#[doc(hidden)]
pub use forward::forwarded;
pub use loading::{ComparingDecider, DecisionProperty, MissingDecider, decide_with_misses};
pub use plans::{Sketch, chain, diamond, fan, one, plan};
pub use postgres::{PostgresSchema, connect_to_postgres, postgres_server, postgres_tcp_address};
#[doc(hidden)]
pub use races::cases as race_cases;
pub use races::{ConnectHarness, Meeting, Race, check_race};
pub use random_pauses::RandomPauses;
pub use sweeps::{check_remembered_numbers, check_sweep};
pub use trips::{TripCount, TripDecider, decide_in_trips};
pub use world::{QUEUE, World, ask, change, claim, time_of, waits_of};
