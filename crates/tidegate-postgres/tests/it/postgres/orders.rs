//! Claims by order take the same tasks as claims that are decided with loaded candidates, on this store and in
//! memory, in random states of the tables.

use super::support::QUEUE;
use super::trips::open_counted;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::lifecycle::{Event, Kind, WorkerId};
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::Plan;
use tidegate_core::store::{
    Bytes, Change, Claim, Claimed, Knows, NewRun, NewWorker, Operation, Request, RequestId, Scope,
    Store,
};
use tidegate_core::{RunId, Timestamp};
use tidegate_testkit::{PostgresSchema, chain, one, plan};

/// Sequences of requests, each in a schema of its own.
const SEEDS: u64 = 12;

/// Requests of a sequence.
const STEPS: usize = 40;

/// A store with the worker and the tasks that it has in it.
struct Side {
    name: &'static str,
    store: Arc<dyn Store>,
    worker: WorkerId,
    owned: Vec<Claimed>,
}

/// All that a reply says of a claimed task and that does not depend on numbers of the store.
type ClaimedTask = (RunId, u32, Kind, u64, u32, Option<Timestamp>, Timestamp, Option<Bytes>, usize);

impl Side {
    async fn new(name: &'static str, store: Arc<dyn Store>, knows: Knows) -> Self {
        let new = NewWorker {
            now: Timestamp::from_micros(1),
            name: name.to_owned(),
            queues: vec![QUEUE.to_owned()],
            knows,
            slots: 8,
        };
        let worker = store.enlist(new).await.unwrap();
        Side { name, store, worker, owned: Vec::new() }
    }

    /// Sends a step; answers with the claimed tasks, and whether there are more.
    async fn send_step(&mut self, id: u64, step: &Step) -> (Vec<ClaimedTask>, bool, Vec<RunId>) {
        let mut request = Request::new(RequestId(id), step.now);
        request.worker = Some(self.worker);
        request.claim = step.claim.clone();
        request.submits = step.submits.clone();
        request.operations = step.operations.clone();
        for _ in 0..step.ends.min(self.owned.len()) {
            let task = self.owned.remove(0);
            let fence = task.life.fence;
            let mut change = Change::new(task.key, task.index, Event::Succeed { fence });
            change.plan = Some(task.plan.clone());
            change.output = Some(Bytes::from(&b"output"[..]));
            if task.life.state.kind() == Kind::Claimed {
                change.events.insert(0, Event::Begin { fence });
            }
            request.changes.push(change);
        }
        let reply = self.store.request(Arc::new(request)).await.unwrap();
        let told = |claimed: &Claimed| {
            let Claimed { run, index, life, order, given, .. } = claimed;
            let (kind, fence) = (life.state.kind(), life.fence.0);
            let parents = given.outputs.len();
            let (entries, started) = (life.entries, life.started);
            let input = given.input.clone();
            (*run, index.as_u32(), kind, fence, entries, started, *order, input, parents)
        };
        let claimed = reply.claimed.iter().map(told).collect();
        self.owned.extend(reply.claimed);
        // Tasks that were cancelled are ended by no report.
        let cancelled = |task: &Claimed| reply.told.iter().any(|told| told.task == task.key);
        self.owned.retain(|task| !cancelled(task));
        let mut ended: Vec<RunId> = reply.ended.iter().map(|ended| ended.id).collect();
        ended.sort_unstable();
        (claimed, reply.more, ended)
    }
}

/// A request for all stores.
#[derive(Debug)]
struct Step {
    now: Timestamp,
    claim: Claim,
    submits: Vec<NewRun>,
    operations: Vec<Operation>,
    /// How many of the tasks that the worker owns it ends.
    ends: usize,
}

/// Plans with tasks that are plain, and few that are not.
fn make_plans() -> Vec<Arc<Plan>> {
    vec![
        one().build(),
        one().build(),
        one().build(),
        chain(2).build(),
        plan("urgent").task("a", &[]).priority(5).build(),
        plan("heavy").task("a", &[]).weight(3).build(),
        plan("heaviest").task("a", &[]).weight(9).build(),
        plan("limited").task("a", &[]).limit("x").build(),
        plan("timed").task("a", &[]).rules(|rules| rules.deadline = Some(Duration::MAX)).build(),
    ]
}

fn make_step(random: &mut fastrand::Rng, plans: &[Arc<Plan>], at: usize, runs: &mut u64) -> Step {
    let now = Timestamp::from_micros(1_000 + at as i64 * random.i64(0..3));
    let mut submits = Vec::new();
    // In most sequences few plans are not plain.
    let choice = if random.u32(0..3) == 0 { plans.len() } else { 5 };
    for _ in 0..random.usize(0..6) {
        *runs += 1;
        let run = RunId::from_u128(u128::from(*runs));
        let new = NewRun::new(run, plans[random.usize(0..choice)].clone(), QUEUE.into());
        let input = random.bool().then(|| Bytes::from(runs.to_string().as_bytes()));
        submits.push(NewRun { priority: random.i32(-1..2), input, ..new });
    }
    let mut operations = Vec::new();
    match random.u32(0..16) {
        0 => operations.push(Operation::Pause(Scope::Queue(QUEUE.to_owned()))),
        1 | 2 => operations.push(Operation::Unpause(Scope::Queue(QUEUE.to_owned()))),
        3 if *runs > 0 => {
            let run = RunId::from_u128(u128::from(random.u64(1..=*runs)));
            operations.push(Operation::Cancel(run));
        }
        _ => {}
    }
    let (units, ahead) = (random.u32(0..5), random.u32(0..3));
    let claim = Claim { units, ahead, heaviest: 8, room: 1_000 };
    Step { now, claim, submits, operations, ends: random.usize(0..6) }
}

/// Runs a sequence on all stores; how many of its requests have loaded nothing on this one.
async fn compare_stores(seed: u64) -> u32 {
    let schema = PostgresSchema::take_used();
    let (ordered, counter) = open_counted(&schema.store_url()).await;
    let other_schema = PostgresSchema::take_used();
    let off = format!("{}&claim_orders=off", other_schema.store_url());
    let off = Arc::new(tidegate_postgres::PostgresStore::open_store(&off).await.unwrap());
    let ordered = Arc::new(ordered);
    let knows = || match seed % 3 {
        0 => Knows::These(vec![("one".to_owned(), "a".to_owned())]),
        _ => Knows::All,
    };
    let mut sides = [
        Side::new("memory", Arc::new(MemoryStore::new()), knows()).await,
        Side::new("memory by order", Arc::new(MemoryStore::with_orders()), knows()).await,
        Side::new("decided", off.clone(), knows()).await,
        Side::new("by order", ordered.clone(), knows()).await,
    ];
    let (mut random, plans) = (fastrand::Rng::with_seed(seed), make_plans());
    let (mut runs, mut unloaded) = (0, 0);
    for at in 0..STEPS {
        let step = make_step(&mut random, &plans, at, &mut runs);
        let mut first = None;
        for side in &mut sides {
            counter.take_loads();
            let told = side.send_step(at as u64 + 1, &step).await;
            unloaded += u32::from(side.name == "by order" && counter.take_loads() == 0);
            let first = first.get_or_insert_with(|| told.clone());
            assert_eq!(told, *first, "seed {seed}, step {at}, {}: {step:?}", side.name);
        }
    }
    for side in &sides {
        let findings = side.store.audit().await.unwrap();
        assert!(findings.is_empty(), "seed {seed}, {}: {findings:?}", side.name);
    }
    ordered.close_store().await;
    off.close_store().await;
    unloaded
}

#[tokio::test]
async fn orders_take_the_tasks_that_decisions_take() {
    let mut unloaded = 0;
    for seed in 0..SEEDS {
        unloaded += compare_stores(seed).await;
    }
    assert!(unloaded > SEEDS as u32, "{unloaded} requests were answered without a load");
}
