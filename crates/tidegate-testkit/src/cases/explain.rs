//! Why a task is not running, as far as a store knows.

use super::SECOND;
use crate::{QUEUE, World, ask, change, claim, diamond, one, plan};
use std::time::Duration;
use tidegate_core::explain::{COUNTED_MAX, Full, Live, Looked, Slots, Why};
use tidegate_core::graph::{OnFailure, TaskIndex, When};
use tidegate_core::lifecycle::{CancelledBy, Kind, Reason, State, WorkerId};
use tidegate_core::limit::{Holder, Limit, LimitKey, Rate};
use tidegate_core::load::{Reached, Resource};
use tidegate_core::plan::LimitUse;
use tidegate_core::store::{Claimed, NewRun, Operation, Scope, Submitted, TaskKey, WhyUnserved};
use tidegate_core::wait::{WaitId, WaitKind, WaitOp};
use tidegate_core::{Backoff, RunId};

async fn look(world: &World, task: TaskKey) -> Looked {
    let looked = world.store().explain(task, world.now()).await.expect("a task can be explained");
    looked.expect("the task is there")
}

async fn why(world: &World, task: TaskKey) -> Vec<Why> {
    look(world, task).await.reasons
}

fn first(run: &Submitted) -> TaskKey {
    task(run, 0)
}

fn task(run: &Submitted, index: u32) -> TaskKey {
    run.key.task(TaskIndex::from_u32(index))
}

/// It is ready, can be claimed, and so many go before it.
fn no_slot(before: u32) -> Why {
    Why::NoSlot { queue: QUEUE.to_owned(), before, slots: None }
}

fn holder(task: &Claimed, since: tidegate_core::Timestamp) -> Holder {
    let name = task.plan.graph().name(task.index).to_owned();
    Holder { task: task.key, run: task.run, name, units: 1, since }
}

pub async fn what_is_not_there_is_not_explained(world: &mut World) {
    let looked = world.store().explain(TaskKey(77), world.now()).await;
    assert_eq!(looked.expect("the store can be read"), None);
}

pub async fn a_blocked_task_names_those_that_it_waits_for(world: &mut World) {
    let plan = diamond().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let a = world.claim_one(worker).await;
    let blocked = |tasks: &[(&str, Kind)]| {
        let open = tasks.len() as u32;
        let tasks = tasks.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        Why::BlockedBy { tasks, open, when: When::AllSucceeded }
    };
    assert_eq!(why(world, task(&run, 1)).await, [blocked(&[("a", Kind::Active)])]);
    let both = [("b", Kind::Blocked), ("c", Kind::Blocked)];
    let looked = look(world, task(&run, 3)).await;
    assert_eq!(looked.reasons, [blocked(&both)]);
    assert_eq!((looked.run, looked.task.as_str(), looked.kind), (run.id, "d", Kind::Blocked));
    assert_eq!((looked.at, looked.estimate()), (world.now(), None));
    world.tell(worker, change::succeed(&a)).await;
    let b = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&b)).await;
    assert_eq!(why(world, task(&run, 3)).await, [blocked(&[("c", Kind::Ready)])]);
    world.perform_operation(Operation::Pause(Scope::Run(run.id))).await;
    let paused = Why::Paused { scope: Scope::Run(run.id), since: world.now() };
    assert_eq!(why(world, task(&run, 3)).await, [blocked(&[("c", Kind::Ready)]), paused]);
}

pub async fn a_start_time_a_back_off_and_a_snooze_are_told_apart(world: &mut World) {
    let plan = one().rules(|rules| {
        rules.retries = 4;
        rules.backoff = Backoff::fixed(30 * SECOND);
    });
    let plan = plan.build();
    let worker = world.worker(&[&plan]).await;
    let at = world.now() + 10 * SECOND;
    let new = NewRun { not_before: Some(at), ..world.new_run(&plan) };
    let run = world.submit_run(new).await;
    let looked = look(world, first(&run)).await;
    assert_eq!(looked.reasons, [Why::NotBefore { at }]);
    assert_eq!(looked.estimate(), Some(10 * SECOND));

    world.advance(10 * SECOND);
    let entry = world.claim_one(worker).await;
    world.tell(worker, change::snooze(&entry, 5 * SECOND)).await;
    let until = world.now() + 5 * SECOND;
    assert_eq!(why(world, entry.key).await, [Why::Snoozed { until }]);

    world.advance(5 * SECOND);
    let entry = world.claim_one(worker).await;
    world.tell(worker, change::with_error(change::fail(&entry), "no route to host")).await;
    let until = world.now() + 30 * SECOND;
    let error = Some("no route to host".to_owned());
    let looked = look(world, entry.key).await;
    assert_eq!(looked.reasons, [Why::BackOff { until, attempt: 2, attempts: 5, error }]);
    assert_eq!(looked.estimate(), Some(30 * SECOND));

    world.advance(30 * SECOND);
    let entry = world.claim_one(worker).await;
    world.tell(worker, change::snooze(&entry, 5 * SECOND)).await;
    let until = world.now() + 5 * SECOND;
    assert_eq!(why(world, entry.key).await, [Why::Snoozed { until }], "in a later attempt too");
}

pub async fn a_limit_that_is_full_names_its_holders_and_who_stands_before(world: &mut World) {
    let plan = one().limit(LimitUse::of("api").by("model")).build();
    let worker = world.worker(&[&plan]).await;
    world.declare(Limit::new("api").at_once(2)).await;
    let mut runs = Vec::new();
    for key in ["gpt", "gpt", "gpt", "gpt", "other"] {
        let keys = vec![(TaskIndex::from_u32(0), vec![key.into()])];
        let new = NewRun { keys, ..world.new_run(&plan) };
        runs.push(world.submit_run(new).await);
    }
    let (since, limit) = (world.now(), LimitKey::new("api", "gpt"));
    let claimed = world.claim(worker, 9).await;
    assert_eq!(claimed.len(), 3);
    world.advance(SECOND);
    for (at, before) in [(2, 0), (3, 1)] {
        let full = Full {
            limit: limit.clone(),
            at_once: Some(2),
            wants: 1,
            in_use: 2,
            holders: claimed[..2].iter().map(|task| holder(task, since)).collect(),
            before,
        };
        let looked = look(world, first(&runs[at])).await;
        assert_eq!(looked.reasons, [Why::LimitFull(full)]);
        assert_eq!(looked.estimate(), None, "nobody knows how long they take");
    }
    // The third makes it known how long such tasks take, and leaves the limit as it is.
    world.advance(9 * SECOND);
    world.tell(worker, change::succeed(&claimed[2])).await;
    let looked = look(world, first(&runs[3])).await;
    assert_eq!(looked.usual, Some(10 * SECOND));
    assert_eq!(looked.estimate(), Some(10 * SECOND), "two of 10 s, two at a time");
}

pub async fn a_rate_that_is_reached_says_when_the_next_may_begin(world: &mut World) {
    let plan = one().limit("api").build();
    let worker = world.worker(&[&plan]).await;
    world.declare(Limit::new("api").at_once(1).rate(1, 60 * SECOND)).await;
    let runs = [world.submit(&plan).await, world.submit(&plan).await, world.submit(&plan).await];
    let begun = world.now();
    let task = world.claim_with(worker, claim(9, 0)).await.claimed.remove(0);
    world.advance(10 * SECOND);
    let (limit, rate) = (LimitKey::new("api", ""), Rate { units: 1, per: 60 * SECOND });
    let reached = |before| {
        let (limit, next) = (limit.clone(), begun + 60 * SECOND);
        Why::RateReached { limit, rate, wants: 1, next, before }
    };
    let holders = vec![holder(&task, begun)];
    let (at_once, wants, in_use, before) = (Some(1), 1, 1, 0);
    let full = Full { limit: limit.clone(), at_once, wants, in_use, holders, before };
    let both = [reached(0), Why::LimitFull(full)];
    assert_eq!(why(world, first(&runs[1])).await, both, "both stand in its way");
    world.tell(worker, change::succeed(&task)).await;
    let looked = look(world, first(&runs[1])).await;
    assert_eq!(looked.reasons, [reached(0)]);
    assert_eq!(looked.estimate(), Some(50 * SECOND));
    let looked = look(world, first(&runs[2])).await;
    assert_eq!(looked.reasons, [reached(1)]);
    assert_eq!(looked.estimate(), Some(110 * SECOND));
}

pub async fn a_limit_that_is_not_declared_is_named(world: &mut World) {
    let plan = one().limit("nowhere").build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let missing = Why::LimitMissing { limit: LimitKey::new("nowhere", "") };
    assert_eq!(why(world, first(&run)).await, [missing.clone(), no_slot(0)]);
    assert!(world.claim(worker, 9).await.is_empty());
    assert_eq!(why(world, first(&run)).await, [missing]);
}

pub async fn every_pause_is_named_with_its_time(world: &mut World) {
    let plan = one().build();
    world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let scopes = [Scope::Store, Scope::Queue(QUEUE.to_owned()), Scope::Run(run.id)];
    let mut paused = Vec::new();
    for scope in scopes {
        world.advance(SECOND);
        world.perform_operation(Operation::Pause(scope.clone())).await;
        paused.push(Why::Paused { scope: scope.clone(), since: world.now() });
        let found = why(world, first(&run)).await;
        assert_eq!(found[..paused.len()], paused);
        // What is paused by itself does not stand in its queue.
        let queues = !matches!(scope, Scope::Run(_));
        assert_eq!(found[paused.len()..], [no_slot(0)][..usize::from(queues)]);
        assert_eq!(look(world, first(&run)).await.estimate(), None);
    }
}

pub async fn a_ready_task_knows_its_place_in_its_queue(world: &mut World) {
    let (plan, unknown) = (one().build(), one().called("unknown").build());
    let worker = world.worker_of(&[QUEUE, "side"], &[&plan]).await;
    let old = world.submit(&plan).await;
    let done = world.claim_one(worker).await;
    world.advance(8 * SECOND);
    world.tell(worker, change::succeed(&done)).await;
    assert_eq!(done.key, first(&old));

    world.submit(&unknown).await;
    let side = NewRun { queue: "side".into(), ..world.new_run(&plan) };
    world.submit_run(side).await;
    let runs = [world.submit(&plan).await, world.submit(&plan).await];
    let soon = NewRun { priority: 1, ..world.new_run(&plan) };
    let soon = world.submit_run(soon).await;
    assert_eq!(why(world, first(&soon)).await, [no_slot(0)]);
    assert_eq!(why(world, first(&runs[0])).await, [no_slot(1)]);
    let looked = look(world, first(&runs[1])).await;
    assert_eq!(looked.reasons, [no_slot(2)]);
    assert_eq!((looked.able.as_slice(), looked.slots), (&[worker][..], 100));
    // Three of them, 8 s each, on 100 slots.
    assert_eq!(looked.estimate(), Some(3 * 8 * SECOND / 100));
}

pub async fn those_that_go_before_are_counted_up_to_a_bound(world: &mut World) {
    let (plan, limited) = (one().build(), plan("limited").task("a", &[]).limit("api").build());
    let worker = world.worker(&[&plan, &limited]).await;
    world.declare(Limit::new("api").at_once(1)).await;
    let mut request = world.request();
    request.submits.extend((0..=COUNTED_MAX).map(|_| world.new_run(&limited)));
    world.take(request).await;
    let last = world.submit(&limited).await;
    assert_eq!(why(world, first(&last)).await, [no_slot(COUNTED_MAX)]);
    // One begins, and the others stand behind the limit.
    while world.claim_with(worker, claim(9, 0)).await.more {}
    let looked = why(world, first(&last)).await;
    assert!(
        matches!(&looked[..], [Why::LimitFull(Full { before: COUNTED_MAX, .. })]),
        "{looked:?}"
    );
    let mut request = world.request();
    request.submits.extend((0..=COUNTED_MAX).map(|_| world.new_run(&plan)));
    world.take(request).await;
    let last = world.submit(&plan).await;
    assert_eq!(why(world, first(&last)).await, [no_slot(COUNTED_MAX)]);
}

pub async fn what_no_worker_can_run_says_why(world: &mut World) {
    let plan = one().weight(101).build();
    let run = world.submit(&plan).await;
    let unserved = |why| Why::Unserved {
        queue: QUEUE.to_owned(),
        workflow: "one".to_owned(),
        task: "a".to_owned(),
        weight: 101,
        why,
    };
    assert_eq!(why(world, first(&run)).await, [unserved(WhyUnserved::Queue)]);
    world.worker(&[]).await;
    assert_eq!(why(world, first(&run)).await, [unserved(WhyUnserved::Unknown)]);
    let worker = world.worker(&[&plan]).await;
    let heavy = unserved(WhyUnserved::TooHeavy { largest: 100 });
    assert_eq!(why(world, first(&run)).await, [heavy]);
    world.kill(worker).await;
    assert_eq!(why(world, first(&run)).await, [unserved(WhyUnserved::Unknown)], "it is dead");
}

pub async fn a_wait_in_memory_and_one_as_a_row_say_what_for_and_how_long(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let entry = world.claim_one(worker).await;
    let (since, due) = (world.now(), world.now() + 40 * SECOND);
    world.tell(worker, change::defer(&entry, SECOND, "a file")).await;
    let waits = |until| Why::Waits { what: "a file".to_owned(), since, until, worker };
    let looked = look(world, first(&run)).await;
    assert_eq!((looked.reasons.clone(), looked.estimate()), (vec![waits(None)], None));
    let op = ask::sleep(0, due);
    world.tell(worker, change::asks(&entry, [op])).await;
    world.advance(SECOND);
    let looked = look(world, first(&run)).await;
    assert_eq!(
        (looked.reasons.clone(), looked.estimate()),
        (vec![waits(Some(due))], Some(39 * SECOND))
    );
    let on = [WaitId::new(WaitKind::Sleep, "", 0)];
    world.tell(worker, change::park_on(&entry, Some(due), on)).await;
    let State::Parked { wait: what, .. } = world.life(run.id, 0).await.state else {
        panic!("it is parked");
    };
    let parked = Why::Parked { what, since: world.now(), until: Some(due) };
    let looked = look(world, first(&run)).await;
    assert_eq!(
        (looked.reasons.clone(), looked.estimate()),
        (vec![parked.clone()], Some(39 * SECOND))
    );
    world.perform_operation(Operation::Pause(Scope::Store)).await;
    let paused = Why::Paused { scope: Scope::Store, since: world.now() };
    let looked = look(world, first(&run)).await;
    assert_eq!((looked.reasons.clone(), looked.estimate()), (vec![parked, paused], None));
}

pub async fn who_has_waited_and_wants_its_limit_again_names_who_holds_it(world: &mut World) {
    let plan = one().limit("api").build();
    let worker = world.worker(&[&plan]).await;
    world.declare(Limit::new("api").at_once(1)).await;
    let run = world.submit(&plan).await;
    let waits = world.claim_one(worker).await;
    let op = ask::releasing(ask::signal("go", 0), &["api"]);
    let change = change::asks(&waits, [op]);
    world.tell(worker, change).await;
    world.tell(worker, change::defer(&waits, SECOND, "signal \"go\"")).await;
    world.submit(&plan).await;
    let holds = world.claim_one(worker).await;
    let since = world.now();
    world.send(run.id, "go", "1").await;
    world.advance(SECOND);
    let answer = world.asks(worker, &waits, WaitOp::Retake(1)).await;
    assert_eq!(answer, None, "somebody else has it");
    let (limit, holders) = (LimitKey::new("api", ""), vec![holder(&holds, since)]);
    let full = Full { limit, at_once: Some(1), wants: 1, in_use: 1, holders, before: 0 };
    assert_eq!(why(world, waits.key).await, [Why::Retakes(full)]);
    let third = world.submit(&plan).await;
    assert!(world.claim(worker, 1).await.is_empty());
    let looked = why(world, first(&third)).await;
    assert!(matches!(&looked[..], [Why::LimitFull(Full { before: 1, .. })]), "{looked:?}");
}

pub async fn what_a_worker_has_is_claimed_running_or_told_to_stop(world: &mut World) {
    let plan = plan("p").task("fails", &[]).task("goes", &[]).on_failure(OnFailure::FailFastKill);
    let plan = plan.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let ready = world.now();
    let claimed = world.claim_with(worker, claim(0, 2)).await.claimed;
    let why_claimed = Why::Claimed { worker, since: ready, slots: None };
    assert_eq!(why(world, task(&run, 1)).await, [why_claimed]);
    world.advance(SECOND);
    for task in &claimed {
        world.tell(worker, change::begin(task)).await;
    }
    let running = Why::Running { worker, since: world.now() };
    assert_eq!(why(world, task(&run, 1)).await, std::slice::from_ref(&running));
    world.advance(SECOND);
    let fail = change::with_error(change::fail(&claimed[0]), "it was to fail");
    world.tell(worker, fail).await;
    let stopping = Why::Stopping { by: CancelledBy::FailFast };
    assert_eq!(why(world, task(&run, 1)).await, [stopping, running]);
    let ended = |kind, reason, error: Option<&str>| Why::Ended {
        kind,
        reason: Some(reason),
        at: Some(world.now()),
        error: error.map(str::to_owned),
    };
    let failed = ended(Kind::Failed, Reason::Error, Some("it was to fail"));
    let cancelled = ended(Kind::Cancelled, Reason::FailFast, None);
    assert_eq!(why(world, first(&run)).await, [failed]);
    world.tell(worker, change::stopped(&claimed[1])).await;
    let looked = look(world, task(&run, 1)).await;
    assert_eq!((looked.reasons.as_slice(), looked.estimate()), (&[cancelled][..], None));
}

pub async fn who_was_skipped_says_because_of_whom(world: &mut World) {
    let plan = crate::chain(2).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let entry = world.claim_one(worker).await;
    world.tell(worker, change::fail(&entry)).await;
    let error = Some("because \"t0\" has failed".to_owned());
    let (kind, at) = (Kind::Skipped, Some(world.now()));
    let skipped = Why::Ended { kind, reason: None, at, error };
    assert_eq!(why(world, task(&run, 1)).await, [skipped]);
}

pub async fn who_died_too_often_is_said_to_run_alone(world: &mut World) {
    let plan = one().build();
    let run = world.submit(&plan).await;
    for _ in 0..2 {
        let worker = world.worker(&[&plan]).await;
        world.claim_one(worker).await;
        world.kill(worker).await;
        world.recover(worker).await;
    }
    let worker = world.worker(&[&plan]).await;
    let alone = Why::Quarantined { deaths: 2, before: Vec::new() };
    assert_eq!(why(world, first(&run)).await, [alone.clone(), no_slot(0)]);
    let since = world.claim(worker, 1).await.remove(0).order;
    let looked = look(world, first(&run)).await;
    let claimed = Why::Claimed { worker, since, slots: None };
    assert_eq!(looked.reasons, [claimed, alone]);

    // The worker knows whether it is kept back, or only waits for a slot.
    let before = vec![(RunId::new(world.now(), 99), "other".to_owned())];
    let kept_back = Live { suspects: before.clone(), kept_back: true, ..live(worker, 1) };
    let alone = Why::Quarantined { deaths: 2, before };
    assert_eq!(looked.clone().with(&kept_back).reasons, [alone]);
    let claimed = Why::Claimed { worker, since, slots: Some(live(worker, 1).slots) };
    assert_eq!(looked.with(&live(worker, 1)).reasons, [claimed]);
}

/// A worker with one slot, of which so much is in use.
fn live(worker: WorkerId, in_use: u32) -> Live {
    Live {
        worker,
        slots: Slots { capacity: 1, in_use, waiting: 2 },
        in_memory_max: None,
        start_below: Vec::new(),
        suspects: Vec::new(),
        kept_back: false,
        resumes: false,
    }
}

pub async fn what_a_worker_knows_is_added_to_what_it_could_run(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let looked = look(world, first(&run)).await;
    let slots = Some(live(worker, 1).slots);
    let queues = Why::NoSlot { queue: QUEUE.to_owned(), before: 0, slots };
    assert_eq!(looked.clone().with(&live(worker, 1)).reasons, std::slice::from_ref(&queues));
    let elsewhere = live(WorkerId(u64::MAX), 1);
    assert_eq!(looked.clone().with(&elsewhere).reasons, [no_slot(0)], "it could not run it");
    let full = Live { in_memory_max: Some(7), ..live(worker, 1) };
    let most = Why::InMemoryMax { worker, most: 7 };
    assert_eq!(looked.clone().with(&full).reasons, [queues, most.clone()]);
    let full = Live { in_memory_max: Some(7), ..live(worker, 0) };
    let with = looked.clone().with(&full);
    assert_eq!((with.estimate(), with.reasons), (None, vec![most]), "a slot is free");
    let reached = Reached { what: Resource::Memory, value: 0.9, mark: 0.8 };
    let busy = Live { start_below: vec![reached], ..live(worker, 0) };
    let held = Why::StartBelow { worker, what: Resource::Memory, value: 0.9, mark: 0.8 };
    assert_eq!(looked.clone().with(&busy).reasons, [held], "a slot is free here, too");
    let free = looked.with(&live(worker, 0));
    assert_eq!(free.estimate(), Some(Duration::ZERO), "it is about to begin");
    assert!(matches!(free.reasons[..], [Why::NoSlot { .. }]));

    let entry = world.claim_one(worker).await;
    world.tell(worker, change::defer(&entry, SECOND, "x")).await;
    for _ in 0..2 {
        let resumes = Live { resumes: true, ..live(worker, 1) };
        let slots = resumes.slots;
        let with = look(world, entry.key).await.with(&resumes);
        assert_eq!(with.reasons, [Why::Resuming { worker, slots }]);
        world.say(worker, change::resume(&entry)).await;
    }
}

pub async fn all_reasons_are_named_together(world: &mut World) {
    let plan = one().limit("api").build();
    let worker = world.worker(&[&plan]).await;
    world.declare(Limit::new("api").at_once(1)).await;
    world.submit(&plan).await;
    let holds = world.claim_one(worker).await;
    let since = world.now();
    let at = world.now() + 10 * SECOND;
    let new = NewRun { not_before: Some(at), ..world.new_run(&plan) };
    let run = world.submit_run(new).await;
    let mut wanted = vec![Why::NotBefore { at }];
    let queue = Scope::Queue(QUEUE.to_owned());
    for scope in [Scope::Store, queue, Scope::Run(run.id)] {
        world.perform_operation(Operation::Pause(scope.clone())).await;
        wanted.push(Why::Paused { scope, since });
    }
    let (limit, holders) = (LimitKey::new("api", ""), vec![holder(&holds, since)]);
    let full = Full { limit, at_once: Some(1), wants: 1, in_use: 1, holders, before: 0 };
    wanted.push(Why::LimitFull(full));
    assert_eq!(why(world, first(&run)).await, wanted);
}
