//! Rows that belong to no task: signals, limits, idempotency keys, pauses, notifications, workers.

use super::auditor::AuditStep;
use super::repair::{Stray, has_run};
use super::tasks::ORPHANS_MAX;
use super::{First, Repair, Watched, limit};
use crate::Timestamp;
use crate::lifecycle::WorkerId;
use crate::limit::{LimitKey, RateWindow};
use crate::rows::Row;
use crate::store::{Finding, RunKey, TaskKey};
use crate::wait::WaitKind;
use crate::want::{FiledKey, Loader, LookUps, SideTable, StoredLimit, StoredSignal, StoredTask};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows that are looked at in one step.
const ROWS: u32 = 1_000;

/// Keys of limits that are looked at in one step: each may take several look-ups.
const LIMITS: u32 = 100;

/// Tasks of a group that are looked at for one that was let through a limit. If there are more, the
/// limit is not compared with the group.
const LET_THROUGH_MAX: u32 = 100;

/// The first task of a group that is blocked on a limit, the units that it wants, and the units that
/// others of the group want which can be claimed.
type Blocked = (Row, u32, u32);

impl<L: Loader> AuditStep<'_, L> {
    pub(super) fn check_signals(&mut self, from: u64) -> Result<Option<u64>, L::Stop> {
        let signals = self.loader.load_stored_signals(from, ROWS)?;
        let mut awaited: BTreeMap<(RunKey, Arc<str>), bool> = BTreeMap::new();
        // A task may have received very many.
        let mut heard: BTreeMap<TaskKey, BTreeSet<(u64, Arc<str>)>> = BTreeMap::new();
        for StoredSignal { number, run, name, taken_by } in &signals {
            if let Some(task) = *taken_by {
                let heard = match heard.entry(task) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(vacant) => vacant.insert(self.find_heard_signals(task)?),
                };
                if !heard.contains(&(*number, name.clone())) && self.is_open_task(task)? {
                    let what = "was taken by a task that has no wait which it ended";
                    self.complain("signal", format!("signal {number} {what}"));
                }
                continue;
            }
            let address = (*run, name.clone());
            let is_awaited = match awaited.get(&address) {
                Some(is_awaited) => *is_awaited,
                None => !self.loader.load_signal_waits(*run, name, 1)?.is_empty(),
            };
            awaited.insert(address, is_awaited);
            if is_awaited {
                let what = format!("signal {number} lies about while a task waits for it");
                let repair = Repair::Signal(*run, name.clone());
                self.findings.push(Finding::new("signal", what).repaired_by(repair));
            }
        }
        let last = signals.last().filter(|_| signals.len() >= ROWS as usize);
        Ok(last.map(|last| last.number + 1))
    }

    /// Numbers and names of the signals that have ended waits of a task.
    fn find_heard_signals(&mut self, task: TaskKey) -> Result<BTreeSet<(u64, Arc<str>)>, L::Stop> {
        let waits = self.loader.load_stored_waits(task..TaskKey(task.0.saturating_add(1)))?;
        let waits = waits.into_iter().filter_map(|(_, wait)| wait);
        let waits = waits.filter(|wait| wait.id.kind == WaitKind::Signal);
        Ok(waits.filter_map(|wait| Some((wait.signal?, wait.id.name))).collect())
    }

    /// Whether a task exists, is not damaged and has not ended.
    fn is_open_task(&mut self, task: TaskKey) -> Result<bool, L::Stop> {
        let task = self.loader.find_stored_task(task)?;
        Ok(task.as_ref().and_then(StoredTask::as_row).is_some_and(|row| row.ended_at.is_none()))
    }

    pub(super) fn check_limits(&mut self, from: i64) -> Result<Option<i64>, L::Stop> {
        let limits = self.loader.load_stored_limits(from, LIMITS)?;
        let last = limits.last().filter(|_| limits.len() >= LIMITS as usize);
        let next = last.map(|last| last.number.saturating_add(1));
        let existing: BTreeSet<i64> = limits.iter().map(|limit| limit.number).collect();
        for table in [SideTable::LimitHolds, SideTable::RateEvents] {
            let (owners, max) = (from..next.unwrap_or(i64::MAX), ORPHANS_MAX + LIMITS);
            let owners = self.loader.load_row_owners(table, owners, max)?;
            for owner in owners.into_iter().filter(|owner| !existing.contains(owner)) {
                let what = format!("a {} of limit {owner}, which does not exist", table.row_name());
                self.complain_of_orphan("stray", what, Stray::Limit(owner));
            }
        }
        for limit in &limits {
            self.check_limit(limit)?;
        }
        Ok(next)
    }

    fn check_limit(&mut self, stored: &StoredLimit) -> Result<(), L::Stop> {
        let StoredLimit { key, row, held, holders, begun, most, .. } = stored;
        for (noted, right, what) in [
            (row.in_use, *held, "as in use, and tasks hold"),
            (row.window_sum, *begun, "as begun, and there are"),
        ] {
            if noted != right {
                let what = format!("{noted} units of {key} are noted {what} {right}");
                let repair = Repair::Limit(key.clone());
                self.findings.push(Finding::new("count", what).repaired_by(repair));
            }
        }
        // A limit that was not declared lets no task through, and bounds none.
        let Some(declared) = self.loader.load_limit(&key.name)? else { return Ok(()) };
        if *holders > 1 && most.is_some_and(|most| *held > most.into()) {
            let what = format!("{holders} tasks together hold {held} of {key}, {declared}");
            self.complain("most", what);
        }
        // A rate that is used up has an alarm. Whether that is the right one, only time tells.
        let (window, now) = match self.now {
            Some(now) => {
                let usage = self.loader.load_limit_usage(key)?;
                let per = declared.most_in_time().map(|rate| rate.per);
                (RateWindow::load_counting(self.loader, key, usage, per, now)?.0, now)
            }
            None if row.alarm.is_some() => return Ok(()),
            None => (RateWindow::default(), Timestamp::from_micros(0)),
        };
        let blocked = self.find_blocked(key)?;
        let first = blocked.iter().map(|(row, units, before)| First {
            row,
            units: *units,
            before: *before,
        });
        let watched = Watched {
            key,
            limit: Some(&declared),
            in_use: *held,
            window: &window,
            alarm: row.alarm,
            first: &first.collect::<Vec<_>>(),
        };
        self.findings.extend(limit(&watched, now));
        Ok(())
    }

    /// The first task of each group that is blocked on a limit; groups with very many tasks that can be
    /// claimed are left out.
    fn find_blocked(&mut self, limit: &LimitKey) -> Result<Vec<Blocked>, L::Stop> {
        let mut blocked = Vec::new();
        for (_, task) in self.loader.load_blocked_tasks(limit, 1)? {
            let Some((row, units)) = self.find_wanted_units(task, limit)? else { continue };
            let alike = self.loader.load_ready_alike(task, LET_THROUGH_MAX)?;
            if units == 0 || alike.len() >= LET_THROUGH_MAX as usize {
                continue;
            }
            let mut before: u32 = 0;
            for task in alike {
                let wanted = self.find_wanted_units(task, limit)?;
                before = before.saturating_add(wanted.map_or(0, |(_, units)| units));
            }
            blocked.push((row, units, before));
        }
        Ok(blocked)
    }

    /// A task, unless it is damaged, and the units that it wants of a limit.
    fn find_wanted_units(
        &mut self,
        task: TaskKey,
        limit: &LimitKey,
    ) -> Result<Option<(Row, u32)>, L::Stop> {
        let stored = self.loader.find_stored_task(task)?;
        let Some(filed) = stored.and_then(|stored| stored.content.ok()) else { return Ok(None) };
        let uses = self.find_uses(&filed.row)?;
        let units = uses.iter().find(|(used, _)| used == limit).map_or(0, |(_, units)| *units);
        Ok(Some((filed.row, units)))
    }

    /// Whether the runs that are found under keys have these keys.
    pub(super) fn check_keys(&mut self, from: &FiledKey) -> Result<Option<FiledKey>, L::Stop> {
        let keys = self.loader.load_stored_keys(from.clone(), None, ROWS)?;
        for (filed, run) in &keys {
            let first = self.loader.find_stored_task(TaskKey(run.0))?;
            let (what, repair) = match first.as_ref().map(StoredTask::as_row) {
                // That a row is damaged is a finding of its own.
                Some(None) => continue,
                Some(Some(first)) if FiledKey::new(first).as_ref() == Some(filed) => continue,
                Some(Some(first)) if first.head.is_some() => {
                    ("which has another", Repair::Run(*run))
                }
                _ => ("which does not exist", Repair::Stray(Stray::Run(*run))),
            };
            let what = format!("the key \"{}\" is that of run {}, {what}", filed.key, run.0);
            self.findings.push(Finding::new("key", what).repaired_by(repair));
        }
        let is_full = keys.len() >= ROWS as usize;
        Ok(keys.into_iter().next_back().filter(|_| is_full).map(|(last, _)| last.next()))
    }

    pub(super) fn check_pauses(&mut self, from: &str) -> Result<Option<String>, L::Stop> {
        let names = self.loader.load_paused_runs(from, ROWS)?;
        for name in &names {
            if !has_run(self.loader, name)? {
                let what = format!("a pause of run {name}, which does not exist");
                self.complain_of_orphan("stray", what, Stray::Pause(name.clone()));
            }
        }
        let is_full = names.len() >= ROWS as usize;
        Ok(names.into_iter().next_back().filter(|_| is_full).map(|last| last + "\0"))
    }

    pub(super) fn check_notifications(
        &mut self,
        from: (WorkerId, TaskKey),
    ) -> Result<Option<(WorkerId, TaskKey)>, L::Stop> {
        let notifications = self.loader.load_stored_notifications(from, ROWS)?;
        let known: BTreeSet<_> = self.loader.load_known_workers()?.into_iter().collect();
        for &(worker, task) in &notifications {
            if !known.contains(&worker) && self.loader.load_owned(worker, 1)?.is_empty() {
                let what = format!("a word about task {} for worker {}, unknown", task.0, worker.0);
                self.complain_of_orphan("word", what, Stray::Worker(worker));
            }
            if self.loader.find_stored_task(task)?.is_none() {
                let what = format!("a word of task {}, which does not exist", task.0);
                self.complain_of_orphan("stray", what, Stray::Task(task));
            }
        }
        let last = notifications.last().filter(|_| notifications.len() >= ROWS as usize);
        Ok(last.map(|(worker, task)| (*worker, TaskKey(task.0.saturating_add(1)))))
    }

    /// Whether queues and tasks are listed for known workers only.
    pub(super) fn check_workers(&mut self) -> Result<(), L::Stop> {
        let known: BTreeSet<_> = self.loader.load_known_workers()?.into_iter().collect();
        let max = ORPHANS_MAX.saturating_add(u32::try_from(known.len()).unwrap_or(u32::MAX));
        let mut listed = BTreeSet::new();
        for table in [SideTable::WorkerQueues, SideTable::WorkerTasks] {
            let owners = self.loader.load_row_owners(table, i64::MIN..i64::MAX, max)?;
            listed.extend(owners.into_iter().map(|worker| WorkerId(worker as u64)));
        }
        for worker in listed.difference(&known) {
            let what = format!("queues or tasks are listed for worker {}, unknown", worker.0);
            self.complain_of_orphan("worker", what, Stray::Worker(*worker));
        }
        Ok(())
    }
}
