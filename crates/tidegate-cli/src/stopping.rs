//! The end of an engine: because the process is told to end, or because its work is done.
//!
//! Interrupted, commands are told to stop at once; told to end, they may finish within the grace. Told
//! again, all commands are killed, and the process has a moment to end in good order before it simply
//! exits: signals are heard by a thread of their own, which waits for nothing else. What is not stored
//! by then is taken over like that of a process that has died.

use crate::file::written;
use crate::run::{End, unusable};
use crate::tell::Teller;
use crate::waves::count;
use crate::{Failure, exit_code};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tidegate::{Engine, Run, RunOutcome, ShutdownReport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// What commands have to end when the process is told to.
const GRACE: Duration = Duration::from_secs(30);

/// What is left of a cancelled run has this to end.
const AFTER_CANCEL: Duration = Duration::from_secs(10);

/// Told twice, the process has this long to end in good order. Taking the live view away may take half
/// a second more.
const LAST_MOMENT: Duration = Duration::from_millis(400);

/// Tasks that are named as not stored; the others are counted.
const UNSTORED_NAMED_MAX: usize = 10;

/// Hears when the process is told to end.
pub(crate) struct Asked {
    heard: UnboundedReceiver<End>,
    last_resort: Arc<LastResort>,
}

/// What is left to do for a process that is told to end a second time.
#[derive(Default)]
struct LastResort(Mutex<Option<(Engine, Teller)>>);

/// The signals that tell the process to end.
struct EndSignals([(Signal, End); 3]);

impl Asked {
    /// From here on signals do not end the process by themselves; a second one does within a second.
    ///
    /// # Errors
    /// The system does not let us listen.
    pub(crate) fn listen() -> io::Result<Self> {
        let (sender, heard) = unbounded_channel();
        let (ready, is_ready) = mpsc::channel();
        let last_resort = Arc::<LastResort>::default();
        let resort = last_resort.clone();
        let listen = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let listened = runtime.and_then(|runtime| {
                let signals = runtime.block_on(async { EndSignals::listen() })?;
                let _ = ready.send(Ok(()));
                runtime.block_on(resort.hear_signals(signals, &sender));
                Ok(())
            });
            if let Err(error) = listened {
                let _ = ready.send(Err(error));
            }
        };
        std::thread::Builder::new().name("tidegate-signals".to_owned()).spawn(listen)?;
        is_ready
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("no thread listens to signals")))?;
        Ok(Asked { heard, last_resort })
    }

    /// The commands of this engine are killed at a second signal, and the view is taken away.
    pub(crate) fn guard_engine(&self, engine: &Engine, teller: &Teller) {
        *self.last_resort.lock_engine() = Some((engine.clone(), teller.clone()));
    }

    pub(crate) async fn next(&mut self) -> End {
        match self.heard.recv().await {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    /// Does this, unless the process is told to end before it is done.
    ///
    /// # Errors
    /// Its own, or that the process was told.
    pub(crate) async fn unless_told<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            told = self.next() => Err(Failure::Told(told)),
            done = work => done,
        }
    }
}

impl EndSignals {
    fn listen() -> io::Result<Self> {
        Ok(EndSignals([
            (signal(SignalKind::interrupt())?, End::Interrupted),
            (signal(SignalKind::terminate())?, End::Terminated),
            (signal(SignalKind::hangup())?, End::Terminated),
        ]))
    }

    async fn next(&mut self) -> End {
        std::future::poll_fn(|cx| {
            let heard = self
                .0
                .iter_mut()
                .find_map(|(signal, end)| signal.poll_recv(cx).is_ready().then_some(*end));
            heard.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}

impl LastResort {
    fn lock_engine(&self) -> std::sync::MutexGuard<'_, Option<(Engine, Teller)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes signals on; does not return from the second.
    async fn hear_signals(&self, mut signals: EndSignals, heard: &UnboundedSender<End>) {
        let first = signals.next().await;
        // The receiver is gone when the process is about to end.
        let _ = heard.send(first);
        let second = signals.next().await;
        let guarded = self.lock_engine().clone();
        if let Some((engine, _)) = &guarded {
            engine.kill_commands();
        }
        let _ = heard.send(second);
        std::thread::sleep(LAST_MOMENT);
        if let Some((engine, teller)) = &guarded {
            // One may have been started meanwhile by a thread that was not stopped.
            engine.kill_commands();
            teller.hide();
        }
        std::process::exit(exit_code(first).into());
    }
}

/// The shutting down of an engine.
pub(crate) struct Stopping {
    engine: Engine,
    teller: Teller,
    told: Option<End>,
    shutdown: Option<JoinHandle<ShutdownReport>>,
}

impl Stopping {
    pub(crate) fn new(engine: &Engine, teller: &Teller) -> Self {
        let (engine, teller) = (engine.clone(), teller.clone());
        Stopping { engine, teller, told: None, shutdown: None }
    }

    /// The process is told to end, so.
    pub(crate) fn told(&mut self, end: End) {
        let (engine, again) = (self.engine.clone(), self.shutdown.is_some());
        let grace = if end == End::Interrupted { Duration::ZERO } else { GRACE };
        if self.told.is_none() {
            self.teller.line(describe_stop(end, if again { 0 } else { self.teller.active() }));
        }
        self.told.get_or_insert(end);
        self.shutdown = Some(tokio::spawn(async move {
            match again {
                true => engine.shutdown_now().await,
                false => engine.shutdown(grace).await,
            }
        }));
    }

    /// The work is done; what was cancelled may still be ending.
    pub(crate) fn done(&mut self) {
        if self.shutdown.is_none() {
            let engine = self.engine.clone();
            let shutdown = tokio::spawn(async move { engine.shutdown(AFTER_CANCEL).await });
            self.shutdown = Some(shutdown);
        }
    }

    /// Waits until the engine has stopped, once that was begun; to be waited for once. What could not
    /// be stored is told.
    pub(crate) async fn stopped(&mut self) -> Option<ShutdownReport> {
        // It does not panic, and nobody aborts it.
        let report = self.shutdown.as_mut()?.await.ok()?;
        if report.unstored_total > 0 {
            self.teller.line(describe_unstored(&report));
        }
        Some(report)
    }

    /// How the process was told to end, if it was.
    pub(crate) fn how_told(&self) -> Option<End> {
        self.told
    }

    /// How the run has come to its end here, whose outcome was seen or else is looked for.
    ///
    /// # Errors
    /// It cannot be told.
    pub(crate) async fn end(&self, run: &Run, outcome: Option<RunOutcome>) -> Result<End, Failure> {
        let outcome = match (outcome, self.told) {
            (Some(outcome), _) => Some(outcome),
            (None, None) => run.status().await.map_err(unusable)?.outcome(),
            // The store may be what the process was told to end for.
            (None, Some(_)) => run.status().await.ok().and_then(|status| status.outcome()),
        };
        match (outcome, self.told) {
            (Some(RunOutcome::Succeeded), _) => Ok(End::Succeeded),
            (Some(RunOutcome::Failed), _) => Ok(End::Failed),
            (Some(_), _) => Ok(End::Cancelled),
            (None, Some(told)) => Ok(told),
            (None, None) => Err(by_itself()),
        }
    }
}

/// What is said at once to the first signal.
fn describe_stop(end: End, commands: usize) -> String {
    let (what, them) = (count(commands, "command"), if commands == 1 { "it" } else { "them" });
    match (commands, end) {
        (0, _) => "stopping".to_owned(),
        (_, End::Interrupted) => {
            format!("stopping: waiting for {what} (Ctrl-C again to kill {them})")
        }
        _ => {
            let grace = written(GRACE);
            format!("stopping: waiting up to {grace} for {what} (a second signal kills {them})")
        }
    }
}

/// What is said of tasks whose ends are not stored.
fn describe_unstored(report: &ShutdownReport) -> String {
    let names = report.unstored.iter().take(UNSTORED_NAMED_MAX);
    let mut names: Vec<String> = names.map(|(_, name)| crate::waves::plain(name)).collect();
    let others = report.unstored_total.saturating_sub(names.len() as u64);
    if others > 0 {
        names.push(format!("{others} more"));
    }
    let why = report.store_error.as_deref().unwrap_or("something of it did not stop in time");
    let (names, them) = (names.join(", "), if names.len() == 1 { "it" } else { "they" });
    format!("cannot store what became of {names}: {why}; {them} will be run again")
}

/// Nobody has told the engine to stop.
pub(crate) fn by_itself() -> Failure {
    Failure::Store("the engine has stopped by itself".to_owned())
}
