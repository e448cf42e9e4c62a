//! Stores that stand in front of another.

/// Passes every method of a [`Store`](tidegate_core::store::Store) on to a field, but for `request` and
/// `dismiss`, which the store in front has of its own. Stands inside of the `impl`.
#[macro_export]
macro_rules! forward_store {
    ($inner:ident) => {
        $crate::forward_store! { $inner:
            enlist(worker: $crate::forwarded::NewWorker) -> $crate::forwarded::WorkerId;
            dead() -> Vec<$crate::forwarded::WorkerId>;
            workers() -> Vec<$crate::forwarded::WorkerView>;
            wait_for_wakeup(worker: $crate::forwarded::WorkerId) -> $crate::forwarded::Wakeup;
            run(run: $crate::forwarded::RunId) -> Option<$crate::forwarded::RunView>;
            ended(runs: Vec<$crate::forwarded::RunId>) -> Vec<($crate::forwarded::RunId, Option<$crate::forwarded::RunOutcome>)>;
            runs(page: $crate::forwarded::RunsPage) -> Vec<$crate::forwarded::RunSummary>;
            payloads(first: $crate::forwarded::TaskKey, tasks: u32, kind: $crate::forwarded::Payload) -> Vec<($crate::forwarded::TaskKey, $crate::forwarded::Bytes)>;
            records(run: Option<$crate::forwarded::RunKey>, after: u64, limit: u32) -> Vec<$crate::forwarded::Record>;
            counts() -> $crate::forwarded::Counts;
            unserved() -> Vec<$crate::forwarded::Unserved>;
            limits() -> Vec<$crate::forwarded::LimitState>;
            explain(task: $crate::forwarded::TaskKey, now: $crate::forwarded::Timestamp) -> Option<$crate::forwarded::Looked>;
            audit() -> Vec<$crate::forwarded::Finding>;
            sweep_rows(step: $crate::forwarded::Sweep) -> $crate::forwarded::Swept;
        }
    };
    ($inner:ident: $($method:ident($($given:ident: $Given:ty),*) -> $Answer:ty;)*) => {$(
        fn $method(&self, $($given: $Given),*) -> $crate::forwarded::Answer<'_, $Answer> {
            self.$inner.$method($($given),*)
        }
    )*};
}

/// The types in the methods of a store.
#[doc(hidden)]
pub mod forwarded {
    pub use tidegate_core::explain::Looked;
    pub use tidegate_core::graph::RunOutcome;
    pub use tidegate_core::lifecycle::WorkerId;
    pub use tidegate_core::limit::LimitState;
    pub use tidegate_core::rows::Payload;
    pub use tidegate_core::store::*;
    pub use tidegate_core::sweep::{Sweep, Swept};
    pub use tidegate_core::{RunId, Timestamp};
}
