//! Commands as tasks: what they are given, what they leave, and that nothing of them is left.

use super::support::*;
use crate::support::ms;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tidegate::engine::{Happened, Kind, Reason};
use tidegate::process::{Command, Finished};
use tidegate::{
    Backoff, Context, Engine, EngineBuilder, Run, RunOutcome, Task, TaskError, Workflow,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn shell(name: &str, line: impl Into<std::ffi::OsString>) -> Task {
    Task::command(name, Command::shell(line))
}

fn one(task: Task) -> Workflow {
    Workflow::of(task).unwrap()
}

/// A command that notes each time it is begun, that lasts until it is told to stop, with a child of
/// its own, and that notes if it finds another copy of itself alive.
fn long(folder: &Path) -> Command {
    let line = "exec 9>lock; flock -n 9 || { echo twin >> twins; exit 9; }; echo $$ >> begun; \
                if [ -e stubborn ]; then trap '' TERM; fi; \
                sleep 3600 & if [ -e enough ]; then kill -9 $!; fi; wait";
    Command::shell(line).dir(folder)
}

fn lines(file: PathBuf) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Waits until the command has begun so many times.
async fn begun(folder: &Path, times: usize) {
    let file = folder.join("begun");
    until("the command has begun", async || lines(file.clone()).len() >= times).await;
}

/// Whether no process holds the lock of the command: nothing of it is left.
fn is_gone(folder: &Path) -> bool {
    let lock = std::fs::File::open(folder.join("lock")).unwrap();
    lock.try_lock().is_ok()
}

async fn started(builder: EngineBuilder, task: Task) -> (Engine, Run) {
    let name = task.name().to_owned();
    let engine = builder.slots(1).workflow(one(task)).start().await.unwrap();
    let run = engine.submit(name, ()).await.unwrap();
    (engine, run)
}

on_every_store! {
    async fn a_command_that_succeeds_returns_what_it_wrote(place: Place) {
        let line = "echo one; echo two >&2; printf three";
        let (engine, run) = started(place.engine(), shell("speaks", line)).await;
        let finished: Finished = run.wait().await.unwrap().output("speaks").unwrap();
        assert_eq!((finished.code, finished.stdout.as_str()), (0, "one\nthree"));
        assert!(!finished.stdout_truncated);
        assert_eq!(engine.slots().available(), 1);
    }

    async fn a_command_that_fails_says_how_and_what_it_wrote_last(place: Place) {
        let task = shell("fails", "echo the disk is on fire >&2; exit 7").retries(1);
        let task = task.backoff(Backoff::fixed(ms(1)));
        let (_engine, run) = started(place.engine(), task).await;
        let task = &run.wait().await.unwrap().tasks[0];
        assert_eq!((task.kind, task.reason, task.attempt), (Kind::Failed, Some(Reason::Error), 2));
        let error = task.error.as_deref().unwrap();
        assert!(error.contains('7') && error.contains("the disk is on fire"), "{error}");
    }

    async fn a_program_that_is_not_there_is_not_tried_again(place: Place) {
        let nowhere = Task::command("absent", Command::new("no-such-program-anywhere")).retries(5);
        let (_engine, run) = started(place.engine(), nowhere).await;
        let task = &run.wait().await.unwrap().tasks[0];
        assert_eq!((task.kind, task.attempt), (Kind::Failed, 1));
        let error = task.error.as_deref().unwrap();
        assert!(error.starts_with("there is no program \"no-such-program-anywhere\" in PATH ("));
    }

    async fn a_command_can_be_made_from_the_context_and_knows_what_it_is(place: Place) {
        let says = |context: &Context<String>| {
            let line = "echo $1 $TIDEGATE_TASK $TIDEGATE_ATTEMPT $TIDEGATE_RUN_ID";
            Ok::<_, TaskError>(Command::shell(line).arg("sh").arg(context.input()))
        };
        let engine = place.engine().workflow(one(Task::command("says", says)));
        let engine = engine.start().await.unwrap();
        let run = engine.submit("says", "hello").await.unwrap();
        let finished: Finished = run.wait().await.unwrap().output("says").unwrap();
        assert_eq!(finished.stdout, format!("hello says 1 {}\n", run.id()));
    }

    async fn a_command_is_given_its_item(place: Place) {
        let task = shell("greets", "echo $TIDEGATE_TASK $TIDEGATE_INPUT").each("whom");
        let engine = place.engine().workflow(one(task)).start().await.unwrap();
        let input = serde_json::json!({ "whom": ["you", {"a": 1}] });
        let run = engine.submit("greets", input).await.unwrap();
        let all: Vec<Finished> = run.wait().await.unwrap().output("greets").unwrap();
        let said: Vec<&str> = all.iter().map(|finished| finished.stdout.as_str()).collect();
        assert_eq!(said, ["greets[0] you\n", "greets[1] {\"a\":1}\n"]);
    }

    async fn a_command_may_say_itself_what_its_item_is_called(place: Place) {
        let says = |_: &Context| {
            let command = Command::shell("echo $TIDEGATE_INPUT");
            Ok::<_, TaskError>(command.env("TIDEGATE_INPUT", "mine"))
        };
        let task = Task::command("says", says).each("whom");
        let engine = place.engine().workflow(one(task)).start().await.unwrap();
        let run = engine.submit("says", serde_json::json!({ "whom": ["you"] })).await.unwrap();
        let all: Vec<Finished> = run.wait().await.unwrap().output("says").unwrap();
        assert_eq!(all[0].stdout, "mine\n");
    }

    async fn a_command_whose_time_is_up_is_gone_before_it_is_tried_again(place: Place) {
        let folder = tempfile::tempdir().unwrap();
        let task = Task::command("long", long(folder.path())).timeout(ms(300)).retries(1);
        let task = task.backoff(Backoff::fixed(Duration::ZERO));
        let (engine, run) = started(place.engine(), task).await;
        let task = run.wait().await.unwrap().tasks[0].clone();
        assert_eq!((task.kind, task.reason), (Kind::TimedOut, Some(Reason::Timeout)));
        assert_eq!(task.attempt, 2);
        let error = task.error.as_deref().unwrap();
        assert!(error.starts_with("timed out after 300ms; the command was ended by"), "{error}");
        assert!(is_gone(folder.path()));
        assert_eq!(lines(folder.path().join("twins")), [""; 0]);
        assert!(lines(folder.path().join("begun")).len() <= 2);
        assert_eq!((engine.slots().available(), engine.slots().leaky()), (1, 0));
    }

    async fn a_cancelled_command_is_gone_before_its_slot_is_free(place: Place) {
        let folder = tempfile::tempdir().unwrap();
        let (engine, run) =
            started(place.engine(), Task::command("long", long(folder.path()))).await;
        begun(folder.path(), 1).await;
        assert!(run.cancel().await.unwrap());
        assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Cancelled));
        until("its slot is free", async || engine.slots().available() == 1).await;
        assert!(is_gone(folder.path()));
        assert_eq!(run.status().await.unwrap().tasks[0].kind, Kind::Cancelled);
        assert_eq!(engine.slots().leaky(), 0);
    }

    async fn a_shutdown_ends_a_command_and_hands_it_back(place: Place) {
        let folder = tempfile::tempdir().unwrap();
        let task = || Task::command("long", long(folder.path()));
        let (engine, run) = started(place.engine(), task()).await;
        begun(folder.path(), 1).await;
        let report = engine.shutdown(Duration::ZERO).await;
        assert!(is_gone(folder.path()));
        assert_eq!(report.handed_back, [(run.id(), "long".to_owned())]);
        std::fs::write(folder.path().join("enough"), "").unwrap();
        let next = place.engine().workflow(one(task())).start().await.unwrap();
        let run = next.run(run.id()).await.unwrap();
        let status = run.wait().await.unwrap();
        assert_eq!((status.tasks[0].kind, status.tasks[0].attempt), (Kind::Succeeded, 1));
        let happened: Vec<_> = run.events().await.unwrap().iter().map(|it| it.what).collect();
        assert_eq!(happened, [Happened::HandedBack, Happened::Succeeded]);
        assert_eq!(lines(folder.path().join("twins")), [""; 0]);
    }

    async fn a_command_that_stops_politely_when_told_has_not_succeeded(place: Place) {
        let folder = tempfile::tempdir().unwrap();
        let line = "trap 'exit 0' TERM; if [ -e enough ]; then exit 0; fi; echo >> begun; \
                    while true; do sleep 0.01; done";
        let task = || Task::command("polite", Command::shell(line).dir(folder.path()));
        let (engine, run) = started(place.engine(), task()).await;
        begun(folder.path(), 1).await;
        let report = engine.shutdown(Duration::ZERO).await;
        assert_eq!(report.handed_back, [(run.id(), "polite".to_owned())]);
        std::fs::write(folder.path().join("enough"), "").unwrap();
        let next = place.engine().workflow(one(task())).start().await.unwrap();
        let status = next.run(run.id()).await.unwrap().wait().await.unwrap();
        assert_eq!((status.tasks[0].kind, status.tasks[0].entries), (Kind::Succeeded, 2));
    }

    /// It was let go of in the middle of its end, and killed with the runtime.
    async fn a_shutdown_sees_a_cancelled_command_to_its_end(place: Place) {
        let folder = tempfile::tempdir().unwrap();
        let line = "trap 'sleep 0.1; echo >> said; exit' TERM; echo >> begun; \
                    while :; do sleep 0.01; done";
        let task = Task::command("polite", Command::shell(line).dir(folder.path()));
        let (engine, run) = started(place.engine(), task).await;
        begun(folder.path(), 1).await;
        assert!(run.cancel().await.unwrap());
        engine.shutdown(HOUR).await;
        assert_eq!(lines(folder.path().join("said")).len(), 1);
    }

    async fn a_command_within_the_grace_ends_by_itself(place: Place) {
        let folder = tempfile::tempdir().unwrap();
        let line = "echo > begun; until [ -e enough ]; do sleep 0.01; done; echo done";
        let task = Task::command("patient", Command::shell(line).dir(folder.path()));
        let (engine, run) = started(place.engine(), task).await;
        begun(folder.path(), 1).await;
        let closing = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(HOUR).await }
        });
        engine.closing().await;
        std::fs::write(folder.path().join("enough"), "").unwrap();
        let report = closing.await.unwrap();
        assert_eq!((report.finished, report.handed_back.len()), (1, 0));
        assert_eq!(run.status().await.unwrap().tasks[0].kind, Kind::Succeeded);
    }
}

/// The only files below a folder, with what is in them.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let name = entry.file_name().to_string_lossy().into_owned();
            all.push((name, std::fs::read(path).unwrap()));
        }
    }
    all.sort();
    all
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn each_attempt_has_its_log_beside_the_database_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let line = "printf '\\377\\000 %s\\n\\n' $TIDEGATE_ATTEMPT; exit $((2 - TIDEGATE_ATTEMPT))";
    let task = shell("a/b", line).retries(1).backoff(Backoff::fixed(Duration::ZERO));
    let place = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let (engine, run) = started(Engine::builder(place), task).await;
    let finished: Finished = within(run.wait()).await.unwrap().output("a/b").unwrap();
    let logs = folder.path().join("jobs.db-logs");
    let second = logs.join(run.id().to_string()).join("a%2fb.2.log");
    assert_eq!(finished.log.as_deref(), Some(second.canonicalize().unwrap().as_path()));
    let wanted = [("a%2fb.1.log", "1"), ("a%2fb.2.log", "2")].map(|(name, attempt)| {
        (name.to_owned(), [b"\xff\0 ", attempt.as_bytes(), b"\n\n"].concat())
    });
    assert_eq!(files(&logs), wanted);
    engine.shutdown(Duration::ZERO).await;
    let left = files(&folder.path().join("jobs.db-workers"));
    let names: Vec<&str> = left.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["turnstile"], "neither lock nor notes are left");
}

#[tokio::test]
async fn a_log_can_be_elsewhere_and_is_no_longer_than_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = tidegate::Config::default();
    (config.logs, config.log_max) = (Some(folder.path().join("some/where")), 10);
    let engine = Engine::builder("memory:").config(config);
    let (_engine, run) = started(engine, shell("speaks", "echo 0123456789abcdef")).await;
    let finished: Finished = within(run.wait()).await.unwrap().output("speaks").unwrap();
    assert_eq!(finished.stdout, "0123456789abcdef\n");
    assert_eq!(std::fs::read(finished.log.unwrap()).unwrap(), b"0123456789");
}

/// In a process of its own: a worker with a command that lasts.
#[cfg(feature = "sqlite")]
#[tokio::test]
#[ignore = "it is run by a test in a process of its own"]
async fn a_worker_that_is_killed() {
    let Some(folder) = std::env::var_os("TIDEGATE_TEST_FOLDER").map(PathBuf::from) else { return };
    let (_engine, _run) = started(in_folder(&folder), Task::command("long", long(&folder))).await;
    std::future::pending().await
}

#[cfg(feature = "sqlite")]
fn in_folder(folder: &Path) -> EngineBuilder {
    Engine::builder(format!("sqlite:{}", folder.join("jobs.db").display()))
}

#[cfg(feature = "sqlite")]
fn worker(folder: &Path) -> Child {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let test = "engine::commands::a_worker_that_is_killed";
    command.args([test, "--exact", "--ignored"]).env("TIDEGATE_TEST_FOLDER", folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn at_no_instant_do_two_copies_of_a_command_run_when_its_worker_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stubborn"), "").unwrap();
    let mut killed = worker(folder.path());
    within(begun(folder.path(), 1)).await;
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!is_gone(folder.path()), "the command has outlived its worker");

    // It is taken over while its first copy is alive.
    let task = Task::command("long", long(folder.path()));
    let engine = in_folder(folder.path()).workflow(one(task)).start().await.unwrap();
    within(begun(folder.path(), 2)).await;
    assert_eq!(lines(folder.path().join("twins")), [""; 0]);
    let runs = engine.runs(tidegate::engine::RunsPage { limit: 9, ..Default::default() }).await;
    let run = engine.run(runs.unwrap()[0].id).await.unwrap();
    assert_eq!(run.status().await.unwrap().tasks[0].entries, 2);
    assert!(run.cancel().await.unwrap());
    within(until("its slot is free", async || engine.slots().in_use() == 0)).await;
    assert!(is_gone(folder.path()));
    assert_eq!(lines(folder.path().join("begun")).len(), 2);
    engine.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn what_a_command_has_written_is_found_by_its_run_its_name_and_the_attempt() {
    let folder = tempfile::tempdir().unwrap();
    // Names that differ only where others end.
    let name = |end: &str| "n".repeat(100) + end;
    let (one, two) =
        (shell(&name("1"), "printf one; printf '\\377'"), shell(&name("2"), "echo two"));
    let both = Workflow::builder("both").task(one).task(two).build().unwrap();
    let engine = Engine::builder("memory:").logs(folder.path()).workflow(both);
    let engine = engine.start().await.unwrap();
    let run = engine.submit("both", ()).await.unwrap();
    run.wait().await.unwrap();
    let written = |end| std::fs::read(engine.log(run.id(), &name(end), 1).unwrap()).unwrap();
    assert_eq!((written("1"), written("2")), (b"one\xff".to_vec(), b"two\n".to_vec()));
    assert!(!engine.log(run.id(), &name("1"), 2).unwrap().exists());
}

#[tokio::test]
async fn a_shutdown_now_ends_a_command_that_another_gives_time() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stubborn"), "").unwrap();
    let task = Task::command("long", long(folder.path()));
    let (engine, run) = started(Engine::builder("memory:"), task).await;
    begun(folder.path(), 1).await;
    let slow = engine.clone();
    let slow = tokio::spawn(async move { slow.shutdown(HOUR).await });
    engine.closing().await;
    let report = engine.shutdown_now().await;
    assert_eq!(report.handed_back, [(run.id(), "long".to_owned())]);
    assert_eq!(slow.await.unwrap(), report);
    assert!(is_gone(folder.path()));
}

/// A command that was told first would have had five seconds, and have noted that it was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_now_kills_a_command_without_telling_it_first() {
    let folder = tempfile::tempdir().unwrap();
    let line = "exec 9>lock; flock -n 9; trap 'touch told' TERM; echo $$ >> begun; \
                while :; do sleep 0.01; done";
    let command = Command::shell(line).dir(folder.path());
    let (engine, run) = started(Place::memory().engine(), Task::command("long", command)).await;
    begun(folder.path(), 1).await;
    let report = within(engine.shutdown_now()).await;
    assert_eq!(report.handed_back, [(run.id(), "long".to_owned())]);
    assert_eq!(report.unstored_total, 0);
    assert!(is_gone(folder.path()) && !folder.path().join("told").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_commands_are_followed_by_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let task = Task::command("long", long(folder.path())).retries(1);
    let task = task.backoff(Backoff::fixed(Duration::ZERO));
    let (engine, run) = started(Place::memory().engine(), task).await;
    begun(folder.path(), 1).await;
    engine.kill_commands();
    let task = &within(run.wait()).await.unwrap().tasks[0];
    assert_eq!((task.kind, task.attempt), (Kind::Failed, 2));
    assert!(task.error.as_deref().unwrap().contains("signal 9"), "{task:?}");
    assert!(is_gone(folder.path()));
}
