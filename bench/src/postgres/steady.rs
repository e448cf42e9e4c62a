//! Full rate for a while: the size of the live table, and the rate beside a snapshot that stays open.

use super::MeasuredServer;
use super::meter::alone;
use super::running::engine_builder;
use super::schema::ScratchSchema;
use crate::figure::{Figure, Target};
use crate::store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate::Engine;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// Callers that submit and wait, and slots: fewer, so that runs wait in the store and are claimed from
/// there.
const CALLERS: usize = 1_000;
const SLOTS: u32 = 256;

/// Seconds in which lives are counted together.
const WINDOW: u64 = 10;

/// Seconds for which the snapshot is open, unless `TIDEGATE_P7_SNAPSHOT` says otherwise.
const SNAPSHOT: u64 = 120;

/// Seconds at full rate, unless `TIDEGATE_P7_STEADY` says otherwise.
const STEADY: u64 = 100;

fn seconds_of(variable: &str, default: u64) -> u64 {
    let seconds = std::env::var(variable).ok().and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or(default).max(WINDOW)
}

/// Callers that submit and wait without a pause.
struct FullLoad {
    engine: Engine,
    is_over: Arc<AtomicBool>,
    lives: Arc<AtomicU64>,
    callers: Vec<JoinHandle<()>>,
}

impl FullLoad {
    async fn start(schema: &ScratchSchema) -> Self {
        let engine = engine_builder(schema.store_url(), SLOTS).start().await.expect("it starts");
        let is_over = Arc::new(AtomicBool::new(false));
        let lives = Arc::new(AtomicU64::new(0));
        let call = || {
            let (engine, is_over, lives) = (engine.clone(), is_over.clone(), lives.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let run = engine.submit("nothing", serde_json::json!({ "n": 1 })).await;
                    run.expect("it is accepted").wait().await.expect("it ends");
                    lives.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let callers = (0..CALLERS).map(|_| call()).collect();
        FullLoad { engine, is_over, lives, callers }
    }

    /// Lives per second in each window of this time.
    async fn count(&self, seconds: u64, words: &str) -> Vec<f64> {
        let mut rates = Vec::new();
        for window in 1..=seconds / WINDOW {
            let (began, before) = (Instant::now(), self.lives.load(Ordering::Relaxed));
            tokio::time::sleep(Duration::from_secs(WINDOW)).await;
            let lives = self.lives.load(Ordering::Relaxed) - before;
            let rate = lives as f64 / began.elapsed().as_secs_f64();
            eprintln!("  {words}, after {} s: {rate:.0}/s", window * WINDOW);
            rates.push(rate);
        }
        rates
    }

    async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.expect("a caller does not panic");
        }
        self.engine.shutdown(Duration::from_secs(5)).await;
    }
}

/// The size of the live table and of its indexes, in MB.
async fn table_megabytes(client: &Client) -> [f64; 2] {
    let sizes = "SELECT pg_table_size('task'), pg_indexes_size('task')";
    let row = client.query_one(sizes, &[]).await.expect("a table has a size");
    [0, 1].map(|at| row.get::<_, i64>(at) as f64 / f64::from(1 << 20))
}

pub(super) fn measure_snapshot(server: &MeasuredServer) -> Vec<Figure> {
    let schema = ScratchSchema::new(&server.server);
    let seconds = seconds_of("TIDEGATE_P7_SNAPSHOT", SNAPSHOT);
    store::runtime().block_on(async {
        let load = FullLoad::start(&schema).await;
        // The first window is for warming up.
        let before = load.count(3 * WINDOW, "before the snapshot").await;
        let before = before[1..].iter().sum::<f64>() / (before.len() - 1) as f64;
        let reader = schema.connect().await;
        let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM store";
        reader.batch_execute(open).await.expect("a snapshot can be taken");
        let during = load.count(seconds, "with the snapshot").await;
        reader.batch_execute("COMMIT").await.expect("a snapshot can be given up");
        let [table, indexes] = table_megabytes(&reader).await;
        let after = load.count(2 * WINDOW, "after the snapshot").await;
        load.stop().await;
        let figure = |what: String, value, target| Figure {
            reference: Some(("before it".into(), before)),
            ..alone(what, value, "/s", target)
        };
        let last = *during.last().expect("there is a window");
        let lowest = during.iter().copied().fold(f64::INFINITY, f64::min);
        let last_words =
            format!("full life with a snapshot open for {seconds} s, its last {WINDOW} s");
        vec![
            figure(last_words, last, Target::AtLeastReference(0.5)),
            figure(format!("– its slowest {WINDOW} s"), lowest, Target::None),
            figure(format!("– {WINDOW} s after it"), after[0], Target::None),
            alone("– live table at its end".into(), table, "MB", Target::None),
            alone("– indexes of the live table".into(), indexes, "MB", Target::None),
        ]
    })
}

pub(super) fn measure_steady(server: &MeasuredServer) -> Vec<Figure> {
    let schema = ScratchSchema::new(&server.server);
    let seconds = seconds_of("TIDEGATE_P7_STEADY", STEADY);
    store::runtime().block_on(async {
        let load = FullLoad::start(&schema).await;
        let client = schema.connect().await;
        let (mut rates, mut largest) = (Vec::new(), [0.0_f64; 2]);
        for window in 1..=seconds / WINDOW {
            rates.extend(load.count(WINDOW, &format!("window {window}")).await);
            let sizes = table_megabytes(&client).await;
            eprintln!("  live table {:.0} MB, its indexes {:.0} MB", sizes[0], sizes[1]);
            largest = [0, 1].map(|at| largest[at].max(sizes[at]));
        }
        load.stop().await;
        let (first, last) = (rates[0], rates[rates.len() - 1]);
        let what = format!("full life, last of {seconds} s at full rate");
        vec![
            Figure {
                reference: Some((format!("first {WINDOW} s"), first)),
                ..alone(what, last, "/s", Target::None)
            },
            alone("– live table at its largest".into(), largest[0], "MB", Target::AtMost(200.0)),
            alone("– its indexes at their largest".into(), largest[1], "MB", Target::None),
        ]
    })
}
