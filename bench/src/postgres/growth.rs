//! A store in which many tasks have ended, and one that is full of tasks that are not claimed.

use super::MeasuredServer;
use super::meter::{BothMeter, Reading, alternate, compared};
use super::running::{TASKS, end_all, insert_runs};
use super::schema::ScratchSchema;
use crate::figure::{Figure, Target};
use crate::grown::{self, FINISHED};
use crate::store;

/// Runs that end in the engine before their rows are copied.
const TEMPLATES: usize = 1_000;

/// Blocked, future, unknown and limited tasks each.
const OTHERS: usize = 100_000;

/// Rows of `ended_task` like those that are there, each with numbers of its own. Records get smaller
/// numbers: the feed of records goes on behind them.
const COPY_ENDED: &str = "
    CREATE TEMP TABLE copies AS
        SELECT e.*, row_number() OVER () AS place
        FROM ended_task e CROSS JOIN generate_series(1, $COPIES) n;
    WITH block AS (
        UPDATE number_block SET next = next + (SELECT count(*) FROM copies)
        WHERE name = 'task' RETURNING next - (SELECT count(*) FROM copies) AS first_number
    )
    UPDATE copies SET number = (SELECT first_number FROM block) + place - 1, run_id = gen_random_uuid(),
        record = record - place;
    ALTER TABLE copies DROP COLUMN place;
    INSERT INTO ended_task SELECT * FROM copies;
    DROP TABLE copies;";

pub(super) fn measure_growth(server: &MeasuredServer) -> Vec<Figure> {
    let grown = ScratchSchema::new(&server.server);
    let runtime = store::runtime();
    runtime.block_on(async {
        insert_runs(grown.store_url(), "nothing", TEMPLATES).await;
        end_all(server, grown.store_url(), TEMPLATES).await;
        fill_ended(&grown).await;
    });
    let run = |schema: &ScratchSchema| {
        runtime.block_on(async {
            insert_runs(schema.store_url(), "nothing", TASKS).await;
            end_all(server, schema.store_url(), TASKS).await
        })
    };
    let [ours, theirs] = alternate([
        ("grown store", &mut || run(&grown)),
        ("empty store", &mut || run(&ScratchSchema::new(&server.server))),
    ]);
    let what = format!("{TASKS} tasks that stand in the store, with {FINISHED} ended before");
    compared(&what, ours, ("the same, empty store", theirs), Target::AtLeastReference(0.8))
}

/// Copies the ended tasks until there are a million.
async fn fill_ended(schema: &ScratchSchema) {
    let client = schema.connect().await;
    let copies = (FINISHED / TEMPLATES - 1).to_string();
    let copy = COPY_ENDED.replace("$COPIES", &copies);
    client.batch_execute(&copy).await.expect("rows can be copied");
    let count = client.query_one("SELECT count(*) FROM ended_task", &[]).await;
    assert_eq!(count.expect("it can be read").get::<_, i64>(0), FINISHED as i64);
    // As if they had been written long ago.
    for statement in ["VACUUM (ANALYZE) ended_task", "CHECKPOINT"] {
        if let Err(error) = client.batch_execute(statement).await {
            eprintln!("{statement}: {error}");
        }
    }
}

/// P6 whole: the tasks end in the engine, and others stand around them.
pub(super) fn measure_crowd(server: &MeasuredServer) -> Vec<Figure> {
    let crowded = ScratchSchema::new(&server.server);
    let runtime = store::runtime();
    runtime.block_on(async {
        grown::grow(crowded.store_url(), TEMPLATES, OTHERS).await;
        fill_ended(&crowded).await;
    });
    let run = |schema: &ScratchSchema| -> Reading {
        // With the pause, the submits and the start of the engine, on both sides.
        let meter = BothMeter::start(server);
        let cost = runtime.block_on(grown::claim_and_finish(schema.store_url(), TASKS));
        Reading { rate: cost.rate(), ..meter.read(TASKS) }
    };
    let [ours, theirs] = alternate([
        ("crowded store", &mut || run(&crowded)),
        ("empty store", &mut || run(&ScratchSchema::new(&server.server))),
    ]);
    let what = grown::describe_growth(OTHERS);
    compared(&what, ours, ("the same, empty store", theirs), Target::AtLeastReference(0.8))
}
