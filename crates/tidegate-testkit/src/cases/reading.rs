//! What can be read is what was written.

use super::SECOND;
use crate::{QUEUE, World, ask, chain, change, claim, one, plan};
use tidegate_core::graph::{OnFailure, RunOutcome};
use tidegate_core::lifecycle::{Activity, CancelledBy, Failure, Fence, Kind, Life, Reason, State};
use tidegate_core::store::{
    Counts, Happened, Knows, NewRun, NewWorker, Operation, Record, RunKey, RunsPage, Scope,
    TaskKey, WhyUnserved, WorkerView,
};
use tidegate_core::{Backoff, RunId};

/// A life of every kind, and what of it could be lost on the way.
pub async fn every_life_is_read_back_as_it_was_written(world: &mut World) {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let mut sketch = plan("p").on_failure(OnFailure::KeepGoing);
    for name in names {
        sketch = sketch.task(name, &[]).rules(|rules| {
            rules.retries = 2;
            rules.backoff = Backoff::fixed(SECOND * 7);
        });
    }
    let plan = sketch.task("j", &["a"]).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let t0 = world.now();
    world.advance(SECOND);
    let tasks = world.claim_with(worker, claim(7, 1)).await.claimed;
    let t1 = world.now();
    world.advance(SECOND);
    let t2 = world.now();
    let wait = "die Datei „straße/ñ/文件 🌊.csv“\n\0 ' \" ; --";
    let active = SECOND * 3 + std::time::Duration::from_micros(456_789);
    world.tell(worker, change::defer(&tasks[1], active, wait)).await;
    world.tell(worker, change::park(&tasks[2], Some(t2 + SECOND))).await;
    world.tell(worker, change::park(&tasks[3], None)).await;
    world.tell(worker, change::succeed(&tasks[4])).await;
    world.tell(worker, change::fail(&tasks[5])).await;
    world.tell(worker, change::fail_by(&tasks[6], Failure::Panic, true)).await;

    let claimed = Life { fence: Fence(1), ..Life::blocked() };
    let begun = Life { entries: 1, started: Some(t1), ..claimed.clone() };
    let running = |activity| State::Running { worker, ready_since: t0, activity };
    let parked = |wake| State::Parked { since: t2, wake, wait: "time".to_owned() };
    let two = SECOND * 2;
    let deferred = Activity::Deferred { begun_at: t1, since: t2, wait: wait.to_owned() };
    let backed_off = State::Ready { since: t2, due: t2 + SECOND * 7 };
    let expected = [
        Life { state: running(Activity::Active { begun_at: t1 }), ..begun.clone() },
        Life { state: running(deferred), active, ..begun.clone() },
        Life { state: parked(Some(t2 + SECOND)), active: two, ..begun.clone() },
        Life { state: parked(None), active: two, ..begun.clone() },
        Life { state: State::Succeeded, ..begun.clone() },
        Life { state: backed_off, attempt: 2, ..begun.clone() },
        Life { state: State::Failed(Reason::Panic), ..begun.clone() },
        Life { state: running(Activity::Claimed), ..claimed },
        Life::ready(t0, t0),
        Life::blocked(),
    ];
    let lives: Vec<_> = world.view(run).await.tasks.into_iter().map(|task| task.life).collect();
    assert_eq!(lives, expected);
}

pub async fn a_wish_to_stop_is_read_back(world: &mut World) {
    let sketch = plan("p").on_failure(OnFailure::FailFastKill).task("a", &[]).task("b", &[]);
    let plan = sketch.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let tasks = world.claim(worker, 2).await;
    world.tell(worker, change::fail(&tasks[0])).await;
    let life = world.life(run, 1).await;
    let stopping = Life { stopping: Some(CancelledBy::FailFast), ..tasks[1].life.clone() };
    assert_eq!(life, stopping);
}

pub async fn a_record_says_when_where_and_why_an_entry_ended(world: &mut World) {
    let plan = one().rules(|rules| {
        rules.retries = 1;
        rules.backoff = Backoff::fixed(SECOND);
    });
    let plan = plan.build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await;
    let mut expected = Vec::new();
    let record = |world: &World, what, reason, attempt, entry| Record {
        seq: 0,
        at: world.now(),
        run: run.key,
        run_id: run.id,
        task: tidegate_core::graph::TaskIndex::from_u32(0),
        what,
        reason,
        attempt,
        entry,
        worker: Some(worker),
        begun_at: None,
        active: std::time::Duration::ZERO,
        error: None,
    };

    let task = world.claim_one(worker).await;
    let begun_at = Some(world.now());
    world.advance(SECOND);
    world.tell(worker, change::park(&task, Some(world.now()))).await;
    let parked = record(world, Happened::Parked, None, 1, 1);
    expected.push(Record { begun_at, active: SECOND * 2, ..parked });

    let task = world.claim_one(worker).await;
    let begun_at = Some(world.now());
    world.advance(SECOND);
    world.tell(worker, change::hand_back(&task)).await;
    let back = record(world, Happened::HandedBack, None, 1, 2);
    expected.push(Record { begun_at, active: SECOND * 3, ..back });

    let task = world.claim_one(worker).await;
    let begun_at = Some(world.now());
    world.advance(SECOND);
    let said = change::with_error(change::fail_by(&task, Failure::Timeout, false), "zu spät ⏰");
    world.tell(worker, said).await;
    let error = Some("zu spät ⏰".to_owned());
    let retried = record(world, Happened::Retried, Some(Reason::Timeout), 1, 3);
    // What it had computed before the attempt ended is what the attempt has computed.
    expected.push(Record { begun_at, error, active: SECOND * 3, ..retried });

    world.advance(SECOND);
    let task = world.claim_one(worker).await;
    let begun_at = Some(world.now());
    world.advance(SECOND);
    world.tell(worker, change::defer(&task, SECOND * 5, "x")).await;
    world.advance(SECOND);
    world.tell(worker, change::succeed(&task)).await;
    let end = record(world, Happened::Succeeded, None, 2, 4);
    expected.push(Record { begun_at, active: SECOND * 5, ..end });

    let mut records = world.records().await;
    assert!(records.is_sorted_by(|one, next| one.seq < next.seq));
    records.iter_mut().for_each(|record| record.seq = 0);
    assert_eq!(records, expected);
}

pub async fn records_are_read_page_by_page_of_one_run_or_of_all(world: &mut World) {
    let plan = chain(3).build();
    let worker = world.worker(&[&plan]).await;
    let runs = [world.submit(&plan).await, world.submit(&plan).await];
    for _ in 0..3 {
        for task in world.claim(worker, 2).await {
            world.tell(worker, change::succeed(&task)).await;
        }
    }
    let all = world.records().await;
    assert_eq!(all.len(), 6);
    let read = async |run, after, limit| {
        let records = world.store().records(run, after, limit).await;
        records.expect("records can be read")
    };
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(0, |record: &Record| record.seq);
        let page = read(None, after, 4).await;
        assert!(page.len() <= 4);
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, all);
    for run in runs {
        let own: Vec<_> = all.iter().filter(|record| record.run == run.key).cloned().collect();
        assert_eq!(own.len(), 3);
        assert_eq!(read(Some(run.key), 0, 99).await, own);
        assert_eq!(read(Some(run.key), own[0].seq, 1).await, own[1..2]);
        assert_eq!(read(Some(run.key), own[2].seq, 9).await, []);
    }
    assert_eq!(read(None, all[5].seq, 9).await, []);
    assert_eq!(read(None, u64::MAX, 9).await, []);
    assert_eq!(read(None, 0, 0).await, []);
}

async fn ids(world: &World, page: RunsPage) -> Vec<RunId> {
    let runs = world.store().runs(page).await.expect("runs can be listed");
    runs.iter().map(|run| run.id).collect()
}

pub async fn of_several_runs_those_that_are_over_or_gone_are_told(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(world.submit(&plan).await.id);
    }
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    world.perform_operation(Operation::Cancel(runs[1])).await;
    let asked = [runs.clone(), vec![RunId::from_u128(7)]].concat();
    let ended = world.store().ended(asked).await.expect("the store answers");
    let (succeeded, cancelled) = (Some(RunOutcome::Succeeded), Some(RunOutcome::Cancelled));
    let gone = (RunId::from_u128(7), None);
    assert_eq!(ended, [(runs[0], succeeded), (runs[1], cancelled), gone], "one is open");
}

pub async fn runs_are_listed_from_new_to_old_page_by_page(world: &mut World) {
    let plan = chain(2).build();
    let mut all = Vec::new();
    for _ in 0..7 {
        all.insert(0, world.submit(&plan).await);
        world.advance(SECOND);
    }
    let newest_first: Vec<_> = all.iter().map(|run| run.id).collect();
    let page = |before: Option<RunKey>| RunsPage { before, limit: 3, ..RunsPage::default() };
    assert_eq!(ids(world, page(None)).await, newest_first[..3]);
    assert_eq!(ids(world, page(Some(all[2].key))).await, newest_first[3..6]);
    assert_eq!(ids(world, page(Some(all[5].key))).await, newest_first[6..]);
    assert_eq!(ids(world, page(Some(all[6].key))).await, []);
    let none = RunsPage { limit: 0, ..RunsPage::default() };
    assert_eq!(ids(world, none).await, [], "a page of no rows has none");
    assert_eq!(ids(world, RunsPage::default()).await, newest_first);
}

pub async fn tasks_that_no_worker_can_run_are_named_with_the_reason(world: &mut World) {
    let sketch = plan("p").task("a", &[]).task("heavy", &[]).weight(3).task("b", &["a"]);
    let plan = sketch.build();
    world.submit(&plan).await;
    let later = Some(world.now() + SECOND);
    let new = NewRun { not_before: later, ..world.new_run(&plan) };
    world.submit_run(new).await;
    let why = async |world: &World| -> Vec<(String, u32, u32, WhyUnserved)> {
        let unserved = world.store().unserved().await.expect("it can be read");
        let names = unserved.into_iter().map(|it| {
            assert_eq!((it.queue.as_str(), it.workflow.as_str()), (QUEUE, "p"));
            (it.task, it.weight, it.waiting, it.why)
        });
        names.collect()
    };
    let task = |name: &str, why| (name.to_owned(), if name == "heavy" { 3 } else { 1 }, 2, why);
    let (queue, unknown) = (WhyUnserved::Queue, WhyUnserved::Unknown);
    assert_eq!(why(world).await, [task("a", queue), task("heavy", queue)], "b is not ready");
    let knows = |name: &str| ("p".to_owned(), name.to_owned());
    world.worker_that_knows(&["elsewhere"], vec![knows("a"), knows("heavy")]).await;
    assert_eq!(why(world).await, [task("a", queue), task("heavy", queue)]);
    let other = world.worker_that_knows(&[QUEUE], vec![knows("z")]).await;
    assert_eq!(why(world).await, [task("a", unknown), task("heavy", unknown)]);
    let (queues, both) = (vec![QUEUE.to_owned()], vec![knows("a"), knows("heavy")]);
    let small = NewWorker {
        now: world.now(),
        name: "small".to_owned(),
        queues,
        knows: Knows::These(both),
        slots: 2,
    };
    world.store().enlist(small).await.expect("a worker can be enlisted");
    let heavy = WhyUnserved::TooHeavy { largest: 2 };
    assert_eq!(why(world).await, [task("heavy", heavy)]);
    let large = world.worker(&[&plan]).await;
    assert_eq!(why(world).await, []);
    world.kill(large).await;
    world.kill(other).await;
    assert_eq!(why(world).await, [task("heavy", heavy)], "the dead run nothing");
}

pub async fn a_list_of_runs_can_be_narrowed(world: &mut World) {
    let (plan, other) = (one().build(), one().called("other").build());
    let worker = world.worker(&[&plan, &other]).await;
    let mut all = Vec::new();
    for (plan, queue) in [(&plan, QUEUE), (&other, QUEUE), (&plan, "side"), (&other, "side")] {
        let new = NewRun { queue: queue.into(), ..world.new_run(plan) };
        all.push(world.submit_run(new).await.id);
    }
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    let page = RunsPage { limit: 9, ..RunsPage::default() };
    let queue = RunsPage { queue: Some("side".to_owned()), ..page.clone() };
    assert_eq!(ids(world, queue.clone()).await, [all[3], all[2]]);
    let workflow = RunsPage { workflow: Some("one".to_owned()), ..page.clone() };
    assert_eq!(ids(world, workflow.clone()).await, [all[2], all[0]]);
    let open = RunsPage { open: true, ..page.clone() };
    assert_eq!(ids(world, open).await, [all[3], all[2], all[1]]);
    let both = RunsPage { workflow: Some("other".to_owned()), ..queue };
    assert_eq!(ids(world, both).await, [all[3]]);
    let none = RunsPage { open: true, queue: Some(QUEUE.to_owned()), ..workflow };
    assert_eq!(ids(world, none).await, []);
    let nowhere = RunsPage { queue: Some("nowhere".to_owned()), ..page.clone() };
    assert_eq!(ids(world, nowhere).await, []);
    let first = RunsPage { limit: 1, workflow: Some("one".to_owned()), ..page };
    assert_eq!(ids(world, first).await, [all[2]], "the limit counts what is listed");
}

pub async fn runs_that_tasks_have_begun_are_told_from_those_that_none_has(world: &mut World) {
    let (parent, plan) = (plan("p").task("a", &[]).task("b", &[]).build(), one().build());
    let worker = world.worker(&[&parent]).await;
    let run = world.submit(&parent).await;
    let tasks = world.claim(worker, 2).await;
    let mut children = Vec::new();
    for (task, number) in [(0, 0), (1, 0), (0, 1)] {
        let new = world.child_of(&tasks[task], &plan, number);
        children.push(new.id);
        world.asks(worker, &tasks[task], ask::child(new)).await;
    }
    let other = world.submit(&plan).await;
    // Who only waits for a run has not begun it.
    world.asks(worker, &tasks[1], ask::run(other.id)).await;
    let page = RunsPage { limit: 9, ..RunsPage::default() };
    let top = RunsPage { top: true, ..page.clone() };
    assert_eq!(ids(world, top).await, [other.id, run.id]);
    let begun_by = |first: i64, tasks: i64| {
        let begun_by = Some(TaskKey(run.key.0 + first)..TaskKey(run.key.0 + first + tasks));
        RunsPage { begun_by, ..page.clone() }
    };
    assert_eq!(ids(world, begun_by(0, 2)).await, [children[2], children[1], children[0]]);
    assert_eq!(ids(world, begun_by(0, 1)).await, [children[2], children[0]]);
    assert_eq!(ids(world, begun_by(1, 1)).await, [children[1]]);
    assert_eq!(ids(world, begun_by(2, 9)).await, []);
    let first = RunsPage { limit: 1, ..begun_by(0, 2) };
    assert_eq!(ids(world, first).await, [children[2]]);
    // They stay its children when all is over.
    for task in &tasks {
        world.tell(worker, change::fail_by(task, Failure::Error, true)).await;
    }
    assert_eq!(ids(world, begun_by(0, 2)).await, [children[2], children[1], children[0]]);
}

pub async fn runs_are_found_by_their_ids(world: &mut World) {
    let plan = chain(2).build();
    let mut all = Vec::new();
    // From large to small, so that ids and numbers run against each other.
    for id in [9_u128, 7, 5, 3] {
        let id = RunId::from_u128(id << 100);
        let new = NewRun { id, ..world.new_run(&plan) };
        world.submit_run(new).await;
        all.push(id);
    }
    let between = |from, to| RunsPage { ids: Some(from..=to), ..RunsPage::default() };
    assert_eq!(ids(world, between(all[3], all[0])).await, [all[3], all[2], all[1], all[0]]);
    assert_eq!(ids(world, between(all[2], all[1])).await, [all[2], all[1]]);
    assert_eq!(ids(world, between(all[2], all[2])).await, [all[2]]);
    assert_eq!(ids(world, between(RunId::from_u128(1), RunId::from_u128(2))).await, []);
    let one = RunsPage { limit: 1, ..between(all[3], all[0]) };
    assert_eq!(ids(world, one).await, [all[3]]);
}

pub async fn all_workers_that_are_known_are_listed(world: &mut World) {
    let listed = async |world: &World| world.store().workers().await.expect("they can be listed");
    assert_eq!(listed(world).await, []);
    let queues = ["side", QUEUE].map(str::to_owned).to_vec();
    let (name, knows) = ("process 7".to_owned(), vec![("w".to_owned(), "t".to_owned())]);
    let new = NewWorker { now: world.now(), name, queues, knows: Knows::These(knows), slots: 3 };
    let first = world.store().enlist(new.clone()).await.expect("a worker can be enlisted");
    world.advance(SECOND);
    let name = "looks".to_owned();
    let looks =
        NewWorker { now: world.now(), name, queues: vec![], knows: Knows::These(vec![]), slots: 0 };
    let second = world.store().enlist(looks.clone()).await.expect("a worker can be enlisted");
    let (mut one, two) = (WorkerView::new(first, new), WorkerView::new(second, looks));
    assert!(one.queues.is_sorted() && one.queues.len() == 2);
    assert_eq!(listed(world).await, [one.clone(), two.clone()]);
    world.kill(first).await;
    one.alive = false;
    assert_eq!(listed(world).await, [one, two]);
    world.store().dismiss(second).await.expect("it can go");
    assert_eq!(listed(world).await.len(), 1, "who is dismissed is unknown");
}

pub async fn a_listed_run_is_what_it_is_when_looked_at(world: &mut World) {
    let plan = one().build();
    let worker = world.worker(&[&plan]).await;
    let new = NewRun { key: Some("k".to_owned()), priority: 4, ..world.new_run(&plan) };
    let ended = world.submit_run(new).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::succeed(&task)).await;
    let paused = world.submit(&plan).await.id;
    world.perform_operation(Operation::Pause(Scope::Run(paused))).await;
    let page = RunsPage { limit: 9, ..RunsPage::default() };
    let listed = world.store().runs(page).await.expect("runs can be listed");
    assert_eq!(listed, [world.view(paused).await.run, world.view(ended).await.run]);
}

pub async fn tasks_are_counted_where_they_stand(world: &mut World) {
    let plan = plan("p").task("a", &[]).task("b", &[]).task("c", &["a"]).build();
    let worker = world.worker(&[&plan]).await;
    let counts = async |world: &World| world.store().counts().await.expect("they are counted");
    assert_eq!(counts(world).await, Counts::default());
    for _ in 0..2 {
        world.submit(&plan).await;
    }
    let later = Some(world.now() + SECOND * 60);
    let new = NewRun { not_before: later, ..world.new_run(&plan) };
    world.submit_run(new).await;
    let paused = world.submit(&plan).await.id;
    world.perform_operation(Operation::Pause(Scope::Run(paused))).await;
    let tasks = world.claim_with(worker, claim(2, 1)).await.claimed;
    let expected = Counts { ready: 1, future: 2, paused: 2, running: 3, ..Counts::default() };
    assert_eq!(counts(world).await, expected);
    world.tell(worker, change::defer(&tasks[0], SECOND, "x")).await;
    world.tell(worker, change::park(&tasks[1], None)).await;
    assert_eq!(counts(world).await, Counts { parked: 1, running: 2, ..expected });
    world.tell(worker, change::succeed(&tasks[0])).await;
    assert_eq!(counts(world).await, Counts { ready: 2, parked: 1, running: 1, ..expected });
}

pub async fn the_last_error_of_a_task_is_shown(world: &mut World) {
    let plan = one().rules(|rules| rules.retries = 1).build();
    let worker = world.worker(&[&plan]).await;
    let run = world.submit(&plan).await.id;
    let task = world.claim_one(worker).await;
    world.tell(worker, change::with_error(change::fail(&task), "erster Fehler ✗")).await;
    assert_eq!(world.view(run).await.tasks[0].error.as_deref(), Some("erster Fehler ✗"));
    world.advance(SECOND * 60);
    let task = world.claim_one(worker).await;
    world.tell(worker, change::with_error(change::fail(&task), "zweiter")).await;
    assert_eq!(world.view(run).await.tasks[0].error.as_deref(), Some("zweiter"));
    assert_eq!(world.kinds(run).await, [Kind::Failed]);
}
