//! What a repair needs of the database.
//!
//! It is asked for seldom, so its statements are prepared when they are needed.

use crate::columns;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::loader::RowLoader;
use crate::sql::SELECT_TASK_AND_PLACE;
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, ToSql};
use tidegate_core::RunId;
use tidegate_core::audit::Stray;
use tidegate_core::graph::TaskIndex;
use tidegate_core::rows::{Head, Place, Row};
use tidegate_core::store::TaskKey;

const IS_IN_OTHER_LANE: &str = "SELECT 1 FROM task LEFT JOIN lane ON lane.id = task.lane \
     LEFT JOIN workflow ON workflow.id = lane.workflow WHERE task.key = ?1 \
     AND (workflow.queue, workflow.name, lane.task, lane.weight) IS NOT (?2, ?3, ?4, ?5)";
const HAS_OTHER_KEY: &str =
    "SELECT 1 FROM run_key WHERE run = ?1 AND (workflow, key) IS NOT (?2, ?3)";
const HAS_KEY: &str = "SELECT 1 FROM run_key WHERE workflow = ?1 AND key = ?2";

/// Where rows may be that belong to something; ?1 is its number or name.
fn places_of(owner: &Stray) -> &'static [&'static str] {
    match owner {
        Stray::Task(_) => &[
            "payload WHERE task = ?1",
            "wait WHERE task = ?1",
            "hold WHERE task = ?1",
            "word WHERE task = ?1",
        ],
        // Its first task is its number.
        Stray::Run(_) => {
            &["record WHERE run = ?1", "signal WHERE run = ?1", "run_key WHERE run = ?1"]
        }
        Stray::Pause(_) => &["pause WHERE scope = 0 AND name = ?1"],
        Stray::Limit(_) => &["hold WHERE limit_key = ?1", "begun WHERE limit_key = ?1"],
        Stray::Worker(_) => &[
            "word WHERE worker = ?1",
            "worker_queue WHERE worker = ?1",
            "worker_knows WHERE worker = ?1",
        ],
    }
}

impl RowLoader<'_> {
    pub(crate) fn place_of(&mut self, task: TaskKey) -> Result<Option<Place>, Error> {
        let select = format!("{SELECT_TASK_AND_PLACE} WHERE key = ?1");
        let connection = self.connection;
        let found = connection.query_row(&select, [task.0], |row| {
            Ok((columns::read(row)?, columns::read_place(row)?))
        });
        let Some((stored, place)) = found.optional()? else { return Ok(None) };
        let behind = stored.behind.map(|id| self.limit_of(id)).transpose()?;
        let corrupt = |source| Error::Task { key: task.0, source };
        stored.place(place, behind).map(Some).map_err(corrupt)
    }

    /// Whether a task is in another lane than its own, or its run under another key.
    pub(crate) fn is_filed_wrongly(&mut self, task: TaskKey) -> Result<bool, Error> {
        let Some(row) = self.find_task(task)? else { return Ok(false) };
        let first = row.run().task(TaskIndex::from_u32(0));
        let first = if row.head.is_some() { Some(row.clone()) } else { self.find_task(first)? };
        let Some(head) = first.and_then(|first| first.head) else { return Ok(false) };
        let (queue, workflow) = (&*head.queue, row.plan.workflow());
        let (name, weight) = (row.plan.known_as(row.index), row.planned().weight);
        let connection = self.connection;
        let exists = |sql: &str, ids: &[&dyn ToSql]| connection.prepare(sql)?.exists(ids);
        if exists(IS_IN_OTHER_LANE, &[&row.key.0, &queue, &workflow, &name, &weight])? {
            return Ok(true);
        }
        let Some(head) = &row.head else { return Ok(false) };
        let found = self.sql.find_workflow.query_row((queue, workflow), |row| row.get(0));
        let (workflow, key): (Option<i64>, _) = (found.optional()?, head.key.as_deref());
        Ok(exists(HAS_OTHER_KEY, &[&row.key.0, &workflow, &key])?
            || key.is_some() && !exists(HAS_KEY, &[&workflow, &key])?)
    }

    /// Whether there are rows that belong to something that does not exist.
    pub(crate) fn finds_orphans(&mut self, stray: &Stray) -> Result<bool, Error> {
        let connection = self.connection;
        let exists = |sql: &str, id: &dyn ToSql| connection.prepare(sql)?.exists([id]);
        let (is_gone, id) = match stray {
            Stray::Task(task) => {
                (!exists("SELECT 1 FROM task WHERE key = ?1", &task.0)?, Value::from(task.0))
            }
            Stray::Run(run) => {
                let first = "SELECT 1 FROM task WHERE key = ?1 AND run_id IS NOT NULL";
                (!exists(first, &run.0)?, Value::from(run.0))
            }
            Stray::Pause(run) => (!self.has_run(run)?, Value::from(run.clone())),
            Stray::Limit(limit) => {
                (!exists("SELECT 1 FROM limit_key WHERE id = ?1", limit)?, Value::from(*limit))
            }
            Stray::Worker(worker) => {
                let id = worker.0 as i64;
                let known = exists("SELECT 1 FROM worker WHERE id = ?1", &id)?;
                let owns = exists("SELECT 1 FROM task WHERE worker = ?1", &id)?;
                (!known && !owns, Value::from(id))
            }
        };
        for place in places_of(stray) {
            if is_gone && exists(&format!("SELECT 1 FROM {place}"), &id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether there is a run of this name.
    fn has_run(&self, name: &str) -> rusqlite::Result<bool> {
        let Ok(run) = name.parse::<RunId>() else { return Ok(false) };
        let select = "SELECT 1 FROM task WHERE run_id = ?1";
        self.connection.prepare(select)?.exists([run.as_u128().to_be_bytes()])
    }
}

impl Ledger<'_> {
    /// Puts a task into its lane, and its run, if it is the first, under its key.
    pub(crate) fn file_again(&mut self, row: &Row, head: &Head) -> Result<(), Error> {
        let belongs = self.belongs(&head.queue, &row.plan, row.index)?;
        let connection = &self.opened.connection;
        let lane = "UPDATE task SET lane = ?2 WHERE key = ?1 AND lane != ?2";
        connection.execute(lane, (row.key.0, belongs.lane))?;
        if row.head.is_some() {
            let key = head.key.as_deref();
            let forget = "DELETE FROM run_key WHERE run = ?1 AND (workflow, key) IS NOT (?2, ?3)";
            connection.execute(forget, (row.key.0, belongs.workflow, key))?;
            let add = "INSERT INTO run_key (workflow, key, run) SELECT ?1, ?2, ?3 \
                       WHERE ?2 IS NOT NULL ON CONFLICT DO NOTHING";
            connection.execute(add, (belongs.workflow, key, row.key.0))?;
        }
        // A lane that was empty may not be any more.
        self.loader.cache.empty.clear();
        Ok(())
    }

    /// Removes rows that belong to something that does not exist.
    pub(crate) fn remove_orphans(&mut self, stray: &Stray) -> Result<(), Error> {
        let id = match stray {
            Stray::Task(task) => Value::from(task.0),
            Stray::Run(run) => Value::from(run.0),
            Stray::Pause(run) => Value::from(run.clone()),
            Stray::Limit(limit) => Value::from(*limit),
            Stray::Worker(worker) => Value::from(worker.0 as i64),
        };
        for place in places_of(stray) {
            self.opened.connection.execute(&format!("DELETE FROM {place}"), [&id])?;
        }
        Ok(())
    }
}
