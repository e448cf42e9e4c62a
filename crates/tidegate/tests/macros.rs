//! `#[task]`: the function stays what it is, and beside it stands the task.
//!
//! What the macro refuses, and with which words, is in `checks/tests/ui`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;
use tidegate::{
    Backoff, Context, Engine, LimitUse, RunOutcome, RunStatus, Task, TaskError, TaskHandle, Value,
    When, Workflow, task,
};

type Order = BTreeMap<String, u64>;

fn order() -> Order {
    Order::from([("rows".to_owned(), 7)])
}

#[task]
async fn extract(context: &mut Context<Order>) -> Result<u64, TaskError> {
    Ok(context.input()["rows"])
}

#[task(after = [extract], retries = 3, backoff = "2s", timeout = "10m")]
async fn load(context: &mut Context<Order>, handle: &TaskHandle) -> Result<u64, TaskError> {
    handle.sleep(Duration::from_millis(1)).await?;
    Ok(context.output::<u64>(extract::ID)? * 2)
}

/// Runs these tasks as one workflow.
async fn run(tasks: impl IntoIterator<Item = Task>) -> RunStatus {
    let builder = tasks.into_iter().fold(Workflow::builder("w"), |all, task| all.task(task));
    let workflow = builder.build().unwrap();
    let engine = Engine::builder("memory:").workflow(workflow).start().await.unwrap();
    engine.submit("w", order()).await.unwrap().wait().await.unwrap()
}

/// What a task consists of, beside its function.
fn parts(task: &Task) -> String {
    format!("{task:#?}")
}

/// Has the name of the task made by hand that `option` is compared with.
async fn body(_: &mut Context) -> Result<(), TaskError> {
    Ok(())
}

fn by_hand() -> Task {
    Task::new("it", body)
}

/// Compares a task that has these options with one on which these methods were called.
macro_rules! same {
    ([$($options:tt)*], $by_hand:expr) => {{
        #[task($($options)*)]
        async fn it(_: &mut Context) -> Result<(), TaskError> {
            Ok(())
        }
        let by_hand: Task = $by_hand;
        assert_eq!(parts(&it::task()), parts(&by_hand));
    }};
}

#[tokio::test(start_paused = true)]
async fn functions_with_and_without_a_handle_run_as_tasks() {
    let status = run([extract::task(), load::task()]).await;
    assert_eq!(status.outcome(), Some(RunOutcome::Succeeded));
    assert_eq!(status.output::<u64>("extract").unwrap(), 7);
    assert_eq!(status.output::<u64>(load::ID).unwrap(), 14);
}

#[test]
fn the_name_of_the_task_is_that_of_the_function() {
    #[task]
    async fn r#type(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
    assert_eq!(extract::ID, "extract");
    assert_eq!(extract::task().name(), "extract");
    assert_eq!(r#type::ID, "type");
    assert_eq!(r#type::task().name(), "type");
}

#[test]
fn the_name_of_the_task_can_be_another() {
    #[task(id = "load the rows")]
    async fn it(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
    #[task(after = it)]
    async fn next(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
    assert_eq!(it::ID, "load the rows");
    assert_eq!(it::task().name(), "load the rows");
    assert_eq!(parts(&next::task()), parts(&Task::new("next", next).after(["load the rows"])));
}

#[test]
fn a_task_without_options_is_as_one_made_by_hand() {
    same!([limits = ["api"]], by_hand().limit("api"));
    same!([limits = "api"], by_hand().limits(["api"]));
    same!(
        [limits = ["api", ("gpu", 2), LimitUse::of("model").by("model").units(3)]],
        by_hand().limit("api").limit(("gpu", 2)).limit(LimitUse::of("model").by("model").units(3))
    );
    same!([limits = []], by_hand());
    same!([parkable], by_hand().parkable());
    same!([parkable, retries = 1], by_hand().parkable().retries(1));
    same!([parkable = true], by_hand().parkable());
    same!([parkable = false], by_hand());
    same!([], by_hand());
}

#[test]
fn every_option_is_the_method_of_its_name() {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    same!([retries = 3], by_hand().retries(3));
    same!([backoff = "2s"], by_hand().backoff(Backoff::fixed(Duration::from_secs(2))));
    same!([timeout = "10m"], by_hand().timeout(minutes(10)));
    same!([queue_timeout = "1h30m"], by_hand().queue_timeout(minutes(90)));
    same!([deadline = "2d"], by_hand().deadline(minutes(2 * 24 * 60)));
    same!([weight = 2], by_hand().weight(2));
    same!([priority = 60], by_hand().priority(60));
    same!([priority = -60], by_hand().priority(-60));
    same!([priority = -2_147_483_648], by_hand().priority(i32::MIN));
    same!([each = "items"], by_hand().each("items"));
    same!(
        [
            after = [extract, "clean"],
            when = all_done,
            retries = 1,
            backoff = 5,
            timeout = "250ms",
            queue_timeout = 7,
            deadline = "1s500ms",
            weight = 4,
            priority = 1,
            each = "rows",
        ],
        by_hand()
            .after(["extract", "clean"])
            .when(When::AllDone)
            .retries(1)
            .backoff(Backoff::fixed(Duration::from_secs(5)))
            .timeout(Duration::from_millis(250))
            .queue_timeout(Duration::from_secs(7))
            .deadline(Duration::from_millis(1_500))
            .weight(4)
            .priority(1)
            .each("rows")
    );
}

#[test]
fn every_rule_has_its_word() {
    let after = || by_hand().after(["extract"]);
    same!([after = extract, when = all_succeeded], after().when(When::AllSucceeded));
    same!([after = extract, when = all_done], after().when(When::AllDone));
    same!([after = extract, when = any_failed], after().when(When::AnyFailed));
    same!([after = extract, when = any_succeeded], after().when(When::AnySucceeded));
    same!([after = extract, when = "any_failed"], after().when(When::AnyFailed));
    same!([after = extract, when = When::AllDone], after().when(When::AllDone));
}

#[test]
fn options_can_be_expressions() {
    const MANY: u32 = 9;
    let backoff = || Backoff::exponential(Duration::from_secs(1), 2.0, Duration::MAX).unwrap();
    same!([retries = MANY, weight = MANY - 1], by_hand().retries(9).weight(8));
    same!([priority = -(MANY as i32)], by_hand().priority(-9));
    same!([timeout = Duration::from_secs(90)], by_hand().timeout(Duration::from_secs(90)));
    same!(
        [backoff = Backoff::exponential(Duration::from_secs(1), 2.0, Duration::MAX).unwrap()],
        by_hand().backoff(backoff())
    );
}

/// The values come through variables of a macro, which puts invisible brackets around them.
#[test]
fn options_can_come_from_a_macro_of_the_user() {
    macro_rules! configured {
        ($id:expr, $after:expr, $retries:expr, $timeout:expr, $when:expr) => {
            #[task(id = $id, after = $after, retries = $retries, timeout = $timeout, when = $when)]
            async fn configured(_: &mut Context) -> Result<(), TaskError> {
                Ok(())
            }
        };
    }
    configured!("it", [extract, "clean"], 2, "5s", all_done);
    let by_hand = by_hand().after(["extract", "clean"]).when(When::AllDone).retries(2);
    assert_eq!(parts(&configured::task()), parts(&by_hand.timeout(Duration::from_secs(5))));
}

#[test]
fn tasks_come_after_paths_and_names() {
    same!([after = extract], by_hand().after(["extract"]));
    same!([after = "clean"], by_hand().after(["clean"]));
    same!([after = [load, "clean", steps::late]], by_hand().after(["load", "clean", "late one"]));
    same!([after = [self::steps::late,]], by_hand().after(["late one"]));
    same!([after = []], by_hand());
}

#[test]
fn what_stands_at_the_function_can_be_changed_by_a_method() {
    let load_by_hand = Task::new("load", load)
        .after(["extract"])
        .backoff(Backoff::fixed(Duration::from_secs(2)))
        .timeout(Duration::from_secs(600));
    assert_eq!(parts(&load::task()), parts(&load_by_hand.clone().retries(3)));
    assert_eq!(parts(&load::task().retries(9)), parts(&load_by_hand.retries(9)));
}

/// In modules, seen from outside, and with one `use` for the function and the task.
mod steps {
    use tidegate::{Context, TaskError, task};

    #[task(id = "late one", after = [super::extract, inner::first])]
    pub(crate) async fn late(context: &mut Context) -> Result<u64, TaskError> {
        Ok(context.output::<u64>("extract")? + context.output::<u64>(inner::first::ID)?)
    }

    pub(crate) mod inner {
        use tidegate::{Context, TaskError, task};

        #[task]
        pub(in crate::steps) async fn first(_: &mut Context) -> Result<u64, TaskError> {
            Ok(1)
        }

        pub(crate) fn made() -> tidegate::Task {
            first::task()
        }
    }
}

#[tokio::test]
async fn tasks_of_several_modules_depend_on_each_other() {
    use steps::late;
    let status = run([extract::task(), steps::inner::made(), late::task()]).await;
    assert_eq!(status.output::<u64>(late::ID).unwrap(), 8);
    let by_hand = Task::new("late one", late).after(["extract", "first"]);
    assert_eq!(parts(&late::task()), parts(&by_hand));
}

#[tokio::test]
async fn a_task_can_be_defined_in_a_function_and_use_what_is_defined_there() {
    const ROWS: u64 = 3;
    struct Rows(u64);

    #[task(weight = ROWS as u32)]
    async fn inside(_: &mut Context) -> Result<u64, TaskError> {
        Ok(Rows(ROWS).0)
    }
    #[task(after = inside)]
    async fn behind(context: &mut Context) -> Result<u64, TaskError> {
        Ok(context.output::<u64>(inside::ID)? + 1)
    }
    let status = run([inside::task(), behind::task()]).await;
    assert_eq!(status.output::<u64>("behind").unwrap(), 4);
}

/// A context cannot be made outside of an engine, so the other task hands on its own.
#[tokio::test]
async fn the_function_can_still_be_called() {
    #[task]
    async fn calls(context: &mut Context<Order>, _: &TaskHandle) -> Result<u64, TaskError> {
        Ok(extract(context).await? + 1)
    }
    let status = run([calls::task()]).await;
    assert_eq!(status.output::<u64>("calls").unwrap(), 8);
}

#[tokio::test]
async fn names_and_patterns_of_types_and_parameters_are_free() {
    use tidegate::{Context as Surroundings, TaskHandle as Me};
    type Orders<'a> = &'a mut Surroundings<Order>;
    type Outcome<T> = Result<T, TaskError>;

    #[task]
    async fn aliased(mut c: Orders<'_>, _: &Me) -> Outcome<u64> {
        let c = &mut c;
        Ok(c.input()["rows"])
    }
    #[task]
    async fn whole_paths(context: &mut tidegate::Context<Value>) -> anyhow::Result<Value> {
        Ok(context.input()["rows"].clone())
    }
    let status = run([aliased::task(), whole_paths::task()]).await;
    assert_eq!(status.output::<u64>("aliased").unwrap(), 7);
    assert_eq!(status.output::<u64>("whole_paths").unwrap(), 7);
}

#[tokio::test]
async fn errors_of_every_kind_become_the_error_of_the_task() {
    #[task]
    async fn of_std(_: &mut Context) -> Result<u64, TaskError> {
        Ok("seven".parse::<u64>()?)
    }
    #[task]
    async fn of_str(_: &mut Context) -> Result<(), TaskError> {
        Err("as it is")?
    }
    #[task]
    async fn of_string(_: &mut Context) -> Result<(), TaskError> {
        Err(format!("row {}", 7))?
    }
    #[task]
    async fn of_anyhow(_: &mut Context) -> Result<(), TaskError> {
        Err(anyhow::anyhow!("the cause").context("the whole"))?
    }
    #[task]
    async fn std_itself(_: &mut Context) -> Result<u64, std::num::ParseIntError> {
        "seven".parse()
    }
    #[task]
    async fn anyhow_itself(_: &mut Context) -> anyhow::Result<u64> {
        Ok("seven".parse::<u64>()?)
    }
    let tasks = [
        (of_std::task(), "invalid digit found in string"),
        (of_str::task(), "as it is"),
        (of_string::task(), "row 7"),
        (of_anyhow::task(), "the whole: the cause"),
        (std_itself::task(), "invalid digit found in string"),
        (anyhow_itself::task(), "invalid digit found in string"),
    ];
    for (task, says) in tasks {
        let name = task.name().to_owned();
        let status = run([task]).await;
        assert_eq!(status.task(&name).unwrap().error.as_deref(), Some(says), "{name}");
    }
}

/// A crate under another name, and one that hides names on which the macro could have counted.
mod renamed {
    use ::tidegate as tide;

    #[allow(dead_code, reason = "they are there to be in the way")]
    mod in_the_way {
        pub(super) struct Task;
        pub(super) struct Duration;
        pub(super) struct Backoff;
        pub(super) struct When;
        pub(super) mod tidegate {}
        pub(super) mod core {}
        pub(super) mod std {}
    }
    #[allow(unused_imports, reason = "they are there to be in the way")]
    use in_the_way::*;

    #[tide::task(crate = tide, backoff = "2s", timeout = "5s", after = "a", when = any_failed)]
    pub(super) async fn it(_: &mut tide::Context) -> Result<(), tide::TaskError> {
        Ok(())
    }

    #[tide::task(timeout = "5s", backoff = "2s")]
    pub(super) async fn by_default(_: &mut tide::Context) -> Result<(), tide::TaskError> {
        Ok(())
    }
}

#[test]
fn the_crate_can_have_another_name() {
    let backoff = Backoff::fixed(Duration::from_secs(2));
    let by_hand = by_hand().backoff(backoff).timeout(Duration::from_secs(5));
    let by_hand = by_hand.after(["a"]).when(When::AnyFailed);
    assert_eq!(parts(&renamed::it::task()), parts(&by_hand));
    assert_eq!(renamed::by_default::task().name(), "by_default");
}

/// Nothing that the macro writes is held against the one who used it. That this compiles, also
/// under clippy, is the test.
pub mod strict {
    #![deny(warnings, missing_docs, unused, nonstandard_style)]
    #![deny(unreachable_pub, missing_debug_implementations, missing_copy_implementations)]
    #![deny(unused_qualifications, unused_results, single_use_lifetimes, let_underscore_drop)]
    #![deny(clippy::all, clippy::pedantic, clippy::missing_docs_in_private_items)]

    use tidegate::{Backoff, Context, Task, TaskError, TaskHandle, When, task};

    /// Seen from everywhere.
    ///
    /// # Errors
    /// None.
    #[task(backoff = "1s", timeout = "1s", weight = 2, priority = -1)]
    pub async fn public(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }

    /// Has options that come from outside of the macro.
    #[task(after = [public, old], when = When::AllDone, backoff = Backoff::default())]
    pub(crate) async fn inside(_: &mut Context, _: &TaskHandle) -> Result<(), TaskError> {
        Ok(())
    }

    /// Is named by another and never made: nothing runs it, as the compiler would say without the
    /// macro.
    #[expect(dead_code)]
    #[task]
    async fn named(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }

    /// Is only called.
    #[task]
    async fn called(context: &mut Context) -> Result<(), TaskError> {
        public(context).await
    }

    /// Is told to be of the past.
    ///
    /// # Errors
    /// None.
    #[deprecated = "there is a newer one"]
    #[doc(hidden)]
    #[task(after = [named])]
    pub async fn old(context: &mut Context) -> Result<(), TaskError> {
        called(context).await
    }

    /// All of them.
    #[must_use]
    pub fn all() -> [Task; 2] {
        [public::task(), inside::task()]
    }
}

#[test]
fn what_the_macro_writes_breaks_no_lint() {
    assert_eq!(strict::all().each_ref().map(Task::name), ["public", "inside"]);
}
