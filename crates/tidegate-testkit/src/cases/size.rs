//! Much at once.

use super::SECOND;
use crate::{World, change, claim, fan, one};
use tidegate_core::ERROR_MAX;
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::Kind;
use tidegate_core::store::{Applied, Change, Operation};

pub async fn a_run_of_a_thousand_tasks_goes_through(world: &mut World) {
    let plan = fan(998).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let mut claimed = world.claim(worker, 1_000).await;
    for expected in [998, 1, 0] {
        let mut request = world.request_of(worker);
        request.changes = claimed.iter().map(change::succeed).collect();
        request.claim = claim(1_000, 0);
        let reply = world.take(request).await;
        assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes));
        claimed = reply.claimed;
        assert_eq!(claimed.len(), expected);
    }
    let view = world.view(run).await;
    assert_eq!(view.run.ended, Some((RunOutcome::Succeeded, world.now())));
    assert_eq!((view.tasks.len(), world.records().await.len()), (1_000, 1_000));
}

pub async fn a_run_of_a_thousand_tasks_is_cancelled_in_one_request(world: &mut World) {
    let plan = fan(998).build();
    let run = world.submit(&plan).await.id;
    let reply = world.perform_operation(Operation::Cancel(run)).await;
    assert_eq!((reply.records.len(), reply.ended.len()), (1_000, 1));
    assert!(world.kinds(run).await.iter().all(|kind| *kind == Kind::Cancelled));
}

pub async fn error_is_stored_and_recorded_up_to_a_bound_and_shows_that_it_was_cut(
    world: &mut World,
) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    let error = "ü".repeat(ERROR_MAX);
    let failed = Change { error: Some(error.clone()), ..change::fail(&task) };
    let reply = world.tell(worker, failed).await;
    let stored = world.view(run).await.tasks[0].error.clone().expect("it has failed");
    let kept = stored.strip_suffix("… (cut: 131,072 bytes)").expect("it says so");
    assert!(error.starts_with(kept) && kept.len() == ERROR_MAX);
    assert_eq!(reply.records[0].error.as_ref(), Some(&stored));
    assert_eq!(world.records().await[0].error, Some(stored));
}

pub async fn ten_thousand_runs_are_submitted_in_one_request(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut request = world.request_of(worker);
    request.submits = (0..10_000).map(|_| world.new_run(&plan)).collect();
    request.claim = claim(8, 8);
    let ids: Vec<_> = request.submits.iter().map(|new| new.id).collect();
    let reply = world.take(request).await;
    assert_eq!((reply.submits.len(), reply.claimed.len(), reply.more), (10_000, 16, true));
    let keys: std::collections::BTreeSet<_> =
        reply.submits.iter().flatten().map(|submitted| submitted.key).collect();
    assert_eq!(keys.len(), 10_000);
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!((counts.ready, counts.running), (9_984, 16));
    let taken: Vec<_> = world.claim(worker, 9_984).await.iter().map(|task| task.run).collect();
    assert_eq!(taken, ids[16..], "all of them, in order");
}

pub async fn more_alarms_than_a_request_looks_at_ring_in_several(world: &mut World) {
    let plan = one().rules(|rules| rules.queue_timeout = Some(SECOND)).build();
    let mut request = world.request();
    request.submits = (0..2_500).map(|_| world.new_run(&plan)).collect();
    world.take(request).await;
    world.advance(SECOND);
    let mut ended = 0;
    for _ in 0..3 {
        let reply = world.look().await;
        assert!(reply.ended.len() < 2_500, "a request stays short");
        ended += reply.ended.len();
        if ended < 2_500 {
            assert_eq!(reply.alarm, Some(world.now()), "there is more to look at");
        }
    }
    assert_eq!(ended, 2_500);
    assert_eq!(world.look().await.alarm, None);
}
