//! Tasks that are done for each item of a list: the run of the items belongs to the task that has
//! begun it.

use super::SECOND;
use crate::{QUEUE, Sketch, World, change, claim, one, plan};
use std::sync::Arc;
use tidegate_core::graph::{OnFailure, RunOutcome, TaskIndex, When};
use tidegate_core::lifecycle::{CancelledBy, Fence, Kind, Reason, State, WorkerId};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{
    Applied, Bytes, Change, Claimed, NewRun, Operation, OperationOutcome, Parent, Refusal, Reply,
    RunsPage, Scope, Submitted, TaskKey, Told,
};
use tidegate_core::wait::{WaitId, WaitKind};
use tidegate_core::{Backoff, RunId};

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

fn index(at: u32) -> TaskIndex {
    TaskIndex::from_u32(at)
}

/// One task that is done for items.
fn mapped() -> Sketch {
    plan("mapped").task("each", &[]).each("list")
}

/// That a task begins the run of its items, and waits for it.
fn right_of(parent: &Claimed) -> Parent {
    let wait = WaitId::new(WaitKind::Child, "items", 0);
    Parent::new(parent.key, parent.life.fence, wait)
}

/// The run of so many items of a task, to be begun.
fn items_with(parent: &Claimed, count: u32, on_failure: OnFailure, task: TaskPlan) -> NewRun {
    let (workflow, name) = (parent.plan.workflow(), parent.plan.graph().name(parent.index));
    NewRun {
        priority: 99,
        parent: Some(right_of(parent)),
        items: (0..count).map(|at| bytes(&format!("item {at}"))).collect(),
        // It has its parent's, whatever stands here.
        ..NewRun::new(
            RunId::of_items(parent.execution()),
            Arc::new(Plan::items(workflow, name, count, on_failure, task)),
            "elsewhere".into(),
        )
    }
}

fn items(parent: &Claimed, count: u32) -> NewRun {
    items_with(parent, count, OnFailure::FailFast, TaskPlan::default())
}

/// Asks for a run, of its worker.
async fn ask(world: &mut World, worker: WorkerId, new: NewRun) -> Result<Submitted, Refusal> {
    let mut request = world.request_of(worker);
    request.submits.push(new);
    world.take(request).await.submits.remove(0)
}

/// A worker, a run of this plan, and its task that is done for items, begun.
async fn parent(world: &mut World, sketch: Sketch) -> (WorkerId, RunId, Claimed) {
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    (worker, run, world.claim_one(worker).await)
}

/// The same, with a run of so many items, which are ready.
async fn family(
    world: &mut World,
    sketch: Sketch,
    count: u32,
) -> (WorkerId, RunId, Claimed, RunId) {
    let (worker, run, each) = parent(world, sketch).await;
    let begun = ask(world, worker, items(&each, count)).await.expect("its parent runs");
    (worker, run, each, begun.id)
}

/// Says this and takes all that is there.
async fn say_and_claim(world: &mut World, worker: WorkerId, changes: Vec<Change>) -> Reply {
    let mut request = world.request_of(worker);
    request.changes = changes;
    request.claim = claim(99, 0);
    let reply = world.take(request).await;
    assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes));
    reply
}

/// That whoever runs these was told that they are over.
fn assert_told(reply: &Reply, tasks: &[(&Claimed, WorkerId)]) {
    let mut told = reply.told.clone();
    told.sort_by_key(|told| told.task);
    let wanted: Vec<Told> = tasks
        .iter()
        .map(|&(&Claimed { key: task, ref life, .. }, worker)| Told {
            task,
            fence: life.fence,
            worker,
            kind: Kind::Cancelled,
        })
        .collect();
    assert_eq!(told, wanted);
}

// ----------------------------------------------------------------------------------- the begin --

pub async fn a_running_task_begins_a_run_of_its_items(world: &mut World) {
    let (worker, run, each) = parent(world, mapped()).await;
    world.advance(SECOND);
    let new = items(&each, 3);
    let (id, plan) = (new.id, new.plan.clone());
    let submitted = ask(world, worker, new).await.expect("its parent runs");
    assert_eq!((submitted.id, submitted.existing), (id, false));
    let view = world.view(id).await;
    assert_eq!((view.run.key, view.run.parent), (submitted.key, Some(each.key)));
    assert_eq!((view.run.plan, view.run.submitted_at), (plan, world.now()));
    assert_eq!(world.kinds(id).await, [Kind::Ready; 3]);
    assert_eq!(world.kinds(run).await, [Kind::Active], "that it has items changes nothing for it");
    assert_eq!(world.view(run).await.run.parent, None);
    let page = RunsPage { limit: 9, ..RunsPage::default() };
    let listed = world.store().runs(page).await.expect("runs can be listed");
    let listed: Vec<_> = listed.iter().map(|run| (run.id, run.parent)).collect();
    assert_eq!(listed, [(id, Some(each.key)), (run, None)]);
}

pub async fn only_a_task_that_runs_by_that_right_begins_items(world: &mut World) {
    let (worker, run, each) = parent(world, mapped()).await;
    let id = items(&each, 2).id;
    let by = |parent| NewRun { parent: Some(parent), ..items(&each, 2) };
    let right = right_of(&each);
    let wrong = [
        Parent { fence: Fence(right.fence.0 - 1), ..right.clone() },
        Parent { fence: Fence(right.fence.0 + 1), ..right.clone() },
        Parent { task: TaskKey(999_999), ..right.clone() },
    ];
    for wrong in wrong {
        assert_eq!(
            ask(world, worker, by(wrong.clone())).await,
            Err(Refusal::ParentGone),
            "{wrong:?}"
        );
    }
    // It is handed back, in the request that asks or before: from then on it is another's.
    let mut request = world.request_of(worker);
    request.changes.push(change::hand_back(&each));
    request.submits.push(by(right.clone()));
    assert_eq!(world.take(request).await.submits, [Err(Refusal::ParentGone)]);
    assert_eq!(
        ask(world, worker, by(right.clone())).await,
        Err(Refusal::ParentGone),
        "it is ready"
    );
    let again = world.claim_one(worker).await;
    assert_eq!(
        ask(world, worker, by(right.clone())).await,
        Err(Refusal::ParentGone),
        "it is another's"
    );
    let right = Parent { fence: again.life.fence, ..right };
    world.tell(worker, change::succeed(&again)).await;
    assert_eq!(
        ask(world, worker, by(right.clone())).await,
        Err(Refusal::ParentGone),
        "it has ended"
    );
    let found = world.store().run(id).await.expect("it can be asked for");
    assert_eq!(found, None, "what was refused does not exist");
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Succeeded, world.now())));
}

pub async fn a_task_that_is_claimed_or_waits_may_begin_items(world: &mut World) {
    let plan = mapped().build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let ahead = world.claim_ahead(worker).await;
    let begun = ask(world, worker, items(&ahead, 1)).await.expect("it is claimed");
    world.tell(worker, change::begin(&ahead)).await;
    world.tell(worker, change::defer(&ahead, SECOND, "its items")).await;
    let again = ask(world, worker, items(&ahead, 1)).await.expect("it waits");
    assert_eq!(again, Submitted { existing: true, ..begun });
}

pub async fn a_later_entry_finds_the_items_that_were_begun(world: &mut World) {
    let (worker, run, each, id) = family(world, mapped(), 2).await;
    let first = world.view(id).await;
    let item = world.claim_one(worker).await;
    world.tell(worker, change::succeed_with(&item, "out", "")).await;
    world.tell(worker, change::hand_back(&each)).await;
    let claimed = world.claim(worker, 9).await;
    let each = claimed.iter().find(|task| task.run == run).expect("it is ready again");
    let submitted = ask(world, worker, items(each, 2)).await.expect("its parent runs");
    assert_eq!((submitted.key, submitted.id), (first.run.key, id));
    assert!(submitted.existing);
    let view = world.view(id).await;
    assert_eq!(view.run, first.run, "nothing was begun anew");
    assert_eq!(world.kinds(id).await, [Kind::Succeeded, Kind::Active]);
    let output = world.output(item.key).await;
    assert_eq!(output, Some(bytes("out")));
}

pub async fn items_begun_in_a_request_whose_answer_was_lost_are_not_doubled(world: &mut World) {
    let (worker, _, each) = parent(world, mapped()).await;
    let mut request = world.request_of(worker);
    request.submits.push(items(&each, 3));
    request.claim = claim(2, 0);
    let [first, second] = world.take_twice(request).await;
    assert_eq!(first.submits, second.submits);
    let taken = |reply: &Reply| {
        let tasks = reply.claimed.iter();
        tasks.map(|task| (task.key, task.life.clone(), task.given.clone())).collect::<Vec<_>>()
    };
    assert_eq!((taken(&first).len(), taken(&first)), (2, taken(&second)));
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!((counts.ready, counts.running), (1, 3));
    let page = RunsPage { limit: 9, ..RunsPage::default() };
    assert_eq!(world.store().runs(page).await.expect("runs can be listed").len(), 2);
}

pub async fn items_have_the_queue_and_the_priority_of_their_parents_run(world: &mut World) {
    let (plan, other) = (mapped().priority(3).build(), one().build());
    let worker = world.worker_of(&["side"], &[&plan, &other]).await;
    let elsewhere = world.worker_of(&["elsewhere", QUEUE], &[&plan, &other]).await;
    let new = NewRun { queue: "side".into(), priority: 60, ..world.new_run(&plan) };
    world.submit_run(new).await;
    let each = world.claim_one(worker).await;
    let task = TaskPlan { priority: 5, ..TaskPlan::default() };
    let new = items_with(&each, 2, OnFailure::FailFast, task);
    let begun = ask(world, worker, new).await.expect("its parent runs");
    let view = world.view(begun.id).await;
    assert_eq!((&*view.run.queue, view.run.priority), ("side", 60));
    assert!(world.claim(elsewhere, 9).await.is_empty());
    let items = world.claim(worker, 9).await;
    let orders: Vec<_> = items.iter().map(|item| item.order).collect();
    assert_eq!(orders, [world.now() - SECOND * 65; 2]);
}

pub async fn an_item_is_given_what_its_parent_is_given_and_its_item(world: &mut World) {
    let sketch = plan("mapped").on_failure(OnFailure::KeepGoing).task("above", &[]);
    let sketch = sketch.task("list", &["above"]).task("bad", &["above"]);
    let sketch = sketch.task("each", &["list", "bad"]).when(When::AllDone).each("list");
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let new = NewRun { input: Some(bytes("in")), ..world.new_run(&plan) };
    world.submit_run(new).await;
    let above = world.claim_one(worker).await;
    let said = vec![change::succeed_with(&above, "out 0", "inserts 0")];
    let both = say_and_claim(world, worker, said).await.claimed;
    let said = vec![change::succeed_with(&both[0], "out 1", "inserts 1"), change::fail(&both[1])];
    let each = say_and_claim(world, worker, said).await.claimed.remove(0);
    assert_eq!((each.index, each.given.item.clone()), (index(3), None));
    assert_eq!((each.given.outputs.len(), each.given.absent.as_slice()), (1, &[index(2)][..]));
    assert_eq!(each.given.inserts.len(), 2);

    // In the request that begins them, later, and with a store that has forgotten the plan.
    let mut request = world.request_of(worker);
    request.submits.push(items(&each, 3));
    request.claim = claim(1, 0);
    let mut taken = world.take(request).await.claimed;
    taken.extend(world.claim(worker, 9).await);
    assert_eq!(taken.len(), 3);
    for (at, item) in (0..).zip(&taken) {
        assert_eq!((item.index, item.plan.items_of()), (index(at), Some("each")));
        let mut given = each.given.clone();
        given.item = Some(bytes(&format!("item {at}")));
        assert_eq!(item.given, given, "its own item, and all else as its parent");
        assert_eq!((&*item.given.plan, item.given.task), (&*plan, index(3)));
    }
}

pub async fn whoever_knows_the_task_gets_its_items_and_nobody_else(world: &mut World) {
    let knows = |workflow: &str, task: &str| vec![(workflow.to_owned(), task.to_owned())];
    let mut strangers = Vec::new();
    for (workflow, task) in [("mapped", "other"), ("other", "each"), ("mapped", "each[0]")] {
        strangers.push(world.worker_that_knows(&[QUEUE], knows(workflow, task)).await);
    }
    let knows = world.worker_that_knows(&[QUEUE], knows("mapped", "each")).await;
    let (worker, _, each) = parent(world, mapped()).await;
    let heavy = TaskPlan { weight: 3, ..TaskPlan::default() };
    let new = items_with(&each, 2, OnFailure::FailFast, heavy);
    ask(world, worker, new).await.expect("its parent runs");
    for stranger in strangers {
        assert!(world.claim(stranger, 9).await.is_empty());
    }
    let mut small = claim(9, 9);
    small.heaviest = 2;
    assert!(world.claim_with(knows, small).await.claimed.is_empty(), "it is too heavy");
    let taken = world.claim(knows, 9).await;
    assert_eq!(taken.iter().map(|item| item.index).collect::<Vec<_>>(), [index(0), index(1)]);
}

pub async fn two_tasks_of_a_run_have_items_of_their_own(world: &mut World) {
    let plan = plan("mapped").task("a", &[]).each("x").task("b", &[]).each("x").build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let both = world.claim(worker, 2).await;
    let mut request = world.request_of(worker);
    request.submits = both.iter().map(|each| items(each, 2)).collect();
    let begun: Vec<_> = world.take(request).await.submits.into_iter().flatten().collect();
    assert_eq!(begun.len(), 2);
    assert_ne!(begun[0].id, begun[1].id);
    // One fails with keep_going nowhere in sight: the other is stopped, with its items.
    world.tell(worker, change::defer(&both[0], SECOND, "its items")).await;
    world.tell(worker, change::fail(&both[1])).await;
    assert_eq!(world.kinds(run).await, [Kind::Cancelled, Kind::Failed]);
    for items in begun {
        let ended = world.view(items.id).await.run.ended;
        assert_eq!(ended, Some((RunOutcome::Cancelled, world.now())));
    }
}

// ------------------------------------------------------------------------------------ the ends --

/// A task with four items at another worker: one has succeeded, one computes, one waits, one is
/// ready. `bad` computes beside the task, which waits.
struct UnderWay {
    worker: WorkerId,
    other: WorkerId,
    run: RunId,
    each: Claimed,
    bad: Claimed,
    items: RunId,
    /// The one that computes and the one that waits.
    taken: Vec<Claimed>,
}

async fn under_way(world: &mut World, sketch: Sketch) -> UnderWay {
    let plan = sketch.task("bad", &[]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let mut both = world.claim(worker, 2).await;
    let (bad, each) = (both.remove(1), both.remove(0));
    let items = ask(world, worker, items(&each, 4)).await.expect("its parent runs").id;
    world.tell(worker, change::defer(&each, SECOND, "its items")).await;
    let other = world.worker(&[&plan]).await;
    let mut taken = world.claim(other, 3).await;
    world.tell(other, change::succeed(&taken.remove(0))).await;
    world.tell(other, change::defer(&taken[1], SECOND, "a file")).await;
    use Kind::{Active, Deferred, Ready, Succeeded};
    assert_eq!(world.kinds(items).await, [Succeeded, Active, Deferred, Ready]);
    UnderWay { worker, other, run, each, bad, items, taken }
}

/// That the items were cancelled in this request, without the one that had ended.
async fn assert_cancelled(world: &World, items: RunId, reply: &Reply, reason: Reason) {
    use Kind::{Cancelled, Succeeded};
    assert_eq!(world.kinds(items).await, [Succeeded, Cancelled, Cancelled, Cancelled]);
    let ended = world.view(items).await.run.ended;
    assert_eq!(ended, Some((RunOutcome::Cancelled, world.now())));
    assert!(reply.ended.iter().any(|ended| ended.id == items), "and it is told");
    for place in 1..4 {
        assert_eq!(world.life(items, place).await.state, State::Cancelled(reason));
    }
}

pub async fn cancelling_the_parents_run_cancels_its_items_and_tells_their_worker(
    world: &mut World,
) {
    let UnderWay { worker, other, run, each, bad, items, taken } = under_way(world, mapped()).await;
    world.advance(SECOND);
    let mut request = world.request();
    request.operations.push(Operation::Cancel(run));
    let [reply, again] = world.take_twice(request).await;
    assert_eq!(reply.operations, [OperationOutcome::Yes]);
    assert_eq!(again.operations, [OperationOutcome::Yes]);
    assert_cancelled(world, items, &reply, Reason::User).await;
    assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Cancelled, world.now())));
    let told = [(&each, worker), (&bad, worker), (&taken[0], other), (&taken[1], other)];
    assert_told(&reply, &told);
    for item in &taken {
        let said = world.say(other, change::succeed(item)).await;
        assert_ne!(said.changes, [Applied::Yes], "what is said of it later is lost");
    }
    assert!(world.claim(other, 9).await.is_empty());
}

pub async fn fail_fast_in_the_parents_run_cancels_its_items(world: &mut World) {
    for on_failure in [OnFailure::FailFast, OnFailure::FailFastKill] {
        let all = under_way(world, mapped().on_failure(on_failure)).await;
        world.advance(SECOND);
        let reply = world.tell(all.worker, change::fail(&all.bad)).await;
        assert_eq!(world.kinds(all.run).await, [Kind::Cancelled, Kind::Failed]);
        assert_cancelled(world, all.items, &reply, Reason::FailFast).await;
        let [one, two] = [&all.taken[0], &all.taken[1]];
        assert_told(&reply, &[(&all.each, all.worker), (one, all.other), (two, all.other)]);
    }
    let all = under_way(world, mapped().on_failure(OnFailure::KeepGoing)).await;
    let reply = world.tell(all.worker, change::fail(&all.bad)).await;
    assert!(reply.told.is_empty());
    assert_eq!(world.kinds(all.run).await, [Kind::Deferred, Kind::Failed]);
    assert_eq!(world.view(all.items).await.run.ended, None);
}

/// The run of the items had been settled before that of their parent, and was not looked at again:
/// all its tasks were over, and it was not.
pub async fn an_item_that_fails_stops_the_run_of_its_list(world: &mut World) {
    use Kind::{Active, Blocked, Cancelled, Ready, Skipped};
    for (on_failure, other) in [
        (OnFailure::FailFast, Cancelled),
        (OnFailure::FailFastKill, Cancelled),
        (OnFailure::KeepGoing, Ready),
    ] {
        let sketch = mapped().task("other", &[]).priority(-9).task("after", &["each"]);
        let sketch = sketch.task("tidy", &["each"]).when(When::AllDone).on_failure(on_failure);
        let (worker, run, each) = parent(world, sketch).await;
        let new = items_with(&each, 3, on_failure, TaskPlan::default());
        let its = ask(world, worker, new).await.expect("its parent runs").id;
        let taken = world.claim(worker, 2).await;
        world.tell(worker, change::fail(&taken[0])).await;
        let kinds = world.kinds(run).await;
        assert_eq!(kinds, [Active, other, Blocked, Blocked], "{on_failure:?}");
        world.tell(worker, change::succeed(&taken[1])).await;
        assert_eq!(world.kinds(its).await[..2], [Kind::Failed, Kind::Succeeded]);
        world.tell(worker, change::fail(&each)).await;
        assert_eq!(world.kinds(run).await, [Kind::Failed, other, Skipped, Ready]);
        for left in world.claim(worker, 9).await {
            world.tell(worker, change::succeed(&left)).await;
        }
    }
}

pub async fn items_end_with_their_parent_also_in_a_request_that_speaks_of_them_first(
    world: &mut World,
) {
    for item_first in [true, false] {
        let all = under_way(world, mapped()).await;
        let mut request = world.request_of(all.worker);
        // Whoever says it is not asked who it is: the fence is the right.
        request.changes = vec![change::succeed(&all.taken[0]), change::fail(&all.bad)];
        if !item_first {
            request.changes.reverse();
        }
        let reply = world.take(request).await;
        assert_eq!(reply.changes, [Applied::Yes, Applied::Yes]);
        use Kind::{Cancelled, Succeeded};
        assert_eq!(world.kinds(all.items).await, [Succeeded, Succeeded, Cancelled, Cancelled]);
        let ended = world.view(all.items).await.run.ended;
        assert_eq!(ended, Some((RunOutcome::Cancelled, world.now())), "{item_first}");
    }
}

/// Items that were begun in the request in which their parent ended were not found by it, and ran on.
pub async fn items_begun_in_the_request_that_ends_their_parent_are_over_with_it(world: &mut World) {
    let plan = mapped().task("bad", &[]).build();
    let worker = world.worker(&[&plan]).await;
    world.submit(&plan).await;
    let both = world.claim(worker, 2).await;
    world.tell(worker, change::defer(&both[0], SECOND, "its items")).await;
    let mut request = world.request_of(worker);
    request.changes.push(change::fail(&both[1]));
    request.submits.push(items(&both[0], 2));
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty());
    let begun = reply.submits[0].as_ref().expect("its parent ran when it asked");
    assert_eq!(world.kinds(begun.id).await, [Kind::Cancelled; 2]);
    let ended = world.view(begun.id).await.run.ended;
    assert_eq!(ended, Some((RunOutcome::Cancelled, world.now())));
    assert!(reply.ended.iter().any(|ended| ended.id == begun.id));
}

pub async fn items_are_cancelled_when_their_parent_meets_its_deadline(world: &mut World) {
    let sketch = mapped().rules(|rules| rules.deadline = Some(SECOND * 9));
    let all = under_way(world, sketch.on_failure(OnFailure::KeepGoing)).await;
    world.advance(SECOND * 9);
    let reply = world.look().await;
    assert_eq!(world.life(all.run, 0).await.state, State::TimedOut(Reason::Deadline));
    assert_cancelled(world, all.items, &reply, Reason::FailFast).await;
    let [one, two] = [&all.taken[0], &all.taken[1]];
    let timed_out = reply.told.iter().find(|told| told.task == all.each.key);
    assert_eq!(timed_out.map(|told| told.kind), Some(Kind::TimedOut));
    let others = reply.told.iter().filter(|told| told.task != all.each.key).copied().collect();
    assert_told(&Reply { told: others, ..Reply::default() }, &[(one, all.other), (two, all.other)]);
}

pub async fn items_are_cancelled_when_their_parent_fails_for_good(world: &mut World) {
    let sketch = mapped().rules(|rules| {
        (rules.retries, rules.backoff) = (1, Backoff::fixed(SECOND));
    });
    let all = under_way(world, sketch.on_failure(OnFailure::KeepGoing)).await;
    world.tell(all.worker, change::resume(&all.each)).await;
    let reply = world.tell(all.worker, change::fail(&all.each)).await;
    assert!(reply.told.is_empty() && reply.ended.is_empty(), "it is tried again");
    assert_eq!(world.view(all.items).await.run.ended, None);
    world.advance(SECOND);
    let claimed = world.claim(all.worker, 9).await;
    let each = claimed.iter().find(|task| task.run == all.run).expect("it is tried again");
    let reply = world.tell(all.worker, change::fail(each)).await;
    assert_eq!(world.life(all.run, 0).await.state, State::Failed(Reason::Error));
    assert_cancelled(world, all.items, &reply, Reason::FailFast).await;
}

pub async fn items_are_cancelled_when_their_parent_is_the_cause_of_deaths(world: &mut World) {
    let (mut worker, run, mut each, id) = family(world, mapped(), 2).await;
    let plan = each.plan.clone();
    loop {
        world.kill(worker).await;
        world.recover(worker).await;
        if world.kinds(run).await == [Kind::Failed] {
            break;
        }
        worker = world.worker(&[&plan]).await;
        let claimed = world.claim_with(worker, claim(9, 9)).await.claimed;
        each = claimed.into_iter().find(|task| task.run == run).expect("it is ready again");
        if each.life.state.kind() == Kind::Claimed {
            world.tell(worker, change::begin(&each)).await;
        }
        assert!(ask(world, worker, items(&each, 2)).await.is_ok_and(|begun| begun.existing));
    }
    assert_eq!(world.life(run, 0).await.state, State::Failed(Reason::CrashLoop));
    assert_eq!(world.view(id).await.run.ended, Some((RunOutcome::Cancelled, world.now())));
}

pub async fn items_of_a_parent_that_was_to_stop_are_cancelled_when_it_has(world: &mut World) {
    let plan = mapped().on_failure(OnFailure::FailFastKill).task("bad", &[]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let both = world.claim(worker, 2).await;
    world.tell(worker, change::fail(&both[1])).await;
    assert_eq!(world.life(run, 0).await.stopping, Some(CancelledBy::FailFast));
    // It has not stopped, and begins items all the same: they go with it.
    let begun = ask(world, worker, items(&both[0], 2)).await.expect("its parent runs");
    let item = world.claim_one(worker).await;
    let reply = world.tell(worker, change::stopped(&both[0])).await;
    assert_eq!(world.kinds(begun.id).await, [Kind::Cancelled; 2]);
    assert_told(&reply, &[(&item, worker)]);
    assert_eq!(reply.ended.len(), 2, "and both runs are over");
}

pub async fn a_parents_success_leaves_its_items_alone(world: &mut World) {
    let all = under_way(world, mapped()).await;
    world.tell(all.worker, change::resume(&all.each)).await;
    let reply = world.tell(all.worker, change::succeed(&all.each)).await;
    assert!(reply.told.is_empty() && reply.ended.is_empty());
    world.tell(all.worker, change::succeed(&all.bad)).await;
    assert_eq!(world.view(all.run).await.run.ended, Some((RunOutcome::Succeeded, world.now())));
    use Kind::{Active, Deferred, Ready, Succeeded};
    assert_eq!(world.kinds(all.items).await, [Succeeded, Active, Deferred, Ready]);
    let asked = world.ask(Operation::Cancel(all.run)).await;
    assert_eq!(asked.operations, [OperationOutcome::Already], "nor does a late cancel");
    assert_eq!(world.view(all.items).await.run.ended, None);
}

pub async fn a_parent_that_goes_on_elsewhere_leaves_its_items_alone(world: &mut World) {
    type Leave = fn(&Claimed) -> Option<Change>;
    let leaves: [Leave; 3] = [
        |each| Some(change::hand_back(each)),
        |each| Some(change::snooze(each, SECOND)),
        // Its worker dies.
        |_| None,
    ];
    for leave in leaves {
        let all = under_way(world, mapped()).await;
        let reply = match leave(&all.each) {
            Some(change) => {
                world.tell(all.worker, change::resume(&all.each)).await;
                world.tell(all.worker, change).await
            }
            None => {
                world.kill(all.worker).await;
                world.recover(all.worker).await
            }
        };
        assert!(reply.told.is_empty() && reply.ended.is_empty());
        use Kind::{Active, Deferred, Ready, Succeeded};
        assert_eq!(world.kinds(all.items).await, [Succeeded, Active, Deferred, Ready]);
        world.advance(SECOND);
        let next = world.worker(&[&all.each.plan]).await;
        let claimed = world.claim(next, 9).await;
        let each = claimed.iter().find(|task| task.key == all.each.key).expect("it goes on");
        let found = ask(world, next, items(each, 4)).await.expect("its parent runs");
        assert_eq!((found.id, found.existing), (all.items, true));
        for item in &all.taken {
            world.tell(all.other, change::hand_back(item)).await;
        }
        world.perform_operation(Operation::Cancel(all.run)).await;
    }
}

pub async fn the_death_of_an_items_worker_bears_on_that_item_alone(world: &mut World) {
    let all = under_way(world, mapped()).await;
    world.kill(all.other).await;
    let reply = world.recover(all.other).await;
    assert_eq!(reply.recovered, 2);
    use Kind::{Deferred, Ready, Succeeded};
    assert_eq!(world.kinds(all.items).await, [Succeeded, Ready, Ready, Ready]);
    assert_eq!(world.kinds(all.run).await[0], Deferred);
    let again = world.claim(all.worker, 9).await;
    let given: Vec<_> = again.iter().map(|item| item.given.item.clone()).collect();
    // By order of their becoming ready, then of their numbers: the first two keep their places.
    let mut given: Vec<_> = given.into_iter().flatten().collect();
    given.sort();
    assert_eq!(given, ["item 1", "item 2", "item 3"].map(bytes));
}

pub async fn a_run_of_items_can_be_cancelled_by_itself(world: &mut World) {
    let all = under_way(world, mapped()).await;
    let reply = world.perform_operation(Operation::Cancel(all.items)).await;
    assert_cancelled(world, all.items, &reply, Reason::User).await;
    assert_eq!(world.kinds(all.run).await, [Kind::Deferred, Kind::Active], "its parent goes on");
    let asked = world.ask(Operation::Cancel(all.items)).await.operations;
    assert_eq!(asked, [OperationOutcome::Already]);
    world.perform_operation(Operation::Cancel(all.run)).await;
}

// ---------------------------------------------------------------------------------- the pauses --

pub async fn items_are_paused_and_unpaused_with_their_parents_run(world: &mut World) {
    let all = under_way(world, mapped()).await;
    world.advance(SECOND);
    world.perform_operation(Operation::Pause(Scope::Run(all.run))).await;
    assert_eq!(world.view(all.items).await.run.paused_at, Some(world.now()));
    assert!(world.claim(all.other, 9).await.is_empty(), "nothing of it starts");
    world.tell(all.other, change::succeed(&all.taken[0])).await;
    world.advance(SECOND);
    let mut request = world.request_of(all.other);
    request.operations.push(Operation::Unpause(Scope::Run(all.run)));
    request.claim = claim(9, 0);
    let reply = world.take(request).await;
    assert_eq!(reply.operations, [OperationOutcome::Yes]);
    let taken: Vec<_> = reply.claimed.iter().map(|item| (item.run, item.index)).collect();
    assert_eq!(taken, [(all.items, index(3))]);
    let paused = [all.run, all.items].map(async |run| world.view(run).await.run.paused_at);
    for paused in paused {
        assert_eq!(paused.await, None);
    }
    let asked = world.ask(Operation::Unpause(Scope::Run(all.items))).await;
    assert_eq!(asked.operations, [OperationOutcome::Already]);
}

pub async fn items_begun_in_a_pause_wait_for_its_end(world: &mut World) {
    let (worker, run, each) = parent(world, mapped()).await;
    world.perform_operation(Operation::Pause(Scope::Run(run))).await;
    world.advance(SECOND);
    let rules = |task: &mut TaskPlan| task.rules.queue_timeout = Some(SECOND * 60);
    let mut task = TaskPlan::default();
    rules(&mut task);
    let mut request = world.request_of(worker);
    request.submits.push(items_with(&each, 2, OnFailure::FailFast, task));
    request.claim = claim(9, 9);
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty());
    let id = reply.submits[0].as_ref().expect("its parent runs").id;
    assert_eq!(world.view(id).await.run.paused_at, Some(world.now()));
    let counts = world.store().counts().await.expect("they are counted");
    assert_eq!((counts.paused, counts.ready), (2, 0));
    // Their time to queue stands still as well.
    world.advance(SECOND * 3_600);
    world.look().await;
    assert_eq!(world.kinds(id).await, [Kind::Ready; 2]);
    world.perform_operation(Operation::Unpause(Scope::Run(run))).await;
    assert_eq!(world.claim(worker, 9).await.len(), 2);
}

pub async fn items_begun_in_the_request_of_a_pause_wait_for_its_end(world: &mut World) {
    let (worker, run, each) = parent(world, mapped()).await;
    let mut request = world.request_of(worker);
    request.operations.push(Operation::Pause(Scope::Run(run)));
    request.submits.push(items(&each, 2));
    request.claim = claim(9, 9);
    let reply = world.take(request).await;
    assert!(reply.claimed.is_empty());
    let id = reply.submits[0].as_ref().expect("its parent runs").id;
    assert!(world.view(id).await.run.paused_at.is_some());
    // They are cancelled with their parent as they stand.
    world.perform_operation(Operation::Cancel(run)).await;
    assert_eq!(world.kinds(id).await, [Kind::Cancelled; 2]);
}

// ------------------------------------------------------------------------------- among each other --

pub async fn items_fail_fast_or_keep_going_as_they_are_told(world: &mut World) {
    use Kind::{Active, Cancelled, Deferred, Failed, Ready};
    for (on_failure, stand) in [
        (OnFailure::FailFast, [Failed, Active, Cancelled, Cancelled]),
        (OnFailure::FailFastKill, [Failed, Active, Cancelled, Cancelled]),
        (OnFailure::KeepGoing, [Failed, Active, Deferred, Ready]),
    ] {
        let (worker, run, each) = parent(world, mapped()).await;
        let new = items_with(&each, 4, on_failure, TaskPlan::default());
        let id = ask(world, worker, new).await.expect("its parent runs").id;
        let taken = world.claim(worker, 3).await;
        world.tell(worker, change::defer(&taken[2], SECOND, "a file")).await;
        let reply = world.tell(worker, change::fail(&taken[0])).await;
        assert_eq!(world.kinds(id).await, stand, "{on_failure}");
        assert_eq!(world.kinds(run).await, [Active], "their parent decides what this means");
        assert!(reply.ended.is_empty());
        let stops = world.life(id, 1).await.stopping.is_some();
        assert_eq!(stops, on_failure == OnFailure::FailFastKill);

        let mut reply = world.tell(worker, change::succeed(&taken[1])).await;
        if on_failure == OnFailure::KeepGoing {
            let last = world.claim_one(worker).await;
            world.tell(worker, change::succeed(&last)).await;
            world.tell(worker, change::resume(&taken[2])).await;
            reply = world.tell(worker, change::succeed(&taken[2])).await;
        }
        assert_eq!((reply.ended.len(), reply.ended[0].outcome), (1, RunOutcome::Failed));
        world.tell(worker, change::fail(&each)).await;
        assert_eq!(world.view(run).await.run.ended, Some((RunOutcome::Failed, world.now())));
    }
}

pub async fn an_item_is_tried_again_by_itself(world: &mut World) {
    let (worker, _, each) = parent(world, mapped()).await;
    let mut task = TaskPlan::default();
    (task.rules.retries, task.rules.backoff) = (1, Backoff::fixed(SECOND * 5));
    let new = items_with(&each, 2, OnFailure::FailFast, task);
    let id = ask(world, worker, new).await.expect("its parent runs").id;
    let taken = world.claim(worker, 2).await;
    world.tell(worker, change::fail(&taken[1])).await;
    assert_eq!(world.kinds(id).await, [Kind::Active, Kind::Ready]);
    world.tell(worker, change::succeed_with(&taken[0], "a", "")).await;
    world.advance(SECOND * 5);
    let again = world.claim_one(worker).await;
    assert_eq!((again.key, again.life.attempt), (taken[1].key, 2));
    assert_eq!(again.given.item, Some(bytes("item 1")));
    let reply = world.tell(worker, change::succeed_with(&again, "b", "")).await;
    assert_eq!(reply.ended[0].outcome, RunOutcome::Succeeded);
    for (task, output) in taken.iter().zip(["a", "b"]) {
        let stored = world.output(task.key).await;
        assert_eq!(stored, Some(bytes(output)));
    }
}

pub async fn two_thousand_items_go_through_and_their_run_ends_with_the_last(world: &mut World) {
    const COUNT: u32 = 2_000;
    let (worker, _, each) = parent(world, mapped()).await;
    let new = items_with(&each, COUNT, OnFailure::KeepGoing, TaskPlan::default());
    let id = ask(world, worker, new).await.expect("its parent runs").id;
    let mut seen = Vec::new();
    loop {
        let claimed = world.claim(worker, 100).await;
        if claimed.is_empty() {
            break;
        }
        assert_eq!(world.view(id).await.run.ended, None);
        seen.extend(claimed.iter().map(|item| item.given.item.clone()));
        let mut request = world.request_of(worker);
        // Every hundredth fails.
        let end = |(at, item): (usize, &Claimed)| match at {
            0 => change::fail(item),
            _ => change::succeed(item),
        };
        request.changes = claimed.iter().enumerate().map(end).collect();
        let reply = world.take(request).await;
        assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes));
    }
    let wanted = (0..COUNT).map(|at| Some(bytes(&format!("item {at}"))));
    assert!(seen.into_iter().eq(wanted), "each once, in order");
    assert_eq!(world.view(id).await.run.ended, Some((RunOutcome::Failed, world.now())));
    let failed = world.kinds(id).await.iter().filter(|kind| **kind == Kind::Failed).count();
    assert_eq!(failed, 20);
}

pub async fn two_thousand_items_are_cancelled_in_one_request(world: &mut World) {
    let (worker, run, each) = parent(world, mapped()).await;
    let id = ask(world, worker, items(&each, 2_000)).await.expect("its parent runs").id;
    let taken = world.claim(worker, 8).await;
    let reply = world.perform_operation(Operation::Cancel(run)).await;
    assert_eq!((reply.told.len(), reply.ended.len()), (taken.len() + 1, 2));
    assert!(world.kinds(id).await.iter().all(|kind| *kind == Kind::Cancelled));
}
