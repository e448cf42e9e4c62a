//! The engine: what is promised, tried from outside, on every store.

#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod asked;
mod audit;
#[cfg(feature = "sqlite")]
mod backup;
mod blocking;
mod cancel;
mod children;
mod clocks;
#[cfg(unix)]
mod commands;
mod context;
mod depth;
#[cfg(feature = "sqlite")]
mod disk;
mod entries;
mod events;
mod explain;
mod extremes;
#[cfg(feature = "sqlite")]
mod failing_file;
mod failing_stop;
mod faults;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod fleet;
mod found;
mod gates;
mod given_up;
mod items;
mod life;
mod limits;
mod load;
mod many;
mod monitors;
mod nesting;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod old_notes;
mod panics;
mod parking;
mod pauses;
mod retention;
mod retries_of_runs;
mod scene;
mod shutdown;
mod signals;
mod steps;
mod support;
#[cfg(unix)]
mod suspended;
mod versions;
mod waiting_max;
mod workers;
mod workflow;
