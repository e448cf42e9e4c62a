//! Writes the library's store among those that `tests/old_stores` has: a process that is killed in the
//! middle of everything, so that each state, wait and limit is there as a row.
//!
//! `tests/old_stores/make` calls it once for each process that the store has seen.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be written is not written")]

#[path = "../tests/it/old_stores/workflows.rs"]
mod workflows;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidegate::core::retention::{Aged, Prune};
use tidegate::core::store::{Request, RequestId};
use tidegate::engine::Kind;
use tidegate::{Engine, Run, Timestamp};
use workflows::{Stage, describe};

/// Rows that one step of pruning may remove: fewer than the run has.
const PRUNE_ROWS: u32 = 70;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, part] = arguments.as_slice() else {
        panic!("expected a folder and one of: pruned, poison, suspect, everything");
    };
    let writer = Writer { folder: PathBuf::from(folder) };
    match part.as_str() {
        "pruned" => writer.write_half_pruned_run().await,
        "poison" => writer.die_of("poison", Stage::Poisoned).await,
        "suspect" => writer.die_of("suspect", Stage::Suspected).await,
        "everything" => writer.write_everything().await,
        other => panic!("unknown part {other:?}"),
    }
}

struct Writer {
    folder: PathBuf,
}

/// A run to be found again: by which name, and which task of it stood where.
struct Labelled {
    label: &'static str,
    run: Run,
    task: &'static str,
    kind: Kind,
}

impl Writer {
    async fn start(&self, stage: Stage) -> Engine {
        let address = format!("sqlite:{}", self.folder.join("engine.db").display());
        let builder = Engine::builder(address).queues(["default", "night"]);
        describe(builder, stage).start().await.unwrap()
    }

    /// A run of many tasks that has ended, and of which one step of pruning has left the most part.
    async fn write_half_pruned_run(&self) {
        let engine = self.start(Stage::Writing).await;
        engine.submit("wide", ()).await.unwrap().wait().await.unwrap();
        let before = Timestamp::from(SystemTime::now() + Duration::from_secs(1));
        let step = Prune { most: PRUNE_ROWS, ..Prune::new(Aged::Runs, before) };
        let request = Request { prune: Some(step), ..Request::new(RequestId(1), before) };
        let pruned = engine.store().request(Arc::new(request)).await.unwrap().pruned;
        assert!(pruned.next.is_some(), "the step must leave rows");
        engine.shutdown(Duration::from_secs(1)).await;
    }

    /// Enters a body that kills this process.
    async fn die_of(&self, workflow: &'static str, stage: Stage) {
        let engine = self.start(stage).await;
        let run = engine.submit(workflow, ()).key(workflow).await.unwrap();
        run.wait().await.unwrap();
        panic!("{workflow} ended without killing its process");
    }

    async fn write_everything(&self) {
        let engine = self.start(Stage::Writing).await;
        let mut labelled = write_ended_runs(&engine).await;
        labelled.extend(write_waiting_runs(&engine).await);
        labelled.extend(write_computing_runs(&engine).await);
        let mut manifest = String::new();
        for Labelled { label, run, task, kind } in labelled {
            until_task_is(&run, task, kind).await;
            writeln!(manifest, "{label} {} {task} {kind}", run.id()).unwrap();
        }
        std::fs::write(self.folder.join("manifest"), manifest).unwrap();
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

async fn until_task_is(run: &Run, task: &str, kind: Kind) {
    for _ in 0..600 {
        let status = run.status().await.unwrap();
        if status.task(task).is_some_and(|task| task.kind == kind) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{task} is not {kind}: {:#?}", run.status().await);
}

async fn submit(engine: &Engine, label: &'static str, kind: Kind) -> Labelled {
    let run = engine.submit(label, json!({ "label": label })).await.unwrap();
    Labelled { label, run, task: label, kind }
}

/// Runs that have ended, one in each way.
async fn write_ended_runs(engine: &Engine) -> Vec<Labelled> {
    let keyed = async |workflow| engine.submit(workflow, ()).key(workflow).await.unwrap();
    let poison = Labelled {
        label: "poison",
        run: keyed("poison").await,
        task: "poison",
        kind: Kind::Failed,
    };
    let mut runs = vec![
        poison,
        submit(engine, "plain", Kind::Succeeded).await,
        submit(engine, "error", Kind::Failed).await,
        submit(engine, "panic", Kind::Failed).await,
        submit(engine, "timeout", Kind::TimedOut).await,
        submit(engine, "wait_timeout", Kind::Failed).await,
        submit(engine, "deadline", Kind::TimedOut).await,
    ];
    let unserved = engine.submit("queue_timeout", ()).queue("unserved").await.unwrap();
    runs.push(Labelled {
        label: "queue_timeout",
        run: unserved,
        task: "queue_timeout",
        kind: Kind::TimedOut,
    });
    let cancelled = engine.submit("deferred", ()).await.unwrap();
    until_task_is(&cancelled, "deferred", Kind::Deferred).await;
    cancelled.cancel().await.unwrap();
    runs.push(Labelled {
        label: "cancelled",
        run: cancelled,
        task: "deferred",
        kind: Kind::Cancelled,
    });
    for (label, task, kind) in
        [("fail_fast", "never", Kind::Skipped), ("skipped", "below", Kind::Skipped)]
    {
        let run = engine.submit(label, ()).await.unwrap();
        runs.push(Labelled { label, run, task, kind });
    }
    for Labelled { run, .. } in &runs {
        run.wait().await.unwrap();
    }
    runs
}

/// Runs that hold no slot.
async fn write_waiting_runs(engine: &Engine) -> Vec<Labelled> {
    let mut runs = vec![
        submit(engine, "backoff", Kind::Ready).await,
        submit(engine, "snoozed", Kind::Ready).await,
        submit(engine, "deferred", Kind::Deferred).await,
        submit(engine, "lender", Kind::Deferred).await,
        submit(engine, "parked_signal", Kind::Parked).await,
        submit(engine, "parked_sleep", Kind::Parked).await,
        submit(engine, "parked_any", Kind::Parked).await,
    ];
    let holder = submit(engine, "api", Kind::Deferred).await;
    until_task_is(&holder.run, "api", Kind::Deferred).await;
    runs.push(holder);
    runs.push(Labelled { label: "behind_api", ..submit(engine, "api", Kind::Ready).await });
    runs.push(Labelled { label: "behind_api_too", ..submit(engine, "api", Kind::Ready).await });
    for (label, tenant, kind) in [
        ("tenant_a", "a", Kind::Deferred),
        ("tenant_b", "b", Kind::Deferred),
        ("behind_tenant_a", "a", Kind::Ready),
    ] {
        let run = engine.submit("tenant", json!({ "tenant": tenant })).await.unwrap();
        until_task_is(&run, "tenant", kind).await;
        runs.push(Labelled { label, run, task: "tenant", kind });
    }
    for (label, kind) in [
        ("paced_first", Kind::Succeeded),
        ("paced_second", Kind::Succeeded),
        ("paced_third", Kind::Ready),
    ] {
        let paced = Labelled { label, ..submit(engine, "paced", kind).await };
        until_task_is(&paced.run, "paced", kind).await;
        runs.push(paced);
    }
    let signalled = submit(engine, "signalled", Kind::Deferred).await;
    signalled.run.signal("first", "sent while writing").await.unwrap();
    signalled.run.signal("first", "never taken").await.unwrap();
    signalled.run.signal("unknown", ()).await.unwrap();
    runs.push(signalled);
    let parent = submit(engine, "parked_child", Kind::Parked).await;
    until_task_is(&parent.run, "parked_child", Kind::Parked).await;
    runs.push(parent);
    runs.push(submit(engine, "children", Kind::Deferred).await);
    runs
}

/// Runs whose tasks compute, and those that find no slot any more.
async fn write_computing_runs(engine: &Engine) -> Vec<Labelled> {
    let held = submit(engine, "hold", Kind::Active).await;
    let awaited = json!({ "run": held.run.id().to_string() });
    let run = engine.submit("awaits", awaited).await.unwrap();
    let awaits = Labelled { label: "awaits", run, task: "awaits", kind: Kind::Deferred };
    let suspect = engine.submit("suspect", ()).key("suspect").await.unwrap();
    let mut runs = vec![
        held,
        awaits,
        Labelled { label: "suspect", run: suspect, task: "suspect", kind: Kind::Active },
        submit(engine, "decided_any", Kind::Active).await,
        submit(engine, "steps", Kind::Active).await,
        submit(engine, "command", Kind::Active).await,
    ];
    let chain = Labelled { task: "third", ..submit(engine, "chain", Kind::Blocked).await };
    until_task_is(&chain.run, "second", Kind::Active).await;
    runs.push(chain);

    let first = engine.submit("retried", ()).await.unwrap();
    first.wait().await.unwrap();
    let again = first.retry().await.unwrap();
    runs.push(Labelled { label: "retried", run: first, task: "flaky", kind: Kind::Failed });
    for labelled in &runs {
        until_task_is(&labelled.run, labelled.task, labelled.kind).await;
    }
    let again = Labelled {
        label: "retry",
        run: again.run().unwrap().clone(),
        task: "flaky",
        kind: Kind::Active,
    };
    until_task_is(&again.run, again.task, again.kind).await;
    runs.push(again);

    let fan_out = Labelled { task: "item", ..submit(engine, "fan_out", Kind::Deferred).await };
    until_no_slot_is_free(engine).await;
    runs.push(fan_out);
    runs.extend(write_runs_without_slot(engine).await);
    runs
}

async fn until_no_slot_is_free(engine: &Engine) {
    for _ in 0..600 {
        if engine.slots().available() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} slots are free", engine.slots().available());
}

async fn write_runs_without_slot(engine: &Engine) -> Vec<Labelled> {
    // Items stand before it, also among what is claimed ahead of a free slot.
    let mut runs = vec![Labelled { label: "ready", ..submit(engine, "plain", Kind::Ready).await }];
    let later = Timestamp::from(SystemTime::now() + Duration::from_secs(60));
    let future = engine.submit("plain", ()).not_before(later).priority(9).await.unwrap();
    runs.push(Labelled { label: "not_before", run: future, task: "plain", kind: Kind::Ready });
    let paused = Labelled { label: "paused", ..submit(engine, "chain", Kind::Ready).await };
    paused.run.pause().await.unwrap();
    runs.push(Labelled { task: "first", ..paused });
    engine.pause_queue("night").await.unwrap();
    for (label, queue) in [("paused_queue", "night"), ("other_queue", "later")] {
        let run = engine.submit("plain", ()).queue(queue).await.unwrap();
        runs.push(Labelled { label, run, task: "plain", kind: Kind::Ready });
    }
    let future = SystemTime::now() + Duration::from_secs(60 * 365 * 86_400);
    let far = engine.submit("plain", ()).not_before(Timestamp::from(future)).await.unwrap();
    runs.push(Labelled { label: "in_sixty_years", run: far, task: "plain", kind: Kind::Ready });
    runs
}
