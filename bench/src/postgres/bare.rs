//! The bare loop: the rate that PostgreSQL gives when nothing but the writes is done.
//!
//! A life is three durable writes (insert, claim, finish), each in a transaction of its own, of a run, a
//! task, a payload and one event. Callers send commands to one loop with one connection. The loop takes
//! all that is queued into one transaction, whose statements are sent together, and answers after the
//! commit. Deliberately absent: everything that makes an engine.
//!
//! The plans of its statements are checked, because a bad one makes any engine look good.

use super::schema::ScratchSchema;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

/// Commands in a transaction: those of all callers.
const BATCH_MAX: usize = 1_000;

/// Microseconds for which a claim holds.
const LEASE: i64 = 30_000_000;

/// The pause before an idle commit, and the commits before those that are counted.
const PAUSE: Duration = Duration::from_millis(2);
const WARM_UP: usize = 20;

/// The connection uses the plans that the store's own connections use. A cache of rows by key (since
/// PostgreSQL 14) never finds a row twice here.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
    SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'enable_memoize'";

const INSERT_RUN: &str = "INSERT INTO run (id, workflow, state, created_at) \
    SELECT k, 1, 1, $2::int8 FROM unnest($1::int8[]) k";
const INSERT_TASK: &str = "INSERT INTO task (id, run, step, state, due, attempt, fence) \
    SELECT k, k, 0, 0, $2::int8, 0, 0 FROM unnest($1::int8[]) k";
const INSERT_PAYLOAD: &str = "INSERT INTO payload (task, input) \
    SELECT k, i FROM unnest($1::int8[], $2::text[]) p(k, i)";
// `+ 0`: with a plain comparison the index over living tasks is read instead, dead entries included, and
// the rate falls to a quarter.
const CLAIM_TASK: &str = "UPDATE task t \
    SET state = 1, due = $2::int8, attempt = attempt + 1, worker = 1, fence = 1 \
    FROM unnest($1::int8[]) k WHERE t.id = k AND t.state + 0 = 0";
const FINISH_TASK: &str = "UPDATE task t SET state = 2, finished_at = $2::int8 \
    FROM unnest($1::int8[]) k \
    WHERE t.id = k AND t.state + 0 = 1 AND t.worker = 1 AND t.fence = 1";
const FINISH_RUN: &str = "UPDATE run r SET state = 2, finished_at = $2::int8 \
    FROM unnest($1::int8[]) k WHERE r.id = k AND r.state = 1";
const INSERT_EVENT: &str = "INSERT INTO event (run, task, kind, at) \
    SELECT k, k, 2, $2::int8 FROM unnest($1::int8[]) k";

/// A caller's command.
enum Ask {
    Insert { input: String },
    Claim { task: i64 },
    Finish { task: i64 },
}

struct Command {
    ask: Ask,
    /// Gets the number of the task.
    answer: oneshot::Sender<i64>,
}

/// The callers' end of the loop, which ends when all clones are dropped.
#[derive(Clone)]
pub(super) struct BareLoop {
    inbox: UnboundedSender<Command>,
}

impl BareLoop {
    /// Makes the tables and starts the loop, which hands its connection back when it ends.
    pub(super) async fn start(schema: &ScratchSchema) -> (Self, JoinHandle<Client>) {
        let client = schema.create().await;
        client.batch_execute(SETTINGS).await.expect("the settings exist");
        client.batch_execute(include_str!("bare/schema.sql")).await.expect("the schema is empty");
        let statements = BareStatements::prepare(&client).await;
        let (inbox, commands) = unbounded_channel();
        let serving = tokio::spawn(async move {
            serve(&client, &statements, commands).await.expect("the server works");
            client
        });
        (BareLoop { inbox }, serving)
    }

    /// Once this returns, the run, its task and its payload are on the disk.
    pub(super) async fn insert(&self, input: String) -> i64 {
        self.ask(Ask::Insert { input }).await
    }

    /// Ready → running.
    pub(super) async fn claim(&self, task: i64) {
        self.ask(Ask::Claim { task }).await;
    }

    /// Running → succeeded, with its run and an event.
    pub(super) async fn finish(&self, task: i64) {
        self.ask(Ask::Finish { task }).await;
    }

    async fn ask(&self, ask: Ask) -> i64 {
        let (answer, answered) = oneshot::channel();
        let sent = self.inbox.send(Command { ask, answer });
        assert!(sent.is_ok(), "the loop outlives its callers");
        answered.await.expect("the loop answers every command")
    }
}

struct BareStatements {
    insert_run: Statement,
    insert_task: Statement,
    insert_payload: Statement,
    claim_task: Statement,
    finish_task: Statement,
    finish_run: Statement,
    insert_event: Statement,
}

impl BareStatements {
    async fn prepare(client: &Client) -> Self {
        let prepare = async |sql| client.prepare(sql).await.expect("the schema has what it names");
        BareStatements {
            insert_run: prepare(INSERT_RUN).await,
            insert_task: prepare(INSERT_TASK).await,
            insert_payload: prepare(INSERT_PAYLOAD).await,
            claim_task: prepare(CLAIM_TASK).await,
            finish_task: prepare(FINISH_TASK).await,
            finish_run: prepare(FINISH_RUN).await,
            insert_event: prepare(INSERT_EVENT).await,
        }
    }
}

/// All that a transaction writes.
#[derive(Default)]
struct BareBatch {
    now: i64,
    lease_end: i64,
    inserted: Vec<i64>,
    inputs: Vec<String>,
    claimed: Vec<i64>,
    finished: Vec<i64>,
}

async fn serve(
    client: &Client,
    statements: &BareStatements,
    mut commands: UnboundedReceiver<Command>,
) -> Result<(), Error> {
    let mut queued = Vec::with_capacity(BATCH_MAX);
    let mut answers = Vec::with_capacity(BATCH_MAX);
    let mut last_task = 0;
    while commands.recv_many(&mut queued, BATCH_MAX).await > 0 {
        let now = microseconds_now();
        let mut batch = BareBatch { now, lease_end: now + LEASE, ..BareBatch::default() };
        for Command { ask, answer } in queued.drain(..) {
            let task = match ask {
                Ask::Insert { input } => {
                    last_task += 1;
                    batch.inserted.push(last_task);
                    batch.inputs.push(input);
                    last_task
                }
                Ask::Claim { task } => {
                    batch.claimed.push(task);
                    task
                }
                Ask::Finish { task } => {
                    batch.finished.push(task);
                    task
                }
            };
            answers.push((answer, task));
        }
        write_batch(client, statements, &mut batch).await?;
        for (answer, task) in answers.drain(..) {
            // A caller that has gone away does not want to know.
            let _ = answer.send(task);
        }
    }
    Ok(())
}

type SentStatement<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>>;

fn statement<'a>(
    client: &'a Client,
    statement: &'a Statement,
    parameters: [&'a (dyn ToSql + Sync); 2],
) -> SentStatement<'a> {
    Box::pin(async move { client.execute(statement, &parameters).await })
}

fn command<'a>(client: &'a Client, sql: &'a str) -> SentStatement<'a> {
    Box::pin(async move { client.batch_execute(sql).await.map(|()| 0) })
}

/// One transaction in one trip: all statements are sent before the first is answered.
async fn write_batch(
    client: &Client,
    statements: &BareStatements,
    batch: &mut BareBatch,
) -> Result<(), Error> {
    // By number: rows that lie together are written together.
    batch.claimed.sort_unstable();
    batch.finished.sort_unstable();
    let BareBatch { now, lease_end, inserted, inputs, claimed, finished } = &*batch;
    // Each statement is sent when its future is polled for the first time, and `try_join_all` polls a
    // handful of futures in their order.
    let mut sent = vec![command(client, "BEGIN")];
    if !inserted.is_empty() {
        sent.push(statement(client, &statements.insert_run, [inserted, now]));
        sent.push(statement(client, &statements.insert_task, [inserted, now]));
        sent.push(statement(client, &statements.insert_payload, [inserted, inputs]));
    }
    if !claimed.is_empty() {
        sent.push(statement(client, &statements.claim_task, [claimed, lease_end]));
    }
    if !finished.is_empty() {
        sent.push(statement(client, &statements.finish_task, [finished, now]));
        sent.push(statement(client, &statements.finish_run, [finished, now]));
        sent.push(statement(client, &statements.insert_event, [finished, now]));
    }
    sent.push(command(client, "COMMIT"));
    let rows: u64 = futures_util::future::try_join_all(sent).await?.iter().sum();
    let expected = 3 * inserted.len() + claimed.len() + 3 * finished.len();
    assert_eq!(rows, expected as u64, "every task was as its command requires");
    Ok(())
}

fn microseconds_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(now.as_micros()).expect("it is before the year 292,000")
}

/// Every life has left its rows, nothing is alive, and no statement reads more than the rows it names.
pub(super) async fn check_lives(client: &Client, count: usize) {
    for sql in [
        "SELECT count(*) FROM run WHERE state = 2",
        "SELECT count(*) FROM task WHERE state = 2 AND attempt = 1 AND fence = 1",
        "SELECT count(*) FROM task",
        "SELECT count(*) FROM payload",
        "SELECT count(DISTINCT task) FROM event",
    ] {
        let row = client.query_one(sql, &[]).await.expect("a query for a number");
        assert_eq!(row.get::<_, i64>(0), count as i64, "{sql}");
    }
    let updates = [(CLAIM_TASK, "task_pkey"), (FINISH_TASK, "task_pkey"), (FINISH_RUN, "run_pkey")];
    for (update, index) in updates {
        check_plan(client, update, index).await;
    }
}

/// The statement finds its rows by this index and no other.
async fn check_plan(client: &Client, update: &str, index: &str) {
    let prepare = format!("PREPARE checked (int8[], int8) AS {update}");
    client.batch_execute(&prepare).await.expect("it was prepared before");
    let explain = "EXPLAIN (COSTS off) EXECUTE checked (ARRAY[1, 2, 3], 0)";
    let answers = client.simple_query(explain).await.expect("a statement has a plan");
    let lines = answers.iter().filter_map(|answer| match answer {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan = lines.collect::<Vec<_>>().join("\n");
    client.batch_execute("DEALLOCATE checked").await.expect("it was prepared");
    let is_by_index = plan.contains(&format!("Index Scan using {index} on"));
    assert!(is_by_index && !plan.contains("Seq Scan"), "a bad plan for {update}:\n{plan}");
}

/// The times of idle commits: after a pause, until a run (run row, task row, payload) that a caller gave
/// to the loop is committed.
pub(super) async fn measure_idle_commits(schema: &ScratchSchema, count: usize) -> Vec<Duration> {
    let (bare, _serving) = BareLoop::start(schema).await;
    // A task of its own, as a caller is in use: the thread of `block_on` is no worker.
    let caller = tokio::spawn(async move {
        let mut took = Vec::with_capacity(WARM_UP + count);
        for n in 0..WARM_UP + count {
            tokio::time::sleep(PAUSE).await;
            let began = Instant::now();
            bare.insert(format!("{{\"n\":{n}}}")).await;
            took.push(began.elapsed());
        }
        took.split_off(WARM_UP)
    });
    caller.await.expect("a caller does not panic")
}
