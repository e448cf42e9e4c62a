//! Runs no-op jobs by `graphile_worker`, with the settings of its own benchmark.
//!
//! `tidegate-rival-graphile URL SCHEMA JOBS` inserts the jobs, prints `ready`, waits for a line, runs the
//! jobs, and prints their cost as JSON once none is left in the table of jobs.

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions,
};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Jobs at once, connections, and the sizes of its batches: as in its benchmark of 200,000 jobs.
const CONCURRENCY: usize = 500;
const CONNECTIONS: u32 = 100;
const LOCAL_QUEUE: usize = 5_000;
const BATCH_DELAY: Duration = Duration::from_millis(5);

/// Jobs that have run.
#[derive(Clone, Debug)]
struct RunJobs(Arc<AtomicU64>);

#[derive(Debug, Serialize, Deserialize)]
struct Nothing {
    n: u64,
}

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(run) = context.get_ext::<RunJobs>() {
            run.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, schema, jobs] = &arguments[..] else { panic!("usage: URL SCHEMA JOBS") };
    let jobs: u64 = jobs.parse().expect("a number of jobs");
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await;
    let pool = pool.expect("the server can be reached");
    let run = RunJobs(Arc::new(AtomicU64::new(0)));
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema(schema)
        .concurrency(CONCURRENCY)
        .poll_interval(BATCH_DELAY)
        .complete_job_batch_delay(BATCH_DELAY)
        .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE))
        .add_extension(run.clone())
        .define_job::<Nothing>()
        .init()
        .await
        .expect("its tables can be made");
    let worker = Arc::new(worker);
    let inserted: Vec<RawJobSpec> = (0..jobs).map(job).collect();
    worker.create_utils().add_raw_jobs(&inserted).await.expect("jobs can be inserted");
    drop(inserted);
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("its input is a pipe");

    let cpu = cpu_seconds();
    let began = Instant::now();
    let working = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    while run.0.load(Ordering::Relaxed) < jobs || has_jobs(&pool, schema).await {
        assert!(!working.is_finished(), "the worker has ended before its jobs");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let cost = serde_json::json!({
        "tasks": jobs,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu,
        "allocations": null,
        "allocated_bytes": null,
    });
    println!("{cost}");
    worker.request_shutdown();
    working.await.expect("it does not panic").expect("it ends in good order");
}

fn job(n: u64) -> RawJobSpec {
    RawJobSpec {
        identifier: Nothing::IDENTIFIER.to_owned(),
        payload: serde_json::json!({ "n": n }),
        spec: JobSpec::default(),
    }
}

/// Whether a job is left: one that has succeeded is deleted.
async fn has_jobs(pool: &PgPool, schema: &str) -> bool {
    let sql = format!("SELECT EXISTS (SELECT FROM {schema}._private_jobs)");
    let left = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(pool).await;
    left.expect("its tables can be read")
}

/// The processor time of this process, in user and in kernel mode.
fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process may ask what it uses");
    let times = [usage.user_time(), usage.system_time()];
    times.iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum()
}
