//! Answers to the wants of a decision, in as few trips as they allow.
//!
//! Wants of a kind are one statement, and all statements of a call are sent together, in the order of the
//! locks that they take: task rows by number, then rows that are found on the way and skipped where
//! another transaction has them, then limit rows by number. Everything that such a lock protects (waits,
//! signals, holds) is read by a later statement of the same trip, which sees the rows as they are once
//! the lock is taken.
//!
//! A call may answer more wants than it was asked: rows that were found are answers to
//! [`Want::Task`] as well.

use crate::batch::{BatchIndex, Parameter, StatementBatch};
use crate::catalog::NumberCatalog;
use crate::columns::{TaskColumns, to_timestamp};
use crate::error::Error;
use crate::others::answer_payloads;
use deadpool_postgres::Object;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tidegate_core::Timestamp;
use tidegate_core::limit::LimitRow;
use tidegate_core::rows::Row;
use tidegate_core::store::{Bytes, RunKey, TaskKey};
use tidegate_core::want::{Loaded, Want};

/// Whether rows are locked when they are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowLocks {
    /// They are only read.
    None,
    /// They are locked until the end of the transaction.
    Rows,
}

/// A connection that loads rows.
pub(crate) struct WantLoader<'c> {
    pub(crate) client: &'c Object,
    pub(crate) catalog: &'c NumberCatalog,
    locks: RowLocks,
}

/// Reads the rows of a statement.
type RowsReader<'w> =
    Box<dyn FnOnce(Vec<tokio_postgres::Row>, &mut FoundRows) -> Result<(), Error> + 'w>;

/// Statements of one trip, each with the reader of its rows.
#[derive(Default)]
pub(crate) struct Trip<'w> {
    batch: StatementBatch,
    readers: Vec<(BatchIndex, RowsReader<'w>)>,
}

/// The rows and answers that were found so far.
#[derive(Default)]
pub(crate) struct FoundRows {
    /// The time by the clock of the store.
    pub(crate) now: Option<Timestamp>,
    pub(crate) answers: Vec<(Want, Loaded)>,
    /// Tasks by number.
    pub(crate) tasks: BTreeMap<i64, TaskColumns>,
    /// Payloads by task and kind.
    pub(crate) payloads: HashMap<(TaskKey, u8), Bytes>,
    /// Rows of limit keys by number.
    pub(crate) limits: HashMap<i64, LimitRow>,
    /// Tasks that do not exist.
    pub(crate) absent: Vec<i64>,
    /// Lists of tasks. Each is answered once the rows are complete.
    pub(crate) lists: Vec<(Want, Vec<i64>)>,
    /// Claim order and number of a task that can be claimed behind those in the list.
    pub(crate) next_ready: Option<(i64, i64)>,
    /// Task groups that were not known were found, so claims have to look again.
    pub(crate) has_new_groups: bool,
    /// Tasks that are blocked on a limit were skipped.
    pub(crate) is_contended: bool,
}

impl FoundRows {
    /// The time by the clock of the store, which is read before rows that are due by it.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.now.expect("the clock is read first")
    }

    pub(crate) fn add_answer(&mut self, want: Want, loaded: Loaded) {
        self.answers.push((want, loaded));
    }

    pub(crate) fn add_task(&mut self, stored: TaskColumns) {
        self.tasks.insert(stored.key, stored);
    }

    /// Leaves tasks that can be claimed out of their lists, by the first tasks of their runs.
    pub(crate) fn leave_out(&mut self, is_out: impl Fn(i64) -> bool) {
        let FoundRows { lists, tasks, .. } = self;
        for (want, list) in lists {
            if matches!(want, Want::Ready { .. }) {
                list.retain(|task| {
                    tasks.get(task).is_none_or(|stored| !is_out(stored.first_task()))
                });
            }
        }
    }
}

impl<'c> WantLoader<'c> {
    pub(crate) fn new(client: &'c Object, catalog: &'c NumberCatalog, locks: RowLocks) -> Self {
        WantLoader { client, catalog, locks }
    }

    /// Whether rows are locked.
    pub(crate) fn takes_locks(&self) -> bool {
        self.locks == RowLocks::Rows
    }

    /// Answers wants, and others whose rows were found on the way.
    ///
    /// # Errors
    /// The store's own, or a row is damaged.
    pub(crate) async fn load_wants(&self, wants: &[Want]) -> Result<Vec<(Want, Loaded)>, Error> {
        let sorted = SortedWants::new(wants);
        let mut found = FoundRows::default();
        let mut trip = Trip::default();
        self.queue_tasks(&mut trip, &sorted).await?;
        self.queue_found_tasks(&mut trip, &sorted, &mut found).await?;
        self.queue_limits(&mut trip, &sorted, &mut found).await?;
        self.queue_waits(&mut trip, &sorted).await?;
        self.queue_others(&mut trip, &sorted, &mut found).await?;
        self.send_trip(trip, &mut found).await?;
        if found.has_new_groups {
            self.find_ready_again(&sorted, &mut found).await?;
        }
        if found.is_contended {
            return Err(Error::Contended);
        }
        answer_payloads(&sorted, &mut found);
        self.load_item_parents(&mut found).await?;
        self.load_ended(&sorted, &mut found).await?;
        self.answer_tasks(&sorted, found).await
    }

    /// Adds a statement to a trip.
    pub(crate) async fn queue_statement<'t>(
        &self,
        trip: &mut Trip<'t>,
        sql: &str,
        parameters: Vec<Parameter>,
        read: impl FnOnce(Vec<tokio_postgres::Row>, &mut FoundRows) -> Result<(), Error> + 't,
    ) -> Result<(), Error> {
        let statement = self.client.prepare_cached(sql).await?;
        let index = trip.batch.add_statement(statement, parameters);
        trip.readers.push((index, Box::new(read)));
        Ok(())
    }

    /// Sends the statements of a trip and reads their rows.
    pub(crate) async fn send_trip(
        &self,
        trip: Trip<'_>,
        found: &mut FoundRows,
    ) -> Result<(), Error> {
        let Trip { batch, readers } = trip;
        if batch.is_empty() {
            return Ok(());
        }
        let mut rows = batch.send_all(self.client).await?;
        for (index, read) in readers {
            read(rows.take_rows(index), found)?;
        }
        Ok(())
    }

    /// The rows of these columns, in the same order.
    ///
    /// # Errors
    /// The store's own, or a row is damaged.
    pub(crate) async fn resolve_rows(&self, stored: Vec<TaskColumns>) -> Result<Vec<Row>, Error> {
        let numbers = self.catalog.resolve_numbers(&stored).await?;
        let row = |stored: TaskColumns| {
            let named = numbers.name_things(&stored)?;
            stored.into_row(named)
        };
        stored.into_iter().map(row).collect()
    }

    /// Makes rows of all tasks that were found, and answers everything that waits for them.
    async fn answer_tasks(
        &self,
        sorted: &SortedWants<'_>,
        found: FoundRows,
    ) -> Result<Vec<(Want, Loaded)>, Error> {
        let FoundRows { mut answers, tasks, lists, absent, next_ready, .. } = found;
        let owned = self.answer_owned(sorted, &tasks)?;
        let orders: HashMap<i64, _> =
            tasks.values().map(|stored| (stored.key, stored.claim_order)).collect();
        let rows = self.resolve_rows(tasks.into_values().collect()).await?;
        let rows: BTreeMap<i64, Row> = rows.into_iter().map(|row| (row.key.0, row)).collect();
        for run in &sorted.runs {
            answers.push((Want::WholeRun(*run), Loaded::Tasks(collect_run(&rows, run.0))));
        }
        let mut listed = HashSet::new();
        for (want, list) in lists {
            listed.extend(list.iter().copied());
            let loaded = answer_list(&want, &list, &orders, next_ready);
            answers.push((want, loaded));
        }
        answers.extend(owned);
        let missing = sorted.tasks.iter().chain(&absent).filter(|task| !rows.contains_key(task));
        answers.extend(missing.map(|task| (Want::Task(TaskKey(*task)), Loaded::Task(None))));
        for (number, row) in rows {
            // Other rows of a run that was wanted whole are answered with the run.
            let is_asked = sorted.tasks.contains(&number) || listed.contains(&number);
            if row.head.is_some() || is_asked || !sorted.has_run(row.run()) {
                answers.push((Want::Task(TaskKey(number)), Loaded::Task(Some(row))));
            }
        }
        Ok(answers)
    }
}

/// The tasks of a run that are among these rows, if its first one is.
fn collect_run(rows: &BTreeMap<i64, Row>, run: i64) -> Vec<Row> {
    let Some(first) = rows.get(&run) else { return Vec::new() };
    let end = run.saturating_add_unsigned(first.plan.task_count() as u64);
    rows.range(run..end).map(|(_, row)| row.clone()).collect()
}

/// The answer to a want of a list of tasks.
fn answer_list(
    want: &Want,
    list: &[i64],
    orders: &HashMap<i64, Option<i64>>,
    next_ready: Option<(i64, i64)>,
) -> Loaded {
    if matches!(want, Want::DueTasks { .. }) {
        return Loaded::TaskKeys(list.iter().copied().map(TaskKey).collect());
    }
    let order = |task: &i64| {
        let order = orders.get(task).copied().flatten();
        order.map(|order| (to_timestamp(order), TaskKey(*task)))
    };
    let mut ordered: Vec<_> = list.iter().filter_map(order).collect();
    ordered.sort_unstable();
    if let Want::Ready { max, .. } = want {
        // If some of the others were left out, it would be taken for one of them.
        let next = next_ready.filter(|_| ordered.len() + 1 == *max as usize);
        ordered.extend(next.map(|(order, task)| (to_timestamp(order), TaskKey(task))));
    }
    Loaded::Ordered(ordered)
}

/// Wants by kind.
#[derive(Default)]
pub(crate) struct SortedWants<'w> {
    /// Tasks by number.
    pub(crate) tasks: BTreeSet<i64>,
    /// Runs of which all tasks are wanted.
    pub(crate) runs: Vec<RunKey>,
    /// All others.
    pub(crate) others: Vec<&'w Want>,
}

impl<'w> SortedWants<'w> {
    fn new(wants: &'w [Want]) -> Self {
        let mut sorted = SortedWants::default();
        for want in wants {
            match want {
                Want::Task(task) => drop(sorted.tasks.insert(task.0)),
                Want::WholeRun(run) => sorted.runs.push(*run),
                other => sorted.others.push(other),
            }
        }
        sorted.runs.sort_unstable();
        sorted.runs.dedup();
        sorted
    }

    fn has_run(&self, run: RunKey) -> bool {
        self.runs.binary_search(&run).is_ok()
    }

    /// Picks of all wants but tasks and runs.
    pub(crate) fn pick_wants<T>(&self, pick: impl FnMut(&&'w Want) -> Option<T>) -> Vec<T> {
        self.others.iter().filter_map(pick).collect()
    }
}
