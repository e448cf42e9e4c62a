//! The kit, tried on itself and on the memory store.

mod decisions;
mod kit;
mod marks;
mod memory;
mod simulation;
mod trips;
