//! Removing rows that nothing refers to, in the steps of [`tidegate_core::sweep`].
//!
//! Runs are walked on a connection that reads; rows are removed by the writer, in the transaction in
//! which it looks at them.

use crate::error::Error;
use crate::fetch::Fetch;
use crate::ledger::Ledger;
use crate::loader::RowLoader;
use crate::sql::queries;
use tidegate_core::Timestamp;
use tidegate_core::packed::unpack_run;
use tidegate_core::store::Bytes;
use tidegate_core::sweep::{Sweep, SweepStage, Swept, UsedRow, WalkedRun};
use tidegate_core::want::TaskGroup;

queries! {
    BEGIN = "UPDATE store SET swept_at = ?1 WHERE ?2 IS NULL OR swept_at <= ?2";

    /// The first task from ?1 on: number, index, plan, number of tasks in it, group, whether the task is
    /// live, and the run.
    TASK_FROM = "SELECT number, idx, plan, (SELECT tasks FROM plan WHERE plan.number = task.plan), \
         task_group, 1, run FROM task WHERE number >= ?1 UNION ALL \
         SELECT number, idx, plan, (SELECT tasks FROM plan WHERE plan.number = ended_task.plan), \
         task_group, 0, NULL FROM ended_task WHERE number >= ?1 ORDER BY 1 LIMIT 1";

    PLANS = "SELECT number, used_at FROM plan WHERE number >= ?1 ORDER BY number LIMIT ?2";
    DELETE_PLAN = "DELETE FROM plan WHERE number = ?1";

    GROUPS = "SELECT queue, workflow, task, weight, number, used_at FROM task_group \
         WHERE number >= ?1 ORDER BY number LIMIT ?2";
    DELETE_GROUP = "DELETE FROM task_group WHERE number = ?1";

    /// Queues from ?1 on, at most ?2: number, time of use, name, whether a worker serves it or a pause
    /// keeps it.
    QUEUES = "SELECT number, used_at, name, \
         EXISTS (SELECT 1 FROM worker CROSS JOIN worker_queue \
         WHERE worker_queue.worker = worker.number AND worker_queue.queue = queue.name) \
         OR EXISTS (SELECT 1 FROM pause \
         WHERE scope = 1 AND pause.name = queue.name AND unpaused_at IS NULL) \
         FROM queue WHERE number >= ?1 ORDER BY number LIMIT ?2";
    DELETE_QUEUE = "DELETE FROM queue WHERE number = ?1";

    /// Limit keys from ?1 on, at most ?2, and whether nothing refers to them at the time ?3: no units are
    /// in use, no task is blocked, no alarm is set, and no begin counts for the rate.
    LIMIT_KEYS = "SELECT k.number, k.in_use = 0 AND k.alarm IS NULL \
         AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.limit_key = k.number) \
         AND NOT EXISTS (SELECT 1 FROM task WHERE eligibility = 4 AND blocked_on = k.number \
         AND claim_order IS NOT NULL) \
         AND NOT EXISTS (SELECT 1 FROM task WHERE eligibility IS NULL AND blocked_on = k.number \
         AND claim_order IS NOT NULL) \
         AND NOT EXISTS (SELECT 1 FROM rate_event AS e CROSS JOIN task_limit AS l \
         WHERE e.limit_key = k.number AND l.name = k.name AND e.at >= ?3 - l.rate_per / 1000) \
         FROM limit_key AS k WHERE k.number >= ?1 ORDER BY k.number LIMIT ?2";
    DELETE_EVENTS = "DELETE FROM rate_event WHERE limit_key = ?1 AND at IN \
         (SELECT at FROM rate_event WHERE limit_key = ?1 LIMIT ?2)";
    DELETE_LIMIT_KEY = "DELETE FROM limit_key WHERE number = ?1";

    DELETE_OLD_PAUSES = "DELETE FROM pause WHERE rowid IN (SELECT rowid FROM pause \
         WHERE scope IN (1, 2) AND unpaused_at < ?1 LIMIT ?2)";
}

/// Number, index, plan, tasks of the plan, group, whether the task is live, and the run.
type WalkedTask = (i64, i64, i64, Option<i64>, i64, bool, Option<Bytes>);

fn read_walked(task: WalkedTask) -> WalkedRun {
    let (number, index, plan, tasks, task_group, is_live, run) = task;
    // A run that cannot be read may need every pause.
    let beginning = Timestamp::from_micros(i64::MIN);
    let submitted_at = run.and_then(|run| unpack_run(&run).ok()).map(|run| run.submitted_at);
    let end = number.saturating_sub(index).saturating_add(tasks.unwrap_or(1));
    WalkedRun {
        plan,
        task_group,
        open_since: is_live.then(|| submitted_at.unwrap_or(beginning)),
        next: end.max(number.saturating_add(1)),
    }
}

/// Leaves out a row that is damaged.
fn skip_damaged<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

impl RowLoader<'_> {
    /// Walks runs, and marks what they use.
    pub(crate) fn walk_runs(&mut self, mut step: Sweep) -> Result<Swept, Error> {
        for _ in 0..step.max.max(1) {
            let Some(task) = self.prepare_rare(TASK_FROM)?.fetch_first([step.from])? else {
                return Ok(step.next_step(0, None));
            };
            let run = read_walked(task);
            if step.marks_mut().mark_run(&run)
                && let Some(group) = skip_damaged(self.catalog.find_group(run.task_group))?
            {
                let plan = skip_damaged(self.catalog.find_plan(run.plan))?;
                step.marks_mut().mark_groups(&group.queue, plan.as_deref());
            }
            step.from = run.next;
        }
        let from = step.from;
        Ok(step.next_step(0, Some(from)))
    }
}

impl Ledger<'_> {
    /// Takes a step that changes rows.
    pub(crate) fn sweep_rows(&mut self, step: Sweep) -> Result<Swept, Error> {
        match step.stage {
            SweepStage::Begin => self.begin_sweep(step),
            SweepStage::Runs => self.loader.walk_runs(step),
            SweepStage::Plans => self.sweep_plans(step),
            SweepStage::TaskGroups => self.sweep_groups(step),
            SweepStage::Queues => self.sweep_queues(step),
            SweepStage::LimitKeys => self.sweep_limit_keys(step),
            SweepStage::Pauses => self.sweep_pauses(step),
        }
    }

    fn begin_sweep(&mut self, step: Sweep) -> Result<Swept, Error> {
        let since = step.unless_since.map(Timestamp::as_micros);
        let begun = self.loader.execute_rare(BEGIN, (step.began.as_micros(), since))?;
        Ok(if begun == 0 { Swept::default() } else { step.next_step(0, None) })
    }

    fn sweep_plans(&mut self, step: Sweep) -> Result<Swept, Error> {
        let rows = self.loader.fetch_rare(PLANS, (step.from, step.max))?;
        let read = |(number, used_at)| UsedRow { number, used_at, name: () };
        let rows: Vec<UsedRow<()>> = rows.into_iter().map(read).collect();
        let unused = step.pick_unused(&rows, |marks, row| marks.has_plan(row.number));
        self.delete_rows(DELETE_PLAN, &unused)?;
        Ok(step.after_rows(&rows, unused.len() as u64))
    }

    fn sweep_groups(&mut self, step: Sweep) -> Result<Swept, Error> {
        let rows = self.loader.fetch_rare(GROUPS, (step.from, step.max))?;
        let read = |(queue, workflow, task, weight, number, used_at)| {
            let name = TaskGroup { queue, workflow, task, weight };
            UsedRow { number, used_at, name }
        };
        let rows: Vec<UsedRow<TaskGroup>> = rows.into_iter().map(read).collect();
        let unused = step.pick_unused(&rows, |marks, row| marks.has_group(&row.name));
        self.delete_rows(DELETE_GROUP, &unused)?;
        if !unused.is_empty() {
            // The groups that each of them serves are found anew.
            self.loader.workers.clear();
        }
        Ok(step.after_rows(&rows, unused.len() as u64))
    }

    fn sweep_queues(&mut self, step: Sweep) -> Result<Swept, Error> {
        let rows = self.loader.fetch_rare(QUEUES, (step.from, step.max))?;
        let read = |(number, used_at, name, is_kept): (_, _, String, bool)| {
            let name = (name, is_kept);
            UsedRow { number, used_at, name }
        };
        let rows: Vec<UsedRow<(String, bool)>> = rows.into_iter().map(read).collect();
        let unused =
            step.pick_unused(&rows, |marks, row| row.name.1 || marks.has_queue(&row.name.0));
        self.delete_rows(DELETE_QUEUE, &unused)?;
        Ok(step.after_rows(&rows, unused.len() as u64))
    }

    fn sweep_limit_keys(&mut self, step: Sweep) -> Result<Swept, Error> {
        let given = (step.from, step.max, step.began.as_micros());
        let keys: Vec<(i64, bool)> = self.loader.fetch_rare(LIMIT_KEYS, given)?;
        let is_last = keys.len() < step.max as usize;
        if keys.iter().any(|(_, is_unused)| *is_unused) {
            self.loader.catalog.known.limit_ids = Default::default();
        }
        let mut removed = 0;
        let mut next = None;
        for (number, is_unused) in keys {
            next = Some(number + 1);
            if !is_unused {
                continue;
            }
            // A rate may have many events, which take more than one step.
            let left = u64::from(step.max.max(1)).saturating_sub(removed).max(1);
            let events = self.loader.execute_rare(DELETE_EVENTS, (number, left as i64))? as u64;
            removed += events;
            if events == left {
                return Ok(step.next_step(removed, Some(number)));
            }
            removed += self.delete_rows(DELETE_LIMIT_KEY, &[number])?;
        }
        Ok(step.next_step(removed, next.filter(|_| !is_last)))
    }

    fn sweep_pauses(&mut self, step: Sweep) -> Result<Swept, Error> {
        let Some(end) = step.pauses_end() else { return Ok(step.next_step(0, None)) };
        let given = (end.as_micros(), step.max.max(1));
        let removed = self.loader.execute_rare(DELETE_OLD_PAUSES, given)? as u64;
        let is_last = removed < u64::from(step.max.max(1));
        Ok(step.next_step(removed, (!is_last).then_some(0)))
    }

    fn delete_rows(&mut self, sql: &str, numbers: &[i64]) -> Result<u64, Error> {
        let mut removed = 0;
        for number in numbers {
            removed += self.loader.execute_rare(sql, [number])? as u64;
        }
        Ok(removed)
    }
}
