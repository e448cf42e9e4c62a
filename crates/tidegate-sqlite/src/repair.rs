//! What a repair needs of the database, in a transaction of the writer.
//!
//! It is asked for seldom, so its statements are prepared when they are needed.

use crate::columns;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::sql::SELECT_TASK_AND_PLACE;
use rusqlite::{Connection, OptionalExtension, ToSql};
use tidegate_core::RunId;
use tidegate_core::audit::Stray;
use tidegate_core::rows::{Head, Place, Row};
use tidegate_core::store::TaskKey;

/// Where something may be kept that belongs to a task.
const OF_TASK: [&str; 4] = [
    "DELETE FROM payload WHERE task = ?1",
    "DELETE FROM wait WHERE task = ?1",
    "DELETE FROM hold WHERE task = ?1",
    "DELETE FROM word WHERE task = ?1",
];

/// The same of a run; its first task is its number.
const OF_RUN: [&str; 3] = [
    "DELETE FROM record WHERE run = ?1",
    "DELETE FROM signal WHERE run = ?1",
    "DELETE FROM run_key WHERE run = ?1",
];

/// The same of a limit.
const OF_LIMIT: [&str; 2] =
    ["DELETE FROM hold WHERE limit_key = ?1", "DELETE FROM begun WHERE limit_key = ?1"];

/// The same of a worker.
const OF_WORKER: [&str; 3] = [
    "DELETE FROM word WHERE worker = ?1",
    "DELETE FROM worker_queue WHERE worker = ?1",
    "DELETE FROM worker_knows WHERE worker = ?1",
];

impl Ledger<'_> {
    pub(crate) fn place_of(&mut self, task: TaskKey) -> Result<Option<Place>, Error> {
        let select = format!("{SELECT_TASK_AND_PLACE} WHERE key = ?1");
        let connection = &self.opened.connection;
        let found = connection.query_row(&select, [task.0], |row| {
            Ok((columns::read(row)?, columns::read_place(row)?))
        });
        let Some((stored, place)) = found.optional()? else { return Ok(None) };
        let behind = stored.behind.map(|id| self.limit_of(id)).transpose()?;
        let corrupt = |source| Error::Task { key: task.0, source };
        stored.place(place, behind).map(Some).map_err(corrupt)
    }

    /// Puts a task into its lane, and its run, if it is the first, under its key.
    pub(crate) fn file_again(&mut self, row: &Row, head: &Head) -> Result<bool, Error> {
        let belongs = self.belongs(&head.queue, &row.plan, row.index)?;
        let connection = &self.opened.connection;
        let lane = "UPDATE task SET lane = ?2 WHERE key = ?1 AND lane != ?2";
        let mut changed = connection.execute(lane, (row.key.0, belongs.lane))?;
        if row.head.is_some() {
            let key = head.key.as_deref();
            let forget = "DELETE FROM run_key WHERE run = ?1 AND (workflow, key) IS NOT (?2, ?3)";
            changed += connection.execute(forget, (row.key.0, belongs.workflow, key))?;
            let add = "INSERT INTO run_key (workflow, key, run) SELECT ?1, ?2, ?3 \
                       WHERE ?2 IS NOT NULL ON CONFLICT DO NOTHING";
            changed += connection.execute(add, (belongs.workflow, key, row.key.0))?;
        }
        // A lane that was empty may not be any more.
        self.seen.empty.clear();
        Ok(changed > 0)
    }

    pub(crate) fn sweep_out(&mut self, stray: &Stray) -> Result<bool, Error> {
        let connection = &self.opened.connection;
        let exists = |sql: &str, id: &dyn ToSql| connection.prepare(sql)?.exists([id]);
        Ok(match stray {
            Stray::Task(task) if !exists("SELECT 1 FROM task WHERE key = ?1", &task.0)? => {
                sweep(connection, &OF_TASK, &task.0)?
            }
            Stray::Run(run)
                if !exists("SELECT 1 FROM task WHERE key = ?1 AND run_id IS NOT NULL", &run.0)? =>
            {
                sweep(connection, &OF_RUN, &run.0)?
            }
            Stray::Pause(run) if !self.has_run(run)? => {
                sweep(connection, &["DELETE FROM pause WHERE scope = 0 AND name = ?1"], run)?
            }
            Stray::Limit(limit) if !exists("SELECT 1 FROM limit_key WHERE id = ?1", limit)? => {
                sweep(connection, &OF_LIMIT, limit)?
            }
            Stray::Worker(worker) => {
                let id = worker.0 as i64;
                let known = exists("SELECT 1 FROM worker WHERE id = ?1", &id)?;
                let owns = exists("SELECT 1 FROM task WHERE worker = ?1", &id)?;
                !known && !owns && sweep(connection, &OF_WORKER, &id)?
            }
            _ => false,
        })
    }

    /// Whether there is a run of this name.
    fn has_run(&self, name: &str) -> rusqlite::Result<bool> {
        let Ok(run) = name.parse::<RunId>() else { return Ok(false) };
        let select = "SELECT 1 FROM task WHERE run_id = ?1";
        self.opened.connection.prepare(select)?.exists([run.as_u128().to_be_bytes()])
    }
}

fn sweep(connection: &Connection, all: &[&str], id: &dyn ToSql) -> rusqlite::Result<bool> {
    let mut swept = 0;
    for delete in all {
        swept += connection.execute(delete, [id])?;
    }
    Ok(swept > 0)
}
