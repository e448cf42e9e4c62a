//! Short ways to say what tests here need to say.

use rusqlite::Connection;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::lifecycle::{Event, WorkerId};
use tidegate_core::packed::{StoredLifecycle, StoredRun, unpack_lifecycle, unpack_run};
use tidegate_core::plan::{Plan, TaskPlan};
use tidegate_core::store::{
    Bytes, Change, Claim, Claimed, Knows, NewRun, NewWorker, Reply, Request, RequestId, Store,
    StoreError,
};
use tidegate_core::{RunId, Timestamp};
use tidegate_sqlite::{Options, SqliteStore, Synchronous};

/// Under this the test that is run again in another process finds what it is to do.
const CHILD: &str = "TIDEGATE_TEST_CHILD";

pub(crate) fn options() -> Options {
    // What is tested does not depend on it.
    Options { synchronous: Synchronous::Normal, ..Options::default() }
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, options()).unwrap()
}

/// Ids that are unique in this process, and in all that are its children.
fn unique() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    u64::from(std::process::id()) << 32 | LAST.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000) + Duration::from_secs(seconds)
}

pub(crate) fn request() -> Request {
    Request::new(RequestId(unique()), at(0))
}

pub(crate) fn new_run(plan: &Arc<Plan>, input: &[u8]) -> NewRun {
    NewRun {
        input: Some(Bytes::from(input)),
        ..NewRun::new(RunId::new(at(0), unique().into()), plan.clone(), "default".into())
    }
}

/// A plan of one task, the workflow's name with it.
pub(crate) fn plan(workflow: &str) -> Arc<Plan> {
    plan_of(workflow, TaskPlan::default())
}

/// The same, of this task.
pub(crate) fn plan_of(workflow: &str, task: TaskPlan) -> Arc<Plan> {
    use tidegate_core::graph::{Graph, Node, OnFailure};
    let graph = Graph::new([Node::new("only")]).unwrap();
    Arc::new(Plan::new(workflow, graph, OnFailure::default(), vec![task]))
}

pub(crate) async fn take(store: &SqliteStore, request: Request) -> Result<Reply, StoreError> {
    store.request(Arc::new(request)).await
}

/// Submits one run.
pub(crate) async fn submit(store: &SqliteStore, input: &[u8]) -> Result<RunId, StoreError> {
    let mut request = request();
    request.submits = vec![new_run(&plan("w"), input)];
    let reply = take(store, request).await?;
    Ok(reply.submits[0].as_ref().unwrap().id)
}

pub(crate) async fn enlist(store: &SqliteStore) -> WorkerId {
    enlist_for(store, &["default"], &["w", "other"]).await
}

/// A worker that serves these queues and knows these workflows.
pub(crate) async fn enlist_for(
    store: &SqliteStore,
    queues: &[&str],
    workflows: &[&str],
) -> WorkerId {
    let knows = workflows.iter().map(|workflow| ((*workflow).to_owned(), "only".to_owned()));
    let worker = NewWorker {
        now: at(0),
        name: "test".to_owned(),
        queues: queues.iter().map(|&queue| queue.to_owned()).collect(),
        knows: Knows::These(knows.collect()),
        slots: 1,
    };
    store.enlist(worker).await.unwrap()
}

pub(crate) async fn claim(store: &SqliteStore, worker: WorkerId, units: u32) -> Vec<Claimed> {
    let mut request = request();
    request.worker = Some(worker);
    request.claim = Claim { units, ahead: 0, heaviest: 1, room: u32::MAX };
    take(store, request).await.unwrap().claimed
}

pub(crate) fn succeeded(task: &Claimed) -> Change {
    Change::new(task.key, task.index, Event::Succeed { fence: task.life.fence })
}

pub(crate) async fn assert_sound(store: &SqliteStore) {
    assert_eq!(store.audit().await.unwrap(), []);
}

/// What this test is to do if it is the child of another.
pub(crate) fn child_of() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// This test, in a process of its own, which finds `what` by [`child_of`].
pub(crate) fn child(test: &str, what: impl AsRef<Path>) -> Command {
    child_by(&[], test, what)
}

/// The same, begun by this program, which is given what it is to begin.
pub(crate) fn child_by(program: &[&str], test: &str, what: impl AsRef<Path>) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match program {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, what.as_ref()).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// This test, in a process that sees a small file system of its own at `folder`, which finds that
/// folder by [`child_of`]. `None` where the machine does not let anybody mount one.
pub(crate) fn child_in_small_world(test: &str, folder: &Path, size: &str) -> Option<Output> {
    let mounted = format!("mount -t tmpfs -o size={size} none \"$0\" && exec \"$@\"");
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &mounted]).arg(folder);
        command.args(arguments).env(CHILD, folder).output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        eprintln!("this machine lets nobody mount a file system: not tested");
        return None;
    }
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    Some(unshare(&[this, test, "--exact", "--nocapture", "--test-threads=1"]).unwrap())
}

pub(crate) fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "the child has failed:\n{out}\n{error}");
    assert!(out.contains("1 passed"), "the child has tested nothing:\n{out}\n{error}");
}

/// The table in which a task stands.
fn table_of(connection: &Connection, task: i64) -> &'static str {
    let is_live = "SELECT EXISTS (SELECT 1 FROM task WHERE number = ?1)";
    let is_live: bool = connection.query_row(is_live, [task], |row| row.get(0)).unwrap();
    if is_live { "task" } else { "ended_task" }
}

/// Changes the packed lifecycle of a task behind the back of the store.
pub(crate) fn edit_lifecycle(
    connection: &Connection,
    task: i64,
    edit: impl FnOnce(&mut StoredLifecycle),
) {
    edit_packed(connection, task, "lifecycle", |packed| {
        let mut stored = unpack_lifecycle(packed).unwrap();
        edit(&mut stored);
        stored.to_bytes()
    });
}

/// Changes the packed run in the row of a first task behind the back of the store.
pub(crate) fn edit_run(connection: &Connection, task: i64, edit: impl FnOnce(&mut StoredRun)) {
    edit_packed(connection, task, "run", |packed| {
        let mut stored = unpack_run(packed).unwrap();
        edit(&mut stored);
        stored.to_bytes()
    });
}

fn edit_packed(
    connection: &Connection,
    task: i64,
    column: &str,
    edit: impl FnOnce(&[u8]) -> Vec<u8>,
) {
    let table = table_of(connection, task);
    let select = format!("SELECT {column} FROM {table} WHERE number = ?1");
    let packed: Vec<u8> = connection.query_row(&select, [task], |row| row.get(0)).unwrap();
    let update = format!("UPDATE {table} SET {column} = ?2 WHERE number = ?1");
    assert_eq!(connection.execute(&update, (task, edit(&packed))).unwrap(), 1);
}
