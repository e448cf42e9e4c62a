//! All sorts of things under limits, by chance and against a simple model.

use super::limits::keyed;
use crate::{World, change, plan};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Limit;
use tidegate_core::plan::{LimitUse, Plan};
use tidegate_core::store::{Claimed, NewRun, Operation, TaskKey};
use tidegate_core::wait::WaitOp;

/// A number that looks drawn, the same in every run of the test.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What the test knows of a task.
struct KnownTask {
    run: RunId,
    /// Name and key of a limit, and how much of it.
    uses: Vec<((String, String), u32)>,
    /// Its right and its worker, while it runs.
    runs: Option<(Claimed, WorkerId)>,
    holds: bool,
    wants: bool,
}

/// All sorts of things happen by chance; a limit is never exceeded, and whoever is ready and has room
/// in all its limits is taken by a worker that asks for enough.
pub async fn nobody_waits_for_room_that_is_there_and_no_limit_is_exceeded(world: &mut World) {
    for seed in 1..=6 {
        by_chance(world, seed).await;
    }
}

async fn by_chance(world: &mut World, seed: u64) {
    let mut chance = Chance(0xd134_2543_de82_ef95_u64.wrapping_mul(seed));
    let names = ["a", "b", "keyed"].map(|name| format!("{name}{seed}"));
    let mut bounds: BTreeMap<String, u32> = names.iter().map(|name| (name.clone(), 3)).collect();
    for name in &names {
        world.declare(Limit::new(name.as_str()).at_once(3)).await;
    }
    let uses =
        [(1, 0, 0), (0, 1, 0), (2, 0, 0), (1, 1, 0), (1, 2, 0), (3, 1, 0), (1, 0, 2), (0, 1, 3)];
    let plans = uses.map(|(a, b, keyed)| {
        let mut sketch = plan(&format!("uses {a} {b} {keyed}")).task("t", &[]);
        for (name, units) in names.iter().zip([a, b]).filter(|(_, units)| *units > 0) {
            sketch = sketch.limit((name.as_str(), units));
        }
        if keyed > 0 {
            sketch = sketch.limit(LimitUse::of(names[2].as_str()).by("key").units(keyed));
        }
        sketch.build()
    });
    let all: Vec<&Arc<Plan>> = plans.iter().collect();
    let workers = [world.worker(&all).await, world.worker(&all).await];
    let mut known: BTreeMap<TaskKey, KnownTask> = BTreeMap::new();
    for step in 0..120 {
        world.advance(Duration::from_millis(chance.below(50)));
        let running: Vec<TaskKey> =
            known.iter().filter(|(_, task)| task.runs.is_some()).map(|(key, _)| *key).collect();
        let ready: Vec<RunId> =
            known.values().filter(|task| task.runs.is_none()).map(|task| task.run).collect();
        let some = running.get(chance.below(running.len().max(1) as u64) as usize).copied();
        match (chance.below(10), some) {
            (0..=2, _) if ready.len() < 12 => {
                let plan = &plans[chance.below(8) as usize];
                let new = NewRun { priority: chance.below(3) as i32, ..world.new_run(plan) };
                let drawn = ["x", "y"][chance.below(2) as usize];
                let run = world.submit_run(keyed(new, drawn)).await;
                let uses = plan.task(TaskIndex::from_u32(0)).limits.iter();
                let key = |used: &LimitUse| used.key.as_ref().map_or("", |_| drawn).to_owned();
                let uses = uses.map(|used| ((used.name.clone(), key(used)), used.units)).collect();
                let task = run.key.task(TaskIndex::from_u32(0));
                let is = KnownTask { run: run.id, uses, runs: None, holds: false, wants: false };
                known.insert(task, is);
            }
            (3, _) if !ready.is_empty() => {
                let run = ready[chance.below(ready.len() as u64) as usize];
                world.perform_operation(Operation::Cancel(run)).await;
                known.retain(|_, task| task.run != run);
            }
            (4, _) => {
                let name = &names[chance.below(3) as usize];
                let units = 2 + chance.below(4) as u32;
                world.ask(Operation::Resize(Limit::new(name.as_str()).at_once(units))).await;
                bounds.insert(name.clone(), units);
            }
            (5 | 6, Some(key)) => {
                let (task, worker) = known[&key].runs.clone().expect("it runs");
                world.tell(worker, change::succeed(&task)).await;
                known.remove(&key);
            }
            (7, Some(key)) => {
                let (task, worker) = known[&key].runs.clone().expect("it runs");
                world.tell(worker, change::hand_back(&task)).await;
                let is = known.get_mut(&key).expect("it is known");
                (is.runs, is.holds, is.wants) = (None, false, false);
            }
            (8, Some(key)) => {
                let is = &known[&key];
                let (task, worker) = is.runs.clone().expect("it runs");
                match is.holds {
                    true => {
                        let all = names.iter().map(|name| name.as_str().into()).collect();
                        world.tell(worker, change::asks(&task, [WaitOp::Release(all)])).await;
                        known.get_mut(&key).expect("it is known").holds = false;
                    }
                    false => {
                        let has = world.asks(worker, &task, WaitOp::Retake(0)).await.is_some();
                        let is = known.get_mut(&key).expect("it is known");
                        (is.holds, is.wants) = (has, !has);
                    }
                }
            }
            _ => {}
        }
        let worker = workers[chance.below(2) as usize];
        let everything = chance.below(3) > 0;
        let taken = world.claim(worker, if everything { 99 } else { 1 }).await;
        for task in taken {
            let is = known.get_mut(&task.key).expect("it is known");
            assert!(is.runs.is_none());
            (is.runs, is.holds) = (Some((task, worker)), true);
        }
        who_has_its_limits_again(world, &workers, &mut known).await;
        check(world, &known, &bounds, everything).await;
        if step % 16 == 0 {
            let findings = world.store().audit().await.expect("a store can be audited");
            assert!(findings.is_empty(), "the store contradicts itself: {findings:#?}");
        }
    }
    for (_, is) in known {
        world.perform_operation(Operation::Cancel(is.run)).await;
    }
}

/// Whoever is told to ask again does.
async fn who_has_its_limits_again(
    world: &mut World,
    workers: &[WorkerId],
    known: &mut BTreeMap<TaskKey, KnownTask>,
) {
    let wanting: Vec<TaskKey> =
        known.iter().filter(|(_, is)| is.wants).map(|(key, _)| *key).collect();
    for _ in workers {
        for key in &wanting {
            let is = known.get_mut(key).expect("it is known");
            let (task, worker) = is.runs.clone().expect("it runs");
            let has = world.asks(worker, &task, WaitOp::Retake(0)).await.is_some();
            (is.holds, is.wants) = (has, !has);
        }
    }
}

async fn check(
    world: &World,
    known: &BTreeMap<TaskKey, KnownTask>,
    bounds: &BTreeMap<String, u32>,
    everything: bool,
) {
    let mut in_use: BTreeMap<&(String, String), u32> = BTreeMap::new();
    for is in known.values().filter(|is| is.holds) {
        for (limit, units) in &is.uses {
            *in_use.entry(limit).or_default() += units;
        }
    }
    let in_use_of = |limit: &(String, String)| in_use.get(limit).copied().unwrap_or(0);
    for (name, key, used, _) in world.limits().await {
        if bounds.contains_key(&name) {
            assert_eq!(used, in_use_of(&(name.clone(), key.clone())), "{name} {key}");
        }
    }
    let fits = |uses: &[((String, String), u32)]| {
        uses.iter().all(|(limit, units)| {
            let used = in_use_of(limit);
            used == 0 || used + units <= bounds[&limit.0]
        })
    };
    for (key, is) in known {
        let waits_in_vain = is.runs.is_none() && everything && fits(&is.uses);
        assert!(!waits_in_vain, "task {} is ready, has room, and was not taken", key.0);
        assert!(!(is.wants && fits(&is.uses)), "task {} could go on and does not", key.0);
    }
}
