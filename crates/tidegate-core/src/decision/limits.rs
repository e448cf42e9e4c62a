//! The part of a request that concerns limits: who takes them, who stands behind them, who is let
//! through.
//!
//! A task that is ready and finds one of its limits full stands behind that limit, where claims do not
//! look. Whoever gives something back, or makes a limit larger, lets through as many as there is room
//! for, in order, from each lane: what nobody can claim does not stand in the way of what somebody
//! can. Who is let through has taken nothing yet; if another was faster, it stands behind again.
//!
//! Who goes on after a wait in which it had given its limits back goes before all that are ready, and
//! takes what it needs as soon as that is there: what was begun is finished first, and a worker that
//! has no room for another start is not waited for.

use super::Taking;
use crate::Timestamp;
use crate::delta::{PassedEvents, RateEvent};
use crate::lifecycle::{Kind, Life, State};
use crate::limit::{self, Hold, Limit, LimitKey, LimitRow, RateWindow, Room};
use crate::rows::Payload;
use crate::store::OperationOutcome;
use crate::want::{Loader, LookUps};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Tasks that are let through one limit in one request, of each lane, so that a request stays short.
const OPEN_MAX: u32 = 1_000;

/// The head start of who goes on after a wait, over all that are ready: longer than any task waits.
const GOES_ON_FIRST: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// A limit that was looked at in this request, as it stands.
pub(super) struct Looked {
    limit: Option<Limit>,
    row: LimitRow,
    window: RateWindow,
    has_changed: bool,
}

impl Looked {
    fn room(&self, units: u32, now: Timestamp) -> Room {
        self.room_after(0, units, now)
    }

    /// The room once this many units are taken.
    fn room_after(&self, before: u32, units: u32, now: Timestamp) -> Room {
        // A limit that was not declared has no known size.
        let Some(limit) = &self.limit else { return Room { units: 0, next: None } };
        let in_use = self.row.in_use.saturating_add(before.into());
        if before == 0 || limit.most_in_time().is_none() {
            return limit.room(units, in_use, &self.window, now);
        }
        let mut window = self.window.clone();
        window.add_event(now, before);
        limit.room(units, in_use, &window, now)
    }

    /// How much can be taken at once, however much was begun of late.
    fn room_at_once(&self, units: u32) -> u32 {
        let at_once = self.limit.as_ref().map(|limit| match limit.most_at_once() {
            Some(most) => Limit::new("").at_once(most),
            None => Limit::new(""),
        });
        let now = Timestamp::default();
        at_once.map_or(0, |limit| {
            limit.room(units, self.row.in_use, &RateWindow::default(), now).units
        })
    }

    /// The row, to be changed.
    fn row_mut(&mut self) -> &mut LimitRow {
        self.has_changed = true;
        &mut self.row
    }

    fn rate_time(&self) -> Option<Duration> {
        self.limit.as_ref().and_then(Limit::most_in_time).map(|rate| rate.per)
    }
}

impl<L: Loader> Taking<'_, L> {
    /// What a task takes of which limits.
    pub(super) fn uses_of(&mut self, at: usize) -> Result<Vec<(LimitKey, u32)>, L::Stop> {
        let row = &self.tasks[at].row;
        let is_keyed = row.planned().limits.iter().any(|used| used.key.is_some());
        let kept = match is_keyed {
            true => self.rows.find_payload(row.key, Payload::Keys)?,
            false => None,
        };
        Ok(limit::uses(self.tasks[at].row.planned(), kept.as_deref()))
    }

    fn has_limits(&self, at: usize) -> bool {
        !self.tasks[at].row.planned().limits.is_empty()
    }

    fn look(&mut self, limit: &LimitKey) -> Result<&mut Looked, L::Stop> {
        if !self.limits.contains_key(limit) {
            let declared = self.rows.find_limit(&limit.name)?;
            let usage = self.rows.load_limit_usage(limit)?;
            let (row, window) = (usage.row, RateWindow::default());
            let mut looked = Looked { limit: declared, row, window, has_changed: false };
            let (per, now) = (looked.rate_time(), self.now);
            let (window, passed) =
                RateWindow::load_counting(&mut self.rows, limit, usage, per, now)?;
            looked.window = window;
            self.pass_events(limit, &mut looked, passed);
            self.limits.insert(limit.clone(), looked);
        }
        Ok(self.limits.get_mut(limit).expect("it was just looked at"))
    }

    /// Rate events of a limit do not count any more.
    fn pass_events(
        &mut self,
        limit: &LimitKey,
        looked: &mut Looked,
        passed: impl IntoIterator<Item = (Timestamp, Timestamp)>,
    ) {
        for (from, to) in passed {
            looked.row_mut().window_sum = looked.window.sum;
            let limit = limit.clone();
            self.rows.delta.passed_events.push(PassedEvents { limit, from, to });
        }
    }

    /// Moves the rows of limits that have changed into the delta.
    pub(super) fn gather_limits(&mut self) {
        let limits = std::mem::take(&mut self.limits).into_iter();
        let changed = limits.filter(|(_, looked)| looked.has_changed);
        self.rows.delta.limit_rows = changed.map(|(limit, looked)| (limit, looked.row)).collect();
    }

    /// Whether a limit bounds how much is in use at once.
    pub(super) fn bounds_at_once(&mut self, limit: &LimitKey) -> Result<bool, L::Stop> {
        let looked = self.look(limit)?;
        Ok(looked.limit.as_ref().is_none_or(|limit| limit.most_at_once().is_some()))
    }

    /// A ready task takes all its limits together, or stands behind one that is full.
    pub(super) fn take_limits(&mut self, at: usize, order: Timestamp) -> Result<bool, L::Stop> {
        if !self.has_limits(at) {
            return Ok(true);
        }
        let now = self.now;
        let uses = self.uses_of(at)?;
        for (limit, units) in &uses {
            let room = self.look(limit)?.room(*units, now);
            if room.units < *units {
                self.ring_at(limit, room.next)?;
                self.stand_behind(at, limit, order);
                // It may have been let through one of the others, which are free for the next.
                let others = uses.iter().map(|(other, _)| other).filter(|other| *other != limit);
                self.freed.extend(others.cloned());
                return Ok(false);
            }
        }
        for (limit, units) in &uses {
            self.take_one(at, limit, *units)?;
            self.count_begun(limit, *units)?;
        }
        Ok(true)
    }

    pub(super) fn take_one(
        &mut self,
        at: usize,
        limit: &LimitKey,
        units: u32,
    ) -> Result<(), L::Stop> {
        let hold = Hold { limit: limit.clone(), units, since: self.now };
        let row = self.look(limit)?.row_mut();
        row.in_use = row.in_use.saturating_add(units.into());
        self.rows.take_hold(self.tasks[at].row.key, hold);
        Ok(())
    }

    fn count_begun(&mut self, limit: &LimitKey, units: u32) -> Result<(), L::Stop> {
        let now = self.now;
        let looked = self.look(limit)?;
        if looked.rate_time().is_some() {
            looked.window.add_event(now, units);
            looked.row_mut().window_sum = looked.window.sum;
            let limit = limit.clone();
            self.rows.delta.rate_events.push(RateEvent { limit, at: now, units });
        }
        Ok(())
    }

    pub(super) fn find_alarm(&mut self, limit: &LimitKey) -> Result<Option<Timestamp>, L::Stop> {
        Ok(self.look(limit)?.row.alarm)
    }

    /// The row of a limit counts what tasks hold and what is stored of its begins; whether it did not.
    /// Only before the same request changes either.
    pub(super) fn count_limit(&mut self, limit: &LimitKey) -> Result<bool, L::Stop> {
        if self.look(limit)?.has_changed {
            return Ok(false);
        }
        let stored = self.rows.load_stored_limit(limit)?;
        let Some(stored) = stored.into_iter().next() else { return Ok(false) };
        let looked = self.look(limit)?;
        let has_miscounted = (stored.held, stored.begun) != (looked.row.in_use, looked.window.sum);
        if has_miscounted {
            looked.window.sum = stored.begun;
            let row = looked.row_mut();
            (row.in_use, row.window_sum) = (stored.held, stored.begun);
        }
        Ok(has_miscounted)
    }

    /// A limit is looked at again at this time, if not before.
    fn ring_at(&mut self, limit: &LimitKey, at: Option<Timestamp>) -> Result<(), L::Stop> {
        let Some(at) = at else { return Ok(()) };
        let looked = self.look(limit)?;
        if looked.row.alarm.is_none_or(|before| before > at) {
            looked.row_mut().alarm = Some(at);
        }
        Ok(())
    }

    fn stand_behind(&mut self, at: usize, limit: &LimitKey, order: Timestamp) {
        self.set_behind(at, Some((limit.clone(), order)));
    }

    /// A task has changed: what it does not hold any more is there for others.
    pub(super) fn keep_limits(&mut self, at: usize, was: &Life) -> Result<(), L::Stop> {
        if !self.has_limits(at) {
            return Ok(());
        }
        let holds = |state: &State| matches!(state, State::Running { .. } | State::Parked { .. });
        let is = &self.tasks[at].row.life.state;
        match (holds(&was.state), holds(is)) {
            (true, false) => self.let_all_go(at)?,
            // It may have been let through for nothing.
            (false, false) if was.state.kind() == Kind::Ready => self.lets_others_through(at)?,
            _ => {}
        }
        Ok(())
    }

    fn let_all_go(&mut self, at: usize) -> Result<(), L::Stop> {
        let task = self.tasks[at].row.key;
        for hold in self.rows.find_holds(task)? {
            self.let_one_go(at, &hold)?;
        }
        // It may have stood behind one of them, and somebody behind it.
        self.lets_others_through(at)
    }

    pub(super) fn let_one_go(&mut self, at: usize, hold: &Hold) -> Result<(), L::Stop> {
        self.give_back(hold)?;
        self.rows.release_hold(self.tasks[at].row.key, &hold.limit);
        Ok(())
    }

    /// Units of a limit are there for others.
    pub(super) fn give_back(&mut self, hold: &Hold) -> Result<(), L::Stop> {
        // What it stands at is looked up before it changes.
        let row = self.look(&hold.limit)?.row_mut();
        row.in_use = row.in_use.saturating_sub(hold.units.into());
        self.freed.insert(hold.limit.clone());
        Ok(())
    }

    /// A task is not in the way of others any more.
    pub(super) fn lets_others_through(&mut self, at: usize) -> Result<(), L::Stop> {
        if self.has_limits(at) {
            let uses = self.uses_of(at)?;
            self.freed.extend(uses.into_iter().map(|(limit, _)| limit));
        }
        Ok(())
    }

    /// A task gives limits back for as long as it waits.
    pub(super) fn release(&mut self, at: usize, names: &[Arc<str>]) -> Result<(), L::Stop> {
        if names.is_empty() || !self.has_limits(at) {
            return Ok(());
        }
        for hold in self.rows.find_holds(self.tasks[at].row.key)? {
            if names.contains(&hold.limit.name) {
                self.let_one_go(at, &hold)?;
            }
        }
        Ok(())
    }

    /// A task that has waited takes again what it has given back, all together; false: it stands
    /// behind one that is full.
    pub(super) fn retake(&mut self, at: usize) -> Result<bool, L::Stop> {
        let (wanted, order) = (self.lacking(at)?, self.tasks[at].row.behind.clone());
        let order = order.map_or(self.now - GOES_ON_FIRST, |(_, order)| order);
        for (limit, units) in &wanted {
            if self.look(limit)?.room_at_once(*units) < *units {
                self.stand_behind(at, limit, order);
                return Ok(false);
            }
        }
        for (limit, units) in &wanted {
            self.take_one(at, limit, *units)?;
        }
        if self.tasks[at].row.behind.is_some() {
            self.set_behind(at, None);
        }
        Ok(true)
    }

    /// What a task uses and does not hold.
    fn lacking(&mut self, at: usize) -> Result<Vec<(LimitKey, u32)>, L::Stop> {
        let mut uses = self.uses_of(at)?;
        if !uses.is_empty() {
            let held = self.rows.find_holds(self.tasks[at].row.key)?;
            uses.retain(|(limit, _)| !held.iter().any(|hold| hold.limit == *limit));
        }
        Ok(uses)
    }

    /// Lets through whom there is room for, behind all limits of which something was given back;
    /// whether anybody that is ready was.
    pub(super) fn open_limits(&mut self) -> Result<bool, L::Stop> {
        let mut any = false;
        while let Some(limit) = self.freed.pop_first() {
            any |= self.open_limit(&limit)?;
        }
        Ok(any)
    }

    fn open_limit(&mut self, limit: &LimitKey) -> Result<bool, L::Stop> {
        let now = self.now;
        let looked = self.look(limit)?;
        if looked.row.alarm.is_some() {
            looked.row_mut().alarm = None;
        }
        let room = looked.room(1, now);
        let most = count_opened(&room);
        let (mut opened, mut closed) = (HashMap::<Lane, (u32, u32)>::new(), HashSet::new());
        for at in self.behind(limit, most)? {
            if self.tasks[at].row.life.state.kind() != Kind::Ready {
                self.go_on(at, limit)?;
                continue;
            }
            let lane = self.lane(at);
            // Those behind it in its lane do not overtake it.
            if closed.contains(&lane) {
                continue;
            }
            let units = self.uses_of(at)?.iter().find(|(used, _)| used == limit).map_or(1, |u| u.1);
            let (count, before) = opened.get(&lane).copied().unwrap_or_default();
            let room = self.look(limit)?.room_after(before, units, now);
            if room.units < units {
                closed.insert(lane);
                self.ring_at(limit, room.next)?;
                continue;
            }
            opened.insert(lane, (count + 1, before.saturating_add(units)));
            self.set_behind(at, None);
        }
        // There may be more than a request lets through.
        let is_cut = |(count, before): &(u32, u32)| *count >= OPEN_MAX && *before < room.units;
        if opened.values().any(is_cut) {
            self.ring_at(limit, Some(now))?;
        }
        Ok(!opened.is_empty())
    }

    /// Tasks that stand behind a limit, as the request has made them: of each lane at least the first
    /// `max`; in order.
    pub(super) fn behind(&mut self, limit: &LimitKey, max: u32) -> Result<Vec<usize>, L::Stop> {
        // Those that changed in this request are found as they were, and others stand behind them.
        let max = max.saturating_add(self.changed.count_blocked(limit));
        let mut behind = self.rows.load_blocked_tasks(limit, max)?;
        behind.retain(|(_, task)| !self.is_dirty(*task));
        behind.extend(self.changed.list_blocked(limit));
        behind.sort_unstable();
        behind.into_iter().map(|(_, task)| self.existing(task)).collect()
    }

    /// A task that wants to go on after a wait, and stood behind a limit, may have its limits now.
    fn go_on(&mut self, at: usize, limit: &LimitKey) -> Result<(), L::Stop> {
        if !self.retake(at)? {
            // If it stands behind another, this one is free for the next.
            let behind = self.tasks[at].row.behind.as_ref();
            if behind.is_some_and(|(behind, _)| behind != limit) {
                self.freed.insert(limit.clone());
            }
            return Ok(());
        }
        let row = &self.tasks[at].row;
        match row.life.owner() {
            Some(worker) if self.request.worker == Some(worker) => {
                self.answer.ask_again.push((row.key, row.life.fence));
            }
            Some(worker) => self.rows.notify_worker(worker, row.key),
            None => {}
        }
        Ok(())
    }

    /// What the same workers can claim.
    fn lane(&self, at: usize) -> Lane {
        let row = &self.tasks[at].row;
        let queue = self.head(self.tasks[at].run).queue.clone();
        let (workflow, task) = (row.plan.workflow().to_owned(), row.plan.known_as(row.index));
        (queue, workflow, task.to_owned(), row.planned().weight)
    }

    // ------------------------------------------------------------------- what is asked of them --

    pub(super) fn declare(&mut self, limit: &Limit) -> Result<OperationOutcome, L::Stop> {
        match self.rows.find_limit(limit.name())? {
            Some(before) if before == *limit => Ok(OperationOutcome::Already),
            Some(_) => Ok(OperationOutcome::Differs),
            None => self.change_limit(limit),
        }
    }

    pub(super) fn resize(&mut self, limit: &Limit) -> Result<OperationOutcome, L::Stop> {
        match self.rows.find_limit(limit.name())? {
            Some(before) if before == *limit && !self.request.again => {
                Ok(OperationOutcome::Already)
            }
            Some(_) => self.change_limit(limit),
            None => Ok(OperationOutcome::Unknown),
        }
    }

    fn change_limit(&mut self, limit: &Limit) -> Result<OperationOutcome, L::Stop> {
        self.rows.set_limit(limit);
        // Limits that were looked up before have another bound now.
        let known = self.limits.keys().filter(|key| *key.name == *limit.name());
        for key in Vec::from_iter(known.cloned()) {
            let Some(mut looked) = self.limits.remove(&key) else { continue };
            looked.limit = Some(limit.clone());
            let passed = looked.window.pass_expired(looked.rate_time(), self.now);
            self.pass_events(&key, &mut looked, passed);
            self.limits.insert(key, looked);
        }
        self.freed.extend(self.rows.load_blocked_keys(limit.name())?);
        self.freed.extend(self.changed.list_blocked_keys(limit.name()));
        Ok(OperationOutcome::Yes)
    }
}

/// How many tasks are looked at behind a limit with this room: one more than there is room for. It may be
/// heavier than the limit and go alone, or time may be all that is in its way.
pub(crate) fn count_opened(room: &Room) -> u32 {
    room.units.saturating_add(1).min(OPEN_MAX)
}

/// Queue, workflow, name and weight.
type Lane = (Arc<str>, String, String, u32);
