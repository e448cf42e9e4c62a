//! What must hold of limits, computed from the tasks and not from what the store counts.

use super::ledger::{Ledger, now_or_never};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_core::Timestamp;
use tidegate_core::lifecycle::Fence;
use tidegate_core::limit::{Limit, LimitKey};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::TaskPlan;
use tidegate_core::store::{Operation, OperationOutcome, Reply, Request, Store, TaskKey};

/// What is known of limits.
#[derive(Default)]
pub(super) struct Bounds {
    pub(super) declared: BTreeMap<String, Limit>,
    in_use: BTreeMap<LimitKey, u32>,
    /// What was begun since a limit is as it is.
    begun: BTreeMap<LimitKey, Vec<(Timestamp, u32)>>,
    /// The last claim of each task that was counted.
    claims: BTreeMap<TaskKey, Fence>,
}

/// What a task takes of which limits.
pub(super) fn uses(task: &TaskPlan, keys: &[Arc<str>]) -> Vec<(LimitKey, u32)> {
    let mut keys = keys.iter();
    let used = task.limits.iter().map(|used| {
        let key = used.key.as_ref().map(|_| keys.next().expect("every path has a key"));
        (LimitKey::new(used.name.as_str(), key.map_or("", |key| &**key)), used.units)
    });
    used.collect()
}

impl Bounds {
    pub(super) fn look(
        &mut self,
        store: &MemoryStore,
        ledger: &Ledger,
        request: &Request,
        reply: &Reply,
    ) -> Result<(), String> {
        for (operation, granted) in request.operations.iter().zip(&reply.operations) {
            self.granted(operation, *granted)?;
        }
        for claimed in &reply.claimed {
            let fence = claimed.life.fence;
            if self.claims.insert(claimed.key, fence) != Some(fence) {
                for (limit, units) in ledger.uses_of(claimed.key) {
                    self.begins(
                        limit,
                        units,
                        crate::time_of(request),
                        ledger.is_late(crate::time_of(request)),
                    )?;
                }
            }
        }
        // What all that may hold something could hold at most.
        let mut most: BTreeMap<LimitKey, (u32, u32)> = BTreeMap::new();
        for (limit, units) in ledger.holders() {
            let (all, one) = most.entry(limit).or_default();
            (*all, *one) = (*all + units, units.max(*one));
        }
        let mut in_use = BTreeMap::new();
        for state in now_or_never(store.limits())? {
            let key = LimitKey::new(state.limit.name(), state.key.as_str());
            let (all, one) = most.get(&key).copied().unwrap_or_default();
            if state.in_use > all {
                return Err(format!("{} of {key} are in use, and {all} at most", state.in_use));
            }
            let before = self.in_use.get(&key).copied().unwrap_or(0);
            let bound = state.limit.most_at_once().unwrap_or(u32::MAX);
            // Where a limit was made smaller, nothing is taken away; what is heavier goes alone.
            let is_resized = request.operations.iter().any(|operation| match operation {
                Operation::Resize(limit) => limit.name() == state.limit.name(),
                _ => false,
            });
            if !is_resized && state.in_use > bound && state.in_use > before && state.in_use > one {
                return Err(format!("{} of {key} are in use, of {bound}", state.in_use));
            }
            in_use.insert(key, state.in_use);
        }
        self.in_use = in_use;
        Ok(())
    }

    /// What bodies believe to hold is held.
    pub(super) fn believed(
        &self,
        believed: impl Iterator<Item = (LimitKey, u32)>,
    ) -> Result<(), String> {
        let mut sums: BTreeMap<LimitKey, u32> = BTreeMap::new();
        believed.for_each(|(limit, units)| *sums.entry(limit).or_default() += units);
        for (limit, sum) in sums {
            let in_use = self.in_use.get(&limit).copied().unwrap_or(0);
            if sum > in_use {
                return Err(format!("bodies believe to hold {sum} of {limit}, and hold {in_use}"));
            }
        }
        Ok(())
    }

    /// Whether words are about a limit with a rate, which depends on the time.
    pub(super) fn has_rate(&self, words: &str) -> bool {
        let rates = self.declared.values().filter(|limit| limit.most_in_time().is_some());
        rates.map(Limit::name).any(|name| words.contains(&format!("limit \"{name}\"")))
    }

    fn granted(&mut self, operation: &Operation, granted: OperationOutcome) -> Result<(), String> {
        let (Operation::Declare(limit) | Operation::Resize(limit)) = operation else {
            return Ok(());
        };
        let before = self.declared.get(limit.name());
        let right = match (operation, granted, before) {
            (Operation::Declare(_), OperationOutcome::Yes, None) => true,
            (Operation::Declare(_), OperationOutcome::Differs, Some(before)) => before != limit,
            (_, OperationOutcome::Already, Some(before)) => before == limit,
            (Operation::Resize(_), OperationOutcome::Yes, Some(_)) => true,
            (Operation::Resize(_), OperationOutcome::Unknown, None) => true,
            _ => false,
        };
        if !right {
            return Err(format!("{operation:?} is answered {granted:?}, and it was {before:?}"));
        }
        if granted == OperationOutcome::Yes {
            self.declared.insert(limit.name().to_owned(), limit.clone());
            self.begun.retain(|begun, _| *begun.name != *limit.name());
        }
        Ok(())
    }

    fn begins(
        &mut self,
        limit: LimitKey,
        units: u32,
        now: Timestamp,
        is_late: bool,
    ) -> Result<(), String> {
        let Some(declared) = self.declared.get(&*limit.name) else {
            return Err(format!("{limit} is taken and was never declared"));
        };
        let Some(rate) = declared.most_in_time() else { return Ok(()) };
        let begun = self.begun.entry(limit.clone()).or_default();
        begun.push((now, units));
        // Who is behind the time of others cannot tell what they have begun since.
        if is_late {
            return Ok(());
        }
        let recent = begun.iter().filter(|(at, _)| *at + rate.per > now);
        let (count, sum) = recent.fold((0, 0), |(count, sum), (_, units)| (count + 1, sum + units));
        match sum <= rate.units || count == 1 {
            true => Ok(()),
            false => Err(format!("{sum} of {limit} began in one stretch, of {rate}")),
        }
    }
}
