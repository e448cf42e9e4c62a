//! The memory store where it is not like the others, and the audit against stores that are broken.
//!
//! What every store must do is said once, in the conformance suite of `tidegate-testkit`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::graph::{Graph, Node, OnFailure, RunOutcome, TaskIndex, When};
use tidegate_core::lifecycle::{
    Activity, CancelledBy, Event, Fence, Kind, Life, RECOVERIES_MAX, Reason, State, WorkerId,
};
use tidegate_core::limit::{Hold, Limit, LimitKey, RateWindow};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::rows::{Gate, Head, Place, Row};
use tidegate_core::store::{
    Happened, Knows, NewRun, NewWorker, Record, Request, RequestId, RunKey, Store, StoreError,
    TaskKey,
};
use tidegate_core::wait::{WaitId, WaitKind, WaitOutcome, Waiting};
use tidegate_core::{RunId, Timestamp, audit};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const WORKER: WorkerId = WorkerId(7);

/// A memory store answers at once.
fn now<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a memory store never waits"),
    }
}

fn plan() -> Arc<Plan> {
    let nodes = [Node::new("a"), Node::new("b").after(["a"])];
    let graph = Graph::new(nodes).expect("it is a chain");
    let mut first = TaskPlan { priority: 2, ..TaskPlan::default() };
    (first.rules.retries, first.rules.queue_timeout) = (1, Some(SECOND * 60));
    Arc::new(Plan::new("w", graph, OnFailure::FailFast, vec![first, TaskPlan::default()]))
}

fn submit(plan: &Arc<Plan>, id: u128) -> NewRun {
    NewRun::new(RunId::from_u128(id), plan.clone(), "q".into())
}

// ---------------------------------------------------------------------------- the memory store --

#[test]
fn an_answer_that_nobody_asks_for_does_nothing() {
    let store = MemoryStore::new();
    let request = Request { submits: vec![submit(&plan(), 1)], ..Request::new(RequestId(1), NOW) };
    drop(store.request(Arc::new(request)));
    assert_eq!(now(store.run(RunId::from_u128(1))).unwrap(), None);
}

#[test]
fn who_is_killed_is_dead_and_a_stranger_is_not() {
    let store = MemoryStore::new();
    let new = NewWorker {
        now: NOW,
        name: String::new(),
        queues: vec![],
        knows: Knows::These(vec![]),
        slots: 1,
    };
    let workers = [now(store.enlist(new.clone())).unwrap(), now(store.enlist(new)).unwrap()];
    store.kill(workers[1]);
    store.kill(WorkerId(99));
    assert_eq!(now(store.dead()).unwrap(), [workers[1]]);
    now(store.dismiss(workers[1])).unwrap();
    now(store.dismiss(WorkerId(99))).unwrap();
    assert_eq!(now(store.dead()).unwrap(), []);
}

#[test]
fn a_request_that_panics_leaves_the_store_unusable_and_it_says_so() {
    let store = MemoryStore::new();
    let (plan, id) = (plan(), RequestId(1));
    let twice = vec![submit(&plan, 1), submit(&plan, 1)];
    let request = Arc::new(Request { submits: twice, ..Request::new(id, NOW) });
    let panicked = catch_unwind(AssertUnwindSafe(|| now(store.request(request))));
    assert!(panicked.is_err(), "the id of a run is used once");
    let answer = now(store.run(RunId::from_u128(1)));
    assert!(matches!(answer, Err(StoreError::Unusable(_))), "{answer:?}");
    store.kill(WORKER);
}

#[test]
fn a_store_is_not_written_out_with_all_that_is_in_it() {
    assert_eq!(format!("{:?}", MemoryStore::new()), "MemoryStore { .. }");
}

// ----------------------------------------------------------------------------------- the audit --

/// A run as it is stored.
#[derive(Clone)]
struct Stored {
    tasks: Vec<(Row, Place)>,
    records: Vec<Record>,
}

impl Stored {
    /// A run whose first task is ready.
    fn ready() -> Self {
        let (plan, key) = (plan(), RunKey(5));
        let head = Head {
            id: RunId::from_u128(9),
            queue: "q".into(),
            priority: 3,
            key: None,
            not_before: None,
            submitted_at: NOW,
            paused_at: None,
            cancelled: false,
            failing: false,
            parent: None,
            retry_of: None,
            open: 2,
            awaited: false,
            ended: None,
            depth: 0,
        };
        let lives = [Life::ready(NOW, NOW), Life::blocked()];
        let rows = plan.graph().tasks().zip(lives).map(|(index, life)| Row {
            key: key.task(index),
            index,
            plan: plan.clone(),
            life,
            request: RequestId(1),
            ended_at: None,
            has_waits: false,
            open_parents: 0,
            has_inserts_above: false,
            behind: None,
            head: (index.as_u32() == 0).then(|| Box::new(head.clone())),
        });
        let place = |row: Row| {
            let place = row.place(&head, NOW, Duration::ZERO);
            (row, place)
        };
        Stored { tasks: rows.map(place).collect(), records: Vec::new() }
    }

    /// The same when these events have happened to the first task.
    fn after(mut self, events: &[Event]) -> Self {
        let row = &mut self.tasks[0].0;
        for event in events {
            let rules = row.planned().rules.clone();
            let next = row.life.next(&rules, event, NOW);
            row.life = next.expect("the events fit").into_life();
        }
        self.place();
        self
    }

    /// The same when its first task computes.
    fn active(self) -> Self {
        let fence = Fence(1);
        self.after(&[Event::Claim { worker: WORKER }, Event::Begin { fence }])
    }

    /// The same when its first task has failed and its second was skipped.
    fn failed(self) -> Self {
        let mut failed = self.active();
        let ends = [State::Failed(Reason::Error), State::Skipped];
        for (at, end) in ends.into_iter().enumerate() {
            let row = &mut failed.tasks[at].0;
            (row.life.state, row.ended_at) = (end, Some(NOW));
        }
        let head = failed.head();
        (head.failing, head.ended) = (true, Some((RunOutcome::Failed, NOW)));
        failed.place();
        failed.records = vec![record(1, 0, Happened::Failed), record(2, 1, Happened::Skipped)];
        failed
    }

    fn head(&mut self) -> &mut Head {
        self.tasks[0].0.head.as_mut().expect("the first task carries the head")
    }

    /// Puts every row where it belongs, and counts what is open.
    fn place(&mut self) {
        let is_open = |(row, _): &&(Row, Place)| !row.life.state.kind().is_terminal();
        let open = self.tasks.iter().filter(is_open).count();
        self.head().open = open as u32;
        let head = self.head().clone();
        for (row, place) in &mut self.tasks {
            *place = row.place(&head, NOW, Duration::ZERO);
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Stored)) -> Self {
        change(&mut self);
        self
    }

    fn rules(&self) -> Vec<&'static str> {
        let is_known = |worker| worker == WORKER;
        let findings = audit::run(&self.tasks, &[], Some(&self.records), is_known, Some(NOW));
        assert!(findings.iter().all(|finding| finding.to_string().len() > finding.rule.len() + 9));
        findings.iter().map(|finding| finding.rule).collect()
    }
}

fn record(seq: u64, task: u32, what: Happened) -> Record {
    Record {
        seq,
        at: NOW,
        run: RunKey(5),
        run_id: RunId::from_u128(9),
        task: TaskIndex::from_u32(task),
        what,
        reason: None,
        attempt: 1,
        entry: 1,
        worker: None,
        begun_at: None,
        active: Duration::ZERO,
        error: None,
    }
}

#[test]
fn a_sound_run_has_no_findings() {
    let ready = Stored::ready;
    assert!(ready().rules().is_empty());
    assert!(ready().active().rules().is_empty());
    assert!(ready().failed().rules().is_empty());
    let back = Event::HandBack { fence: Fence(1), active: SECOND, pause: Duration::ZERO };
    assert!(ready().active().after(&[back]).rules().is_empty());
    let park = Event::Park {
        fence: Fence(1),
        active: SECOND,
        wake: Some(NOW + SECOND),
        wait: String::new(),
    };
    assert!(ready().active().after(&[park]).rules().is_empty());
    let stop = Event::Stop { by: CancelledBy::FailFast };
    assert!(ready().active().after(&[stop]).rules().is_empty());
}

#[test]
fn a_gate_that_is_behind_its_time_is_sound() {
    let late = Stored::ready().with(|run| {
        let (row, place) = &mut run.tasks[0];
        row.life = Life::ready(NOW - SECOND * 2, NOW - SECOND);
        let head = row.head.clone().unwrap();
        *place = row.place(&head, NOW - SECOND * 2, Duration::ZERO);
        assert_eq!(place.gate, Some(Gate::Future));
    });
    assert!(late.rules().is_empty(), "{:?}", late.rules());
}

#[test]
fn an_alarm_may_be_later_by_as_long_as_it_stood_still() {
    let later = |by: i32| {
        let change = |run: &mut Stored| {
            let alarm = run.tasks[0].1.alarm.as_mut().unwrap();
            *alarm = if by < 0 { *alarm - SECOND } else { *alarm + SECOND * 1_000 };
        };
        Stored::ready().with(change).rules()
    };
    assert!(later(1).is_empty());
    assert_eq!(later(-1), ["place"]);
}

#[test]
fn a_row_in_the_wrong_place_is_found() {
    type Change = fn(&mut Place);
    let changes: [Change; 7] = [
        |place| place.gate = None,
        |place| place.gate = Some(Gate::Paused),
        |place| place.order = None,
        |place| place.order = place.order.map(|order| order + SECOND),
        |place| place.alarm = None,
        |place| place.gate = Some(Gate::Future),
        |place| (place.gate, place.order) = (Some(Gate::Open), None),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let wrong = Stored::ready().with(|run| change(&mut run.tasks[0].1));
        assert_eq!(wrong.rules(), ["place"], "change {at}");
    }
    let open_too_early = Stored::ready().with(|run| {
        run.tasks[0].0.life = Life::ready(NOW, NOW + SECOND);
        run.place();
        run.tasks[0].1.gate = Some(Gate::Open);
    });
    assert_eq!(open_too_early.rules(), ["place"]);
    let blocked = Stored::ready().with(|run| run.tasks[1].1.gate = Some(Gate::Open));
    assert_eq!(blocked.rules(), ["place"]);
    let active = Stored::ready().active().with(|run| run.tasks[0].1.alarm = Some(NOW));
    assert_eq!(active.rules(), ["place"]);
    let unpaused = Stored::ready().with(|run| run.head().paused_at = Some(NOW));
    assert_eq!(unpaused.rules(), ["place"]);
}

/// A run whose first task is ready and stands behind a limit.
fn limited() -> Stored {
    Stored::ready().with(|run| {
        let mut tasks = vec![TaskPlan::default(), TaskPlan::default()];
        (tasks[0].priority, tasks[0].limits) = (2, vec!["api".into()]);
        (tasks[0].rules.retries, tasks[0].rules.queue_timeout) = (1, Some(SECOND * 60));
        let nodes = [Node::new("a"), Node::new("b").after(["a"])];
        let graph = Graph::new(nodes).expect("it is a chain");
        let plan = Arc::new(Plan::new("w", graph, OnFailure::FailFast, tasks));
        for (row, _) in &mut run.tasks {
            row.plan = plan.clone();
        }
        let order = NOW - SECOND * 5;
        run.tasks[0].0.behind = Some((LimitKey::new("api", ""), order));
        run.place();
    })
}

#[test]
fn a_row_in_the_wrong_place_behind_a_limit_is_found() {
    assert_eq!(limited().rules(), Vec::<&str>::new());
    assert_eq!(limited().tasks[0].1.gate, Some(Gate::Limited));
    let open = limited().with(|run| run.tasks[0].1.gate = Some(Gate::Open));
    assert_eq!(open.rules(), ["place"]);
    let unfound = limited().with(|run| run.tasks[0].1.behind = None);
    assert_eq!(unfound.rules(), ["place"]);
    let other = limited().with(|run| run.tasks[0].1.behind = Some(LimitKey::new("api", "x")));
    assert_eq!(other.rules(), ["place"]);
    let let_through = limited().with(|run| run.tasks[0].0.behind = None);
    assert_eq!(let_through.rules(), ["place"]);
    let unused = limited().with(|run| {
        run.tasks[0].0.behind = Some((LimitKey::new("other", ""), NOW - SECOND * 5));
        run.place();
    });
    assert_eq!(unused.rules(), ["behind"]);
    let paused = limited().with(|run| {
        run.head().paused_at = Some(NOW);
        run.place();
    });
    assert_eq!(paused.rules(), ["behind"]);
    let awaited = Stored::ready().with(|run| {
        run.head().awaited = true;
        run.place();
    });
    assert_eq!(awaited.tasks[0].1.gate, Some(Gate::Awaited));
    assert!(awaited.rules().is_empty());
    let not_marked = awaited.with(|run| run.tasks[0].1.gate = Some(Gate::Open));
    assert_eq!(not_marked.rules(), ["place"]);
    let marked = Stored::ready().with(|run| run.tasks[0].1.gate = Some(Gate::Awaited));
    assert_eq!(marked.rules(), ["place"]);
    // Who runs may wait for what it has given back.
    let runs = limited().active().with(|run| {
        run.tasks[0].0.behind = Some((LimitKey::new("api", ""), NOW));
        run.place();
    });
    assert!(runs.rules().is_empty());
    assert_eq!(runs.tasks[0].1.order, Some(NOW));
}

fn waiting(kind: WaitKind) -> Waiting {
    Waiting {
        id: WaitId::new(kind, "x", 0),
        label: "".into(),
        since: NOW,
        due: None,
        run: Some(RunKey(5)),
        outcome: None,
        signal: None,
    }
}

#[test]
fn waits_that_cannot_be_are_found() {
    let mut row = Stored::ready().active().tasks.remove(0).0;
    row.has_waits = true;
    let rules = |row: &Row, wait: Waiting| -> Vec<&str> {
        audit::waits(row, &[wait], &[]).iter().map(|finding| finding.rule).collect()
    };
    let kinds = [WaitKind::Step, WaitKind::Signal, WaitKind::Sleep, WaitKind::Child];
    let kinds = kinds.into_iter().chain([WaitKind::Run, WaitKind::Any]);
    for kind in kinds {
        assert!(rules(&row, waiting(kind)).is_empty(), "{kind:?}");
    }
    let value = Some(WaitOutcome::Value(None));
    let received = Waiting { outcome: value.clone(), signal: Some(3), ..waiting(WaitKind::Signal) };
    assert!(rules(&row, received.clone()).is_empty());
    assert_eq!(rules(&row, Waiting { signal: None, ..received.clone() }), ["waits"]);
    assert_eq!(rules(&row, Waiting { outcome: None, ..received.clone() }), ["waits"]);
    let of_step = Waiting { outcome: value, signal: Some(3), ..waiting(WaitKind::Step) };
    assert_eq!(rules(&row, of_step), ["waits"]);
    for kind in [WaitKind::Signal, WaitKind::Child, WaitKind::Run] {
        assert_eq!(rules(&row, Waiting { run: None, ..waiting(kind) }), ["waits"], "{kind:?}");
    }
    assert_eq!(rules(&row, waiting(WaitKind::Limits)), ["waits"]);
    let refused = Some(WaitOutcome::Refused("no".to_owned()));
    assert_eq!(rules(&row, Waiting { outcome: refused, ..waiting(WaitKind::Run) }), ["waits"]);
    let ended = Stored::ready().failed().tasks.remove(0).0;
    let ended = Row { has_waits: true, ..ended };
    assert_eq!(rules(&ended, waiting(WaitKind::Signal)), ["waits"]);
    assert!(rules(&ended, received).is_empty());
    row.has_waits = false;
    assert_eq!(rules(&row, waiting(WaitKind::Signal)), ["waits"]);
}

#[test]
fn a_task_that_is_parked_for_ever_is_found() {
    let parked = |wake| {
        let (fence, active, wait) = (Fence(1), SECOND, String::new());
        let park = Event::Park { fence, active, wake, wait };
        let row = Stored::ready().active().after(&[park]).tasks.remove(0).0;
        Row { has_waits: true, ..row }
    };
    let ended = Waiting { outcome: Some(WaitOutcome::Elapsed), ..waiting(WaitKind::Sleep) };
    let rules = |wake, wait: &Waiting| audit::waits(&parked(wake), std::slice::from_ref(wait), &[]);
    assert!(rules(Some(NOW), &ended).is_empty());
    assert!(rules(None, &waiting(WaitKind::Signal)).is_empty());
    assert_eq!(rules(None, &ended)[0].rule, "parked");
    assert_eq!(audit::waits(&parked(None), &[], &[])[0].rule, "parked");
}

#[test]
fn what_is_held_without_right_is_found() {
    let hold = |name: &str, units| Hold { limit: LimitKey::new(name, "k"), units, since: NOW };
    let row = limited().with(|run| run.tasks[0].0.behind = None).active().tasks.remove(0).0;
    assert!(audit::waits(&row, &[], &[hold("api", 1)]).is_empty());
    assert_eq!(audit::waits(&row, &[], &[hold("other", 1)])[0].rule, "holds");
    assert_eq!(audit::waits(&row, &[], &[hold("api", 0)])[0].rule, "holds");
    let ready = limited().tasks.remove(0).0;
    assert_eq!(audit::waits(&ready, &[], &[hold("api", 1)])[0].rule, "holds");
}

#[test]
fn who_stands_behind_a_limit_with_room_is_found() {
    let (key, row) = (LimitKey::new("api", ""), limited().tasks.remove(0).0);
    let both = Limit::new("api").at_once(3).rate(3, SECOND * 10);
    let rules = |in_use, begun: &[(Timestamp, u64)], alarm, (units, before)| {
        let first = [audit::First { row: &row, units, before }];
        let (key, limit) = (&key, Some(&both));
        let sum = begun.iter().map(|(_, units)| units).sum();
        let window = &RateWindow { sum, oldest: begun.to_vec() };
        let watched = audit::Watched { key, limit, in_use, window, alarm, first: &first };
        audit::limit(&watched, NOW).iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    let (found, sound) = (["limit"], Vec::<&str>::new());
    assert_eq!(rules(2, &[], None, (1, 0)), found);
    assert_eq!(rules(3, &[], None, (1, 0)), sound);
    assert_eq!(rules(2, &[], None, (2, 0)), sound);
    assert_eq!(rules(2, &[], None, (1, 1)), sound, "another is let through");
    assert_eq!(rules(2, &[], Some(NOW), (1, 0)), sound, "the next request sees to it");
    assert_eq!(rules(2, &[], Some(NOW + SECOND), (1, 0)), found);
    let begun = [(NOW - SECOND * 4, 3)];
    assert_eq!(rules(0, &begun, Some(NOW + SECOND * 6), (1, 0)), sound);
    assert_eq!(rules(0, &begun, Some(NOW + SECOND * 7), (1, 0)), found);
    assert_eq!(rules(0, &begun, None, (1, 0)), found);
    let first = [audit::First { row: &row, units: 1, before: 0 }];
    let undeclared = audit::Watched {
        key: &key,
        limit: None,
        in_use: 0,
        window: &RateWindow::default(),
        alarm: None,
        first: &first,
    };
    assert!(audit::limit(&undeclared, NOW).is_empty());
}

#[test]
fn a_task_of_an_unknown_worker_is_found() {
    let stranger = Stored::ready().active().with(|run| {
        if let State::Running { worker, .. } = &mut run.tasks[0].0.life.state {
            *worker = WorkerId(8);
        }
    });
    assert_eq!(stranger.rules(), ["owner"]);
}

#[test]
fn a_life_that_cannot_be_is_found() {
    type Change = fn(&mut Life);
    let changes: [Change; 7] = [
        |life| life.fence = Fence(0),
        |life| life.entries = 2,
        |life| life.entries = 0,
        |life| life.started = None,
        |life| life.attempt = 0,
        |life| life.recoveries = RECOVERIES_MAX,
        |life| {
            let State::Running { worker, ready_since, .. } = life.state else { panic!() };
            life.state = State::Running { worker, ready_since, activity: Activity::Claimed };
            (life.entries, life.started) = (0, None);
            life.stopping = Some(CancelledBy::User);
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut wrong = Stored::ready().active().with(|run| change(&mut run.tasks[0].0.life));
        wrong.place();
        let rules = wrong.rules();
        assert!(rules.contains(&"life"), "change {at}: {rules:?}");
    }
    let claimed = Stored::ready().with(|run| run.tasks[1].0.life.fence = Fence(1));
    assert_eq!(claimed.rules(), ["life"]);
    let mut tried = Stored::ready().active().with(|run| run.tasks[0].0.life.attempt = 3);
    tried.records = vec![record(1, 0, Happened::Retried), record(2, 0, Happened::Retried)];
    assert_eq!(tried.rules(), ["life"]);
}

#[test]
fn what_was_taken_over_without_a_run_to_take_it_from_is_found() {
    let taken = |retry_of: Option<u128>, what| {
        Stored::ready().with(|run| {
            let row = &mut run.tasks[0].0;
            row.life = Life { state: State::Succeeded, ..Life::blocked() };
            row.ended_at = Some(NOW);
            run.tasks[1].0.life = Life::ready(NOW, NOW);
            run.head().retry_of = retry_of.map(RunId::from_u128);
            run.head().open = 1;
            run.place();
            run.records = vec![record(1, 0, what)];
        })
    };
    assert!(taken(Some(8), Happened::TakenOver).rules().is_empty());
    assert_eq!(taken(None, Happened::TakenOver).rules(), ["life"]);
    assert_eq!(taken(Some(8), Happened::Succeeded).rules(), ["records"], "nobody has done it");
}

#[test]
fn an_end_without_its_time_and_a_time_without_its_end_are_found() {
    let no_time = Stored::ready().failed().with(|run| run.tasks[1].0.ended_at = None);
    assert_eq!(no_time.rules(), ["ended_at"]);
    let no_end = Stored::ready().with(|run| run.tasks[0].0.ended_at = Some(NOW));
    assert_eq!(no_end.rules(), ["ended_at"]);
}

#[test]
fn what_should_have_followed_and_has_not_is_found() {
    let released = Stored::ready().active().with(|run| {
        let row = &mut run.tasks[0].0;
        (row.life.state, row.ended_at) = (State::Succeeded, Some(NOW));
        run.place();
        run.records = vec![record(1, 0, Happened::Succeeded)];
    });
    assert_eq!(released.rules(), ["settled"]);
    let never_let_go = Stored::ready().with(|run| {
        run.tasks[0].0.life = Life::blocked();
        run.place();
    });
    assert_eq!(never_let_go.rules(), ["settled"]);
}

#[test]
fn a_wrong_end_of_a_run_is_found() {
    let open = Stored::ready().failed().with(|run| run.head().ended = None);
    assert_eq!(open.rules(), ["outcome"]);
    let early = Stored::ready().with(|run| run.head().ended = Some((RunOutcome::Succeeded, NOW)));
    assert_eq!(early.rules(), ["outcome"]);
    let other =
        Stored::ready().failed().with(|run| run.head().ended = Some((RunOutcome::Succeeded, NOW)));
    assert_eq!(other.rules(), ["outcome"]);
    let cancelled = Stored::ready().failed().with(|run| run.head().cancelled = true);
    assert_eq!(cancelled.rules(), ["outcome"]);
}

#[test]
fn a_wrong_mark_of_failure_is_found() {
    let not = Stored::ready().with(|run| run.head().failing = true);
    assert_eq!(not.rules(), ["failing"]);
    let yes = Stored::ready().failed().with(|run| run.head().failing = false);
    assert_eq!(yes.rules(), ["failing"]);
}

#[test]
fn a_wrong_count_of_open_tasks_is_found() {
    let fewer = Stored::ready().with(|run| run.head().open = 1);
    assert_eq!(fewer.rules(), ["open"]);
    let more = Stored::ready().failed().with(|run| run.head().open = 1);
    assert_eq!(more.rules(), ["open"]);
}

#[test]
fn wrong_records_are_found() {
    let failed = |change: fn(&mut Vec<Record>)| {
        Stored::ready().failed().with(|run| change(&mut run.records)).rules()
    };
    assert_eq!(failed(|records| drop(records.remove(1))), ["records", "records"]);
    assert_eq!(failed(|records| records.push(record(3, 0, Happened::Failed))), ["records"]);
    assert_eq!(failed(|records| records.push(record(3, 0, Happened::Parked))), ["records"]);
    assert_eq!(failed(|records| records[0].what = Happened::Cancelled), ["records"]);
    assert_eq!(failed(|records| records.insert(0, record(0, 0, Happened::Retried))), ["records"]);
    assert_eq!(failed(|records| records[0].run = RunKey(6)), ["records"]);
    let late = |records: &mut Vec<Record>| records.insert(0, record(9, 0, Happened::Parked));
    assert_eq!(failed(late), ["records"]);
    let open = Stored::ready().with(|run| run.records.push(record(1, 0, Happened::Succeeded)));
    assert_eq!(open.rules(), ["records"]);
    let unknown = Stored::ready().failed();
    assert!(audit::run(&unknown.tasks, &[], None, |_| true, None).is_empty(), "they may be gone");
}

#[test]
fn a_run_that_is_not_whole_is_found() {
    assert_eq!(audit::run(&[], &[], None, |_| true, None)[0].rule, "whole");
    let changes: [fn(&mut Stored); 5] = [
        |run| drop(run.tasks.pop()),
        |run| run.tasks[1].0.key = TaskKey(99),
        |run| run.tasks.swap(0, 1),
        |run| run.tasks[0].0.head = None,
        |run| run.tasks[1].0.head = run.tasks[0].0.head.clone(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let rules = Stored::ready().with(change).rules();
        assert!(!rules.is_empty() && rules.iter().all(|rule| *rule == "whole"), "change {at}");
    }
}

#[test]
fn clean_up_that_waits_for_what_was_told_to_stop_is_sound() {
    let nodes = [Node::new("a"), Node::new("b"), Node::new("c").after(["a", "b"])];
    let [a, b, c] = nodes;
    let graph = Graph::new([a, b, c.when(When::AllDone)]).unwrap();
    let tasks = vec![TaskPlan::default(); 3];
    let plan = Arc::new(Plan::new("w", graph, OnFailure::FailFastKill, tasks));
    let store = MemoryStore::new();
    let knows = ["a", "b", "c"].map(|name| ("w".to_owned(), name.to_owned())).to_vec();
    let new = NewWorker {
        now: NOW,
        name: String::new(),
        queues: vec!["q".to_owned()],
        knows: Knows::These(knows),
        slots: 2,
    };
    let worker = now(store.enlist(new)).unwrap();
    let mut request = Request::new(RequestId(1), NOW);
    (request.worker, request.submits) = (Some(worker), vec![submit(&plan, 1)]);
    (request.claim.units, request.claim.heaviest) = (2, 1);
    let claimed = now(store.request(Arc::new(request))).unwrap().claimed;
    let mut request = Request::new(RequestId(2), NOW);
    let failure = tidegate_core::lifecycle::Failure::Error;
    let (fence, permanent, chance) = (claimed[0].life.fence, true, 0.0);
    let event = Event::Fail { fence, failure, permanent, chance };
    request.changes.push(tidegate_core::store::Change::new(
        claimed[0].key,
        claimed[0].index,
        event,
    ));
    now(store.request(Arc::new(request))).unwrap();
    let view = now(store.run(RunId::from_u128(1))).unwrap().unwrap();
    let kinds: Vec<_> = view.tasks.iter().map(|task| task.life.state.kind()).collect();
    assert_eq!(kinds, [Kind::Failed, Kind::Active, Kind::Blocked]);
    assert_eq!(now(store.audit()).unwrap(), []);
}

#[test]
fn a_run_goes_on_only_while_the_task_that_has_begun_it_does_or_has_succeeded() {
    let child = |plan: Arc<Plan>| {
        let mut first = Stored::ready().tasks.remove(0).0;
        first.plan = plan;
        first.head.as_mut().expect("it is the first").parent = Some(TaskKey(2));
        first
    };
    let child = child(plan());
    let life = |state| Life { state, ..Life::blocked() };
    for (state, is_right) in [
        (State::Blocked, true),
        (State::Succeeded, true),
        (State::Failed(Reason::Error), false),
        (State::Cancelled(Reason::User), false),
        (State::Skipped, false),
    ] {
        let findings = audit::check_parent(&child, Some(&life(state)));
        assert_eq!(findings.is_empty(), is_right, "{findings:?}");
        let repair = findings.first().map(|finding| finding.repair.clone());
        assert!(repair.is_none_or(|repair| repair == Some(audit::Repair::Run(RunKey(5)))));
    }
    // A parent that has succeeded may be pruned before the run has ended.
    assert!(audit::check_parent(&child, None).is_empty());
}

#[test]
fn every_rule_says_what_it_means_in_one_sentence_and_has_a_name_of_its_own() {
    let mut names: Vec<_> = audit::RULES.iter().map(|rule| rule.name).collect();
    for rule in audit::RULES {
        for text in [rule.holds, rule.meaning].into_iter().chain(rule.repair) {
            assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('|'), "{text}");
        }
        assert_eq!(audit::Rule::named(rule.name), Some(rule));
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), audit::RULES.len());
}
