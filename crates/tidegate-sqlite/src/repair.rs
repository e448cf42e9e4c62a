//! How a repair files rows anew and removes those that belong to nothing, in a transaction of the
//! writer. Its statements are seldom needed, and prepared when they are.

use crate::error::Error;
use crate::ledger::Ledger;
use crate::stored::side_table;
use tidegate_core::audit::Stray;
use tidegate_core::rows::{Head, Row};

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
        let connection = &self.opened.connection;
        if let Stray::Pause(run) = stray {
            connection.execute("DELETE FROM pause WHERE scope = 0 AND name = ?1", [run])?;
        }
        for &table in stray.side_tables() {
            let (table, owner) = side_table(table);
            connection.execute(
                &format!("DELETE FROM {table} WHERE {owner} = ?1"),
                [stray.owner_number()],
            )?;
        }
        Ok(())
    }
}
