//! An engine that only looks.

use super::{Engine, EngineBuilder, OpenStore, StartError, open};
use crate::engine::shutdown::{ShutdownReport, Stage};
use crate::engine::workflows::Workflows;
use crate::engine::{EngineClock, Shared, event};
use crate::slot::SlotPool;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, watch};

impl EngineBuilder {
    /// Opens the store to look at it: no worker is enlisted, nothing is taken over from dead ones, and
    /// nothing is written. That is cheaper than to [`connect`](Self::connect), and changes nothing.
    ///
    /// The engine is like one that was shut down. Whatever is stored can be read ([runs](Engine::runs),
    /// [status](crate::Run::status), [explanations](Engine::explain), [limits](Engine::limits),
    /// [workers](Engine::workers), the [audit](Engine::audit)), and copied ([`Engine::backup`]). What
    /// needs a worker (to submit, cancel, signal, pause, change a limit, or wait for an end that is
    /// still to come) is refused.
    ///
    /// # Errors
    /// Settings that make no sense; a store that cannot be opened.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let address = format!("sqlite:{}", folder.path().join("jobs.db").display());
    /// let engine = tidegate::Engine::builder(address).look().await?;
    /// for run in engine.runs(Default::default()).await? {
    ///     println!("{} {}", run.id, run.plan.workflow());
    /// }
    /// # assert!(engine.workers().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn look(self) -> Result<Engine, StartError> {
        self.config.validate().map_err(StartError::Config)?;
        let OpenStore { store, files, has_clock } = open(self.store).await?;
        let logs = self.config.logs.clone().or_else(|| files.logs_folder());
        // Nobody is at the other end of these, as after a shutdown.
        let (inbox, _) = mpsc::unbounded_channel();
        let (reports, _) = mpsc::unbounded_channel();
        let (_, prunes) = watch::channel(());
        let closed = Stage::Closed(ShutdownReport::default());
        let shared = Shared {
            store,
            files,
            pool: SlotPool::new(self.config.slots).expect("the settings were checked"),
            workflows: Workflows::default(),
            queue: self.config.queues[0].as_str().into(),
            serves: false,
            inbox,
            reports,
            events: broadcast::channel(event::CAPACITY).0,
            metrics: Default::default(),
            board: Default::default(),
            missed: Default::default(),
            slots: self.config.slots..=self.config.most_slots(),
            closing: watch::channel(closed).0,
            health: Default::default(),
            clock: EngineClock::new(self.clock, has_clock),
            park_after: self.config.park_after,
            watch: self.watch,
            waiting_max: self.config.waiting_max,
            child_depth_max: self.config.child_depth_max,
            logs,
            numbers: Default::default(),
            #[cfg(unix)]
            running: Default::default(),
            prunes,
        };
        Ok(Engine { shared: Arc::new(shared) })
    }
}
