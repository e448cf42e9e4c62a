//! Why a task is not running: every reason is reached, and says what is so.

use super::gates::{Gates, Process, with_gates};
use super::scene::{Scene, Spy, Wall, until_is};
use super::support::{Place, on_every_store, until};
use std::time::Duration;
use tidegate::engine::{
    CancelledBy, Full, Holder, LimitKey, Rate, Reason, RunError, Scope, Slots, Why, WhyUnserved,
    WorkerId,
};
use tidegate::{
    Backoff, Config, Context, Engine, Explanation, Limit, LimitUse, OnFailure, Run, RunId,
    RunOutcome, Task, TaskError, TaskHandle, Timestamp, When, Workflow,
};
use tidegate_core::graph::{Graph, Node};
use tidegate_core::lifecycle::{Event, Kind};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{NewRun, Request, RequestId};

const SECOND: Duration = Duration::from_secs(1);

/// The only worker there is, unless a test says otherwise.
const WORKER: WorkerId = WorkerId(1);

/// Goes on when the place that is its input is open.
async fn held(context: &mut Context<String>) -> Result<(), TaskError> {
    context.state::<Scene>()?.at(context.input()).await;
    Ok(())
}

/// Waits for a signal, an hour at most, and then goes on when the place that is its input is open.
async fn waits(context: &mut Context<String>, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("go").timeout(3_600 * SECOND).await?;
    context.state::<Scene>()?.at(context.input()).await;
    Ok(())
}

/// The same without its limit while it waits, and without end.
async fn releases(context: &mut Context<String>, handle: &TaskHandle) -> Result<(), TaskError> {
    handle.wait_for_signal("go").releasing("api").await?;
    context.state::<Scene>()?.at(context.input()).await;
    Ok(())
}

/// Fails for the first time, snoozes for the second.
async fn stumbles(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let scene = context.state::<Scene>()?;
    scene.note("entered");
    match (handle.attempt(), scene.notes().len()) {
        (1, _) => Err("no route to host".into()),
        (_, 2) => Err(TaskError::snooze(5 * SECOND)),
        _ => Ok(()),
    }
}

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

async fn why(run: &Run, task: &str) -> Vec<Why> {
    run.explain(task).await.unwrap().reasons
}

/// Waits until a task has such a reason, and explains it.
async fn until_why(run: &Run, task: &str, like_this: fn(&Why) -> bool) -> Explanation {
    let mut explanation = None;
    until(&format!("{task} has the reason"), async || {
        let found = run.explain(task).await.unwrap();
        let is_there = found.reasons.iter().any(like_this);
        explanation = Some(found);
        is_there
    })
    .await;
    explanation.unwrap()
}

fn slots(capacity: u32, in_use: u32, waiting: u32) -> Slots {
    Slots { capacity, in_use, waiting }
}

fn no_slot(before: u32, slots: Slots) -> Why {
    Why::NoSlot { queue: "default".to_owned(), before, slots: Some(slots) }
}

async fn succeeds(run: &Run) {
    assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
}

on_every_store! {
    async fn what_comes_after_another_queues_runs_or_has_ended_says_so(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let chain = Workflow::builder("chain")
            .task(Task::new("first", held))
            .task(Task::new("second", held).after(["first"]))
            .build()
            .unwrap();
        let engine = wall.on(place.engine()).slots(1).workflow(chain);
        let engine = scene.start(engine).await;
        let since = wall.now();
        let first = engine.submit("chain", "a").await.unwrap();
        scene.reached("a").await;
        let explained = engine.explain(first.id(), "first").await.unwrap();
        assert_eq!((explained.run, explained.task.as_str()), (first.id(), "first"));
        assert_eq!((explained.kind, explained.estimate), (Kind::Active, None));
        assert_eq!(explained.reasons, [Why::Running { worker: WORKER, since }]);
        let (tasks, when) = (vec![("first".to_owned(), Kind::Active)], When::AllSucceeded);
        let blocked = Why::BlockedBy { tasks, open: 1, when };
        assert_eq!(why(&first, "second").await, [blocked]);

        let second = engine.submit("chain", "b").await.unwrap();
        until_is(&second, "first", Kind::Claimed).await;
        let claimed = until_why(&second, "first", |why| {
            matches!(why, Why::Claimed { slots: Some(Slots { waiting: 1, .. }), .. })
        });
        let claimed = claimed.await.reasons;
        let here = slots(1, 1, 1);
        assert_eq!(claimed, [Why::Claimed { worker: WORKER, since, slots: Some(here) }]);
        let third = engine.submit("chain", "c").await.unwrap();
        let fourth = engine.submit("chain", "d").await.unwrap();
        assert_eq!(why(&third, "first").await, [no_slot(0, here)]);
        assert_eq!(why(&fourth, "first").await, [no_slot(1, here)]);

        // What was claimed ahead is handed back, to where it stood.
        engine.pause().await.unwrap();
        until_is(&second, "first", Kind::Ready).await;
        let paused = Why::Paused { scope: Scope::Store, since };
        until("its place in line is left", async || engine.slots().waiting() == 0).await;
        let here = slots(1, 1, 0);
        assert_eq!(why(&fourth, "first").await, [paused.clone(), no_slot(2, here)]);
        assert_eq!(why(&second, "first").await, [paused, no_slot(0, here)]);
        assert!(fourth.cancel().await.unwrap());
        let (kind, reason) = (Kind::Cancelled, Some(Reason::User));
        let ended = Why::Ended { kind, reason, at: Some(since), error: None };
        assert_eq!(why(&fourth, "first").await, [ended]);
        engine.unpause().await.unwrap();
        for name in ["a", "b", "c"] {
            scene.open(name);
        }
        for run in [&first, &second, &third] {
            succeeds(run).await;
        }
        let (kind, at) = (Kind::Succeeded, Some(since));
        let ended = Why::Ended { kind, reason: None, at, error: None };
        let explained = first.explain("second").await.unwrap();
        assert_eq!((explained.reasons, explained.estimate), (vec![ended], None));

        let nobody = RunId::new(wall.now(), 77);
        let unknown = engine.explain(nobody, "first").await.unwrap_err();
        assert!(matches!(unknown, RunError::Unknown(id) if id == nobody), "{unknown}");
        let misspelt = engine.explain(first.id(), "secnd").await.unwrap_err();
        let says = "workflow \"chain\" has no task \"secnd\"; is \"second\" meant?";
        assert_eq!(misspelt.to_string(), says);
        // What is stored can be explained without the worker.
        engine.shutdown(Duration::ZERO).await;
        assert_eq!(first.explain("first").await.unwrap().kind, Kind::Succeeded);
    }

    async fn a_start_time_a_back_off_and_a_snooze_say_until_when(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let task = Task::new("stumbles", stumbles).retries(3).backoff(Backoff::fixed(30 * SECOND));
        let engine = scene.start(wall.on(place.engine()).workflow(one(task))).await;
        let at = wall.now() + 60 * SECOND;
        let run = engine.submit("stumbles", ()).not_before(at).await.unwrap();
        let explained = run.explain("stumbles").await.unwrap();
        assert_eq!(explained.reasons, [Why::NotBefore { at }]);
        assert_eq!(explained.estimate, Some(60 * SECOND));

        wall.pass(&engine, 60 * SECOND).await;
        let explained = until_why(&run, "stumbles", |why| matches!(why, Why::BackOff { .. })).await;
        let (until, error) = (wall.now() + 30 * SECOND, Some("no route to host".to_owned()));
        let in_back_off = Why::BackOff { until, attempt: 2, attempts: 4, error };
        assert_eq!((explained.reasons, explained.estimate), (vec![in_back_off], Some(30 * SECOND)));

        wall.pass(&engine, 30 * SECOND).await;
        let explained = until_why(&run, "stumbles", |why| matches!(why, Why::Snoozed { .. })).await;
        assert_eq!(explained.reasons, [Why::Snoozed { until: wall.now() + 5 * SECOND }]);
        assert_eq!(explained.estimate, Some(5 * SECOND));
        wall.pass(&engine, 5 * SECOND).await;
        succeeds(&run).await;
    }

    async fn a_full_limit_names_its_holders_a_rate_its_time_and_all_reasons_come_together(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let by_itself = LimitUse::of("api").by("0");
        let engine = wall.on(place.engine()).slots(4).limit(Limit::new("api").at_once(1));
        let engine = engine.limit(Limit::new("mail").rate(1, 3_600 * SECOND));
        let calls = Task::new("calls", keyed).limit(by_itself);
        let engine = engine.workflow(one(calls)).workflow(one(Task::new("mails", held).limit("mail")));
        let engine = scene.start(engine).await;
        let first = engine.submit("calls", ["gpt", "a"]).await.unwrap();
        scene.reached("a").await;
        let since = wall.now();
        wall.pass(&engine, SECOND).await;
        let second = engine.submit("calls", ["gpt", "b"]).await.unwrap();
        let third = engine.submit("calls", ["gpt", "c"]).await.unwrap();
        let other = engine.submit("calls", ["other", "d"]).await.unwrap();
        scene.reached("d").await;
        let holder = holder(&engine, &first, since).await;
        let full = |before| {
            let (limit, holders) = (LimitKey::new("api", "gpt"), vec![holder.clone()]);
            let (at_once, wants, in_use) = (Some(1), 1, 1);
            Why::LimitFull(Full { limit, at_once, wants, in_use, holders, before })
        };
        let explained = third.explain("calls").await.unwrap();
        assert_eq!(explained.reasons, [full(1)]);
        assert_eq!(explained.estimate, None, "nothing of the kind has ended");

        // Later, paused, and behind the limit.
        let at = wall.now() + 60 * SECOND;
        let late = engine.submit("calls", ["gpt", "e"]).not_before(at).await.unwrap();
        late.pause().await.unwrap();
        engine.pause_queue("default").await.unwrap();
        let paused = |scope| Why::Paused { scope, since: wall.now() };
        let (queue, run) = (Scope::Queue("default".to_owned()), Scope::Run(late.id()));
        let all = [Why::NotBefore { at }, paused(queue), paused(run), full(2)];
        let explained = late.explain("calls").await.unwrap();
        assert_eq!(explained.reasons, all);
        assert_eq!(explained.estimate, None, "nobody knows when a pause ends");
        late.unpause().await.unwrap();
        engine.unpause_queue("default").await.unwrap();

        // One that took 10 seconds makes a guess possible.
        wall.pass(&engine, 10 * SECOND).await;
        scene.open("d");
        succeeds(&other).await;
        let explained = third.explain("calls").await.unwrap();
        assert_eq!(explained.estimate, Some(20 * SECOND), "one before it, and one at a time");
        let explained = late.explain("calls").await.unwrap();
        assert_eq!(explained.estimate, Some(50 * SECOND), "its start time is later");
        for name in ["a", "b", "c"] {
            scene.open(name);
        }
        for run in [&first, &second, &third] {
            succeeds(run).await;
        }

        let begun = wall.now();
        scene.open("mail");
        succeeds(&engine.submit("mails", "mail").await.unwrap()).await;
        wall.pass(&engine, 600 * SECOND).await;
        let next = begun + 3_600 * SECOND;
        let (limit, rate) = (LimitKey::new("mail", ""), Rate { units: 1, per: 3_600 * SECOND });
        for before in [0, 1] {
            let run = engine.submit("mails", "mail").await.unwrap();
            let explained =
                until_why(&run, "mails", |why| matches!(why, Why::RateReached { .. })).await;
            let limit = limit.clone();
            let reached = Why::RateReached { limit, rate, wants: 1, next, before };
            assert_eq!(explained.reasons, [reached]);
            assert_eq!(explained.estimate, Some((3_000 + 3_600 * before) * SECOND));
        }
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    async fn a_limit_that_nobody_declared_is_named(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).workflow(one(Task::new("held", held)));
        let engine = scene.start(engine).await;
        // As of a program that declares it, and of a store that has forgotten.
        let planned = TaskPlan { limits: vec![LimitUse::of("api")], ..TaskPlan::default() };
        let graph = Graph::new([Node::new("held")]).unwrap();
        let plan = Plan::new("held".to_owned(), graph, OnFailure::FailFast, vec![planned]);
        let id = RunId::new(wall.now(), 7);
        let new = NewRun::new(id, plan.into(), "default".into());
        let request = Request { submits: vec![new], ..Request::new(RequestId(7), wall.now()) };
        engine.store().request(request.into()).await.unwrap();
        // Whoever looks at it lets it stand behind the limit.
        engine.submit("held", "a").await.unwrap();
        scene.reached("a").await;
        let run = engine.run(id).await.unwrap();
        let missing = Why::LimitMissing { limit: LimitKey::new("api", "") };
        let explained = until_why(&run, "held", |why| matches!(why, Why::LimitMissing { .. })).await;
        assert_eq!((explained.reasons, explained.estimate), (vec![missing], None));
    }

    async fn what_waits_says_what_for_and_since_when(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(1).park_after(Duration::ZERO);
        let parks = Task::new("parks", waits).parkable();
        let engine = engine.workflow(one(Task::new("waits", waits))).workflow(one(parks));
        let engine = scene.start(engine.workflow(one(Task::new("held", held)))).await;
        let waiting = engine.submit("waits", "a").await.unwrap();
        let parked = engine.submit("parks", "b").await.unwrap();
        until_is(&waiting, "waits", Kind::Deferred).await;
        until_is(&parked, "parks", Kind::Parked).await;
        let (what, since) = ("signal \"go\"".to_owned(), wall.now());
        let until = Some(since + 3_600 * SECOND);
        wall.pass(&engine, 600 * SECOND).await;
        let explained = waiting.explain("waits").await.unwrap();
        let waits = Why::Waits { what: what.clone(), since, until, worker: WORKER };
        assert_eq!((explained.reasons, explained.estimate), (vec![waits], Some(3_000 * SECOND)));
        let explained = parked.explain("parks").await.unwrap();
        let parks = Why::Parked { what, since, until };
        assert_eq!((explained.reasons, explained.estimate), (vec![parks], Some(3_000 * SECOND)));

        // Its wait is over, and somebody else has the slot.
        let other = engine.submit("held", "c").await.unwrap();
        scene.reached("c").await;
        waiting.signal("go", 1).await.unwrap();
        let explained = until_why(&waiting, "waits", |why| {
            matches!(why, Why::Resuming { slots: Slots { waiting: 1, .. }, .. })
        });
        let explained = explained.await;
        let resuming = Why::Resuming { worker: WORKER, slots: slots(1, 1, 1) };
        assert_eq!((explained.reasons, explained.estimate), (vec![resuming], None));
        for name in ["a", "c"] {
            scene.open(name);
        }
        succeeds(&other).await;
        succeeds(&waiting).await;
    }

    async fn who_has_waited_says_whom_it_waits_for_to_have_its_limit_again(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(2).limit(Limit::new("api").at_once(1));
        let engine = engine.workflow(one(Task::new("releases", releases).limit("api")));
        let engine = engine.workflow(one(Task::new("held", held).limit("api")));
        let engine = scene.start(engine).await;
        let waiting = engine.submit("releases", "a").await.unwrap();
        until_is(&waiting, "releases", Kind::Deferred).await;
        let holding = engine.submit("held", "b").await.unwrap();
        scene.reached("b").await;
        waiting.signal("go", 1).await.unwrap();
        let retakes = until_why(&waiting, "releases", |why| matches!(why, Why::Retakes(_))).await;
        let holder = holder(&engine, &holding, wall.now()).await;
        let (limit, holders) = (LimitKey::new("api", ""), vec![holder]);
        let full = Full { limit, at_once: Some(1), wants: 1, in_use: 1, holders, before: 0 };
        assert_eq!(retakes.reasons, [Why::Retakes(full)]);
        scene.open("a");
        scene.open("b");
        succeeds(&waiting).await;
        succeeds(&holding).await;
    }

    async fn a_worker_with_as_many_tasks_as_it_may_have_says_so(place: Place) {
        let (scene, mut config) = (Scene::default(), Config::default());
        (config.slots, config.in_memory_max) = (1, 1);
        let engine = place.engine().config(config).workflow(one(Task::new("waits", waits)));
        let engine = scene.start(engine).await;
        let first = engine.submit("waits", "a").await.unwrap();
        until_is(&first, "waits", Kind::Deferred).await;
        let second = engine.submit("waits", "b").await.unwrap();
        let explained = second.explain("waits").await.unwrap();
        let reached = Why::InMemoryMax { worker: WORKER, most: 1 };
        assert_eq!((explained.reasons, explained.estimate), (vec![reached], None));
        for (run, name) in [(&first, "a"), (&second, "b")] {
            scene.open(name);
            run.signal("go", 1).await.unwrap();
            succeeds(run).await;
        }
    }

    async fn what_no_worker_can_run_says_why(place: Place) {
        let scene = Scene::default();
        let version = |weight, name: &'static str| {
            let task = Task::new(name, held).weight(weight);
            Workflow::builder("held").task(task).build().unwrap()
        };
        let engine = place.engine().slots(3).state(scene.clone()).workflow(version(3, "held"));
        let engine = engine.start().await.unwrap();
        let run = engine.submit("held", "a").queue("nobody's").await.unwrap();
        let unserved = |queue: &str, why| {
            let (queue, workflow, task) = (queue.to_owned(), "held".to_owned(), "held".to_owned());
            [Why::Unserved { queue, workflow, task, weight: 3, why }]
        };
        let explained = run.explain("held").await.unwrap();
        assert_eq!(explained.reasons, unserved("nobody's", WhyUnserved::Queue));
        assert_eq!(explained.estimate, None);
        engine.pause().await.unwrap();
        let run = engine.submit("held", "a").await.unwrap().id();
        engine.unpause().await.unwrap();
        scene.reached("a").await;
        engine.shutdown(Duration::ZERO).await;
        // The task weighs less by now, and there are fewer slots.
        let engine = place.engine().slots(2).workflow(version(1, "held")).start().await.unwrap();
        let explained = engine.explain(run, "held").await.unwrap();
        let why = WhyUnserved::TooHeavy { largest: 2 };
        assert_eq!(explained.reasons, unserved("default", why));
        engine.shutdown(Duration::ZERO).await;
        let engine = place.engine().workflow(version(1, "renamed")).start().await.unwrap();
        let explained = engine.explain(run, "held").await.unwrap();
        assert_eq!(explained.reasons, unserved("default", WhyUnserved::Unknown));
        engine.shutdown(Duration::ZERO).await;
    }

    async fn what_was_told_to_stop_says_by_whom(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let (spy, engine) = Spy::on(&place).await;
        let workflow = Workflow::builder("both")
            .task(Task::new("fails", fails))
            .task(Task::new("goes on", held))
            .on_failure(OnFailure::FailFastKill)
            .build()
            .unwrap();
        let engine = scene.start(wall.on(engine).workflow(workflow)).await;
        // Until the answer is there, the worker does not know that it has to stop it.
        let answer = spy.hold(|request: &Request| {
            let mut said = request.changes.iter().flat_map(|change| &change.events);
            said.any(|event| matches!(event, Event::Fail { .. }))
        });
        let run = engine.submit("both", "a").await.unwrap();
        scene.reached("a").await;
        scene.open("fails");
        until("the answer is kept back", async || spy.is_holding()).await;
        let explained = run.explain("goes on").await.unwrap();
        let stopping = Why::Stopping { by: CancelledBy::FailFast };
        assert_eq!(explained.reasons.len(), 2);
        assert_eq!(explained.reasons[0], stopping);
        assert!(matches!(explained.reasons[1], Why::Running { .. }));
        assert_eq!(explained.estimate, None);
        let (kind, reason) = (Kind::Failed, Some(Reason::Error));
        let error = Some("it was to fail".to_owned());
        let ended = Why::Ended { kind, reason, at: Some(wall.now()), error };
        assert_eq!(why(&run, "fails").await, [ended]);
        answer.add_permits(1);
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Failed));
    }

    async fn what_its_process_died_of_says_who_goes_before_it(place: Place) {
        let gates = Gates::default();
        let builder = || with_gates(place.engine().slots(4), &gates);
        let (mut process, mut engine) = Process::start(builder()).await;
        let names = ["a", "b", "c"];
        let mut runs = Vec::new();
        for name in names {
            runs.push(engine.submit("hold", name).await.unwrap().id());
        }
        for death in 1..=2 {
            for (name, &run) in names.iter().zip(&runs) {
                gates.arrived(name, death).await;
                until("it is active", async || {
                    engine.explain(run, "hold").await.unwrap().kind == Kind::Active
                })
                .await;
            }
            process.die().await;
            drop(engine);
            place.bury_workers();
            (process, engine) = Process::start(builder()).await;
        }
        until("two are kept back", async || engine.metrics().suspects == 2).await;
        let mut before = Vec::new();
        for &run in &runs {
            let explained = engine.explain(run, "hold").await.unwrap();
            match &explained.reasons[..] {
                [Why::Quarantined { deaths: 2, before: others }] => before.push(others.clone()),
                [Why::Claimed { .. } | Why::Running { .. }] => before.push(Vec::new()),
                other => panic!("{other:?}"),
            }
        }
        let name = |run: RunId| (run, "hold".to_owned());
        assert_eq!(before, [vec![], vec![name(runs[0])], vec![name(runs[0]), name(runs[1])]]);
        for name in names {
            gates.open(name);
        }
        for run in runs {
            succeeds(&engine.run(run).await.unwrap()).await;
        }
        process.die().await;
    }

    async fn an_explanation_is_printed_with_a_line_for_each_reason(place: Place) {
        let (scene, wall) = (Scene::default(), Wall::new());
        let engine = wall.on(place.engine()).slots(1).workflow(one(Task::new("held", held)));
        let engine = scene.start(engine).await;
        // One that took 90 seconds.
        let first = engine.submit("held", "a").await.unwrap();
        scene.reached("a").await;
        wall.pass(&engine, 90 * SECOND).await;
        scene.open("a");
        succeeds(&first).await;
        let run = engine.submit("held", "b").await.unwrap();
        scene.reached("b").await;
        wall.pass(&engine, 5 * SECOND).await;
        let id = run.id();
        let says = format!(
            "task \"held\" of run {id}: active\n\
             - it is running at worker 1 since 2023-11-14T22:14:50.000Z (5s ago)"
        );
        assert_eq!(run.explain("held").await.unwrap().to_string(), says);
        let ahead = engine.submit("held", "c").await.unwrap();
        until("one is claimed ahead", async || engine.metrics().ahead == 1).await;
        let at = wall.now() + 60 * SECOND;
        let late = engine.submit("held", "d").not_before(at).await.unwrap();
        let id = late.id();
        let says = format!(
            "task \"held\" of run {id}: ready\n\
             - it may not start before 2023-11-14T22:15:55.000Z (in 1m)\n\
             estimate: in about 1m"
        );
        assert_eq!(late.explain("held").await.unwrap().to_string(), says);
        wall.pass(&engine, 60 * SECOND).await;
        let says = format!(
            "task \"held\" of run {id}: ready\n\
             - it waits for a slot: no ready task goes before it in queue \"default\", and 1 of 1 \
             slot is in use\n\
             estimate: in about 1m30s"
        );
        assert_eq!(late.explain("held").await.unwrap().to_string(), says);
        engine.pause_queue("default").await.unwrap();
        until_is(&ahead, "held", Kind::Ready).await;
        wall.pass(&engine, 2 * SECOND).await;
        let says = format!(
            "task \"held\" of run {id}: ready\n\
             - queue \"default\" is paused since 2023-11-14T22:15:55.000Z (2s ago)\n\
             - it waits for a slot: 1 ready task goes before it in queue \"default\", and 1 of 1 \
             slot is in use"
        );
        assert_eq!(late.explain("held").await.unwrap().to_string(), says);
    }
}

/// Goes on when the place that stands second in its input is open; its limit's key stands first.
async fn keyed(context: &mut Context<[String; 2]>) -> Result<(), TaskError> {
    let scene = context.state::<Scene>()?;
    scene.at(&context.input()[1]).await;
    Ok(())
}

async fn fails(context: &mut Context<String>) -> Result<(), TaskError> {
    context.state::<Scene>()?.at("fails").await;
    Err("it was to fail".into())
}

/// Who holds one unit of a limit since then: the only task of this run.
async fn holder(engine: &Engine, run: &Run, since: Timestamp) -> Holder {
    let view = engine.store().run(run.id()).await.unwrap().unwrap();
    let name = view.run.plan.workflow().to_owned();
    Holder { task: view.tasks[0].key, run: run.id(), name, units: 1, since }
}
