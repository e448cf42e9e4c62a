//! Ctrl-Z: the commands are stopped, then the process; when it goes on, so do they.
//!
//! The time between does not count. The clock of the runtime is held meanwhile, on which stand the
//! time-outs of tasks and waits and everything else in this process that is not a date: that is what
//! the runtime can do for tests, and it does it for one with a single thread alone. What is a date
//! goes on: `deadline`, `queue_timeout`, pauses before a further attempt, and sleeps that are stored.
//!
//! Deliberately absent: SIGSTOP from outside, of which no process can know.

use crate::tell::Teller;
use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::time::Instant;
use tidegate::Engine;
use tokio::runtime::RuntimeFlavor;
use tokio::signal::unix::{SignalKind, signal};

/// Listens for it from now on. To be called within a runtime of a single thread.
///
/// # Errors
/// The system does not let us.
pub(crate) fn listen(engine: &Engine, teller: &Teller) -> io::Result<()> {
    let flavor = tokio::runtime::Handle::current().runtime_flavor();
    assert_eq!(flavor, RuntimeFlavor::CurrentThread, "the clock of others cannot be held");
    // What the terminal sends.
    let mut asked = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let (engine, teller) = (engine.clone(), teller.clone());
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            stop(&engine, &teller);
        }
    });
    Ok(())
}

/// Returns when the process goes on. Nothing else happens on its thread meanwhile.
fn stop(engine: &Engine, teller: &Teller) {
    teller.hide();
    engine.suspend_commands();
    tokio::time::pause();
    let stopped = Instant::now();
    // We may signal ourselves.
    let _ = kill_process(getpid(), Signal::STOP);
    tokio::time::resume();
    engine.unsuspend_commands();
    teller.reveal(stopped.elapsed());
}
