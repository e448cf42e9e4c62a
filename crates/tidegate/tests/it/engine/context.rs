//! What a task is given and leaves behind, and what a function has to be to become a task.

use super::support::*;
use serde::{Deserialize, Deserializer};
use std::fmt;
use tidegate::engine::TaskState;
use tidegate::{Context, Engine, RunStatus, Task, TaskError, TaskHandle, Value, Workflow};
use tidegate_core::lifecycle::{Kind, Reason};

/// Runs a workflow to its end.
async fn run(engine: &Engine, workflow: &str, input: Value) -> RunStatus {
    engine.submit(workflow, input).await.unwrap().wait().await.unwrap()
}

/// Runs a workflow of one task, without input, to its end.
async fn run_task(place: &Place, task: Task) -> TaskState {
    run_task_with(place, task, Value::Null).await
}

async fn run_task_with(place: &Place, task: Task, input: Value) -> TaskState {
    let name = task.name().to_owned();
    let engine = place.engine().workflow(Workflow::of(task).unwrap()).start().await.unwrap();
    let status = run(&engine, &name, input).await;
    engine.shutdown(std::time::Duration::ZERO).await;
    status.task(&name).unwrap().clone()
}

/// That a task was given up at its first attempt although it may be retried, saying so.
fn assert_permanent(task: &TaskState, says: &[&str]) {
    assert_eq!((task.kind, task.reason), (Kind::Failed, Some(Reason::Error)), "{task:?}");
    assert_eq!(task.attempt, 1, "another attempt would not mend it");
    let error = task.error.as_deref().unwrap();
    says.iter().for_each(|part| assert!(error.contains(part), "{part:?} is not in {error:?}"));
}

struct Order {
    pieces: u32,
}

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (_customer, pieces) = <(String, u32)>::deserialize(from)?;
        Ok(Order { pieces })
    }
}

async fn count(context: &mut Context<Order>) -> Result<u32, TaskError> {
    Ok(context.input().pieces)
}

on_every_store! {
    async fn a_typed_input_is_read_for_the_task(place: Place) {
        let workflow = Workflow::of(Task::new("count", count)).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let input = serde_json::json!(["Ada", 7]);
        assert_eq!(run(&engine, "count", input).await.output::<u32>("count").unwrap(), 7);
    }

    async fn an_input_of_another_type_fails_for_good_and_names_the_type(place: Place) {
        let input = serde_json::json!(["Ada", "seven"]);
        let task = run_task_with(&place, Task::new("count", count).retries(3), input).await;
        assert_permanent(&task, &["Order", "seven"]);
    }

    async fn no_input_is_null(place: Place) {
        let body = async |context: &mut Context| Ok::<_, TaskError>(context.input().is_null());
        let workflow = Workflow::of(Task::new("look", body)).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = engine.submit("look", ()).await.unwrap().wait().await.unwrap();
        assert!(status.output::<bool>("look").unwrap());
    }

    async fn what_a_dependency_returned_is_handed_on(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("one", async |_: &mut Context| Ok::<_, TaskError>(1)))
            .task(Task::new("nothing", async |_: &mut Context| Ok::<_, TaskError>(())))
            .task(
                Task::new("add", async |context: &mut Context| {
                    context.output::<()>("nothing")?;
                    Ok::<_, TaskError>(context.output::<u64>("one")? + 1)
                })
                .after(["one", "nothing"]),
            )
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", Value::Null).await;
        assert_eq!(status.output::<u64>("add").unwrap(), 2, "{status:?}");
    }

    async fn what_a_dependency_returned_as_another_type_fails_for_good(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("word", async |_: &mut Context| Ok::<_, TaskError>("seven")))
            .task(
                Task::new("add", async |context: &mut Context| context.output::<u64>("word"))
                    .after(["word"])
                    .retries(3),
            )
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", Value::Null).await;
        assert_permanent(status.task("add").unwrap(), &["\"word\"", "u64", "seven"]);
    }

    async fn what_a_task_returned_is_handed_to_its_dependants_alone(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("one", async |_: &mut Context| Ok::<_, TaskError>(1)))
            .task(Task::new("two", async |_: &mut Context| Ok::<_, TaskError>(2)).after(["one"]))
            .task(
                Task::new("three", async |context: &mut Context| context.output::<u64>("one"))
                    .after(["two"])
                    .retries(3),
            )
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", Value::Null).await;
        let says = &["\"three\" does not depend on a task \"one\""];
        assert_permanent(status.task("three").unwrap(), says);
    }

    async fn an_insert_is_found_by_its_author_and_by_all_that_come_after(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("author", async |context: &mut Context| {
                assert_eq!(context.get::<u64>("n")?, Some(1), "the input has it");
                context.insert("n", 2)?;
                context.get::<u64>("n")
            }))
            .task(
                Task::new("child", async |context: &mut Context| context.get::<u64>("n"))
                    .after(["author"]),
            )
            .task(
                Task::new("grandchild", async |context: &mut Context| {
                    let by_author = context.from::<u64>("author", "n")?;
                    assert_eq!(context.from::<u64>("author", "m")?, None);
                    assert_eq!(context.get::<u64>("m")?, None);
                    Ok::<_, TaskError>((context.get::<u64>("n")?, by_author))
                })
                .after(["child"]),
            )
            .task(Task::new("stranger", async |context: &mut Context| context.get::<u64>("n")))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", serde_json::json!({"n": 1})).await;
        assert_eq!(status.output::<u64>("author").unwrap(), 2);
        assert_eq!(status.output::<u64>("child").unwrap(), 2);
        assert_eq!(status.output::<(u64, u64)>("grandchild").unwrap(), (2, 2));
        assert_eq!(status.output::<u64>("stranger").unwrap(), 1, "it does not come after");
    }

    async fn what_is_inserted_by_an_attempt_that_fails_is_not_stored(place: Place) {
        async fn author(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
            match handle.attempt() {
                1 => {
                    context.insert("first", true)?;
                    Err("once more".into())
                }
                _ => Ok(context.insert("second", true)?),
            }
        }
        let now = tidegate::Backoff::fixed(std::time::Duration::ZERO);
        let workflow = Workflow::builder("chain")
            .task(Task::new("author", author).retries(1).backoff(now))
            .task(
                Task::new("child", async |context: &mut Context| {
                    let found = (context.get::<bool>("first")?, context.get::<bool>("second")?);
                    Ok::<_, TaskError>(found)
                })
                .after(["author"]),
            )
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", Value::Null).await;
        let found = status.output::<(Option<bool>, Option<bool>)>("child").unwrap();
        assert_eq!(found, (None, Some(true)));
    }

    async fn a_descendants_insert_hides_its_ancestors(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("old", async |context: &mut Context| context.insert("n", 1)))
            .task(
                Task::new("new", async |context: &mut Context| context.insert("n", 2))
                    .after(["old"]),
            )
            .task(
                Task::new("look", async |context: &mut Context| {
                    let both = (context.get::<u64>("n")?, context.from::<u64>("old", "n")?);
                    Ok::<_, TaskError>(both)
                })
                .after(["old", "new"]),
            )
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", Value::Null).await;
        assert_eq!(status.output::<(u64, u64)>("look").unwrap(), (2, 1));
    }

    async fn two_authors_that_disagree_are_named_and_one_can_be_picked(place: Place) {
        let workflow = Workflow::builder("chain")
            .task(Task::new("left", async |context: &mut Context| {
                context.insert("same", 0)?;
                context.insert("n", 1)
            }))
            .task(Task::new("right", async |context: &mut Context| {
                context.insert("same", 0)?;
                context.insert("n", 2)
            }))
            .task(
                Task::new("pick", async |context: &mut Context| {
                    assert_eq!(context.get::<u64>("same")?, Some(0), "they agree");
                    context.from::<u64>("right", "n")
                })
                .after(["left", "right"]),
            )
            .task(
                Task::new("get", async |context: &mut Context| context.get::<u64>("n"))
                    .after(["left", "right"])
                    .retries(3),
            )
            .on_failure(tidegate::OnFailure::KeepGoing)
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "chain", Value::Null).await;
        assert_eq!(status.output::<u64>("pick").unwrap(), 2);
        assert_permanent(
            status.task("get").unwrap(),
            &["\"n\"", "\"left\"", "\"right\"", "from()"],
        );
    }

    async fn picking_a_task_that_does_not_come_before_is_refused(place: Place) {
        let workflow = Workflow::builder("two")
            .task(Task::new("one", async |context: &mut Context| context.insert("n", 1)))
            .task(Task::new("other", async |context: &mut Context| context.from::<u64>("one", "n")))
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "two", Value::Null).await;
        let says = &["\"other\" does not come after a task \"one\""];
        assert_permanent(status.task("other").unwrap(), says);
    }

    async fn state_is_found_by_its_type_and_missing_state_is_named(place: Place) {
        struct Db(u64);
        struct Missing;
        let workflow = Workflow::builder("state")
            .task(Task::new("found", async |context: &mut Context| {
                Ok::<_, TaskError>(context.state::<Db>()?.0)
            }))
            .task(
                Task::new("missing", async |context: &mut Context| {
                    context.state::<Missing>().map(|_| ())
                })
                .retries(3),
            )
            .on_failure(tidegate::OnFailure::KeepGoing)
            .build()
            .unwrap();
        let builder = place.engine().workflow(workflow).state(Db(1)).state(Db(42));
        let engine = builder.start().await.unwrap();
        let status = run(&engine, "state", Value::Null).await;
        assert_eq!(status.output::<u64>("found").unwrap(), 42, "the later one takes the place");
        assert_permanent(status.task("missing").unwrap(), &["Missing", "state()"]);
    }

    async fn an_output_that_is_too_large_fails_for_good_and_names_its_size(place: Place) {
        let body = async |_: &mut Context| Ok::<_, TaskError>("x".repeat(1 << 20));
        let task = run_task(&place, Task::new("large", body).retries(3)).await;
        assert_permanent(&task, &["returned", "1048578 bytes", "at most 1048576"]);
    }

    async fn an_output_of_just_the_size_is_stored(place: Place) {
        let body = async |_: &mut Context| Ok::<_, TaskError>("x".repeat((1 << 20) - 2));
        let workflow = Workflow::of(Task::new("large", body)).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let id = engine.submit("large", ()).await.unwrap().id();
        let status = engine.run(id).await.unwrap().wait().await.unwrap();
        assert_eq!(status.output::<String>("large").unwrap().len(), (1 << 20) - 2);
    }

    async fn inserts_that_are_too_large_fail_for_good_and_name_their_size(place: Place) {
        let body = async |context: &mut Context| context.insert("k", "x".repeat(1 << 20));
        let task = run_task(&place, Task::new("large", body).retries(3)).await;
        assert_permanent(&task, &["context", "1048584 bytes", "at most 1048576"]);
    }

    async fn any_error_ends_a_task_with_its_message(place: Place) {
        // Like anyhow's: made of any error, and none itself.
        struct Anything(Box<dyn std::error::Error + Send + Sync>);
        impl From<Anything> for TaskError {
            fn from(error: Anything) -> Self {
                error.0.into()
            }
        }
        #[derive(Debug)]
        struct Cause;
        impl fmt::Display for Cause {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the disk is on fire")
            }
        }
        impl std::error::Error for Cause {}
        #[derive(Debug)]
        struct Outer(Cause);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cannot read the list")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        async fn plain(_: &mut Context) -> Result<(), std::num::ParseIntError> {
            "x".parse::<u64>().map(|_| ())
        }
        async fn with_handle(_: &mut Context, _: &TaskHandle) -> Result<(), Outer> {
            Err(Outer(Cause))
        }
        let workflow = Workflow::builder("errors")
            .task(Task::new("std", plain))
            .task(Task::new("cause", with_handle))
            .task(Task::new("str", async |_: &mut Context| Err::<(), _>("a str")))
            .task(Task::new("string", async |_: &mut Context, _: &TaskHandle| {
                Err::<(), _>(String::from("a string"))
            }))
            .task(Task::new("anything", async |_: &mut Context| {
                Err::<(), _>(Anything(Cause.into()))
            }))
            .on_failure(tidegate::OnFailure::KeepGoing)
            .build()
            .unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "errors", Value::Null).await;
        let says = |task| status.task(task).unwrap().error.clone().unwrap();
        assert_eq!(says("std"), "invalid digit found in string");
        assert_eq!(says("cause"), "cannot read the list: the disk is on fire");
        assert_eq!(says("str"), "a str");
        assert_eq!(says("string"), "a string");
        assert_eq!(says("anything"), "the disk is on fire");
    }

    async fn an_output_is_asked_for_in_vain_with_a_reason(place: Place) {
        let body = async |_: &mut Context| Err::<u64, _>("no luck");
        let workflow = Workflow::of(Task::new("fails", body)).unwrap();
        let engine = place.engine().workflow(workflow).start().await.unwrap();
        let status = run(&engine, "fails", Value::Null).await;
        let says = |task| status.output::<u64>(task).unwrap_err().to_string();
        assert_eq!(says("fails"), "task \"fails\" is failed: no luck");
        assert_eq!(says("other"), "workflow \"fails\" has no task \"other\"");
    }
}
