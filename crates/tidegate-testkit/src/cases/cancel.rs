//! What a user does not want any more.

use super::SECOND;
use crate::{World, chain, change, claim, one, plan};
use tidegate_core::RunId;
use tidegate_core::graph::{RunOutcome, When};
use tidegate_core::lifecycle::{Event, Kind, Reason, State, WorkerId};
use tidegate_core::store::{
    Applied, Change, Claimed, Happened, NewRun, Operation, OperationOutcome, Reply, Scope, Told,
};

/// Cancels the run and checks what holds in every state.
async fn cancel(world: &mut World, run: RunId) -> Reply {
    world.advance(SECOND);
    let reply = world.perform_operation(Operation::Cancel(run)).await;
    let view = world.view(run).await;
    assert_eq!(view.run.ended, Some((RunOutcome::Cancelled, world.now())));
    for task in &view.tasks {
        assert!(task.life.state.kind().is_terminal());
        assert!(task.ended_at.is_some());
    }
    assert_eq!(reply.ended.len(), 1);
    assert_eq!(world.ask(Operation::Cancel(run)).await.operations, [OperationOutcome::Already]);
    reply
}

/// Whatever is said of the task now changes nothing.
async fn is_final(world: &mut World, worker: WorkerId, run: RunId, task: &Claimed) {
    let before = world.view(run).await;
    let all: [Change; 7] = [
        change::begin(task),
        change::succeed_with(task, "out", "in"),
        change::with_error(change::fail(task), "too late"),
        change::defer(task, SECOND, "x"),
        change::park(task, None),
        change::hand_back(task),
        change::stopped(task),
    ];
    for change in all {
        let reply = world.say(worker, change).await;
        let actual = Some(before.tasks[0].life.clone());
        assert_eq!(reply.changes, [Applied::Lost { actual }]);
        assert!(reply.records.is_empty() && reply.ended.is_empty());
    }
    assert_eq!(world.view(run).await, before);
    assert_eq!(world.output(task.key).await, None);
}

pub async fn a_run_that_nobody_has_taken_is_over_at_once(world: &mut World) {
    let plan = chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let future = Some(world.now() + SECOND * 100);
    for (not_before, paused) in [(None, false), (future, false), (None, true), (future, true)] {
        let new = NewRun { not_before, ..world.new_run(&plan) };
        let run = world.submit_run(new).await.id;
        if paused {
            world.perform_operation(Operation::Pause(Scope::Run(run))).await;
        }
        let reply = cancel(world, run).await;
        assert_eq!((reply.told.len(), reply.alarm), (0, None));
        for at in 0..2 {
            assert_eq!(world.life(run, at).await.state, State::Cancelled(Reason::User));
        }
        assert_eq!(reply.records.len(), 2);
        for record in &reply.records {
            assert_eq!((record.what, record.reason), (Happened::Cancelled, Some(Reason::User)));
            assert_eq!((record.entry, record.worker, record.begun_at), (0, None, None));
        }
        assert!(world.claim(worker, 9).await.is_empty());
    }
}

pub async fn a_run_that_a_worker_has_is_over_at_once_and_the_worker_is_told(world: &mut World) {
    for state in [Kind::Claimed, Kind::Active, Kind::Deferred] {
        let plan = one().build();
        let worker = world.worker(&[&plan]).await;
        let run = world.submit(&plan).await.id;
        let task = match state {
            Kind::Claimed => world.claim_ahead(worker).await,
            _ => world.claim_one(worker).await,
        };
        if state == Kind::Deferred {
            world.tell(worker, change::defer(&task, SECOND, "x")).await;
        }
        assert_eq!(world.kinds(run).await, [state]);
        let reply = cancel(world, run).await;
        let (fence, kind) = (task.life.fence, Kind::Cancelled);
        assert_eq!(reply.told, [Told { task: task.key, fence, worker, kind }], "{state}");
        let record = &reply.records[0];
        assert_eq!((record.worker, record.attempt), (Some(worker), 1));
        assert_eq!(record.begun_at.is_some(), state != Kind::Claimed);
        is_final(world, worker, run, &task).await;
        assert_eq!(world.store().counts().await.expect("they are counted").running, 0);
    }
}

pub async fn a_parked_run_is_over_at_once(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let wake = world.now() + SECOND * 10;
    world.tell(worker, change::park(&task, Some(wake))).await;
    let reply = cancel(world, run).await;
    assert_eq!((reply.told.len(), reply.alarm), (0, None));
    is_final(world, worker, run, &task).await;
    world.advance(SECOND * 20);
    assert!(world.claim(worker, 9).await.is_empty());
}

pub async fn a_run_in_back_off_is_over_at_once(world: &mut World) {
    let plan = one().rules(|rules| rules.retries = 3).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::fail(&task)).await;
    let reply = cancel(world, run).await;
    assert_eq!(reply.alarm, None);
    assert_eq!(reply.records[0].attempt, 2);
    is_final(world, worker, run, &task).await;
}

pub async fn a_cancelled_run_stays_cancelled_in_the_request_that_finishes_it(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    cancel(world, run).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&task));
    request.claim = claim(1, 1);
    let reply = world.take(request).await;
    assert_ne!(reply.changes, [Applied::Yes]);
    assert!(reply.claimed.is_empty());
}

pub async fn cancelling_spares_what_has_ended_and_cancels_clean_up(world: &mut World) {
    let sketch = plan("p").task("a", &[]).task("b", &["a"]).task("tidy", &["a", "b"]);
    let plan = sketch.when(When::AllDone).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let a = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&a)).await;
    world.claim_one(worker).await;
    let reply = cancel(world, run).await;
    assert_eq!(world.kinds(run).await, [Kind::Succeeded, Kind::Cancelled, Kind::Cancelled]);
    assert_eq!((reply.told.len(), reply.records.len()), (1, 2));
}

pub async fn a_failing_run_that_is_cancelled_counts_as_cancelled(world: &mut World) {
    let plan = plan("p").task("a", &[]).task("b", &[]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let claimed = world.claim(worker, 2).await;
    world.tell(worker, change::fail(&claimed[0])).await;
    cancel(world, run).await;
    assert_eq!(world.kinds(run).await, [Kind::Failed, Kind::Cancelled]);
}

/// A store may remember what it wrote; all of a run is looked at in another way than one task.
pub async fn tasks_behind_the_first_are_over_too_whatever_their_worker_says(world: &mut World) {
    let plan = plan("p").task("a", &[]).task("b", &[]).task("c", &[]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let tasks = world.claim(worker, 3).await;
    cancel(world, run).await;
    let before = world.view(run).await;
    for task in tasks.iter().rev() {
        let reply = world.say(worker, change::succeed(task)).await;
        let actual = Some(before.tasks[task.index.as_usize()].life.clone());
        assert_eq!(reply.changes, [Applied::Lost { actual }]);
    }
    assert_eq!(world.view(run).await, before);
}

pub async fn a_run_that_is_over_or_unknown_cannot_be_cancelled(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    let before = world.view(run).await;
    assert_eq!(world.ask(Operation::Cancel(run)).await.operations, [OperationOutcome::Already]);
    assert_eq!(world.view(run).await, before);
    let nobody = RunId::new(world.now(), 77);
    assert_eq!(world.ask(Operation::Cancel(nobody)).await.operations, [OperationOutcome::Unknown]);
}

/// The report was there first: whatever stands in one request happens as if in two.
pub async fn a_run_that_ends_in_the_request_that_cancels_it_has_ended_as_it_says(
    world: &mut World,
) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::succeed(&task));
    request.operations.push(Operation::Cancel(run));
    let reply = world.take(request).await;
    assert_eq!(
        (&reply.changes[..], &reply.operations[..]),
        (&[Applied::Yes][..], &[OperationOutcome::Already][..])
    );
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Succeeded, world.now())));
}

pub async fn what_is_said_of_a_task_that_does_not_exist_is_lost(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let task = world.claim_one(worker).await;
    let key = tidegate_core::store::TaskKey(run.key.0 + 77);
    let said = Change::new(key, task.index, Event::Succeed { fence: task.life.fence });
    assert_eq!(world.say(worker, said).await.changes, [Applied::Lost { actual: None }]);
}
