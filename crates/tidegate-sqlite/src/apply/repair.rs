//! How a repair files rows anew, removes those that belong to nothing, and lets a run go on that had
//! ended. It is seldom needed.

use crate::error::Error;
use crate::fetch::{read_at, read_bytes};
use crate::ledger::Ledger;
use crate::records::bind_record;
use crate::sql::queries;
use crate::stored::side_table;
use rusqlite::OptionalExtension;
use tidegate_core::audit::Stray;
use tidegate_core::delta::TaskWrite;
use tidegate_core::packed::{Ending, unpack_ending};
use tidegate_core::rows::{Corrupt, Head, Payload, Row};
use tidegate_core::store::{Happened, Record};

queries! {
    REFILE_TASK = "UPDATE task SET task_group = ?2, queue = ?3, weight = ?4 \
         WHERE number = ?1 AND (task_group, queue, weight) IS NOT (?2, ?3, ?4)";
    REFILE_ENDED = "UPDATE ended_task SET task_group = ?2 WHERE number = ?1 AND task_group != ?2";

    FORGET_KEYS = "DELETE FROM run_key WHERE run = ?1 AND (queue, workflow, key) IS NOT (?2, ?3, ?4)";
    ADD_KEY = "INSERT INTO run_key (queue, workflow, key, run) SELECT ?2, ?3, ?4, ?1 \
         WHERE ?4 IS NOT NULL ON CONFLICT DO NOTHING";

    /// The record of the end of a task, if its row has it, and its output.
    FIND_ENDED = "SELECT record, record_kind, ended_at, ending FROM ended_task WHERE number = ?1";
    KEEP_OUTPUT = "INSERT OR IGNORE INTO payload (task, kind, body) SELECT number, ?2, output \
         FROM ended_task WHERE number = ?1 AND output IS NOT NULL";
    REOPEN_TASK = "INSERT INTO task (number, request, fence, plan, task_group, queue, weight, idx, \
         state, is_plain, lifecycle, run_id, run_number, run, input) SELECT number, request, fence, \
         plan, task_group, ?2, ?3, idx, state, 0, lifecycle, run_id, run_number, run, input \
         FROM ended_task WHERE number = ?1";
    DELETE_ENDED = "DELETE FROM ended_task WHERE number = ?1";
}

impl Ledger<'_> {
    /// Moves the first row of a run that a repair lets go on back among those that can change.
    pub(super) fn reopen_task(&mut self, write: &TaskWrite) -> Result<(), Error> {
        let TaskWrite { row, queue, .. } = write;
        let number = row.key.0;
        if let Some(record) = self.find_end_in_row(row)? {
            bind_record(&mut self.sql.insert_record, &record)?;
            self.sql.insert_record.raw_execute()?;
        }
        let queue = self.file_task(queue, &row.plan, row.index)?.queue;
        self.loader.execute_rare(KEEP_OUTPUT, (number, Payload::Output.code()))?;
        self.loader.execute_rare(REOPEN_TASK, (number, queue, row.planned().weight))?;
        self.loader.execute_rare(DELETE_ENDED, [number])?;
        Ok(())
    }

    fn find_end_in_row(&mut self, row: &Row) -> Result<Option<Record>, Error> {
        let damaged = |source| Error::Task { key: row.key.0, source };
        let find = self.loader.prepare_rare(FIND_ENDED)?;
        let found = find.query_row([row.key.0], |found| {
            let Some(number) = read_at::<Option<u64>>(found, 0)? else { return Ok(None) };
            let (kind, at) = (read_at::<u8>(found, 1)?, read_at(found, 2)?);
            Ok(Some((number, kind, at, unpack_ending(read_bytes(found, 3)?))))
        });
        let Some((number, kind, at, ending)) = found.optional()?.flatten() else { return Ok(None) };
        let ending = ending.map_err(damaged)?;
        let Ending { reason, attempt, entry, worker, begun_at, active, error, .. } = ending;
        let what = Happened::from_code(kind).ok_or(Corrupt).map_err(damaged)?;
        let (run, run_id) = (row.run(), row.head.as_ref().ok_or(Corrupt).map_err(damaged)?.id);
        let (seq, task) = (number, row.index);
        let record = Record {
            seq,
            at,
            run,
            run_id,
            task,
            what,
            reason,
            attempt,
            entry,
            worker,
            begun_at,
            active,
            error,
        };
        Ok(Some(record))
    }

    /// Puts a task into its task group, and its run, if it is the first, under its key.
    pub(super) fn refile_task(&mut self, row: &Row, head: &Head) -> Result<(), Error> {
        let filed = self.file_task(&head.queue, &row.plan, row.index)?;
        let weight = row.planned().weight;
        let place = (row.key.0, filed.task_group, filed.queue, weight);
        self.loader.execute_rare(REFILE_TASK, place)?;
        self.loader.execute_rare(REFILE_ENDED, (row.key.0, filed.task_group))?;
        if row.head.is_some() {
            let key = (row.key.0, &*head.queue, row.plan.workflow(), head.key.as_deref());
            self.loader.execute_rare(FORGET_KEYS, key)?;
            self.loader.execute_rare(ADD_KEY, key)?;
        }
        // A group that was empty may not be any more.
        self.loader.cache.empty.clear();
        Ok(())
    }

    /// Removes rows that belong to something that does not exist.
    pub(super) fn remove_orphans(&mut self, orphan: &Stray) -> Result<(), Error> {
        if let Stray::Pause(run) = orphan {
            let delete = "DELETE FROM pause WHERE scope = 0 AND name = ?1";
            self.loader.execute_rare(delete, [run])?;
        }
        for &table in orphan.side_tables() {
            let (table, owner) = side_table(table);
            let delete = format!("DELETE FROM {table} WHERE {owner} = ?1");
            self.loader.execute_rare(&delete, [orphan.owner_number()])?;
        }
        Ok(())
    }
}
