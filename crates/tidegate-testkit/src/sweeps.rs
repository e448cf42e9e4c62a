//! Sweeps of stores in which rows refer to others by numbers: the rows that stay, and the numbers that
//! other processes still remember.

use crate::{change, claim, plan};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::limit::Limit;
use tidegate_core::plan::{LimitUse, Plan};
use tidegate_core::retention::{Aged, Prune};
use tidegate_core::store::{
    Applied, Claimed, Knows, NewRun, NewWorker, Operation, Reply, Request, RequestId, Scope, Store,
};
use tidegate_core::sweep::Sweep;
use tidegate_core::{RunId, Timestamp};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Customers that come once, each with a limit key of its own.
const CUSTOMERS: u64 = 2_000;

/// Customers of one request.
const BATCH: u64 = 200;

/// A store that is used at given times.
struct SweptStore<'s> {
    store: &'s dyn Store,
    now: Timestamp,
    requests: u64,
}

impl<'s> SweptStore<'s> {
    /// A connection whose requests have numbers from here on.
    fn new(store: &'s dyn Store, requests: u64) -> Self {
        let now = Timestamp::from_micros(1_800_000_000_000_000);
        SweptStore { store, now, requests }
    }

    fn make_request(&mut self, worker: Option<WorkerId>) -> Request {
        self.requests += 1;
        Request { worker, ..Request::new(RequestId(self.requests), self.now) }
    }

    async fn take_request(&self, request: Request) -> Reply {
        self.store.request(Arc::new(request)).await.expect("a request can be taken")
    }

    async fn perform_operation(&mut self, operation: Operation) {
        let mut request = self.make_request(None);
        request.operations.push(operation);
        self.take_request(request).await;
    }

    async fn enlist_worker(&self, queues: &[&str]) -> WorkerId {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        let (now, name) = (self.now, "here".to_owned());
        let new = NewWorker { now, name, queues, knows: Knows::All, slots: 1_000 };
        self.store.enlist(new).await.expect("a worker can be enlisted")
    }

    fn new_run(&self, id: u64, plan: &Arc<Plan>, queue: &str, customer: &str) -> NewRun {
        let keys = vec![(TaskIndex::from_u32(0), vec![customer.into()])];
        let id = RunId::new(self.now, id.into());
        NewRun { keys, ..NewRun::new(id, plan.clone(), queue.into()) }
    }

    /// Submits runs and begins them at once.
    async fn begin_runs(&mut self, worker: WorkerId, runs: Vec<NewRun>) -> Vec<Claimed> {
        let mut request = self.make_request(Some(worker));
        let count = runs.len();
        request.submits = runs;
        request.claim = claim(count as u32, 0);
        let reply = self.take_request(request).await;
        assert!(reply.submits.iter().all(Result::is_ok), "all runs are accepted");
        assert_eq!(reply.claimed.len(), count, "all runs begin");
        reply.claimed
    }

    async fn report_success(&mut self, worker: WorkerId, tasks: &[Claimed]) {
        let mut request = self.make_request(Some(worker));
        request.changes = tasks.iter().map(change::succeed).collect();
        let reply = self.take_request(request).await;
        assert!(reply.changes.iter().all(|applied| *applied == Applied::Yes));
    }

    async fn prune_runs(&mut self) {
        let mut next = Some(Prune::new(Aged::Runs, self.now));
        while let Some(step) = next {
            let request = Request { prune: Some(step), ..self.make_request(None) };
            next = step.after(&self.take_request(request).await.pruned);
        }
    }

    /// Sweeps in steps of this many rows.
    async fn sweep_store(&self, max: u32) {
        let mut next = Some(Sweep { max, ..Sweep::new(self.now, Some(self.now)) });
        let mut steps = 0;
        while let Some(step) = next {
            let swept = self.store.sweep_rows(step).await.expect("a step can be taken");
            next = swept.next;
            steps += 1;
            assert!(steps < 10_000, "it comes to an end");
        }
    }

    async fn check_audit(&self) {
        assert_eq!(self.store.audit().await.expect("the store can be audited"), []);
    }
}

fn plan_of_customers(workflow: &str) -> Arc<Plan> {
    plan(workflow).task("t", &[]).limit(LimitUse::of("api").by("customer")).build()
}

/// Thousands of customers come once; when their runs are pruned, nothing is left of them that only they
/// have used. `count_rows` counts the rows of a table.
///
/// # Panics
/// If it is otherwise.
pub async fn check_sweep(store: &dyn Store, count_rows: impl AsyncFn(&str) -> i64) {
    let mut swept = SweptStore::new(store, 0);
    swept.perform_operation(Operation::Declare(Limit::new("api").at_once(1).rate(5, HOUR))).await;
    let queues = ["q0", "q1", "q2"];
    let customers = swept.enlist_worker(&queues).await;
    for operation in [Operation::Pause, Operation::Unpause] {
        swept.perform_operation(operation(Scope::Queue("q1".to_owned()))).await;
    }
    swept.now = swept.now + HOUR;
    let mine = swept.enlist_worker(&["q0"]).await;
    let stays = swept.new_run(CUSTOMERS, &plan_of_customers("stays"), "q0", "stays");
    let open = swept.begin_runs(mine, vec![stays]).await;
    for operation in [Operation::Pause, Operation::Unpause] {
        swept.perform_operation(operation(Scope::Queue("q2".to_owned()))).await;
    }
    let plans: Vec<Arc<Plan>> =
        (0..20).map(|number| plan_of_customers(&format!("w{number}"))).collect();
    serve_customers(&mut swept, customers, &queues, &plans).await;
    assert_eq!(count_rows("limit_key").await, CUSTOMERS as i64 + 1);
    assert_eq!(count_rows("plan").await, 21);

    swept.now = swept.now + 24 * HOUR;
    store.dismiss(customers).await.expect("a worker can be dismissed");
    swept.prune_runs().await;
    swept.sweep_store(100).await;
    for table in ["limit_key", "rate_event", "plan", "task_group", "queue"] {
        assert_eq!(count_rows(table).await, 1, "{table}: that of the open run stays");
    }
    assert_eq!(count_rows("pause").await, 1, "one ended while the open run was there");
    swept.check_audit().await;
    swept.report_success(mine, &open).await;

    // The numbers that this process has remembered are those of rows that are gone.
    let customers = swept.enlist_worker(&queues).await;
    serve_customers(&mut swept, customers, &queues, &plans[..1]).await;
    swept.check_audit().await;
}

async fn serve_customers(
    swept: &mut SweptStore<'_>,
    worker: WorkerId,
    queues: &[&str],
    plans: &[Arc<Plan>],
) {
    for batch in 0..CUSTOMERS / BATCH {
        let new_run = |id: u64| {
            let (plan, queue) = (&plans[id as usize % plans.len()], queues[id as usize % 3]);
            swept.new_run(id, plan, queue, &format!("customer {id}"))
        };
        let runs = (batch * BATCH..(batch + 1) * BATCH).map(new_run).collect();
        let tasks = swept.begin_runs(worker, runs).await;
        swept.report_success(worker, &tasks).await;
    }
}

/// One process removes rows whose numbers another one remembers.
///
/// # Panics
/// If a number is used whose row is gone, or a row goes whose number is trusted.
pub async fn check_remembered_numbers(
    remembering: &dyn Store,
    sweeping: &dyn Store,
    count_rows: impl AsyncFn(&str) -> i64,
) {
    let mut first = SweptStore::new(remembering, 0);
    let mut second = SweptStore::new(sweeping, 1 << 32);
    first.perform_operation(Operation::Declare(Limit::new("api").at_once(1))).await;
    let worker = first.enlist_worker(&["q"]).await;
    let plan = plan_of_customers("w");
    for round in 0..3 {
        let run = first.new_run(round, &plan, "q", "ann");
        let tasks = first.begin_runs(worker, vec![run]).await;
        first.report_success(worker, &tasks).await;
        let verified_at = first.now;

        // It is trusted, and so stays without any run.
        second.now = verified_at + HOUR / 2;
        second.prune_runs().await;
        second.sweep_store(1).await;
        assert_eq!(count_rows("ended_task").await, 0);
        for table in ["plan", "task_group", "queue"] {
            assert_eq!(count_rows(table).await, 1, "{table}: a process trusts its number");
        }
        first.now = verified_at + HOUR - Duration::from_micros(1);
        let run = first.new_run(round, &plan, "q", "ann");
        let tasks = first.begin_runs(worker, vec![run]).await;
        second.now = verified_at + 3 * HOUR;
        second.sweep_store(1).await;
        for table in ["plan", "task_group", "queue", "limit_key"] {
            assert_eq!(count_rows(table).await, 1, "{table}: a run was filed by trust");
        }
        first.report_success(worker, &tasks).await;
        first.check_audit().await;

        second.now = verified_at + 6 * HOUR;
        second.prune_runs().await;
        second.sweep_store(1).await;
        for table in ["plan", "task_group", "limit_key"] {
            assert_eq!(count_rows(table).await, 0, "{table}");
        }
        first.now = second.now;
    }
    let run = first.new_run(9, &plan, "q", "ann");
    let tasks = first.begin_runs(worker, vec![run]).await;
    assert_eq!(second.store.audit().await.expect("the store can be audited"), []);
    first.report_success(worker, &tasks).await;
}
