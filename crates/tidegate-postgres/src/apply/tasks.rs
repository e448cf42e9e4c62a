//! Task rows, their records and their payloads.
//!
//! A row is *final* when nothing about it changes any more: its task has ended and, if it is the first of
//! its run, so has the run. A final row stands in `ended_task`, with the record of the end and the output,
//! where they come in the same delta; all others stand in `task`.

use super::{DeltaQueue, make_column, must_match, record_base, replace_nul};
use crate::batch::Parameter;
use crate::columns::Uuid;
use crate::error::Error;
use crate::remembered::RowVersion;
use std::collections::HashMap;
use std::sync::Arc;
use tidegate_core::delta::{Delta, MergedWrites, TaskWrite};
use tidegate_core::packed::{pack_ending, pack_lifecycle, pack_run};
use tidegate_core::rows::Payload;
use tidegate_core::store::{Bytes, Record, TaskKey};
use tidegate_core::want::FiledKey;

/// A run that no task has begun gets a number.
macro_rules! next_run_number {
    () => {
        "CASE WHEN is_top THEN nextval('run_number') END"
    };
}

const INSERT_TASKS: &str = concat!(
    "INSERT INTO task (number, request, fence, plan, task_group, idx, state, \
     eligibility, is_plain, worker, claim_order, alarm, blocked_on, lifecycle, run_id, run, input, \
     queue, weight, run_number) \
     SELECT number, request, fence, plan, task_group, idx, state, eligibility, is_plain, \
     worker, claim_order, alarm, blocked_on, lifecycle, run_id, run, input, queue, weight, ",
    next_run_number!(),
    " FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int4[], $5::int4[], $6::int4[], $7::int2[], \
     $8::int2[], $9::bool[], $10::int8[], $11::int8[], $12::int8[], $13::int8[], $14::bytea[], \
     $15::uuid[], $16::bytea[], $17::bytea[], $18::int4[], $19::int8[], $20::bool[]) \
     AS given (number, request, fence, plan, task_group, \
     idx, state, eligibility, is_plain, worker, claim_order, alarm, blocked_on, lifecycle, run_id, \
     run, input, queue, weight, is_top)"
);

/// A row that was remembered is as it was then. The others are locked, and have no version.
macro_rules! has_version {
    () => {
        "(given.version IS NULL OR t.xmin = given.version)"
    };
}

/// Locks the tasks $1, in the order of their numbers.
const LOCK_TASKS: &str = "WITH locked AS (SELECT 1 FROM task AS t WHERE t.number = ANY($1::int8[]) \
     ORDER BY t.number FOR UPDATE) SELECT count(*) FROM locked";

/// Plan, group, index, id and input of a row never change.
const UPDATE_TASKS: &str = concat!(
    "WITH updated AS (UPDATE task AS t SET request = given.request, fence = given.fence, \
     state = given.state, eligibility = given.eligibility, is_plain = given.is_plain, \
     worker = given.worker, claim_order = given.claim_order, alarm = given.alarm, \
     blocked_on = given.blocked_on, claimed_at = NULL, lifecycle = given.lifecycle, run = COALESCE(given.run, t.run) \
     FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int2[], $5::int2[], $6::bool[], $7::int8[], \
     $8::int8[], $9::int8[], $10::int8[], $11::bytea[], $12::bytea[], $13::xid[]) AS given (number, \
     request, fence, state, eligibility, is_plain, worker, claim_order, alarm, blocked_on, lifecycle, \
     run, version) WHERE t.number = given.number AND ",
    has_version!(),
    " RETURNING 1)",
    must_match!("updated")
);

/// The columns of a row that ends, as they are given.
macro_rules! given_ends {
    () => {
        "WITH given AS (SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int2[], \
         $5::int8[], $6::int2[], $7::int8[], $8::bytea[], $9::bytea[], $10::int8[], $11::bytea[], \
         $12::bytea[], $14::xid[]) AS given (number, request, fence, state, ordinal, record_kind, \
         ended_at, lifecycle, ending, run_ended_at, run, output, version)), "
    };
}

/// Takes rows out of `task` and adds them to `ended_task`, where others have their end.
macro_rules! move_rows {
    () => {
        concat!(
            "gone AS (DELETE FROM task AS t USING given WHERE t.number = given.number AND ",
            has_version!(),
            " RETURNING t.number, given.request, given.fence, t.plan, t.task_group, t.idx, \
             given.state, given.ordinal, given.record_kind, given.ended_at, given.lifecycle, \
             given.ending, t.run_id, t.run_number, given.run_ended_at, given.run, t.input, \
             given.output), \
             moved AS (INSERT INTO ended_task (number, request, fence, plan, task_group, idx, state, \
             record, record_kind, ended_at, lifecycle, ending, run_id, run_number, run_ended_at, \
             run, input, output) SELECT number, request, fence, plan, task_group, idx, state, ",
            record_base!("$13::int8"),
            " + ordinal, record_kind, ended_at, lifecycle, ending, run_id, run_number, run_ended_at, \
             run, input, output FROM gone RETURNING 1)"
        )
    };
}

/// Rows that have become final by an end that is in the same delta: they were alive.
const MOVE_ENDED: &str = concat!(given_ends!(), move_rows!(), must_match!("moved"));

/// Rows whose end was written before: first tasks of runs that end now, and final rows that a repair
/// changes. The statement sees the rows of its beginning: those it moves are not updated besides.
const SETTLE_ENDED: &str = concat!(
    given_ends!(),
    move_rows!(),
    ", kept AS (UPDATE ended_task AS t SET request = given.request, fence = given.fence, \
     state = given.state, ended_at = given.ended_at, lifecycle = given.lifecycle, \
     run_ended_at = given.run_ended_at, run = COALESCE(given.run, t.run), \
     output = COALESCE(given.output, t.output) FROM given WHERE t.number = given.number RETURNING 1), \
     found AS (SELECT FROM moved UNION ALL SELECT FROM kept)",
    must_match!("found")
);

/// Rows that are final from their beginning: skipped or taken over by the request that submits them.
const INSERT_ENDED: &str = concat!(
    "INSERT INTO ended_task (number, request, fence, plan, task_group, idx, state, record, \
     record_kind, ended_at, lifecycle, ending, run_id, run_number, run_ended_at, run, input, output) \
     SELECT number, request, fence, plan, task_group, idx, state, ",
    record_base!("$13::int8"),
    " + ordinal, record_kind, ended_at, lifecycle, ending, run_id, ",
    next_run_number!(),
    ", run_ended_at, run, input, output \
     FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int2[], $5::int8[], $6::int2[], $7::int8[], \
     $8::bytea[], $9::bytea[], $10::int8[], $11::bytea[], $12::bytea[], $14::int4[], $15::int4[], \
     $16::int4[], $17::uuid[], $18::bytea[], $19::bool[]) AS given (number, request, fence, state, ordinal, \
     record_kind, ended_at, lifecycle, ending, run_ended_at, run, output, plan, task_group, idx, \
     run_id, input, is_top)"
);

/// Inserted before all other rows, and sorted: two requests with the same keys wait for each other in one
/// order.
const INSERT_KEYS: &str = "INSERT INTO run_key (queue, workflow, key, run) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[])";

const INSERT_RECORDS: &str = concat!(
    "INSERT INTO record (number, at, run, idx, kind, reason, attempt, entry, worker, begun_at, \
     active, error) SELECT ",
    record_base!("$1::int8"),
    " + ordinal, at, run, idx, kind, reason, attempt, entry, worker, begun_at, active, error \
     FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int4[], $6::int2[], $7::int2[], $8::int8[], \
     $9::int8[], $10::int8[], $11::int8[], $12::int8[], $13::text[]) AS given (ordinal, at, run, idx, \
     kind, reason, attempt, entry, worker, begun_at, active, error)"
);

const PUT_PAYLOADS: &str = "INSERT INTO payload (task, kind, body) \
     SELECT * FROM unnest($1::int8[], $2::int2[], $3::bytea[]) \
     ON CONFLICT (task, kind) DO UPDATE SET body = excluded.body";

/// A payload of a task may stand in its row; the kinds of those that do are $4 and $5.
const COPY_PAYLOADS: &str = "INSERT INTO payload (task, kind, body) \
     SELECT given.copy, given.kind, COALESCE(payload.body, \
     CASE given.kind WHEN $4::int2 THEN ended.input WHEN $5::int2 THEN ended.output END) \
     FROM unnest($1::int8[], $2::int8[], $3::int2[]) AS given (task, copy, kind) \
     LEFT JOIN payload ON payload.task = given.task AND payload.kind = given.kind \
     LEFT JOIN ended_task AS ended ON ended.number = given.task \
     WHERE payload.body IS NOT NULL \
     OR CASE given.kind WHEN $4::int2 THEN ended.input WHEN $5::int2 THEN ended.output END IS NOT NULL \
     ON CONFLICT (task, kind) DO UPDATE SET body = excluded.body";

/// A task row with the numbers that the store has for what it names.
struct NumberedWrite<'d> {
    write: &'d TaskWrite,
    /// Of a new row.
    plan: i32,
    /// Of a new row.
    task_group: i32,
    /// The limit that it is blocked on.
    queue: i32,
    blocked_on: Option<i64>,
    /// The record of the end of a final row, and its place in the delta.
    end: Option<(usize, &'d Record)>,
    output: Option<&'d Bytes>,
    input: Option<&'d Bytes>,
    /// That of a row that was not loaded.
    version: Option<RowVersion>,
}

impl NumberedWrite<'_> {
    fn run_id(&self) -> Option<Uuid> {
        self.write.row.head.as_ref().map(|head| Uuid(head.id.as_u128()))
    }

    /// Whether this is the first row of a run that no task has begun.
    fn is_top(&self) -> bool {
        self.write.row.head.as_ref().is_some_and(|head| head.parent.is_none())
    }

    fn packed_run(&self) -> Option<Vec<u8>> {
        self.write.row.head.as_deref().map(pack_run)
    }

    fn ended_at(&self) -> i64 {
        // A damaged row may lack it.
        self.write.row.ended_at.map_or(0, |at| at.as_micros())
    }
}

impl DeltaQueue<'_> {
    /// Writes the rows; how many leave the live table.
    pub(super) async fn write_tasks(
        &mut self,
        delta: &Delta,
        merged: &MergedWrites,
        versions: &HashMap<TaskKey, RowVersion>,
    ) -> Result<u64, Error> {
        self.insert_keys(&delta.tasks).await?;
        let mut new = Vec::new();
        let mut new_ended = Vec::new();
        let mut updated = Vec::new();
        let mut ended = Vec::new();
        let mut settled = Vec::new();
        for write in self.number_writes(delta, merged, versions).await? {
            let rows = match (write.write.is_final, write.write.is_new) {
                (false, true) => &mut new,
                (false, false) => &mut updated,
                (true, true) => &mut new_ended,
                (true, false) if write.end.is_some() => &mut ended,
                (true, false) => &mut settled,
            };
            rows.push(write);
        }
        self.lock_in_order([&ended, &settled, &updated]).await?;
        for (sql, rows) in [(MOVE_ENDED, &ended), (SETTLE_ENDED, &settled)] {
            if !rows.is_empty() {
                let mut ends = self.make_ends(rows);
                ends.push(make_column(rows, |row| row.version));
                self.add_statement(sql, ends).await?;
            }
        }
        if !updated.is_empty() {
            self.add_statement(UPDATE_TASKS, make_updates(&updated)).await?;
        }
        if !new.is_empty() {
            self.add_statement(INSERT_TASKS, make_inserts(&new)).await?;
        }
        if !new_ended.is_empty() {
            let mut ends = self.make_ends(&new_ended);
            ends.extend([
                make_column(&new_ended, |row| row.plan),
                make_column(&new_ended, |row| row.task_group),
                make_column(&new_ended, |row| row.write.row.index.as_u32() as i32),
                make_column(&new_ended, NumberedWrite::run_id),
                make_column(&new_ended, |row| row.input.map(|input| input.to_vec())),
                make_column(&new_ended, NumberedWrite::is_top),
            ]);
            self.add_statement(INSERT_ENDED, ends).await?;
        }
        Ok((ended.len() + settled.len()) as u64)
    }

    /// Locks rows that were not loaded, where they are written by more than one statement: each of them
    /// locks its own rows by number, but all together would not.
    async fn lock_in_order(&mut self, written: [&[NumberedWrite<'_>]; 3]) -> Result<(), Error> {
        let is_one = written.iter().filter(|rows| !rows.is_empty()).count() <= 1;
        let rows = written.into_iter().flatten().filter(|row| row.version.is_some());
        let mut tasks: Vec<i64> = rows.map(|row| row.write.row.key.0).collect();
        if is_one || tasks.is_empty() {
            return Ok(());
        }
        tasks.sort_unstable();
        self.add_statement(LOCK_TASKS, vec![Box::new(tasks)]).await?;
        Ok(())
    }

    async fn insert_keys(&mut self, writes: &[TaskWrite]) -> Result<(), Error> {
        let new = writes.iter().filter(|write| write.is_new);
        let keys = new.filter_map(|write| Some((FiledKey::new(&write.row)?, write.row.key.0)));
        let mut keys: Vec<(FiledKey, i64)> = keys.collect();
        if keys.is_empty() {
            return Ok(());
        }
        keys.sort_unstable();
        let parameters = vec![
            make_column(&keys, |(key, _)| key.queue.to_string()),
            make_column(&keys, |(key, _)| key.workflow.clone()),
            make_column(&keys, |(key, _)| key.key.clone()),
            make_column(&keys, |(_, run)| *run),
        ];
        self.add_statement(INSERT_KEYS, parameters).await?;
        Ok(())
    }

    /// The rows by number, with all that goes into them.
    async fn number_writes<'d>(
        &self,
        delta: &'d Delta,
        merged: &MergedWrites,
        versions: &HashMap<TaskKey, RowVersion>,
    ) -> Result<Vec<NumberedWrite<'d>>, Error> {
        let catalog = &self.state.catalog;
        let mut numbered = Vec::with_capacity(delta.tasks.len());
        // Rows that are alike usually come one after the other.
        let mut last = None;
        for write in &delta.tasks {
            let TaskWrite { row, queue, .. } = write;
            let mut of_row = NumberedWrite {
                write,
                plan: 0,
                task_group: 0,
                queue: 0,
                blocked_on: None,
                end: merged.find_end(delta, row.key),
                output: merged.find_output(delta, row.key),
                input: merged.find_input(delta, row.key),
                version: versions.get(&row.key).copied(),
            };
            if write.is_new {
                let is_last = |(plan, of_queue, _): &(_, _, _)| {
                    Arc::ptr_eq(plan, &row.plan) && *of_queue == *queue
                };
                if last.as_ref().is_none_or(|last| !is_last(last)) {
                    let filed = catalog.file_plan(queue, &row.plan).await?;
                    last = Some((row.plan.clone(), queue.clone(), filed));
                }
                if let Some((_, _, filed)) = &last {
                    of_row.plan = filed.plan;
                    of_row.task_group = filed.group_of(row.index);
                    of_row.queue = filed.queue;
                }
            }
            if let Some(limit) = &write.place.behind {
                of_row.blocked_on = Some(catalog.number_limit(limit).await?);
            }
            numbered.push(of_row);
        }
        numbered.sort_unstable_by_key(|of_row| of_row.write.row.key);
        Ok(numbered)
    }

    /// The parameters of rows that are final.
    fn make_ends(&self, rows: &[NumberedWrite<'_>]) -> Vec<Parameter> {
        vec![
            make_column(rows, |row| row.write.row.key.0),
            make_column(rows, |row| row.write.row.request.0 as i64),
            make_column(rows, |row| row.write.row.life.fence.0 as i64),
            make_column(rows, |row| i16::from(row.write.row.life.state.kind().code())),
            make_column(rows, |row| row.end.map(|(place, _)| place as i64)),
            make_column(rows, |row| row.end.map(|(_, record)| i16::from(record.what.code()))),
            make_column(rows, NumberedWrite::ended_at),
            make_column(rows, |row| pack_lifecycle(&row.write.row)),
            make_column(rows, |row| row.end.map_or(Vec::new(), |(_, record)| pack_ending(record))),
            make_column(rows, |row| {
                let head = row.write.row.head.as_ref()?;
                head.ended.map(|(_, at)| at.as_micros())
            }),
            make_column(rows, NumberedWrite::packed_run),
            make_column(rows, |row| row.output.map(|output| output.to_vec())),
            Box::new(self.state.server.record_base),
        ]
    }

    pub(super) async fn write_records(
        &mut self,
        delta: &Delta,
        merged: &MergedWrites,
    ) -> Result<(), Error> {
        let records = delta.records.iter().enumerate();
        let records = records.filter(|(place, record)| !merged.has_record(*place, record));
        let records: Vec<(usize, &Record)> = records.collect();
        if records.is_empty() {
            return Ok(());
        }
        let parameters: Vec<Parameter> = vec![
            Box::new(self.state.server.record_base),
            make_column(&records, |(place, _)| *place as i64),
            make_column(&records, |(_, record)| record.at.as_micros()),
            make_column(&records, |(_, record)| record.run.0),
            make_column(&records, |(_, record)| record.task.as_u32() as i32),
            make_column(&records, |(_, record)| i16::from(record.what.code())),
            make_column(&records, |(_, record)| {
                record.reason.map(|reason| i16::from(reason.code()))
            }),
            make_column(&records, |(_, record)| i64::from(record.attempt)),
            make_column(&records, |(_, record)| i64::from(record.entry)),
            make_column(&records, |(_, record)| record.worker.map(|worker| worker.0 as i64)),
            make_column(&records, |(_, record)| record.begun_at.map(|at| at.as_micros())),
            make_column(&records, |(_, record)| {
                i64::try_from(record.active.as_micros()).unwrap_or(i64::MAX)
            }),
            make_column(&records, |(_, record)| record.error.as_deref().map(replace_nul)),
        ];
        self.add_statement(INSERT_RECORDS, parameters).await?;
        Ok(())
    }

    pub(super) async fn write_payloads(
        &mut self,
        delta: &Delta,
        merged: &MergedWrites,
    ) -> Result<(), Error> {
        // The last of a kind counts.
        let mut payloads: HashMap<(TaskKey, u8), &Bytes> = HashMap::new();
        for (place, (task, kind, body)) in delta.payloads.iter().enumerate() {
            if !merged.has_payload(place, *task, *kind) {
                payloads.insert((*task, kind.code()), body);
            }
        }
        if !payloads.is_empty() {
            let mut payloads: Vec<_> = payloads.into_iter().collect();
            payloads.sort_unstable_by_key(|(place, _)| *place);
            let parameters = vec![
                make_column(&payloads, |((task, _), _)| task.0),
                make_column(&payloads, |((_, kind), _)| i16::from(*kind)),
                make_column(&payloads, |(_, body)| body.to_vec()),
            ];
            self.add_statement(PUT_PAYLOADS, parameters).await?;
        }
        let copies = &delta.payload_copies;
        if !copies.is_empty() {
            let parameters = vec![
                make_column(copies, |copy| copy.from.0),
                make_column(copies, |copy| copy.to.0),
                make_column(copies, |copy| i16::from(copy.kind.code())),
                Box::new(i16::from(Payload::Input.code())),
                Box::new(i16::from(Payload::Output.code())),
            ];
            self.add_statement(COPY_PAYLOADS, parameters).await?;
        }
        Ok(())
    }
}

/// The parameters of rows that change and stay alive.
fn make_updates(rows: &[NumberedWrite<'_>]) -> Vec<Parameter> {
    vec![
        make_column(rows, |row| row.write.row.key.0),
        make_column(rows, |row| row.write.row.request.0 as i64),
        make_column(rows, |row| row.write.row.life.fence.0 as i64),
        make_column(rows, |row| i16::from(row.write.row.life.state.kind().code())),
        make_column(rows, |row| row.write.place.gate.map(|gate| i16::from(gate.code()))),
        make_column(rows, |row| row.write.is_plain),
        make_column(rows, |row| row.write.row.life.owner().map(|worker| worker.0 as i64)),
        make_column(rows, |row| row.write.place.order.map(|order| order.as_micros())),
        make_column(rows, |row| row.write.place.alarm.map(|alarm| alarm.as_micros())),
        make_column(rows, |row| row.blocked_on),
        make_column(rows, |row| pack_lifecycle(&row.write.row)),
        make_column(rows, NumberedWrite::packed_run),
        make_column(rows, |row| row.version),
    ]
}

/// The parameters of new rows.
fn make_inserts(rows: &[NumberedWrite<'_>]) -> Vec<Parameter> {
    vec![
        make_column(rows, |row| row.write.row.key.0),
        make_column(rows, |row| row.write.row.request.0 as i64),
        make_column(rows, |row| row.write.row.life.fence.0 as i64),
        make_column(rows, |row| row.plan),
        make_column(rows, |row| row.task_group),
        make_column(rows, |row| row.write.row.index.as_u32() as i32),
        make_column(rows, |row| i16::from(row.write.row.life.state.kind().code())),
        make_column(rows, |row| row.write.place.gate.map(|gate| i16::from(gate.code()))),
        make_column(rows, |row| row.write.is_plain),
        make_column(rows, |row| row.write.row.life.owner().map(|worker| worker.0 as i64)),
        make_column(rows, |row| row.write.place.order.map(|order| order.as_micros())),
        make_column(rows, |row| row.write.place.alarm.map(|alarm| alarm.as_micros())),
        make_column(rows, |row| row.blocked_on),
        make_column(rows, |row| pack_lifecycle(&row.write.row)),
        make_column(rows, NumberedWrite::run_id),
        make_column(rows, NumberedWrite::packed_run),
        make_column(rows, |row| row.input.map(|input| input.to_vec())),
        make_column(rows, |row| row.queue),
        make_column(rows, |row| i64::from(row.write.row.planned().weight)),
        make_column(rows, NumberedWrite::is_top),
    ]
}

/// All statements, by name.
#[cfg(test)]
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("LOCK_TASKS", LOCK_TASKS),
    ("INSERT_TASKS", INSERT_TASKS),
    ("UPDATE_TASKS", UPDATE_TASKS),
    ("MOVE_ENDED", MOVE_ENDED),
    ("SETTLE_ENDED", SETTLE_ENDED),
    ("INSERT_ENDED", INSERT_ENDED),
    ("INSERT_KEYS", INSERT_KEYS),
    ("INSERT_RECORDS", INSERT_RECORDS),
    ("PUT_PAYLOADS", PUT_PAYLOADS),
    ("COPY_PAYLOADS", COPY_PAYLOADS),
];
