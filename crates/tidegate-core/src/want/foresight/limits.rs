//! The wants that follow from the limits of tasks.

use super::{Foresight, TaskRole};
use crate::Timestamp;
use crate::decision::count_opened;
use crate::limit::{self, Limit, LimitKey};
use crate::rows::{Payload, Row};
use crate::want::{Loaded, Want};

/// A limit that a request looks at, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct FreedLimit {
    /// Whether tasks that are blocked on it may be let through.
    is_freed: bool,
    /// Units that the request gives back.
    given_back: u32,
    limit: Option<Limit>,
    in_use: Option<u32>,
    begun: Vec<(Timestamp, u32)>,
}

impl Foresight<'_> {
    /// The limits that a task uses are asked for, and the tasks behind them if they are freed.
    pub(super) fn look_at_uses(&mut self, row: &Row, is_freed: bool) {
        let planned = row.planned();
        if planned.limits.is_empty() {
            return;
        }
        if is_freed {
            self.task_roles.insert((row.key, TaskRole::Freeing));
        }
        if planned.limits.iter().any(|used| used.key.is_some()) {
            self.join_want(Want::Payload(row.key, Payload::Keys));
            return;
        }
        for (limit, _) in limit::uses(planned, None) {
            self.look_at_limit(&limit, is_freed);
        }
    }

    pub(super) fn look_at_limit(&mut self, limit: &LimitKey, is_freed: bool) {
        let known = self.limits.entry(limit.clone()).or_default();
        known.is_freed |= is_freed;
        if is_freed {
            self.join_want(Want::LimitAlarm(limit.clone()));
        }
        self.join_want(Want::Limit(limit.name.clone()));
        self.join_want(Want::UnitsInUse(limit.clone()));
        let namesakes = self.limits.iter().filter(|(key, _)| key.name == limit.name);
        let definition = namesakes.filter_map(|(_, known)| known.limit.clone()).next();
        if let Some(definition) = definition {
            self.look_at_definition(&definition);
        }
    }

    /// Begins count where there is a rate, and an alarm says when they do not any more.
    fn look_at_definition(&mut self, definition: &Limit) {
        let mut rated = Vec::new();
        for (key, known) in &mut self.limits {
            if *key.name == *definition.name() {
                known.limit = Some(definition.clone());
                rated.push(key.clone());
            }
        }
        for key in rated.into_iter().filter(|_| definition.most_in_time().is_some()) {
            self.join_want(Want::RateEvents(key.clone()));
            self.join_want(Want::LimitAlarm(key));
        }
    }

    pub(super) fn look_at_limit_answer(&mut self, want: &Want, loaded: &Loaded) {
        match (want, loaded) {
            (_, Loaded::LimitKeys(limits)) => {
                limits.iter().for_each(|limit| self.look_at_limit(limit, true));
            }
            (_, Loaded::Limit(Some(limit))) => self.look_at_definition(limit),
            (Want::UnitsInUse(limit), Loaded::Number(units)) => {
                if let Some(known) = self.limits.get_mut(limit) {
                    known.in_use = Some(u32::try_from(*units).unwrap_or(u32::MAX));
                }
            }
            (Want::RateEvents(limit), Loaded::RateEvents(events)) => {
                if let Some(known) = self.limits.get_mut(limit) {
                    known.begun.clone_from(events);
                }
            }
            (Want::Holds(task), Loaded::Holds(holds)) => {
                let is_freed = self.has_role(*task, TaskRole::Freeing);
                for hold in holds {
                    self.look_at_limit(&hold.limit, is_freed);
                    if let Some(known) = self.limits.get_mut(&hold.limit).filter(|_| is_freed) {
                        known.given_back = known.given_back.saturating_add(hold.units);
                    }
                }
            }
            (Want::Payload(task, Payload::Keys), Loaded::Payload(kept)) => {
                let Some(row) = self.rows.get(task).cloned() else { return };
                let is_freed = self.has_role(*task, TaskRole::Freeing);
                for (limit, _) in limit::uses(row.planned(), kept.as_deref()) {
                    self.look_at_limit(&limit, is_freed);
                }
            }
            _ => {}
        }
    }

    /// The tasks that are let through freed limits, as many as there will be room for.
    pub(super) fn guess_blocked(&mut self) {
        let now = self.now.unwrap_or_default();
        let mut blocked = Vec::new();
        for (key, known) in self.limits.iter().filter(|(_, known)| known.is_freed) {
            let (Some(limit), Some(in_use)) = (&known.limit, known.in_use) else { continue };
            let in_use = in_use.saturating_sub(known.given_back);
            let room = limit.room(1, in_use, &known.begun, now);
            blocked.push(Want::BlockedOn { limit: key.clone(), max: count_opened(&room) });
        }
        blocked.into_iter().for_each(|want| self.follow_want(want));
    }
}
