//! The wants that follow from the limits of tasks.

use super::{Foresight, TaskRole};
use crate::decision::count_opened;
use crate::limit::{self, LimitKey, LimitUsage, RateWindow};
use crate::rows::{Payload, Row};
use crate::want::{Loaded, Want};

/// A limit that a request looks at, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct FreedLimit {
    /// Whether tasks that are blocked on it may be let through.
    is_freed: bool,
    /// Units that the request gives back.
    given_back: u32,
    usage: Option<LimitUsage>,
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
        self.join_want(Want::Limit(limit.name.clone()));
        self.join_want(Want::LimitUsage(limit.clone()));
    }

    pub(super) fn look_at_limit_answer(&mut self, want: &Want, loaded: &Loaded) {
        match (want, loaded) {
            (_, Loaded::LimitKeys(limits)) => {
                limits.iter().for_each(|limit| self.look_at_limit(limit, true));
            }
            (_, Loaded::Limit(Some(limit))) => {
                self.definitions.insert(limit.name().into(), limit.clone());
            }
            (Want::LimitUsage(limit), Loaded::LimitUsage(usage)) => {
                if let Some(known) = self.limits.get_mut(limit) {
                    known.usage = Some(usage.clone());
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
            let definition = self.definitions.get(&key.name);
            let (Some(limit), Some(usage)) = (definition, &known.usage) else { continue };
            let in_use = usage.row.in_use.saturating_sub(known.given_back.into());
            let oldest = usage.oldest.clone();
            let mut window = RateWindow { sum: usage.row.window_sum, oldest };
            window.pass_expired(limit.most_in_time().map(|rate| rate.per), now);
            let room = limit.room(1, in_use, &window, now);
            blocked.push(Want::BlockedOn { limit: key.clone(), max: count_opened(&room) });
        }
        blocked.into_iter().for_each(|want| self.follow_want(want));
    }
}
