//! Tasks that are done for each item of a list.

use super::gates::{Gates, Process, is_sound, on_paused_time};
use super::scene::*;
use super::support::*;
use crate::support::{Crowd, ms};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, json};
use std::time::Duration;
use tidegate::engine::{RunState, TaskState};
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, OnFailure, Run, RunId, RunOutcome, RunStatus, Task,
    TaskError, TaskHandle, Value, When, Workflow,
};
use tidegate_core::TaskExecutionId;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Event, Kind, Reason};
use tidegate_core::store::RunsPage;

const HOUR: Duration = Duration::from_secs(3_600);

async fn double(context: &mut Context) -> Result<u64, TaskError> {
    Ok(context.item::<u64>()? * 2)
}

/// Goes on when the gate that is its item is open; returns it.
async fn pass(context: &mut Context) -> Result<String, TaskError> {
    let (gates, item) = (context.state::<Gates>()?, context.item::<String>()?);
    gates.pass(&item).await;
    Ok(item)
}

/// Notes its item; an item that says so fails.
async fn perhaps_fail(context: &mut Context) -> Result<String, TaskError> {
    let item: String = context.item()?;
    context.state::<Scene>()?.note(&item);
    match item.starts_with("bad") {
        true => Err(format!("{item} is bad").into()),
        false => Ok(item),
    }
}

/// A workflow of one task that is done for each of `items`.
fn each(task: Task) -> Workflow {
    Workflow::of(task.each("items")).unwrap()
}

/// The same, that keeps going.
fn keeping_going(task: Task) -> Workflow {
    let name = task.name().to_owned();
    let builder = Workflow::builder(name).task(task.each("items"));
    builder.on_failure(OnFailure::KeepGoing).build().unwrap()
}

fn with_gates(builder: EngineBuilder, gates: &Gates) -> EngineBuilder {
    builder.workflow(each(Task::new("pass", pass))).state(gates.clone())
}

async fn submit(engine: &Engine, workflow: &str, items: impl serde::Serialize) -> Run {
    engine.submit(workflow, json!({ "items": items })).await.unwrap()
}

async fn run(engine: &Engine, workflow: &str, items: impl serde::Serialize) -> RunStatus {
    submit(engine, workflow, items).await.wait().await.unwrap()
}

/// The run of the items of a run's first task.
fn items_id(run: &Run) -> RunId {
    RunId::of_items(TaskExecutionId::of(run.id(), TaskIndex::from_u32(0)))
}

async fn items_of(engine: &Engine, run: &Run) -> Run {
    let begun = async || engine.run(items_id(run)).await.is_ok();
    until("the items are begun", begun).await;
    engine.run(items_id(run)).await.unwrap()
}

async fn kinds(run: &Run) -> Vec<Kind> {
    run.status().await.unwrap().tasks.iter().map(|task| task.kind).collect()
}

async fn until_kinds(run: &Run, wanted: &[Kind]) {
    until(&format!("{wanted:?}"), async || kinds(run).await == wanted).await;
}

/// That a task was given up at its first attempt, saying exactly this.
fn assert_permanent(task: &TaskState, says: &str) {
    assert_eq!(task.error.as_deref(), Some(says));
    assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)), "{task:?}");
    assert_eq!(task.attempt, 1, "another attempt would not mend it");
}

/// What is asked of an engine comes back when it has done what was to do before.
async fn round_trip(engine: &Engine) {
    for _ in 0..3 {
        engine.unpause_queue("nobody's").await.unwrap();
    }
}

struct Order {
    customer: String,
}

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let map = Map::<String, Value>::deserialize(from)?;
        let customer = map.get("customer").and_then(Value::as_str);
        let customer = customer.ok_or_else(|| serde::de::Error::missing_field("customer"))?;
        Ok(Order { customer: customer.to_owned() })
    }
}

on_every_store! {
    async fn more_items_than_slots_come_back_in_order(place: Place) {
        async fn inside(context: &mut Context) -> Result<u64, TaskError> {
            let crowd = context.state::<Crowd>()?;
            let _inside = crowd.enter();
            tokio::task::yield_now().await;
            Ok(context.item::<u64>()? * 2)
        }
        for slots in [1, 3] {
            let crowd = Crowd::default();
            let builder = place.engine().slots(slots).state(crowd.clone());
            let engine = builder.workflow(each(Task::new("inside", inside))).start().await.unwrap();
            let numbers: Vec<u64> = (0..20).collect();
            let status = run(&engine, "inside", &numbers).await;
            let doubled: Vec<u64> = numbers.iter().map(|number| number * 2).collect();
            assert_eq!(status.output::<Vec<u64>>("inside").unwrap(), doubled);
            assert!(crowd.most() <= slots as usize, "{} at once on {slots} slots", crowd.most());
            until_quiet(&engine).await;
            engine.shutdown(Duration::ZERO).await;
        }
        is_sound(&place.store().await).await;
    }

    async fn the_order_is_that_of_the_list_and_not_of_the_ends(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(3), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b", "c"]).await;
        let items = items_of(&engine, &run).await;
        for (at, name) in ["a", "b", "c"].into_iter().enumerate().rev() {
            gates.arrived(name, 1).await;
            gates.open(name);
            let task = format!("pass[{at}]");
            until_is(&items, &task, Kind::Succeeded).await;
        }
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a", "b", "c"]);
        let task = status.task("pass").unwrap();
        assert_eq!((task.attempt, task.entries), (1, 1), "it waited for them in one entry");
    }

    async fn a_list_is_looked_for_in_outputs_then_in_the_context_then_in_the_input(place: Place) {
        async fn numbers(context: &mut Context) -> Result<[u64; 2], TaskError> {
            context.insert("numbers", [30, 40])?;
            context.insert("inserted", [50])?;
            Ok([10, 20])
        }
        async fn nothing(_: &mut Context) -> Result<(), TaskError> {
            Ok(())
        }
        let workflow = Workflow::builder("w")
            .task(Task::new("numbers", numbers))
            .task(Task::new("between", nothing).after(["numbers"]))
            .task(Task::new("of output", double).each("numbers").after(["numbers"]))
            .task(Task::new("of above", double).each("inserted").after(["between"]))
            // It does not depend on the task of this name, which has put a list there as well.
            .task(Task::new("of far above", double).each("numbers").after(["between"]))
            .task(Task::new("of input", double).each("inserted"))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let input = json!({ "numbers": [60], "inserted": [70, 80] });
        let status = engine.submit("w", input).await.unwrap().wait().await.unwrap();
        let output = |task| status.output::<Vec<u64>>(task).unwrap();
        assert_eq!(output("of output"), [20, 40], "the output is before what was inserted");
        assert_eq!(output("of above"), [100]);
        assert_eq!(output("of far above"), [60, 80]);
        assert_eq!(output("of input"), [140, 160]);
    }

    async fn no_items_come_to_an_empty_list(place: Place) {
        async fn count(context: &mut Context) -> Result<usize, TaskError> {
            Ok(context.output::<Vec<u64>>("double")?.len())
        }
        let workflow = Workflow::builder("w")
            .task(Task::new("double", double).each("items"))
            .task(Task::new("count", count).after(["double"]))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "w", [] as [u64; 0]).await;
        assert_eq!(status.output::<Vec<u64>>("double").unwrap(), [] as [u64; 0]);
        assert_eq!(status.output::<usize>("count").unwrap(), 0);
        let page = RunsPage { limit: 9, ..RunsPage::default() };
        assert_eq!(engine.runs(page).await.unwrap().len(), 1, "no run is begun for no items");
    }

    async fn what_is_no_list_fails_for_good_and_says_what_it_is(place: Place) {
        let workflow = Workflow::of(Task::new("double", double).each("numbers").retries(3));
        let engine = place.engine().workflow(workflow.unwrap()).start().await.unwrap();
        for (input, kind) in [
            (Value::Null, "nothing"),
            (json!([1, 2]), "nothing"),
            (json!({ "number": [1] }), "nothing"),
            (json!({ "numbers": null }), "nothing"),
            (json!({ "numbers": { "a": 1 } }), "an object"),
            (json!({ "numbers": "1, 2" }), "a text"),
            (json!({ "numbers": 12 }), "a number"),
            (json!({ "numbers": true }), "a yes or no"),
        ] {
            let status = engine.submit("double", input).await.unwrap().wait().await.unwrap();
            let says = format!(
                "task \"double\" is done for each of \"numbers\", which is {kind} and not a list; \
                 it is looked for in what a task of this name returned that \"double\" depends on, \
                 in the context and in the input"
            );
            assert_permanent(status.task("double").unwrap(), &says);
        }
    }

    async fn a_dependency_that_returned_no_list_or_nothing_at_all_is_no_list(place: Place) {
        async fn fails(_: &mut Context) -> Result<Vec<u64>, TaskError> {
            Err("no numbers today".into())
        }
        let workflow = Workflow::builder("w")
            .on_failure(OnFailure::KeepGoing)
            .task(Task::new("word", async |_: &mut Context| Ok::<_, TaskError>("seven")))
            .task(Task::new("of a word", double).each("word").after(["word"]))
            .task(Task::new("fails", fails))
            .task(Task::new("of nothing", double).each("fails").after(["fails"]).when(When::AllDone))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let input = json!({ "word": [1], "fails": [1] });
        let status = engine.submit("w", input).await.unwrap().wait().await.unwrap();
        let says = "task \"of a word\" is done for each of \"word\", which is a text and not a \
                    list; it is looked for in what a task of this name returned that \"of a word\" \
                    depends on, in the context and in the input";
        assert_permanent(status.task("of a word").unwrap(), says);
        let says = "task \"fails\" has not succeeded and returned nothing";
        assert_permanent(status.task("of nothing").unwrap(), says);
    }

    async fn an_item_of_another_type_fails_for_good_and_is_named(place: Place) {
        let engine = place.engine().workflow(each(Task::new("double", double).retries(3)));
        let engine = engine.start().await.unwrap();
        let run = submit(&engine, "double", json!([1, "two", 3])).await;
        let status = run.wait().await.unwrap();
        let says = "1 of 3 items failed; item 1: the item cannot be read as u64: invalid type: \
                    string \"two\", expected u64 at line 1 column 5";
        assert_permanent(status.task("double").unwrap(), says);
        let items = items_of(&engine, &run).await.status().await.unwrap();
        assert_eq!((items.tasks[1].kind, items.tasks[1].attempt), (Kind::Failed, 1));
    }

    async fn more_items_than_there_can_be_are_refused_with_both_numbers(place: Place) {
        let engine = place.engine().workflow(each(Task::new("double", double)));
        let engine = engine.start().await.unwrap();
        let status = run(&engine, "double", vec![1; 100_001]).await;
        let says = "task \"double\" has 100001 items; at most 100000 are possible";
        assert_permanent(status.task("double").unwrap(), says);
    }

    async fn an_item_knows_its_number_and_all_that_its_task_is_given(place: Place) {
        async fn prices(context: &mut Context<Order>) -> Result<Vec<u64>, TaskError> {
            context.insert("currency", "EUR")?;
            Ok(vec![5, 7])
        }
        async fn bill(context: &mut Context<Order>) -> Result<String, TaskError> {
            let (number, price) = (context.item_number(), context.item::<u64>()?);
            let all: Vec<u64> = context.output("prices")?;
            let currency: Option<String> = context.get("currency")?;
            let rate = context.state::<u64>()?;
            let customer = &context.input().customer;
            let currency = currency.unwrap_or_default();
            Ok(format!("{customer} {number}/{}: {} {currency}", all.len(), price * *rate))
        }
        async fn plain(context: &mut Context) -> Result<u32, TaskError> {
            Ok(context.item_number())
        }
        let workflow = Workflow::builder("w")
            .task(Task::new("prices", prices))
            .task(Task::new("bill", bill).each("prices").after(["prices"]))
            .task(Task::new("plain", plain))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).state(2_u64).start().await.unwrap();
        let input = json!({ "customer": "Ada" });
        let status = engine.submit("w", input).await.unwrap().wait().await.unwrap();
        let bills: Vec<String> = status.output("bill").unwrap();
        assert_eq!(bills, ["Ada 0/2: 10 EUR", "Ada 1/2: 14 EUR"]);
        assert_eq!(status.output::<u32>("plain").unwrap(), 0);
    }

    async fn an_item_that_asks_for_an_input_of_another_type_fails_for_good(place: Place) {
        async fn asks(context: &mut Context<u32>) -> Result<u32, TaskError> {
            match context.item_number() {
                0 => Ok(7),
                _ => Ok(*context.input()),
            }
        }
        let workflow = Workflow::builder("w").task(Task::new("asks", asks).each("list").retries(5));
        let workflow = workflow.on_failure(OnFailure::KeepGoing).build().unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let run = engine.submit("w", json!({ "list": [1, 2] })).await.unwrap();
        let error = run.wait().await.unwrap().task("asks").unwrap().error.clone().unwrap();
        let says = "1 of 2 items failed; item 1: the run's input cannot be read as u32: invalid type";
        assert!(error.starts_with(says), "{error}");
        let items = items_of(&engine, &run).await.status().await.unwrap();
        let ends: Vec<_> = items.tasks.iter().map(|it| (it.kind, it.reason, it.attempt)).collect();
        let wanted = [(Kind::Succeeded, None, 1), (Kind::Failed, Some(Reason::Error), 1)];
        assert_eq!(ends, wanted, "another attempt would not mend it");
    }

    async fn an_item_inserts_nothing_and_a_plain_task_has_no_item(place: Place) {
        async fn inserts(context: &mut Context) -> Result<(), TaskError> {
            Ok(context.insert("key", 1)?)
        }
        let workflow = Workflow::builder("w")
            .on_failure(OnFailure::KeepGoing)
            .task(Task::new("inserts", inserts).each("items").retries(3))
            .task(Task::new("plain", double).retries(3))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "w", [1]).await;
        let says = "1 of 1 items failed; item 0: an item cannot put anything into the context; \
                    what it returns is kept";
        assert_permanent(status.task("inserts").unwrap(), says);
        let says = "task \"plain\" is not done for items; say each() of it";
        assert_permanent(status.task("plain").unwrap(), says);
    }

    async fn each_item_is_tried_again_by_itself(place: Place) {
        async fn second_time(context: &mut Context, handle: &TaskHandle) -> Result<u32, TaskError> {
            let item: String = context.item()?;
            context.state::<Scene>()?.note(format!("{item} {}", handle.attempt()));
            match (item.as_str(), handle.attempt()) {
                ("bad", 1) => Err("not the first time".into()),
                (_, attempt) => Ok(attempt),
            }
        }
        let scene = Scene::default();
        let now = Backoff::fixed(Duration::ZERO);
        let task = Task::new("second time", second_time).retries(1).backoff(now);
        let engine = scene.start(place.engine().slots(1).workflow(each(task))).await;
        let run = submit(&engine, "second time", ["good", "bad", "fine"]).await;
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Vec<u32>>("second time").unwrap(), [1, 2, 1]);
        let mut notes = scene.notes();
        notes.sort();
        assert_eq!(notes, ["bad 1", "bad 2", "fine 1", "good 1"]);
        let task = status.task("second time").unwrap();
        assert_eq!((task.attempt, task.entries), (1, 1), "the attempts are the items'");
    }

    async fn the_time_out_is_each_items_own(place: Place) {
        async fn perhaps_hang(context: &mut Context) -> Result<(), TaskError> {
            match context.item::<bool>()? {
                true => std::future::pending().await,
                false => Ok(()),
            }
        }
        let task = Task::new("perhaps", perhaps_hang).timeout(ms(20)).retries(1);
        let task = task.backoff(Backoff::fixed(Duration::ZERO));
        let engine = place.engine().slots(2).workflow(keeping_going(task)).start().await.unwrap();
        let run = submit(&engine, "perhaps", [false, true, false]).await;
        let status = run.wait().await.unwrap();
        let says = "1 of 3 items failed; item 1: timed out after 20ms";
        assert_permanent(status.task("perhaps").unwrap(), says);
        let items = items_of(&engine, &run).await.status().await.unwrap();
        let late = &items.tasks[1];
        assert_eq!((late.kind, late.reason, late.attempt), (Kind::TimedOut, Some(Reason::Timeout), 2));
        until_quiet(&engine).await;
    }

    async fn what_waits_too_long_to_begin_is_named_by_its_reason(place: Place) {
        let (wall, gates) = (Wall::new(), Gates::default());
        let task = Task::new("pass", pass).queue_timeout(HOUR);
        let builder = wall.on(place.engine()).slots(1).workflow(each(task)).state(gates.clone());
        let engine = builder.start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b"]).await;
        gates.arrived("a", 1).await;
        let items = items_of(&engine, &run).await;
        until_kinds(&items, &[Kind::Active, Kind::Claimed]).await;
        wall.pass(&engine, HOUR).await;
        gates.open("a");
        let status = run.wait().await.unwrap();
        let says = "1 of 2 items failed; item 1: queue_timeout";
        assert_permanent(status.task("pass").unwrap(), says);
    }

    async fn the_deadline_is_for_all_of_them_together(place: Place) {
        let (wall, gates) = (Wall::new(), Gates::default());
        let task = Task::new("pass", pass).deadline(HOUR);
        let builder = wall.on(place.engine()).slots(1).workflow(each(task)).state(gates.clone());
        let engine = builder.start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b"]).await;
        gates.arrived("a", 1).await;
        let items = items_of(&engine, &run).await;
        until_is(&run, "pass", Kind::Deferred).await;
        wall.pass(&engine, HOUR - ms(1)).await;
        gates.open("a");
        gates.arrived("b", 1).await;
        until_kinds(&items, &[Kind::Succeeded, Kind::Active]).await;
        // The second item has an hour to go, were it a time of its own.
        wall.pass(&engine, ms(1)).await;
        let status = run.wait().await.unwrap();
        let task = status.task("pass").unwrap();
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Deadline)));
        assert_eq!(kinds(&items).await, [Kind::Succeeded, Kind::Cancelled]);
        until_quiet(&engine).await;
        assert!(engine.audit().await.unwrap().is_empty());
    }

    async fn after_a_failure_what_has_not_begun_is_cancelled(place: Place) {
        let scene = Scene::default();
        let task = Task::new("perhaps", perhaps_fail);
        let engine = scene.start(place.engine().slots(1).workflow(each(task))).await;
        let mut names: Vec<String> = (0..50).map(|at| format!("item {at}")).collect();
        names[1] = "bad one".to_owned();
        let run = submit(&engine, "perhaps", &names).await;
        let status = run.wait().await.unwrap();
        assert_eq!(status.outcome(), Some(RunOutcome::Failed));
        let says = "1 of 50 items failed; item 1: bad one is bad";
        assert_permanent(status.task("perhaps").unwrap(), says);
        let items = items_of(&engine, &run).await;
        let kinds = kinds(&items).await;
        assert_eq!(kinds[..2], [Kind::Succeeded, Kind::Failed]);
        assert!(kinds[2..].iter().all(|kind| *kind == Kind::Cancelled), "{kinds:?}");
        until_quiet(&engine).await;
        assert_eq!(scene.notes(), ["item 0", "bad one"]);
    }

    async fn after_an_item_has_failed_nothing_else_of_the_run_begins(place: Place) {
        async fn other(context: &mut Context) -> Result<(), TaskError> {
            context.state::<Scene>()?.note("other");
            Ok(())
        }
        async fn clean_up(context: &mut Context) -> Result<(), TaskError> {
            context.state::<Scene>()?.note("clean up");
            Ok(())
        }
        let scene = Scene::default();
        let perhaps = Task::new("perhaps", perhaps_fail).each("items").priority(1);
        let others: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let workflow = others.iter().fold(Workflow::builder("w").task(perhaps), |workflow, name| {
            workflow.task(Task::new(name, other))
        });
        let clean_up = Task::new("clean up", clean_up).after(["perhaps"]).when(When::AllDone);
        let workflow = workflow.task(clean_up).build().unwrap();
        let engine = scene.start(place.engine().slots(1).workflow(workflow)).await;
        for _ in 0..20 {
            let status = submit(&engine, "w", ["bad one", "two"]).await.wait().await.unwrap();
            assert_eq!(status.outcome(), Some(RunOutcome::Failed));
            let notes = scene.notes();
            assert!(notes.ends_with(&["bad one".to_owned(), "clean up".to_owned()]), "{notes:?}");
        }
        until_quiet(&engine).await;
        assert_eq!(engine.audit().await.unwrap(), []);
    }

    async fn told_to_keep_going_all_items_are_done_before_it_fails(place: Place) {
        let scene = Scene::default();
        let workflow = Workflow::builder("w")
            .on_failure(OnFailure::KeepGoing)
            .task(Task::new("perhaps", perhaps_fail).each("items"))
            .task(Task::new("after", perhaps_fail).after(["perhaps"]))
            .build()
            .unwrap();
        let engine = scene.start(place.engine().slots(1).workflow(workflow)).await;
        let run = submit(&engine, "w", ["a", "bad b", "c", "bad d", "e"]).await;
        let status = run.wait().await.unwrap();
        let says = "2 of 5 items failed; item 1: bad b is bad";
        assert_permanent(status.task("perhaps").unwrap(), says);
        assert_eq!(status.task("after").unwrap().kind, Kind::Skipped);
        assert_eq!(scene.notes(), ["a", "bad b", "c", "bad d", "e"]);
        use Kind::{Failed, Succeeded};
        let items = items_of(&engine, &run).await;
        assert_eq!(kinds(&items).await, [Succeeded, Failed, Succeeded, Failed, Succeeded]);
    }

    async fn results_that_are_too_large_together_are_refused_with_their_size(place: Place) {
        async fn much(_: &mut Context) -> Result<String, TaskError> {
            Ok("x".repeat(600_000))
        }
        let engine = place.engine().workflow(each(Task::new("much", much))).start().await.unwrap();
        let status = run(&engine, "much", [1, 2]).await;
        let says = "what the items returned together is 1200007 bytes of JSON; at most 1048576 \
                    are stored";
        assert_permanent(status.task("much").unwrap(), says);
    }

    async fn the_weight_is_that_of_each_item(place: Place) {
        async fn inside(context: &mut Context) -> Result<(), TaskError> {
            let _inside = context.state::<Crowd>()?.enter();
            tokio::task::yield_now().await;
            Ok(())
        }
        let heavy = || each(Task::new("heavy", inside).weight(3));
        let error = place.engine().slots(2).workflow(heavy()).start().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "task \"heavy\" of workflow \"heavy\" weighs 3 and there are 2 slots; it would never run"
        );
        let crowd = Crowd::default();
        let builder = place.engine().slots(5).workflow(heavy()).state(crowd.clone());
        let engine = builder.start().await.unwrap();
        let status = run(&engine, "heavy", [1; 10]).await;
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
        assert_eq!(crowd.most(), 1, "two of them do not fit");
    }

    async fn the_task_itself_is_light_and_has_no_time_to_queue(place: Place) {
        async fn hold(context: &mut Context<Value>) -> Result<(), TaskError> {
            context.state::<Gates>()?.pass("hold").await;
            Ok(())
        }
        let (wall, gates) = (Wall::new(), Gates::default());
        let heavy = Task::new("pass", pass).weight(2).queue_timeout(HOUR);
        let builder = wall.on(place.engine()).slots(2).workflow(each(heavy)).state(gates.clone());
        let hold = Workflow::of(Task::new("hold", hold)).unwrap();
        let engine = builder.workflow(hold).start().await.unwrap();
        let other = engine.submit("hold", ()).await.unwrap();
        gates.arrived("hold", 1).await;
        let run = submit(&engine, "pass", ["a"]).await;
        // There is one slot left: it begins, and its item does not.
        until_is(&run, "pass", Kind::Deferred).await;
        assert_eq!(gates.arrivals("a"), 0);
        gates.open("hold");
        gates.arrived("a", 1).await;
        other.wait().await.unwrap();
        // Another queues behind the item, for longer than items may.
        let late = submit(&engine, "pass", ["b"]).await;
        until_is(&late, "pass", Kind::Claimed).await;
        wall.pass(&engine, 2 * HOUR).await;
        assert_eq!(look(&late, "pass").await.kind, Kind::Claimed);
        ["a", "b"].iter().for_each(|name| gates.open(name));
        for run in [run, late] {
            assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        }
    }

    async fn while_its_items_are_done_it_waits_without_a_slot_and_says_for_what(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b", "c"]).await;
        gates.arrived("a", 1).await;
        until_is(&run, "pass", Kind::Deferred).await;
        let (waits_for, _) = look(&run, "pass").await.waits_for.expect("it waits");
        assert_eq!(waits_for, format!("3 items, which are run {}", items_id(&run)));
        assert_eq!(run.status().await.unwrap().outcome(), None);
        let items = items_of(&engine, &run).await.status().await.unwrap();
        let names: Vec<_> = items.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["pass[0]", "pass[1]", "pass[2]"]);
        assert_eq!((items.workflow.as_str(), items.state), ("pass", RunState::Open));
        assert_eq!(engine.slots().in_use(), 1, "the item's");
        ["a", "b", "c"].iter().for_each(|name| gates.open(name));
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a", "b", "c"]);
        until_quiet(&engine).await;
    }

    async fn an_item_that_waits_gives_its_slot_to_the_next(place: Place) {
        async fn wait(context: &mut Context, handle: &TaskHandle) -> Result<String, TaskError> {
            let (gates, item) = (context.state::<Gates>()?, context.item::<String>()?);
            handle.defer_while(gates.pass(&item)).await?;
            Ok(item)
        }
        let gates = Gates::default();
        let builder = place.engine().slots(1).workflow(each(Task::new("wait", wait)));
        let engine = builder.state(gates.clone()).start().await.unwrap();
        let run = submit(&engine, "wait", ["a", "b", "c"]).await;
        let items = items_of(&engine, &run).await;
        until_kinds(&items, &[Kind::Deferred; 3]).await;
        ["c", "b", "a"].iter().for_each(|name| gates.open(name));
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("wait").unwrap(), ["a", "b", "c"]);
    }

    async fn items_of_items_returned_and_a_task_after_both(place: Place) {
        async fn sum(context: &mut Context) -> Result<u64, TaskError> {
            let (one, two) = (context.output::<Vec<u64>>("first")?, context.output::<Vec<u64>>("second")?);
            Ok(one.iter().chain(&two).sum())
        }
        let workflow = Workflow::builder("w")
            .task(Task::new("first", double).each("items"))
            .task(Task::new("second", double).each("first").after(["first"]))
            .task(Task::new("sum", sum).after(["first", "second"]))
            .build()
            .unwrap();
        let engine = place.engine().slots(2).workflow(workflow).start().await.unwrap();
        let status = run(&engine, "w", [1, 2, 3]).await;
        assert_eq!(status.output::<Vec<u64>>("first").unwrap(), [2, 4, 6]);
        assert_eq!(status.output::<Vec<u64>>("second").unwrap(), [4, 8, 12]);
        assert_eq!(status.output::<u64>("sum").unwrap(), 36);
        // What returns nothing comes to a list of nothing.
        async fn nothing(context: &mut Context) -> Result<(), TaskError> {
            context.item::<u64>()?;
            Ok(())
        }
        engine.shutdown(Duration::ZERO).await;
        let engine = place.engine().workflow(each(Task::new("nothing", nothing)));
        let engine = engine.start().await.unwrap();
        let status = run(&engine, "nothing", [1, 2]).await;
        assert_eq!(status.output::<Vec<()>>("nothing").unwrap(), [(), ()]);
    }

    async fn cancelled_in_the_middle_all_of_it_is_over(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(2), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b", "c", "d"]).await;
        gates.open("a");
        gates.arrived("c", 1).await;
        let items = items_of(&engine, &run).await;
        until_is(&items, "pass[0]", Kind::Succeeded).await;
        assert!(run.cancel().await.unwrap());
        let over = items.status().await.unwrap();
        assert_eq!(over.outcome(), Some(RunOutcome::Cancelled), "with the run, at once");
        use Kind::{Cancelled, Succeeded};
        assert_eq!(kinds(&items).await, [Succeeded, Cancelled, Cancelled, Cancelled]);
        assert_eq!(kinds(&run).await, [Cancelled]);
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        assert_eq!(items.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        until_quiet(&engine).await;
        assert!(engine.audit().await.unwrap().is_empty());
    }

    async fn a_failure_beside_it_cancels_its_items(place: Place) {
        async fn bad(context: &mut Context) -> Result<(), TaskError> {
            context.state::<Gates>()?.pass("bad").await;
            Err("it was to fail".into())
        }
        let gates = Gates::default();
        let workflow = Workflow::builder("w")
            .task(Task::new("pass", pass).each("items"))
            .task(Task::new("bad", bad))
            .build()
            .unwrap();
        let builder = place.engine().slots(3).workflow(workflow).state(gates.clone());
        let engine = builder.start().await.unwrap();
        let run = submit(&engine, "w", ["a", "b"]).await;
        gates.arrived("a", 1).await;
        gates.arrived("b", 1).await;
        until_is(&run, "pass", Kind::Deferred).await;
        gates.open("bad");
        let status = run.wait().await.unwrap();
        let task = status.task("pass").unwrap();
        assert_eq!((task.kind, task.reason), (Kind::Cancelled, Some(Reason::FailFast)));
        assert_eq!(kinds(&items_of(&engine, &run).await).await, [Kind::Cancelled; 2]);
        until_quiet(&engine).await;
    }

    async fn a_user_who_cancels_the_items_fails_the_task(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b"]).await;
        gates.arrived("a", 1).await;
        let items = items_of(&engine, &run).await;
        assert!(items.cancel().await.unwrap());
        let status = run.wait().await.unwrap();
        let says = format!("its items, run {}, were cancelled", items.id());
        assert_permanent(status.task("pass").unwrap(), &says);
        until_quiet(&engine).await;
    }

    async fn paused_in_the_middle_no_further_item_is_begun(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b"]).await;
        gates.arrived("a", 1).await;
        until_is(&run, "pass", Kind::Deferred).await;
        assert!(run.pause().await.unwrap());
        let items = items_of(&engine, &run).await;
        assert!(matches!(items.status().await.unwrap().state, RunState::Paused { .. }));
        // What was claimed ahead is handed back.
        until_kinds(&items, &[Kind::Active, Kind::Ready]).await;
        gates.open("a");
        gates.open("b");
        until_kinds(&items, &[Kind::Succeeded, Kind::Ready]).await;
        round_trip(&engine).await;
        assert_eq!(gates.arrivals("b"), 0);
        assert_eq!(kinds(&items).await, [Kind::Succeeded, Kind::Ready]);
        assert!(run.unpause().await.unwrap());
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a", "b"]);
    }

    async fn when_its_process_dies_finished_items_are_not_done_again(place: Place) {
        let gates = Gates::default();
        let builder = with_gates(place.engine().slots(2), &gates);
        let (process, engine) = Process::start(builder).await;
        let run = submit(&engine, "pass", ["a", "b", "c", "d"]).await;
        gates.open("a");
        gates.open("b");
        for name in ["c", "d"] {
            gates.arrived(name, 1).await;
        }
        let items = items_of(&engine, &run).await;
        use Kind::{Active, Succeeded};
        until_kinds(&items, &[Succeeded, Succeeded, Active, Active]).await;
        until_is(&run, "pass", Kind::Deferred).await;
        let (id, items_id) = (run.id(), items.id());
        process.die().await;
        drop((engine, run, items));
        place.bury_workers();

        let next = with_gates(place.engine().slots(2), &gates).start().await.unwrap();
        for name in ["c", "d"] {
            gates.arrived(name, 2).await;
            gates.open(name);
        }
        let status = next.run(id).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a", "b", "c", "d"]);
        let task = status.task("pass").unwrap();
        assert_eq!((task.attempt, task.entries), (1, 2));
        let arrivals = ["a", "b", "c", "d"].map(|name| gates.arrivals(name));
        assert_eq!(arrivals, [1, 1, 2, 2]);
        let items = next.run(items_id).await.unwrap().status().await.unwrap();
        let entries: Vec<_> = items.tasks.iter().map(|task| task.entries).collect();
        assert_eq!(entries, [1, 1, 2, 2]);
        is_sound(next.store()).await;
    }

    async fn items_that_had_all_ended_when_the_process_died_are_found_by_the_next_entry(
        place: Place
    ) {
        let gates = Gates::default();
        let (spy, builder) = Spy::on(&place).await;
        // Their end is stored, and nobody hears of it.
        let held = spy.hold(|request| {
            let mut said = request.changes.iter().flat_map(|change| &change.events);
            said.any(|event| matches!(event, Event::Succeed { .. }))
        });
        let (process, engine) = Process::start(with_gates(builder.slots(1), &gates)).await;
        let run = submit(&engine, "pass", ["a"]).await;
        gates.open("a");
        until("the answer is held back", async || spy.is_holding()).await;
        let items = items_of(&engine, &run).await;
        assert_eq!(items.status().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        let id = run.id();
        process.die().await;
        drop((engine, run, items, spy, held));
        place.bury_workers();
        let next = with_gates(place.engine(), &gates).start().await.unwrap();
        let status = next.run(id).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a"]);
        assert_eq!(gates.arrivals("a"), 1);
    }

    async fn stopped_in_the_middle_it_goes_on_in_the_next_engine(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a", "b", "c"]).await;
        gates.open("a");
        gates.arrived("b", 1).await;
        let items = items_of(&engine, &run).await;
        until_is(&items, "pass[0]", Kind::Succeeded).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        // The task waits and is handed back; the item that computes may end.
        until_is(&run, "pass", Kind::Ready).await;
        gates.open("b");
        let report = shutdown.await.unwrap();
        assert_eq!(report.finished, 1);
        assert!(report.handed_back.contains(&(run.id(), "pass".to_owned())));
        use Kind::{Ready, Succeeded};
        assert_eq!(kinds(&items).await, [Succeeded, Succeeded, Ready]);

        gates.open("c");
        let next = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let status = next.run(run.id()).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a", "b", "c"]);
        assert_eq!(["a", "b", "c"].map(|name| gates.arrivals(name)), [1, 1, 1]);
        assert_eq!(status.task("pass").unwrap().attempt, 1);
        is_sound(next.store()).await;
    }

    async fn entered_while_the_engine_stops_it_is_handed_back_or_ends_and_does_not_fail(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let run = submit(&engine, "pass", ["a"]).await;
        gates.arrived("a", 1).await;
        until_is(&run, "pass", Kind::Deferred).await;
        assert!(run.pause().await.unwrap());
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        until_is(&run, "pass", Kind::Ready).await;
        gates.open("a");
        shutdown.await.unwrap();
        let id = run.id();
        drop((engine, run));

        // It is claimed again, behind another, and enters when its beginning is written.
        let (spy, builder) = Spy::on(&place).await;
        let engine = with_gates(builder.slots(1), &gates).start().await.unwrap();
        let other = submit(&engine, "pass", ["other"]).await;
        gates.arrived("other", 1).await;
        until_is(&other, "pass", Kind::Deferred).await;
        let run = engine.run(id).await.unwrap();
        assert!(run.unpause().await.unwrap());
        until_is(&run, "pass", Kind::Claimed).await;
        let held = spy.hold(|request| {
            let mut said = request.changes.iter().flat_map(|change| &change.events);
            said.any(|event| matches!(event, Event::Begin { .. }))
        });
        gates.open("other");
        until("the answer is held back", async || spy.is_holding()).await;
        let shutdown = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        held.add_permits(1);
        let report = shutdown.await.unwrap();
        let task = look(&run, "pass").await;
        // Its items have ended: it may as well find that out in the grace.
        match task.kind {
            Kind::Succeeded => assert!(report.finished >= 1, "{report:?}"),
            kind => {
                assert_eq!((kind, task.error), (Kind::Ready, None));
                assert!(report.handed_back.contains(&(id, "pass".to_owned())), "{report:?}");
            }
        }
        drop((engine, run, other, spy, held));

        let next = with_gates(place.engine(), &gates).start().await.unwrap();
        let status = next.run(id).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a"]);
        assert_eq!(gates.arrivals("a"), 1);
    }

    async fn two_engines_share_the_items_and_the_task_has_all_results(place: Place) {
        let gates = Gates::default();
        let one = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        let run = submit(&one, "pass", ["a", "b", "c"]).await;
        gates.arrived("a", 1).await;
        until_is(&run, "pass", Kind::Deferred).await;
        // Nobody tells the second: it finds what is ready when it starts, or with its next look.
        let items = items_of(&one, &run).await;
        until_kinds(&items, &[Kind::Active, Kind::Claimed, Kind::Ready]).await;
        let two = with_gates(place.engine().slots(1), &gates).start().await.unwrap();
        gates.arrived("c", 1).await;
        ["a", "b"].iter().for_each(|name| gates.open(name));
        until_kinds(&items, &[Kind::Succeeded, Kind::Succeeded, Kind::Active]).await;
        // The last ends at the second, and the first looks for it.
        gates.open("c");
        let status = run.wait().await.unwrap();
        assert_eq!(status.output::<Vec<String>>("pass").unwrap(), ["a", "b", "c"]);
        assert_eq!(["a", "b", "c"].map(|name| gates.arrivals(name)), [1, 1, 1]);
        until_quiet(&one).await;
        until_quiet(&two).await;
    }

    async fn items_may_be_blocking_tasks(place: Place) {
        fn triple(context: &mut Context) -> Result<u64, TaskError> {
            Ok(context.item::<u64>()? * 3)
        }
        let engine = place.engine().slots(2).workflow(each(Task::blocking("triple", triple)));
        let engine = engine.start().await.unwrap();
        let status = run(&engine, "triple", [1, 2, 3, 4]).await;
        assert_eq!(status.output::<Vec<u64>>("triple").unwrap(), [3, 6, 9, 12]);
    }

    async fn items_are_in_the_queue_of_their_run(place: Place) {
        let builder = place.engine().queues(["first", "second"]);
        let engine = builder.workflow(each(Task::new("double", double))).start().await.unwrap();
        let input = json!({ "items": [1] });
        let run = engine.submit("double", input).queue("second").priority(5).await.unwrap();
        assert_eq!(run.wait().await.unwrap().output::<Vec<u64>>("double").unwrap(), [2]);
        let stored = engine.store().run(items_id(&run)).await.unwrap().unwrap().run;
        assert_eq!((&*stored.queue, stored.priority), ("second", 5));
    }
}

on_paused_time! {
    async fn the_time_out_of_items_does_not_bound_all_of_them_together(place: Place) {
        async fn eight(_: &mut Context) -> Result<(), TaskError> {
            tokio::time::sleep(Duration::from_secs(8)).await;
            Ok(())
        }
        let task = Task::new("eight", eight).timeout(Duration::from_secs(10));
        let clock = super::gates::fake_clock();
        let engine = place.engine().clock(clock).slots(1).workflow(each(task));
        let engine = engine.start().await.unwrap();
        let begun = tokio::time::Instant::now();
        let status = run(&engine, "eight", [1; 5]).await;
        assert_eq!(status.outcome(), Some(RunOutcome::Succeeded), "{status:?}");
        assert_eq!(begun.elapsed().as_secs(), 40);
    }
}
