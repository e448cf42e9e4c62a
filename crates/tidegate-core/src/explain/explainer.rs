//! How the reasons follow from loaded rows.

use super::{COUNTED_MAX, Full, Looked, NAMED_MAX, RECENT_MAX, Why};
use crate::Timestamp;
use crate::graph::TaskIndex;
use crate::lifecycle::{Activity, Kind, Reason, State, WorkerId};
use crate::limit::{self, Holder, Limit, LimitKey, RateWindow};
use crate::rows::{Head, Payload, Row};
use crate::store::{Happened, Scope, TaskKey};
use crate::want::{LiveWorker, Loader, LookUps, TaskGroup};
use std::time::Duration;

/// Explains how a task stands at the instant of the loaded rows; `None` if there is no such task.
///
/// # Errors
/// Stops where the loader stops.
pub fn explain_task<L: Loader>(
    loader: &mut L,
    task: TaskKey,
    now: Timestamp,
) -> Result<Option<Looked>, L::Stop> {
    let Some(row) = loader.load_task(task)? else { return Ok(None) };
    let Some(head) = find_head(loader, &row)? else { return Ok(None) };
    let kind = row.life.state.kind();
    let (workers, durations) = match kind.is_terminal() {
        true => (Vec::new(), Vec::new()),
        false => (loader.load_live_workers()?, loader.load_recent_durations(task, RECENT_MAX)?),
    };
    let group = TaskGroup::new(&head.queue, &row.plan, row.index);
    let able = workers.iter().filter(|worker| worker.can_run(&group));
    let looked = Looked {
        run: head.id,
        task: row.plan.graph().name(row.index).to_owned(),
        kind,
        at: now,
        reasons: Vec::new(),
        weight: group.weight,
        awaited: head.awaited,
        owner: row.life.owner(),
        able: able.clone().map(|able| able.id).collect(),
        slots: able.fold(0, |sum, able| sum.saturating_add(able.slots)),
        usual: find_median(durations),
    };
    let mut explainer =
        Explainer { rows: loader, row, head, group, workers, now, reasons: Vec::new() };
    explainer.find_reasons()?;
    Ok(Some(Looked { reasons: explainer.reasons, ..looked }))
}

fn find_median(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied()
}

/// A count that a reason names, at most [`COUNTED_MAX`].
fn count_up(count: i64) -> u32 {
    u32::try_from(count).unwrap_or(COUNTED_MAX).min(COUNTED_MAX)
}

/// The row of the run that a task belongs to.
fn find_head<L: Loader>(rows: &mut L, row: &Row) -> Result<Option<Head>, L::Stop> {
    let first = match &row.head {
        Some(head) => return Ok(Some((**head).clone())),
        None => rows.load_task(row.run().task(TaskIndex::from_u32(0)))?,
    };
    Ok(first.and_then(|first| first.head).map(|head| *head))
}

/// A task, and the reasons found so far.
struct Explainer<'l, L> {
    rows: &'l mut L,
    row: Row,
    head: Head,
    group: TaskGroup,
    /// Those that are alive.
    workers: Vec<LiveWorker>,
    now: Timestamp,
    reasons: Vec<Why>,
}

impl<L: Loader> Explainer<'_, L> {
    fn find_reasons(&mut self) -> Result<(), L::Stop> {
        match self.row.life.state.clone() {
            State::Blocked => {
                self.add_blocked()?;
                if let Some(at) = self.head.not_before.filter(|at| *at > self.now) {
                    self.reasons.push(Why::NotBefore { at });
                }
                self.add_paused()?;
                self.add_unserved();
            }
            State::Ready { since, due } => {
                // As in `Row::place`: the clock may have been set back since.
                let due = if due <= since { due.min(self.now) } else { due };
                self.add_not_due(due)?;
                self.add_paused()?;
                self.add_unserved();
                self.add_quarantined();
                let place = self.row.order(&self.head, since.max(due));
                self.add_limits(place)?;
                self.add_place_in_queue(due, place)?;
            }
            State::Running { worker, ready_since, activity } => {
                self.add_running(worker, ready_since, activity)?;
            }
            State::Parked { since, wake, wait } => {
                self.reasons.push(Why::Parked { what: wait, since, until: wake });
                self.add_paused()?;
                self.add_unserved();
            }
            State::Failed(reason) | State::TimedOut(reason) | State::Cancelled(reason) => {
                self.add_ended(Some(reason))?;
            }
            State::Succeeded | State::Skipped => self.add_ended(None)?,
        }
        Ok(())
    }

    /// The tasks that it comes after and that are not over.
    fn add_blocked(&mut self) -> Result<(), L::Stop> {
        let (plan, run) = (self.row.plan.clone(), self.row.run());
        let graph = plan.graph();
        let (mut tasks, mut open) = (Vec::new(), 0);
        // The last of them are the likeliest to be open: of very many, only these are looked at.
        for (looked, &parent) in graph.parents(self.row.index).iter().rev().enumerate() {
            if open > 0 && looked >= COUNTED_MAX as usize {
                break;
            }
            let Some(above) = self.rows.load_task(run.task(parent))? else { continue };
            let kind = above.life.state.kind();
            if !kind.is_terminal() {
                open += 1;
                tasks.push((graph.name(parent).to_owned(), kind));
            }
        }
        tasks.reverse();
        tasks.truncate(NAMED_MAX);
        self.reasons.push(Why::BlockedBy { tasks, open, when: graph.when(self.row.index) });
        Ok(())
    }

    fn add_not_due(&mut self, due: Timestamp) -> Result<(), L::Stop> {
        if due <= self.now {
            return Ok(());
        }
        let (entries, attempt) = (self.row.life.entries, self.row.life.attempt);
        let last = match entries {
            0 => None,
            _ => self.rows.load_last_record(self.row.run(), self.row.index, COUNTED_MAX)?,
        };
        let why = match (entries, last) {
            (0, _) => Why::NotBefore { at: due },
            (_, Some(Happened::Snoozed)) => Why::Snoozed { until: due },
            (_, None) if attempt == 1 => Why::Snoozed { until: due },
            _ => Why::BackOff {
                until: due,
                attempt,
                attempts: self.row.planned().rules.retries.saturating_add(1),
                error: self.find_error()?,
            },
        };
        self.reasons.push(why);
        Ok(())
    }

    fn add_paused(&mut self) -> Result<(), L::Stop> {
        let (id, queue) = (self.head.id, self.head.queue.to_string());
        for scope in [Scope::Store, Scope::Queue(queue)] {
            if let Some(since) = self.rows.load_pause_start(&scope)? {
                self.reasons.push(Why::Paused { scope, since });
            }
        }
        if let Some(since) = self.head.paused_at {
            self.reasons.push(Why::Paused { scope: Scope::Run(id), since });
        }
        Ok(())
    }

    fn add_unserved(&mut self) {
        if let Some(why) = self.group.find_unserved_reason(&self.workers) {
            let TaskGroup { queue, workflow, task, weight } = self.group.clone();
            let queue = queue.to_string();
            self.reasons.push(Why::Unserved { queue, workflow, task, weight, why });
        }
    }

    fn add_quarantined(&mut self) {
        if self.row.life.is_suspect() {
            let (deaths, before) = (self.row.life.recoveries, Vec::new());
            self.reasons.push(Why::Quarantined { deaths, before });
        }
    }

    /// What of its limits it could not take, whether it has tried to or not.
    fn add_limits(&mut self, order: Timestamp) -> Result<(), L::Stop> {
        let behind = self.row.behind.clone();
        for (limit, wants) in self.find_uses()? {
            let stands_here = behind.as_ref().is_some_and(|(behind, _)| *behind == limit);
            let order = match &behind {
                Some((_, order)) if stands_here => *order,
                _ => order,
            };
            let Some(declared) = self.rows.load_limit(&limit.name)? else {
                self.reasons.push(Why::LimitMissing { limit });
                continue;
            };
            let full = self.find_full(&limit, &declared, wants, order)?;
            let lacks = full.lacks();
            let mut rate_reached = false;
            if let Some(rate) = declared.most_in_time() {
                // By itself, because a limit that is full names no time.
                let alone = Limit::new("").rate(rate.units, rate.per);
                let usage = self.rows.load_limit_usage(&limit)?;
                let (per, now) = (Some(rate.per), self.now);
                let (window, _) = RateWindow::load_counting(self.rows, &limit, usage, per, now)?;
                let room = alone.room(wants, 0, &window, now);
                if let Some(next) = room.next.filter(|_| room.units < wants) {
                    let (limit, before) = (limit.clone(), full.before);
                    self.reasons.push(Why::RateReached { limit, rate, wants, next, before });
                    rate_reached = true;
                }
            }
            // Who stands behind it although there is room stands behind others there.
            if lacks || stands_here && !rate_reached {
                self.reasons.push(Why::LimitFull(full));
            }
        }
        Ok(())
    }

    fn find_uses(&mut self) -> Result<Vec<(LimitKey, u32)>, L::Stop> {
        if self.row.planned().limits.is_empty() {
            return Ok(Vec::new());
        }
        let kept = self.rows.load_payload(self.row.key, Payload::Keys)?;
        Ok(limit::uses(self.row.planned(), kept.as_deref()))
    }

    /// How a limit stands, for a task that wants so much of it.
    fn find_full(
        &mut self,
        limit: &LimitKey,
        declared: &Limit,
        wants: u32,
        order: Timestamp,
    ) -> Result<Full, L::Stop> {
        let mut holders = Vec::new();
        for (task, units, since) in self.rows.load_holders(limit, NAMED_MAX as u32)? {
            let Some(row) = self.rows.load_task(task)? else { continue };
            let Some(head) = find_head(self.rows, &row)? else { continue };
            let name = row.plan.graph().name(row.index).to_owned();
            holders.push(Holder { task, run: head.id, name, units, since });
        }
        holders.sort_by_key(|holder| (holder.since, holder.task));
        Ok(Full {
            limit: limit.clone(),
            at_once: declared.most_at_once(),
            wants,
            in_use: self.rows.load_limit_usage(limit)?.row.in_use.try_into().unwrap_or(u32::MAX),
            holders,
            before: count_up(self.rows.load_blocked_before(
                limit,
                (order, self.row.key),
                COUNTED_MAX,
            )?),
        })
    }

    /// Its place among those that can be claimed, if it can.
    fn add_place_in_queue(&mut self, due: Timestamp, order: Timestamp) -> Result<(), L::Stop> {
        let is_open = due <= self.now && self.head.paused_at.is_none() && self.row.behind.is_none();
        let is_unserved = |why: &Why| matches!(why, Why::Unserved { .. });
        if !is_open || self.reasons.iter().any(is_unserved) {
            return Ok(());
        }
        let place = (order, self.row.key);
        let ready = self.rows.load_ready_before(&self.head.queue, place, COUNTED_MAX)?;
        // Tasks that no worker can run are not in the way.
        let can_start = |group: &TaskGroup| self.workers.iter().any(|worker| worker.can_run(group));
        let before = ready.iter().filter(|(group, _)| can_start(group));
        let before = count_up(before.map(|(_, tasks)| i64::from(*tasks)).sum());
        let queue = self.head.queue.to_string();
        self.reasons.push(Why::NoSlot { queue, before, slots: None });
        Ok(())
    }

    fn add_running(
        &mut self,
        worker: WorkerId,
        ready_since: Timestamp,
        activity: Activity,
    ) -> Result<(), L::Stop> {
        if let Some(by) = self.row.life.stopping {
            self.reasons.push(Why::Stopping { by });
        }
        let retakes = self.add_retakes()?;
        match activity {
            Activity::Claimed => {
                self.reasons.push(Why::Claimed { worker, since: ready_since, slots: None });
                self.add_quarantined();
            }
            // Its wait is over, whatever is still written of it.
            _ if retakes => {}
            Activity::Active { begun_at } => {
                self.reasons.push(Why::Running { worker, since: begun_at });
            }
            Activity::Deferred { since, wait, .. } => {
                let waits = match self.row.has_waits {
                    true => self.rows.load_waits(self.row.key)?,
                    false => Vec::new(),
                };
                let open = waits.iter().filter(|wait| wait.is_open());
                let until = open.filter_map(|wait| wait.due).min();
                self.reasons.push(Why::Waits { what: wait, since, until, worker });
            }
        }
        Ok(())
    }

    /// The limits that it gave back for a wait which is over, and does not have again; whether there
    /// are such.
    fn add_retakes(&mut self) -> Result<bool, L::Stop> {
        let Some((behind, order)) = self.row.behind.clone() else { return Ok(false) };
        let before = self.reasons.len();
        let held = self.rows.load_holds(self.row.key)?;
        for (limit, wants) in self.find_uses()? {
            if held.iter().any(|hold| hold.limit == limit) {
                continue;
            }
            let Some(declared) = self.rows.load_limit(&limit.name)? else {
                self.reasons.push(Why::LimitMissing { limit });
                continue;
            };
            let full = self.find_full(&limit, &declared, wants, order)?;
            if full.lacks() || limit == behind {
                self.reasons.push(Why::Retakes(full));
            }
        }
        Ok(self.reasons.len() > before)
    }

    fn add_ended(&mut self, reason: Option<Reason>) -> Result<(), L::Stop> {
        let kind = self.row.life.state.kind();
        let error = if kind == Kind::Succeeded { None } else { self.find_error()? };
        self.reasons.push(Why::Ended { kind, reason, at: self.row.ended_at, error });
        Ok(())
    }

    fn find_error(&mut self) -> Result<Option<String>, L::Stop> {
        let error = self.rows.load_payload(self.row.key, Payload::Error)?;
        Ok(error.map(|error| String::from_utf8_lossy(&error).into_owned()))
    }
}
