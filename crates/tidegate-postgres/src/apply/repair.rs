//! How a repair files rows anew, removes those that belong to nothing, and lets a run go on that had
//! ended. It is seldom needed.

use super::{DeltaQueue, replace_nul};
use crate::batch::Parameter;
use crate::error::Error;
use crate::stored::side_table;
use deadpool_postgres::Object;
use tidegate_core::audit::Stray;
use tidegate_core::delta::{Delta, TaskWrite};
use tidegate_core::packed::{Ending, unpack_ending};
use tidegate_core::rows::{Head, Row};

const REFILE_TASK: &str = "UPDATE task SET task_group = $2, queue = $3, weight = $4 \
     WHERE number = $1 AND (task_group, queue, weight) IS DISTINCT FROM ($2, $3, $4)";
const REFILE_ENDED: &str =
    "UPDATE ended_task SET task_group = $2 WHERE number = $1 AND task_group <> $2";

const FORGET_KEYS: &str = "DELETE FROM run_key WHERE run = $1 \
     AND (queue, workflow, key) IS DISTINCT FROM ($2::text, $3::text, $4::text)";
const ADD_KEY: &str = "INSERT INTO run_key (queue, workflow, key, run) VALUES ($1, $2, $3, $4) \
     ON CONFLICT DO NOTHING";

/// First rows that stand among the ended ones: number, and the record of the end, if the row has it.
const FIND_ENDED: &str = "SELECT number, record, record_kind, ended_at, ending FROM ended_task \
     WHERE number = ANY($1::int8[]) ORDER BY number";
const REOPEN_TASK: &str = "WITH gone AS (DELETE FROM ended_task WHERE number = $1 \
     RETURNING number, request, fence, plan, task_group, idx, state, lifecycle, run_id, run_number, \
     run, input, output), \
     kept AS (INSERT INTO payload (task, kind, body) SELECT number, $2::int2, output FROM gone \
     WHERE output IS NOT NULL ON CONFLICT DO NOTHING) \
     INSERT INTO task (number, request, fence, plan, task_group, idx, state, is_plain, lifecycle, \
     run_id, run_number, run, input) SELECT number, request, fence, plan, task_group, idx, state, \
     false, lifecycle, run_id, run_number, run, input FROM gone";
const KEEP_RECORD: &str = "INSERT INTO record (number, at, run, idx, kind, reason, attempt, entry, \
     worker, begun_at, active, error) VALUES ($1, $2, $3, 0, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Moves the first rows of runs that a repair lets go on back among those that can change. A part of
/// applying a delta with repairs, before its statements are queued.
///
/// # Errors
/// The transaction must not be committed.
pub(crate) async fn reopen_runs(client: &Object, delta: &Delta) -> Result<(), Error> {
    let is_open =
        |write: &&TaskWrite| write.row.head.is_some() && !write.is_run_ended && !write.is_new;
    let open = delta.tasks.iter().filter(is_open);
    let open: Vec<i64> = open.map(|write| write.row.key.0).collect();
    if open.is_empty() {
        return Ok(());
    }
    let output = i16::from(tidegate_core::rows::Payload::Output.code());
    for row in client.query(FIND_ENDED, &[&open]).await? {
        let number: i64 = row.try_get(0)?;
        let record: Option<i64> = row.try_get(1)?;
        let kind: Option<i16> = row.try_get(2)?;
        let ended_at: i64 = row.try_get(3)?;
        if let (Some(record), Some(kind)) = (record, kind) {
            let ending = unpack_ending(row.try_get(4)?);
            let Ending { reason, attempt, entry, worker, begun_at, active, error, .. } =
                ending.map_err(|source| Error::Task { key: number, source })?;
            let reason = reason.map(|reason| i16::from(reason.code()));
            let (attempt, entry) = (i64::from(attempt), i64::from(entry));
            let worker = worker.map(|worker| worker.0 as i64);
            let begun_at = begun_at.map(|at| at.as_micros());
            let active = i64::try_from(active.as_micros()).unwrap_or(i64::MAX);
            let error = error.as_deref().map(replace_nul);
            client
                .execute(
                    KEEP_RECORD,
                    &[
                        &record, &ended_at, &number, &kind, &reason, &attempt, &entry, &worker,
                        &begun_at, &active, &error,
                    ],
                )
                .await?;
        }
        client.execute(REOPEN_TASK, &[&number, &output]).await?;
    }
    Ok(())
}

impl DeltaQueue<'_> {
    /// Puts tasks into their task groups, and runs under their keys.
    pub(super) async fn refile_tasks(&mut self, refiled: &[(Row, Box<Head>)]) -> Result<(), Error> {
        for (row, head) in refiled {
            let filed = self.state.catalog.file_plan(&head.queue, &row.plan).await?;
            let group = filed.group_of(row.index);
            let refile: Vec<Parameter> = vec![
                Box::new(row.key.0),
                Box::new(group),
                Box::new(filed.queue),
                Box::new(i64::from(row.planned().weight)),
            ];
            self.add_statement(REFILE_TASK, refile).await?;
            let refile: Vec<Parameter> = vec![Box::new(row.key.0), Box::new(group)];
            self.add_statement(REFILE_ENDED, refile).await?;
            if row.head.is_some() {
                self.refile_key(row, head).await?;
            }
        }
        Ok(())
    }

    async fn refile_key(&mut self, row: &Row, head: &Head) -> Result<(), Error> {
        let queue = head.queue.to_string();
        let workflow = row.plan.workflow().to_owned();
        let forget: Vec<Parameter> = vec![
            Box::new(row.key.0),
            Box::new(queue.clone()),
            Box::new(workflow.clone()),
            Box::new(head.key.clone()),
        ];
        self.add_statement(FORGET_KEYS, forget).await?;
        if let Some(key) = head.key.clone() {
            let add: Vec<Parameter> =
                vec![Box::new(queue), Box::new(workflow), Box::new(key), Box::new(row.key.0)];
            self.add_statement(ADD_KEY, add).await?;
        }
        Ok(())
    }

    /// Removes rows that belong to something that does not exist.
    pub(super) async fn remove_orphans(&mut self, orphans: &[Stray]) -> Result<(), Error> {
        for orphan in orphans {
            if let Stray::Pause(run) = orphan {
                let sql = "DELETE FROM pause WHERE scope = 0 AND name = $1";
                self.add_statement(sql, vec![Box::new(run.clone())]).await?;
            }
            let Some(number) = orphan.owner_number() else { continue };
            for &table in orphan.side_tables() {
                let Some((table, owner)) = side_table(table) else { continue };
                let sql = format!("DELETE FROM {table} WHERE {owner} = $1");
                self.add_statement(&sql, vec![Box::new(number)]).await?;
            }
        }
        Ok(())
    }
}

/// All statements, by name.
#[cfg(test)]
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("REFILE_TASK", REFILE_TASK),
    ("REFILE_ENDED", REFILE_ENDED),
    ("FORGET_KEYS", FORGET_KEYS),
    ("ADD_KEY", ADD_KEY),
    ("FIND_ENDED", FIND_ENDED),
    ("REOPEN_TASK", REOPEN_TASK),
    ("KEEP_RECORD", KEEP_RECORD),
];
