//! New runs that take over what has succeeded in old ones.

use super::faults::Faulty;
use super::gates::is_sound;
use super::scene::{Wall, until_is};
use super::support::*;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::engine::{Happened, Kind, Retention, Retried, RunsPage, What};
use tidegate::error::{Refusal, SubmitError};
use tidegate::{
    Context, Engine, EngineBuilder, Limit, LimitUse, OnFailure, Run, RunId, RunOutcome, Task,
    TaskError, TaskHandle, When, Workflow,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// What the bodies and their test share: who was entered, and who fails.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<(Vec<String>, Vec<&'static str>)>>);

impl Stage {
    /// From now on these fail, and no others.
    fn fails(&self, names: &[&'static str]) {
        self.0.lock().unwrap().1 = names.to_vec();
    }

    /// Who was entered since this was last asked.
    fn entered(&self) -> Vec<String> {
        let mut entered = std::mem::take(&mut self.0.lock().unwrap().0);
        entered.sort();
        entered
    }

    fn enter(&self, name: &str) -> Result<(), TaskError> {
        let (entered, fails) = &mut *self.0.lock().unwrap();
        entered.push(name.to_owned());
        match fails.contains(&name) {
            true => Err(TaskError::permanent(format!("{name} was to fail"))),
            false => Ok(()),
        }
    }
}

async fn a(context: &mut Context) -> Result<u32, TaskError> {
    context.state::<Stage>()?.enter("a")?;
    context.insert("by", "a")?;
    Ok(1)
}

async fn b(context: &mut Context) -> Result<u32, TaskError> {
    context.state::<Stage>()?.enter("b")?;
    Ok(context.output::<u32>("a")? + 1)
}

async fn c(context: &mut Context) -> Result<u32, TaskError> {
    context.state::<Stage>()?.enter("c")?;
    Ok(context.output::<u32>("a")? + 2)
}

/// What both arms came to, and what the first task has put into the context.
async fn d(context: &mut Context) -> Result<(u32, u32, String), TaskError> {
    context.state::<Stage>()?.enter("d")?;
    let by = context.get("by")?.unwrap_or_default();
    Ok((context.output("b")?, context.output("c")?, by))
}

/// What came of `a` and `b`.
async fn tidy(context: &mut Context) -> Result<bool, TaskError> {
    context.state::<Stage>()?.enter("tidy")?;
    Ok(context.has_succeeded("a")? && context.has_succeeded("b")?)
}

async fn waits(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    context.state::<Stage>()?.enter("waits")?;
    Ok(handle.sleep(HOUR).await?)
}

/// Returns its item, or fails.
async fn each(context: &mut Context) -> Result<String, TaskError> {
    let item: String = context.item()?;
    context.state::<Stage>()?.enter(&item)?;
    Ok(item)
}

/// `b` and `c` after `a`, and `d` after both; with these fingerprints.
fn diamond(prints: &[(&str, &str)]) -> Workflow {
    let tasks = [
        Task::new("a", a),
        Task::new("b", b).after(["a"]),
        Task::new("c", c).after(["a"]),
        Task::new("d", d).after(["b", "c"]),
    ];
    let builder = Workflow::builder("diamond").on_failure(OnFailure::KeepGoing);
    let with_print = |task: Task| {
        let print = prints.iter().find(|(name, _)| *name == task.name());
        print.map_or(task.clone(), |(_, print)| task.fingerprint(*print))
    };
    tasks.into_iter().fold(builder, |builder, task| builder.task(with_print(task))).build().unwrap()
}

async fn start(builder: EngineBuilder, stage: &Stage, workflow: Workflow) -> Engine {
    builder.slots(2).state(stage.clone()).workflow(workflow).start().await.unwrap()
}

/// A run of this workflow that has ended, in which these have failed.
async fn ended(engine: &Engine, stage: &Stage, workflow: &str, fails: &[&'static str]) -> Run {
    stage.fails(fails);
    let run = engine.submit(workflow, ()).await.unwrap();
    run.wait().await.unwrap();
    stage.fails(&[]);
    stage.entered();
    run
}

/// The new run, and which tasks it takes over and which have changed.
fn begun(retried: Retried) -> (Run, Vec<String>, Vec<String>) {
    match retried {
        Retried::Begun { run, taken_over, changed, .. } => (run, taken_over, changed),
        other => panic!("there is something to do: {other:?}"),
    }
}

fn refusal(error: SubmitError) -> Refusal {
    match error {
        SubmitError::Refused(refusal) => refusal,
        other => panic!("it is refused: {other}"),
    }
}

on_every_store! {
    async fn a_retry_does_what_is_left_and_has_what_was_done(place: Place) {
        let stage = Stage::default();
        let engine = start(place.engine(), &stage, diamond(&[])).await;
        let old = ended(&engine, &stage, "diamond", &["b"]).await;
        let mut events = engine.subscribe();
        let (run, taken_over, changed) = begun(old.retry().await.unwrap());
        assert_eq!((taken_over, changed), (vec!["a".to_owned(), "c".to_owned()], vec![]));
        let status = run.wait().await.unwrap();
        assert_eq!(stage.entered(), ["b", "d"]);
        assert_eq!((status.outcome(), status.retry_of), (Some(RunOutcome::Succeeded), Some(old.id())));
        assert_eq!(status.output::<u32>("a").unwrap(), 1, "what was done elsewhere is read as well");
        assert_eq!(status.output::<(u32, u32, String)>("d").unwrap(), (2, 3, "a".to_owned()));
        let taken: Vec<_> = status.tasks.iter().map(|it| (it.taken_over, it.entries)).collect();
        assert_eq!(taken, [(true, 0), (false, 1), (true, 0), (false, 1)]);
        assert_eq!(run.output::<u32>("c").await.unwrap(), 3);
        assert_eq!(run.status().await.unwrap().retry_of, Some(old.id()));

        let records = run.events().await.unwrap();
        let whats: Vec<_> = records.iter().map(|it| it.what).collect();
        let (taken_over, succeeded) = (Happened::TakenOver, Happened::Succeeded);
        assert_eq!(whats, [taken_over, taken_over, succeeded, succeeded]);
        let mut heard = 0;
        while heard < 2 {
            let event = events.next().await.unwrap().expect("the engine is there");
            heard += usize::from(matches!(event.what, What::Ended { how: Happened::TakenOver, .. }));
        }
        let listed = engine.runs(RunsPage::default()).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|it| (it.id, it.retry_of)).collect();
        assert_eq!(listed, [(run.id(), Some(old.id())), (old.id(), None)]);
        let before = old.status().await.unwrap();
        assert_eq!((before.outcome(), before.retry_of), (Some(RunOutcome::Failed), None));
        is_sound(engine.store()).await;
    }

    async fn what_was_changed_runs_again_with_what_comes_after_it_and_is_named(place: Place) {
        let stage = Stage::default();
        let first = start(place.engine(), &stage, diamond(&[("b", "1"), ("d", "1")])).await;
        let old = ended(&first, &stage, "diamond", &[]).await;
        first.shutdown(Duration::ZERO).await;

        let second = start(place.engine(), &stage, diamond(&[("b", "2"), ("d", "1")])).await;
        let (run, taken_over, changed) = begun(second.retry(old.id()).await.unwrap());
        assert_eq!(taken_over, ["a", "c"]);
        assert_eq!(changed, ["b", "d"], "that one of them comes after the other is reason enough");
        run.wait().await.unwrap();
        assert_eq!(stage.entered(), ["b", "d"]);
        second.shutdown(Duration::ZERO).await;

        let third = start(place.engine(), &stage, diamond(&[("a", "2"), ("b", "2"), ("d", "1")])).await;
        let (run, taken_over, changed) = begun(third.retry(run.id()).await.unwrap());
        assert!(taken_over.is_empty());
        assert_eq!(changed, ["a", "b", "c", "d"]);
        run.wait().await.unwrap();
        assert_eq!(run.status().await.unwrap().retry_of, run.wait().await.unwrap().retry_of);
    }

    async fn an_engine_that_does_not_know_the_workflow_retries_it_as_it_was(place: Place) {
        let stage = Stage::default();
        let knows = start(place.engine(), &stage, diamond(&[])).await;
        let old = ended(&knows, &stage, "diamond", &["d"]).await;
        knows.shutdown(Duration::ZERO).await;
        let other = Workflow::of(Task::new("each", each).each("items")).unwrap();
        let stranger = start(place.engine(), &stage, other).await;
        let (run, taken_over, _) = begun(stranger.retry(old.id()).await.unwrap());
        assert_eq!(taken_over, ["a", "b", "c"]);
        until_is(&run, "d", Kind::Ready).await;
        stranger.shutdown(Duration::ZERO).await;

        let knows = start(place.engine(), &stage, diamond(&[])).await;
        let run = knows.run(run.id()).await.unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!(status.retry_of, Some(old.id()));
        assert_eq!(status.output::<(u32, u32, String)>("d").unwrap(), (2, 3, "a".to_owned()));
        assert_eq!(stage.entered(), ["d"]);
    }

    async fn rules_are_looked_at_again_with_what_was_taken_over(place: Place) {
        let stage = Stage::default();
        let builder = Workflow::builder("w").task(Task::new("a", a));
        let builder = builder.task(Task::new("b", b).after(["a"]));
        let done = Task::new("tidy", tidy).after(["a", "b"]).when(When::AllDone);
        let failed = Task::new("tell", tidy).after(["a", "b"]).when(When::AnyFailed);
        let workflow = builder.task(done).task(failed).build().unwrap();
        let engine = start(place.engine(), &stage, workflow).await;
        let old = ended(&engine, &stage, "w", &["b"]).await;
        let status = old.wait().await.unwrap();
        assert!(!status.output::<bool>("tidy").unwrap() && !status.output::<bool>("tell").unwrap());
        let (run, taken_over, changed) = begun(old.retry().await.unwrap());
        assert_eq!((taken_over, changed), (vec!["a".to_owned()], vec![]));
        let status = run.wait().await.unwrap();
        assert!(status.output::<bool>("tidy").unwrap(), "it is of what has succeeded now");
        assert_eq!(status.task("tell").unwrap().kind, Kind::Skipped);
        assert!(matches!(run.retry().await, Ok(Retried::NothingLeft)), "what is skipped is no work");
    }

    async fn that_nothing_is_left_is_an_answer(place: Place) {
        let stage = Stage::default();
        let engine = start(place.engine(), &stage, diamond(&[])).await;
        let old = ended(&engine, &stage, "diamond", &[]).await;
        let answer = engine.retry(old.id()).await.unwrap();
        assert!(matches!(answer, Retried::NothingLeft) && answer.run().is_none());
        assert_eq!(engine.runs(RunsPage::default()).await.unwrap().len(), 1);

        let retried = old.retry().only(["b"]).await.unwrap();
        assert_eq!(retried.run().unwrap().wait().await.unwrap().retry_of, Some(old.id()));
        let (_, taken_over, changed) = begun(retried);
        assert_eq!((taken_over, changed), (vec!["a".to_owned(), "c".to_owned()], vec![]));
        assert_eq!(stage.entered(), ["b", "d"], "what is named runs again, and what comes after it");
    }

    async fn what_cannot_be_retried_is_refused_by_name(place: Place) {
        let stage = Stage::default();
        let workflow = Workflow::of(Task::new("waits", waits)).unwrap();
        let engine = start(place.engine(), &stage, workflow).await;
        let open = engine.submit("waits", ()).await.unwrap();
        let refused = open.retry().await.unwrap_err();
        assert!(refused.to_string().contains(&format!("run {} has not ended", open.id())));
        assert_eq!(refusal(refused), Refusal::NotEnded { run: open.id() });
        let run = RunId::from_u128(7);
        let refused = engine.retry(run).await.unwrap_err();
        assert!(refused.to_string().contains(&format!("no run {run}")), "{refused}");
        assert_eq!(refusal(refused), Refusal::NoRun { run });

        open.cancel().await.unwrap();
        let refused = open.retry().only(["wait"]).await.unwrap_err();
        let says = "workflow \"waits\" has no task \"wait\"; is \"waits\" meant?";
        assert_eq!(refused.to_string(), says);
        engine.shutdown(Duration::ZERO).await;
        assert!(matches!(open.retry().await, Err(SubmitError::Closed)));
    }

    async fn a_run_that_was_cancelled_or_ran_out_of_time_is_retried(place: Place) {
        let stage = Stage::default();
        let wall = Wall::new();
        let waits = Task::new("waits", waits).after(["a"]).deadline(HOUR / 2);
        let builder = Workflow::builder("w").task(Task::new("a", a));
        let workflow = builder.task(waits).build().unwrap();
        let engine = start(wall.on(place.engine()), &stage, workflow).await;
        let first = engine.submit("w", ()).await.unwrap();
        until_is(&first, "waits", Kind::Deferred).await;
        assert!(first.cancel().await.unwrap());
        let (second, taken_over, _) = begun(first.retry().await.unwrap());
        assert_eq!(taken_over, ["a"]);
        until_is(&second, "waits", Kind::Deferred).await;
        wall.pass(&engine, HOUR / 2).await;
        let status = second.wait().await.unwrap();
        assert_eq!(status.task("waits").unwrap().kind, Kind::TimedOut);
        let (third, taken_over, _) = begun(second.retry().await.unwrap());
        assert_eq!((taken_over, third.status().await.unwrap().retry_of), (vec!["a".to_owned()], Some(second.id())));
        until_is(&third, "waits", Kind::Deferred).await;
        assert_eq!(stage.entered(), ["a", "waits", "waits", "waits"]);
    }

    async fn a_retry_has_what_the_old_run_had_unless_it_is_told_otherwise(place: Place) {
        let stage = Stage::default();
        let builder = place.engine().queues(["main", "side", "other"]);
        let builder = builder.limit(Limit::new("customers").at_once(1));
        let keyed = Task::new("a", a).limit(LimitUse::of("customers").by("id"));
        let workflow = Workflow::builder("w").task(keyed).task(Task::new("b", b).after(["a"]));
        let engine = start(builder, &stage, workflow.build().unwrap()).await;
        stage.fails(&["b"]);
        let old = engine.submit("w", json!({"id": 1})).queue("side").priority(7);
        let old = old.key("k").await.unwrap();
        old.wait().await.unwrap();
        let summary = async |run: &Run| {
            let runs = engine.runs(RunsPage::default()).await.unwrap();
            runs.into_iter().find(|it| it.id == run.id()).unwrap()
        };
        let (same, taken_over, _) = begun(old.retry().await.unwrap());
        let is = summary(&same).await;
        assert_eq!((&*is.queue, is.priority, is.idempotency_key), ("side", 7, None));
        assert_eq!(taken_over, ["a"]);
        let key = summary(&old).await.key;
        assert_eq!(engine.store().input(is.key).await.unwrap(), engine.store().input(key).await.unwrap());

        let later = std::time::SystemTime::now() + HOUR;
        let other = old.retry().queue("other").priority(1).key("r").not_before(later);
        let (other, ..) = begun(other.await.unwrap());
        let is = summary(&other).await;
        assert_eq!((&*is.queue, is.priority, is.idempotency_key.as_deref()), ("other", 1, Some("r")));
        assert_eq!(other.status().await.unwrap().task("b").unwrap().entries, 0);
        let (again, ..) = begun(old.retry().queue("other").key("r").await.unwrap());
        assert_eq!((again.id(), again.existed()), (other.id(), true));
        let taken = old.retry().key("k").await.unwrap_err();
        assert_eq!(refusal(taken), Refusal::KeyOfAnother { key: "k".to_owned(), by: old.id() });

        // Nobody knows which tasks have looked at the input.
        let (other, taken_over, changed) = begun(old.retry().input(json!({"id": 2})).await.unwrap());
        assert_eq!((taken_over, changed), (vec![], vec!["a".to_owned()]));
        assert_eq!(other.wait().await.unwrap().retry_of, Some(old.id()));
        let (_, taken_over, _) = begun(old.retry().input(json!({"id": 1})).await.unwrap());
        assert_eq!(taken_over, ["a"]);
        let refused = old.retry().input(json!({})).await.unwrap_err();
        assert!(matches!(refused, SubmitError::LimitKey { .. }), "{refused}");
    }

    async fn a_retry_whose_answer_is_lost_begins_one_run(place: Place) {
        let (stage, faulty) = (Stage::default(), Faulty::on(&place).await);
        let engine = start(faulty.engine(), &stage, diamond(&[])).await;
        let old = ended(&engine, &stage, "diamond", &["b"]).await;
        faulty.lose(|request, _| !request.submits.is_empty());
        let (run, taken_over, _) = begun(old.retry().await.unwrap());
        assert!(faulty.is_done());
        assert_eq!(taken_over, ["a", "c"]);
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<(u32, u32, String)>("d").unwrap(), (2, 3, "a".to_owned()));
        assert_eq!(stage.entered(), ["b", "d"]);
        assert_eq!(engine.runs(RunsPage::default()).await.unwrap().len(), 2);
        is_sound(engine.store()).await;
    }

    async fn the_old_run_may_go(place: Place) {
        let (stage, wall) = (Stage::default(), Wall::new());
        let engine = start(wall.on(place.engine()), &stage, diamond(&[])).await;
        let old = ended(&engine, &stage, "diamond", &["b"]).await;
        wall.pass(&engine, HOUR).await;
        let (run, ..) = begun(old.retry().await.unwrap());
        run.wait().await.unwrap();
        let runs = Retention { runs: Some(HOUR / 2), ..Retention::default() };
        assert_eq!(engine.prune(runs).await.unwrap().runs, 1);
        assert_eq!(refusal(old.retry().await.unwrap_err()), Refusal::NoRun { run: old.id() });
        let status = run.status().await.unwrap();
        assert_eq!(status.retry_of, Some(old.id()), "a link may lead nowhere");
        assert!(status.task("a").unwrap().taken_over);
        assert_eq!(run.output::<u32>("a").await.unwrap(), 1);
        is_sound(engine.store()).await;
    }

    async fn items_that_have_succeeded_are_not_done_again(place: Place) {
        let stage = Stage::default();
        let task = Task::new("each", each).each("items");
        let workflow = Workflow::builder("list").task(task).on_failure(OnFailure::KeepGoing);
        let engine = start(place.engine(), &stage, workflow.build().unwrap()).await;
        stage.fails(&["y"]);
        let old = engine.submit("list", json!({"items": ["x", "y", "x", "z"]})).await.unwrap();
        assert_eq!(old.wait().await.unwrap().outcome(), Some(RunOutcome::Failed));
        assert_eq!(stage.entered(), ["x", "x", "y", "z"]);
        stage.fails(&[]);
        let (run, taken_over, changed) = begun(old.retry().await.unwrap());
        assert!(taken_over.is_empty() && changed.is_empty());
        let list: Vec<String> = run.wait().await.unwrap().output("each").unwrap();
        assert_eq!(list, ["x", "y", "x", "z"]);
        assert_eq!(stage.entered(), ["y"]);

        // The list may be another one: items are known by what they are.
        let other = old.retry().input(json!({"items": ["z", "w", "x"]}));
        let (run, ..) = begun(other.await.unwrap());
        let list: Vec<String> = run.wait().await.unwrap().output("each").unwrap();
        assert_eq!(list, ["z", "w", "x"]);
        assert_eq!(stage.entered(), ["w"]);
        let (run, ..) = begun(old.retry().input(json!({"items": ["z"]})).await.unwrap());
        assert_eq!(run.wait().await.unwrap().output::<Vec<String>>("each").unwrap(), ["z"]);
        assert!(stage.entered().is_empty());
        is_sound(engine.store()).await;
    }
}
