//! Telling runs what to do: to stop, to go on, to hear; and waiting for their end.

use super::target::{self, called};
use super::whole::state;
use super::{Look, args, beside, unusable};
use crate::file::{quoted, written};
use crate::run::End;
use crate::stopping::Asked;
use crate::waves::plain;
use crate::{Failure, print, tell};
use std::time::{Duration, Instant};
use tidegate::engine::{RunError, RunSummary, SignalError};
use tidegate::error::StoreError;
use tidegate::{Run, RunOutcome};

/// How often it is looked whether the commands of dead processes are gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A command has 5 seconds to end before it is killed; beyond this it is left to others.
const DEAD_MAX: Duration = Duration::from_secs(15);

pub(crate) fn cancel(args: &args::Cancel) -> Result<End, Failure> {
    let said = beside(&args.store, async |look| {
        let (summary, run) = find(look, args.run.as_deref()).await?;
        if run.cancel().await.map_err(unusable)? {
            end_of_the_dead(look).await?;
            return Ok(format!("{} is cancelled\n", called(&summary)));
        }
        over(&summary)
    })?;
    print(&said)
}

/// Waits until what dead processes have left running is ended, which the engine does by itself.
async fn end_of_the_dead(look: &Look) -> Result<(), Failure> {
    let began = Instant::now();
    while !look.engine.store().dead().await.map_err(unusable)?.is_empty() {
        if began.elapsed() > DEAD_MAX {
            tell("what a dead process has left running is not ended yet");
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// What is said of a run that was over before.
fn over(run: &RunSummary) -> Result<String, Failure> {
    let called = called(run);
    match run.ended {
        Some((RunOutcome::Cancelled, _)) => Ok(format!("{called} was cancelled already\n")),
        Some((outcome, _)) => {
            let what = format!("{called} has ended already ({outcome}); nothing was done");
            Err(Failure::Undone(what))
        }
        // It has ended in this very moment.
        None => Err(Failure::Undone(format!("{called} has ended meanwhile"))),
    }
}

pub(crate) fn signal(args: &args::Signal) -> Result<End, Failure> {
    let said = beside(&args.store, async |look| {
        let (summary, run) = find(look, Some(&args.run)).await?;
        let sent = run.signal(&args.name, args.payload.clone()).await;
        let (called, name) = (called(&summary), plain(&args.name));
        match sent {
            Ok(()) => Ok(format!("signal {name} is sent to {called}\n")),
            Err(SignalError::Over(_)) => {
                let what = format!("{called} has ended; nobody would receive the signal");
                Err(Failure::Undone(what))
            }
            Err(SignalError::Payload(why)) => Err(Failure::Wrong(why)),
            Err(SignalError::Store(error)) => Err(unusable(error)),
            Err(error) => Err(Failure::Undone(error.to_string())),
        }
    })?;
    print(&said)
}

pub(crate) fn pause(args: &args::Scope) -> Result<End, Failure> {
    let (what, is_new) = beside(&args.store, async |look| match scope(look, args).await? {
        Scoped::Store => paused("the store".to_owned(), look.engine.pause().await),
        Scoped::Queue(queue) => {
            paused(format!("queue {}", quoted(&queue)), look.engine.pause_queue(queue).await)
        }
        Scoped::Run(summary, run) => {
            let is_new = run.pause().await.map_err(unusable)?;
            if !is_new && summary.ended.is_some() {
                let (called, state) = (called(&summary), state(&summary));
                return Err(Failure::Undone(format!("{called} has ended already ({state})")));
            }
            Ok((called(&summary), is_new))
        }
    })?;
    print(&match is_new {
        true => format!("{what} is paused; what has begun goes on\n"),
        false => format!("{what} was paused already\n"),
    })
}

pub(crate) fn unpause(args: &args::Scope) -> Result<End, Failure> {
    let (what, is_new) = beside(&args.store, async |look| match scope(look, args).await? {
        Scoped::Store => paused("the store".to_owned(), look.engine.unpause().await),
        Scoped::Queue(queue) => {
            paused(format!("queue {}", quoted(&queue)), look.engine.unpause_queue(queue).await)
        }
        Scoped::Run(summary, run) => Ok((called(&summary), run.unpause().await.map_err(unusable)?)),
    })?;
    print(&match is_new {
        true => format!("{what} goes on\n"),
        false => format!("{what} was not paused\n"),
    })
}

/// What is to be paused, or to go on.
enum Scoped {
    Store,
    Queue(String),
    Run(RunSummary, Run),
}

async fn scope(look: &Look, args: &args::Scope) -> Result<Scoped, Failure> {
    Ok(match &args.queue {
        _ if args.all => Scoped::Store,
        Some(queue) => Scoped::Queue(queue.clone()),
        None => {
            let (summary, run) = find(look, args.run.as_deref()).await?;
            Scoped::Run(summary, run)
        }
    })
}

fn paused(what: String, is_new: Result<bool, StoreError>) -> Result<(String, bool), Failure> {
    Ok((what, is_new.map_err(unusable)?))
}

pub(crate) fn wait(args: &args::Wait) -> Result<End, Failure> {
    beside(&args.store, async |look| {
        let mut asked = Asked::listen().map_err(|error| Failure::Undone(error.to_string()))?;
        let (summary, run) = find(look, args.run.as_deref()).await?;
        let called = called(&summary);
        if summary.ended.is_none() {
            tell(&format!("waits for {called}"));
        }
        let late = async {
            match args.timeout {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let status = tokio::select! {
            biased;
            told = asked.next() => return Ok(told),
            status = run.wait() => status.map_err(unusable)?,
            () = late => {
                let time = written(args.timeout.unwrap_or_default());
                let what = format!("{called} has not ended within {time}; it goes on");
                return Err(Failure::Undone(what));
            }
        };
        tell(&format!("{called}: {}", status.state));
        Ok(match status.outcome() {
            Some(RunOutcome::Succeeded) => End::Succeeded,
            Some(RunOutcome::Cancelled) => End::Cancelled,
            _ => End::Failed,
        })
    })
}

async fn find(look: &Look, wanted: Option<&str>) -> Result<(RunSummary, Run), Failure> {
    let summary = target::run(&look.engine, wanted).await?;
    match look.engine.run(summary.id).await {
        Ok(run) => Ok((summary, run)),
        Err(error @ RunError::Unknown(_)) => Err(Failure::Undone(error.to_string())),
        Err(error) => Err(unusable(error)),
    }
}
