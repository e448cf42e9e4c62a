//! Stores that an earlier program wrote, and was killed over: this one brings every run to its end.
//!
//! `tests/old_stores/make` has written them and says how. The command line finds its runs by the path
//! of their file, so its folders stand where they stood then, below a lock that this test and the
//! script share.

mod workflows;

use crate::running::until;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tidegate::engine::{Kind, RunsPage};
use tidegate::{Engine, Retention, Run, RunOutcome};
use workflows::{Stage, describe};

/// Where the command line's stores were written.
const PLACE: &str = "/tmp/tidegate-old-stores";

fn unpack(folder: &str, place: &Path) {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_stores/v2.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("--no-same-owner").arg("-xpzf").arg(archive).arg("-C").arg(place);
    let unpacked = tar.arg(format!("./{folder}")).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
}

/// A folder of the command line, where it was written. Nothing else uses that place meanwhile.
struct OldFolder {
    path: PathBuf,
    _lock: File,
}

impl OldFolder {
    fn unpack(name: &str) -> Self {
        let lock = File::options().append(true).create(true).open(format!("{PLACE}.lock")).unwrap();
        lock.lock().unwrap();
        if Path::new(PLACE).exists() {
            fs::remove_dir_all(PLACE).unwrap();
        }
        fs::create_dir(PLACE).unwrap();
        fs::set_permissions(PLACE, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        unpack(name, Path::new(PLACE));
        OldFolder { path: Path::new(PLACE).join(name), _lock: lock }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).current_dir(&self.path).stdin(Stdio::null());
        command.env("HOME", self.path.join("home")).env_remove("XDG_STATE_HOME");
        for name in ["TIDEGATE_STORE", "TIDEGATE_PARALLEL_LIMIT", "TIDEGATE_TASK_TIMEOUT"] {
            command.env_remove(name);
        }
        command
    }

    fn call(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn spawn(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command(arguments);
        Ended(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Calls it, and it succeeds.
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.call(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}: {told}", output.status);
        String::from_utf8(output.stdout).unwrap() + &told
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path.join(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).unwrap()
    }

    /// The lines that commands have left, in order of the alphabet.
    fn done(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.read("done").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl Drop for OldFolder {
    fn drop(&mut self) {
        // What is left is in nobody's way: the next one removes it.
        let _ = fs::remove_dir_all(PLACE);
    }
}

/// A process that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn run_interrupted_while_it_waited_for_a_file_is_resumed() {
    let folder = OldFolder::unpack("wait_for_file");
    assert_eq!(folder.done(), ["before"]);
    folder.write("go", "");
    folder.succeed(&["run", "--resume"]);
    assert_eq!(folder.done(), ["before", "last", "waits"]);
    folder.succeed(&["doctor"]);
}

#[tokio::test]
async fn run_interrupted_while_it_waited_for_a_signal_is_resumed() {
    let folder = OldFolder::unpack("wait_for_signal");
    let mut resumed = folder.spawn(&["run", "--resume"]);
    // The signal that was sent to the interrupted run may count for the new one; where it does not,
    // another does.
    until("the resumed run has ended", || {
        let _ = folder.call(&["signal", "wait_for_signal", "approve"]);
        resumed.0.try_wait().unwrap().is_some()
    })
    .await;
    assert!(resumed.0.wait().unwrap().success());
    assert_eq!(folder.done(), ["before", "waits"]);
    folder.succeed(&["doctor"]);
}

fn items_that_succeeded_are_not_repeated(folder: &str) {
    let folder = OldFolder::unpack(folder);
    assert_eq!(folder.done(), ["1", "2", "before"]);
    folder.write("go", "");
    folder.succeed(&["run", "--resume"]);
    assert_eq!(folder.done(), ["1", "2", "3", "4", "5", "before", "last"]);
    folder.succeed(&["doctor"]);
}

#[test]
fn items_that_succeeded_in_a_killed_run_are_not_repeated() {
    items_that_succeeded_are_not_repeated("each_task_KILL");
}

#[test]
fn items_that_succeeded_in_a_stopped_run_are_not_repeated() {
    items_that_succeeded_are_not_repeated("each_task_INT");
}

#[test]
fn inputs_of_each_that_succeeded_are_not_repeated() {
    let folder = OldFolder::unpack("each");
    assert_eq!(folder.done(), ["1", "2"]);
    folder.write("go", "");
    let store = ["each", "--resume", "--store", ".tidegate/store.db", "-j2"];
    let command = ["sh", "item.sh", ":::", "1", "2", "3", "4", "5"];
    folder.succeed(&[store.as_slice(), command.as_slice()].concat());
    assert_eq!(folder.done(), ["1", "2", "3", "4", "5"]);
    folder.succeed(&["doctor", "--store", ".tidegate/store.db"]);
}

#[test]
fn submitted_runs_of_a_dead_worker_are_served_by_the_next() {
    let folder = OldFolder::unpack("submitted");
    folder.write("go", "");
    let (begun, waiting) = (folder.read("begun"), folder.read("waiting"));
    let _worker = folder.spawn(&["worker", "--queue", "jobs"]);
    folder.succeed(&["wait", begun.trim()]);
    folder.succeed(&["wait", waiting.trim()]);
    let twice = ["1", "1", "2", "2", "3", "3", "before", "before"];
    assert_eq!(folder.done(), twice, "each run does each once");
    folder.succeed(&["doctor"]);
}

/// A run of the library's store, by the name that the manifest gives it.
struct Labelled {
    label: String,
    run: Run,
    task: String,
    kind: Kind,
}

async fn read_manifest(engine: &Engine, folder: &Path) -> Vec<Labelled> {
    let mut runs = Vec::new();
    for line in fs::read_to_string(folder.join("manifest")).unwrap().lines() {
        let [label, id, task, kind] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let run = engine.run(id.parse().unwrap()).await.unwrap();
        let kind = Kind::parse(kind).unwrap();
        runs.push(Labelled { label: label.to_owned(), run, task: task.to_owned(), kind });
    }
    runs
}

/// How a run has to end: its outcome, and what a task of it returned.
fn expect_end(label: &str) -> (RunOutcome, Option<(&'static str, Value)>) {
    let succeeded = |task, value| (RunOutcome::Succeeded, Some((task, value)));
    match label {
        "poison" | "error" | "panic" | "timeout" | "wait_timeout" | "deadline"
        | "queue_timeout" | "fail_fast" | "skipped" | "retried" => (RunOutcome::Failed, None),
        "cancelled" | "in_sixty_years" => (RunOutcome::Cancelled, None),
        "command" => (RunOutcome::Succeeded, None),
        // What had been done, and what had been stored, is as it was.
        "plain" => succeeded("plain", json!("writing")),
        "paced_first" | "paced_second" => succeeded("paced", json!("writing")),
        "signalled" => {
            succeeded("signalled", json!(["sent while writing", "sent while finishing"]))
        }
        "steps" => succeeded("steps", json!(["writing", "writing", "finishing"])),
        "children" => succeeded("children", json!(["writing", "finishing"])),
        "chain" => succeeded("third", json!(["writing", "finishing", { "label": "chain" }])),
        "paused" => succeeded("third", json!(["finishing", "finishing", { "label": "chain" }])),
        "fan_out" => succeeded("gather", json!([10, 40])),
        "decided_any" => succeeded("decided_any", json!("late")),
        "parked_any" => succeeded("parked_any", json!("late")),
        // Only a failure uses an attempt.
        "backoff" => succeeded("backoff", json!(2)),
        "snoozed" => succeeded("snoozed", json!(1)),
        "parked_signal" => succeeded("parked_signal", json!("sent while finishing")),
        "awaits" => succeeded("awaits", json!("finishing waited")),
        "behind_api" | "behind_api_too" => succeeded("api", json!("finishing")),
        "tenant_a" | "tenant_b" | "behind_tenant_a" => succeeded("tenant", json!("finishing")),
        "paced_third" => succeeded("paced", json!("finishing")),
        "retry" => succeeded("flaky", json!("finishing")),
        "ready" | "not_before" | "paused_queue" | "other_queue" => {
            succeeded("plain", json!("finishing"))
        }
        "deferred" => succeeded("deferred", json!("finishing")),
        "lender" => succeeded("lender", json!("finishing")),
        "parked_sleep" => succeeded("parked_sleep", json!("finishing")),
        "parked_child" => succeeded("parked_child", json!("finishing")),
        "api" => succeeded("api", json!("finishing")),
        "hold" => succeeded("hold", json!("finishing")),
        "suspect" => succeeded("suspect", json!("finishing")),
        other => panic!("the manifest has a run {other} that this test does not know"),
    }
}

/// Does for the runs what they wait for.
async fn let_runs_go_on(engine: &Engine, runs: &[Labelled]) {
    engine.unpause_queue("night").await.unwrap();
    for Labelled { label, run, .. } in runs {
        match label.as_str() {
            "parked_signal" => run.signal("go", "sent while finishing").await.unwrap(),
            "signalled" => run.signal("second", "sent while finishing").await.unwrap(),
            "paused" => assert!(run.unpause().await.unwrap()),
            "in_sixty_years" => assert!(run.cancel().await.unwrap()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn every_run_of_a_killed_engine_goes_on_to_its_end() {
    let place = tempfile::tempdir().unwrap();
    unpack("engine", place.path());
    let folder = place.path().join("engine");
    let address = format!("sqlite:{}", folder.join("engine.db").display());
    assert_eq!(count_half_pruned(&folder, "doomed"), 1);

    let looking = Engine::builder(&address).look().await.unwrap();
    for Labelled { label, run, task, kind } in read_manifest(&looking, &folder).await {
        let status = run.status().await.unwrap();
        assert_eq!(status.task(&task).unwrap().kind, kind, "{label}, as it was written");
    }

    let queues = ["default", "night", "later", "unserved"];
    let builder = Engine::builder(&address).queues(queues);
    let engine = describe(builder, Stage::Finishing).start().await.unwrap();
    let runs = read_manifest(&engine, &folder).await;
    let_runs_go_on(&engine, &runs).await;
    for Labelled { label, run, .. } in &runs {
        let ended = tokio::time::timeout(Duration::from_secs(60), run.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("{label} does not end")).unwrap();
        let (outcome, returned) = expect_end(label);
        assert_eq!(status.outcome(), Some(outcome), "{label}: {status:#?}");
        if let Some((task, value)) = returned {
            assert_eq!(status.output::<Value>(task).unwrap(), value, "{label}");
        }
    }

    let open = RunsPage { open: true, ..RunsPage::default() };
    assert_eq!(engine.runs(open).await.unwrap(), [], "children and items end too");
    let long = Duration::from_secs(100 * 365 * 86_400);
    engine.prune(Retention { runs: Some(long), ..Retention::default() }).await.unwrap();
    assert_eq!(engine.audit().await.unwrap(), []);
    engine.shutdown(Duration::from_secs(5)).await;
    drop((engine, looking, runs));
    assert_eq!(
        count_half_pruned(&folder, "pruning"),
        0,
        "the next step of pruning has gone on with it"
    );
}

/// Rows of the table of half-pruned runs, which has another name since version 3 of the store.
fn count_half_pruned(folder: &Path, table: &str) -> i64 {
    let database = rusqlite::Connection::open(folder.join("engine.db")).unwrap();
    database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}
