//! Stopping: in good order, and what it is not.

use super::gates::{
    Gates, Process, fake_clock, is_sound, life, on_paused_time, recorded, until_kind, with_gates,
};
use super::support::{Place, on_every_store, until, within};
use futures_util::poll;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate::engine::{Shutdown, SubmitError, WaitRunError};
use tidegate::{Context, Engine, Run, RunId, RunOutcome, Task, TaskError, TaskHandle, Workflow};
use tidegate_core::lifecycle::Kind;
use tidegate_core::store::Happened;
use tokio::time::Instant;

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3_600);

/// Stops at once where it waits, and where it computes.
const NOW: Duration = Duration::ZERO;

async fn submit(engine: &Engine, workflow: &str, gate: &str) -> Run {
    engine.submit(workflow, gate).await.unwrap()
}

/// Those of a report, in whatever order.
fn named(listed: &[(RunId, String)]) -> BTreeSet<(RunId, &str)> {
    listed.iter().map(|(run, task)| (*run, task.as_str())).collect()
}

on_every_store! {
    async fn a_part_that_asks_after_the_fact_sees_the_shutdown(place: Place) {
        let engine = place.engine().start().await.unwrap();
        let early = tokio::spawn({
            let engine = engine.clone();
            async move { engine.closing().await }
        });
        engine.shutdown(NOW).await;
        early.await.unwrap();
        engine.closing().await;
        engine.clone().closing().await;
    }

    async fn a_second_shutdown_is_harmless_and_has_the_same_report(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        submit(&engine, "hold", "a").await;
        let waits = submit(&engine, "wait", "b").await;
        gates.arrived("a", 1).await;
        until_kind(engine.store(), waits.id(), Kind::Deferred).await;
        let first = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        until_kind(engine.store(), waits.id(), Kind::Ready).await;
        let mut second = pin!(engine.shutdown(NOW));
        assert!(poll!(&mut second).is_pending());
        // What is asked after it is answered after it was heard.
        engine.unpause().await.unwrap();
        gates.open("a");
        let (first, second) = (first.await.unwrap(), second.await);
        assert_eq!((first.finished, first.handed_back.len()), (1, 1));
        assert_eq!(first, second);
        assert_eq!(engine.shutdown(HOUR).await, first);
    }

    async fn a_submit_after_the_shutdown_began_is_refused(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        submit(&engine, "hold", "a").await;
        gates.arrived("a", 1).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        let refused = engine.submit("hold", "b").await.unwrap_err();
        assert!(matches!(refused, SubmitError::Closed), "while it shuts down: {refused}");
        gates.open("a");
        shutdown.await.unwrap();
        let refused = engine.submit("hold", "b").await.unwrap_err();
        assert!(matches!(refused, SubmitError::Closed), "when it has: {refused}");
        let refused = engine.submit_many("hold", ["b", "c"]).await.unwrap_err();
        assert!(matches!(refused, SubmitError::Closed), "many: {refused}");
        let runs = engine.runs(tidegate_core::store::RunsPage { limit: 10, ..Default::default() });
        assert_eq!(runs.await.unwrap().len(), 1, "only what was accepted is stored");
    }

    async fn whoever_waits_for_an_unfinished_run_is_told_that_the_engine_has_stopped(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        let submitted = submit(&engine, "wait", "never").await;
        let found = engine.run(submitted.id()).await.unwrap();
        let ended = submit(&engine, "hold", "open").await;
        gates.open("open");
        ended.wait().await.unwrap();
        until_kind(engine.store(), submitted.id(), Kind::Deferred).await;
        let waiting = [submitted.clone(), found.clone()].map(|run| {
            tokio::spawn(async move { run.wait().await.map(|_| ()).unwrap_err() })
        });
        engine.shutdown(HOUR).await;
        for waiting in waiting {
            let error = waiting.await.unwrap();
            assert!(matches!(error, WaitRunError::Closed), "waited before: {error}");
        }
        for run in [&submitted, &found, &engine.run(submitted.id()).await.unwrap()] {
            let error = run.wait().await.unwrap_err();
            assert!(matches!(error, WaitRunError::Closed), "waits afterwards: {error}");
        }
        let again = engine.run(ended.id()).await.unwrap();
        for run in [&ended, &again] {
            let status = run.wait().await.expect("what has ended can be seen afterwards too");
            assert_eq!(status.output::<String>("hold").unwrap(), "open");
        }
    }

    async fn what_computes_may_end_and_all_else_is_handed_back_at_once(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(2), &gates).start().await.unwrap();
        let store = place.store().await;
        let deferred = submit(&engine, "wait", "later").await;
        until_kind(&store, deferred.id(), Kind::Deferred).await;
        let active = [submit(&engine, "hold", "a").await, submit(&engine, "hold", "b").await];
        for gate in ["a", "b"] {
            gates.arrived(gate, 1).await;
        }
        let ahead = submit(&engine, "hold", "c").await;
        until_kind(&store, ahead.id(), Kind::Claimed).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        for run in [&deferred, &ahead] {
            until_kind(&store, run.id(), Kind::Ready).await;
        }
        for run in &active {
            assert_eq!(life(&store, run.id()).await.state.kind(), Kind::Active);
        }
        assert!(!shutdown.is_finished());
        gates.open("a");
        gates.open("b");
        let report = shutdown.await.unwrap();
        assert_eq!(report.finished, 2);
        let both = [(deferred.id(), "wait"), (ahead.id(), "hold")];
        assert_eq!(named(&report.handed_back), both.into());
        assert_eq!(report.dropped, []);
        for run in &active {
            assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        }
        assert_eq!(recorded(&store, deferred.id()).await, [Happened::HandedBack]);
        assert_eq!(recorded(&store, ahead.id()).await, [], "it was never entered");
        assert_eq!(engine.slots().in_use(), 0);
        is_sound(&store).await;

        let next = with_gates(place.engine(), &gates).start().await.unwrap();
        gates.open("later");
        gates.open("c");
        for (run, task, entries) in [(&deferred, "wait", 2), (&ahead, "hold", 1)] {
            let status = next.run(run.id()).await.unwrap().wait().await.unwrap();
            let task = status.task(task).unwrap();
            assert_eq!((task.kind, task.entries, task.attempt), (Kind::Succeeded, entries, 1));
            assert_eq!(life(&store, run.id()).await.recoveries, 0);
        }
        is_sound(&store).await;
    }

    async fn what_outlasts_its_grace_is_told_then_dropped_and_goes_on_elsewhere(place: Place) {
        let told = Gates::default();
        let engine = stubborn(&place, &told).start().await.unwrap();
        let run = engine.submit("stubborn", ()).await.unwrap();
        told.arrived("entered", 1).await;
        let report = engine.shutdown(NOW).await;
        assert_eq!(told.arrivals("told"), 1);
        let it = [(run.id(), "stubborn".to_owned())];
        assert_eq!((report.finished, report.handed_back.as_slice()), (0, &it[..]));
        assert_eq!(report.dropped, it);
        let store = place.store().await;
        assert_eq!(life(&store, run.id()).await.state.kind(), Kind::Ready);
        assert_eq!(recorded(&store, run.id()).await, [Happened::HandedBack]);

        told.open("entered");
        let next = stubborn(&place, &told).start().await.unwrap();
        let status = next.run(run.id()).await.unwrap().wait().await.unwrap();
        let task = status.task("stubborn").unwrap();
        assert_eq!((task.kind, task.entries, task.attempt), (Kind::Succeeded, 2, 1));
        is_sound(&store).await;
    }

    async fn what_is_cancelled_while_the_engine_stops_is_not_handed_back(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        let run = submit(&engine, "hold", "never").await;
        submit(&engine, "hold", "a").await;
        gates.arrived("never", 1).await;
        gates.arrived("a", 1).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        assert!(run.cancel().await.unwrap());
        until("it is gone", async || engine.metrics().cancelled_total == 1).await;
        gates.open("a");
        let report = shutdown.await.unwrap();
        assert_eq!((report.handed_back, report.dropped, report.finished), (vec![], vec![], 1));
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        is_sound(engine.store()).await;
    }

    async fn dropping_the_last_engine_is_not_shutting_down(place: Place) {
        let gates = Gates::default();
        let store = place.store().await;
        let engine = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let active = submit(&engine, "hold", "a").await.id();
        let ahead = submit(&engine, "hold", "b").await.id();
        gates.arrived("a", 1).await;
        drop(engine);
        gates.open("a");
        gates.open("b");
        for run in [active, ahead] {
            until_kind(&store, run, Kind::Succeeded).await;
        }
    }
}

/// Goes through the gate `entered`; if that is shut, goes to the gate `told` when it is told to
/// stop, and stays.
async fn stay(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let gates = context.state::<Gates>()?;
    tokio::select! {
        biased;
        () = gates.pass("entered") => return Ok(()),
        () = handle.cancelled() => {}
    }
    assert!(handle.is_cancelled());
    gates.pass("told").await;
    Ok(())
}

fn stubborn(place: &Place, gates: &Gates) -> tidegate::EngineBuilder {
    let workflow = Workflow::of(Task::new("stubborn", stay)).unwrap();
    place.engine().workflow(workflow).state(gates.clone())
}

/// Computes for as many seconds as its input says; minds being told only if that is negative.
async fn last(context: &mut Context<i64>, handle: &TaskHandle) -> Result<bool, TaskError> {
    match *context.input() {
        seconds @ 0.. => {
            tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
            Ok(handle.is_cancelled())
        }
        _ => {
            handle.cancelled().await;
            Ok(true)
        }
    }
}

/// Notes when it was told.
async fn note(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.cancelled().await;
    context
        .state::<tokio::sync::watch::Sender<Option<Instant>>>()?
        .send_replace(Some(Instant::now()));
    std::future::pending().await
}

/// Waits as it is told, each time for so many seconds: for time, for what never comes but not longer,
/// or for either; 0 waits for ever.
async fn waits(
    context: &mut Context<Vec<(String, u64)>>,
    handle: &TaskHandle,
) -> Result<(), TaskError> {
    for (how, seconds) in context.input().clone() {
        let time = Duration::from_secs(seconds);
        let never = || handle.defer_while(std::future::pending::<()>());
        match how.as_str() {
            "sleep" => handle.sleep(time).await?,
            "timeout" => drop(never().timeout(time).await),
            "any" => drop(handle.wait_any([never().map(|()| ()), handle.sleep(time)]).await?),
            "all" => drop(handle.wait_all([handle.sleep(time), handle.sleep(time * 2)]).await?),
            _ => never().await?,
        }
    }
    Ok(())
}

on_paused_time! {
    async fn by_option_what_waits_and_goes_on_within_the_grace_may_end(place: Place) {
        let engine = place.engine().slots(2).clock(fake_clock());
        let engine = engine.workflow(Workflow::of(Task::new("waits", waits)).unwrap());
        let engine = engine.start().await.unwrap();
        let mut runs = Vec::new();
        for (waits, ends) in [
            (&[("sleep", 9)][..], true),
            (&[("sleep", 11)], false),
            (&[("timeout", 9)], true),
            (&[("timeout", 11)], false),
            (&[("any", 9)], true),
            (&[("all", 4)], true),
            (&[("all", 6)], false),
            (&[("never", 0)], false),
            // It waits again, and its second wait is over soon enough, or not.
            (&[("sleep", 3), ("sleep", 3)], true),
            (&[("sleep", 3), ("sleep", 8)], false),
            (&[("sleep", 3), ("never", 0)], false),
        ] {
            let waits: Vec<(String, u64)> =
                waits.iter().map(|&(how, seconds)| (how.to_owned(), seconds)).collect();
            let run = engine.submit("waits", waits.clone()).await.unwrap();
            runs.push((run, waits, ends));
        }
        for (run, ..) in &runs {
            until_kind(engine.store(), run.id(), Kind::Deferred).await;
        }
        let begun = Instant::now();
        let how = Shutdown::new(Duration::from_secs(10)).finish_waits();
        let report = engine.shutdown(how).await;
        assert_eq!(begun.elapsed().as_secs(), 9, "what is not over in time is not waited for");
        let back = runs.iter().filter(|(.., ends)| !ends);
        let back: BTreeSet<_> = back.map(|(run, ..)| (run.id(), "waits")).collect();
        assert_eq!(named(&report.handed_back), back);
        assert_eq!((report.finished, report.dropped.len()), (5, 0));
        for (run, waits, ends) in &runs {
            let kind = life(engine.store(), run.id()).await.state.kind();
            assert_eq!(kind, if *ends { Kind::Succeeded } else { Kind::Ready }, "{waits:?}");
        }
    }

    async fn what_is_shorter_than_the_grace_ends_and_what_is_longer_has_five_seconds_more(place: Place) {
        let (told_at, told) = tokio::sync::watch::channel(None::<Instant>);
        let engine = place.engine().slots(8).clock(fake_clock()).state(told_at);
        let engine = engine
            .workflow(Workflow::of(Task::new("last", last)).unwrap())
            .workflow(Workflow::of(Task::new("note", note)).unwrap())
            .start().await.unwrap();
        let short = engine.submit("last", 29).await.unwrap();
        let longer = engine.submit("last", 34).await.unwrap();
        let obedient = engine.submit("last", -1).await.unwrap();
        let longest = engine.submit("last", 36).await.unwrap();
        let deaf = engine.submit("note", ()).await.unwrap();
        let begun = Instant::now();
        let report = engine.shutdown(Duration::from_secs(30)).await;
        assert_eq!(begun.elapsed().as_secs(), 35);
        assert_eq!(told.borrow().unwrap().duration_since(begun).as_secs(), 30);
        assert_eq!(report.finished, 3);
        let dropped = [(longest.id(), "last"), (deaf.id(), "note")];
        assert_eq!(named(&report.dropped), dropped.into());
        assert_eq!(named(&report.handed_back), dropped.into());
        for (run, was_told) in [(&short, false), (&longer, true), (&obedient, true)] {
            let status = run.wait().await.unwrap();
            assert_eq!(status.output::<bool>("last").unwrap(), was_told);
        }
        for run in [&longest, &deaf] {
            let now = run.status().await.unwrap();
            let task = &now.tasks[0];
            assert_eq!((task.kind, task.attempt, &task.error), (Kind::Ready, 1, &None));
            assert!(matches!(run.wait().await, Err(WaitRunError::Closed)));
        }
        assert_eq!(engine.slots().in_use(), 0);
    }

    async fn an_engine_with_nothing_that_computes_is_gone_at_once(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().clock(fake_clock()), &gates).start().await.unwrap();
        let run = submit(&engine, "wait", "never").await;
        until_kind(engine.store(), run.id(), Kind::Deferred).await;
        let begun = Instant::now();
        let report = engine.shutdown(HOUR).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(report.handed_back, [(run.id(), "wait".to_owned())]);
        assert_eq!(report.dropped, []);
    }

    async fn a_task_that_waits_when_it_is_told_is_handed_back_and_not_dropped(place: Place) {
        let workflow = Workflow::of(Task::new("tidy", tidy)).unwrap();
        let engine = place.engine().clock(fake_clock()).workflow(workflow).start().await.unwrap();
        let run = engine.submit("tidy", ()).await.unwrap();
        until_kind(engine.store(), run.id(), Kind::Active).await;
        let begun = Instant::now();
        let report = engine.shutdown(Duration::from_secs(10)).await;
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert_eq!(report.handed_back, [(run.id(), "tidy".to_owned())]);
        assert_eq!(report.dropped, []);
    }

    async fn a_task_that_begins_to_wait_while_the_engine_stops_is_handed_back_then(place: Place) {
        let gates = Gates::default();
        let turning = Workflow::of(Task::new("turn", turn)).unwrap();
        let engine = with_gates(place.engine().clock(fake_clock()), &gates).workflow(turning);
        let engine = engine.start().await.unwrap();
        let run = engine.submit("turn", ()).await.unwrap();
        gates.arrived("computes", 1).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        gates.open("computes");
        let begun = Instant::now();
        let report = shutdown.await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1), "it took {:?}", begun.elapsed());
        assert_eq!(report.handed_back, [(run.id(), "turn".to_owned())]);
        assert_eq!(report.dropped, []);
    }
}

/// Computes until it is told to stop, then waits.
async fn tidy(_: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.cancelled().await;
    handle.sleep(HOUR).await?;
    Ok(())
}

/// Computes, then waits for ever.
async fn turn(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let gates: Arc<Gates> = context.state()?;
    gates.pass("computes").await;
    handle.defer_while(std::future::pending::<()>()).await?;
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_runtime_tells_whoever_waits() {
    let (place, gates) = (Place::memory(), Gates::default());
    let engine = with_gates(place.engine(), &gates);
    let (process, engine) = Process::start(engine).await;
    let run = submit(&engine, "hold", "never").await;
    gates.arrived("never", 1).await;
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.wait().await.map(|_| ()) }
    });
    process.die().await;
    within(async {
        assert!(matches!(waiting.await.unwrap(), Err(WaitRunError::Closed)));
        assert!(matches!(run.wait().await, Err(WaitRunError::Closed)));
        assert!(matches!(engine.submit("hold", "b").await, Err(SubmitError::Closed)));
        engine.closing().await;
        engine.shutdown(HOUR).await;
    })
    .await;
    until("it is as it was", async || {
        life(engine.store(), run.id()).await.state.kind() == Kind::Active
    })
    .await;
}
