//! How many trips the usual requests take at a store over a network.

use crate::memory::Memory;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::limit::Limit;
use tidegate_core::memory::MemoryStore;
use tidegate_core::plan::{LimitUse, Plan};
use tidegate_core::store::{Claimed, NewRun, Operation, Parent, Scope};
use tidegate_core::wait::{WaitId, WaitKind};
use tidegate_testkit::{
    Harness, TripDecider, World, ask, chain, change, check_with, claim, diamond, fan, one, plan,
};

/// A request in a world that is made for it. Costs of requests before are thrown away.
async fn count_last<T>(trips: &TripDecider, last: impl Future<Output = T>) -> T {
    trips.take_count();
    last.await
}

/// Lets a case happen and compares the trips of its last request.
#[track_caller]
fn check_trips(name: &str, expected: u32, case: impl AsyncFnOnce(&mut World, &TripDecider)) {
    let decider = Arc::new(TripDecider::default());
    let open = async || {
        Box::new(Memory(Arc::new(MemoryStore::with_decider(decider.clone())))) as Box<dyn Harness>
    };
    let mut count = Default::default();
    check_with(open, async |world| {
        case(world, &decider).await;
        count = decider.take_count();
    });
    println!("{name:60} {} trips, {} wants, {} unused", count.trips, count.loaded, count.unused);
    assert_eq!(count.trips, expected, "{name}: {count:?}");
}

async fn end_and_claim(
    world: &mut World,
    trips: &TripDecider,
    worker: tidegate_core::lifecycle::WorkerId,
    ends: &[Claimed],
) -> Vec<Claimed> {
    let mut request = world.request_of(worker);
    request.changes = ends.iter().map(change::succeed).collect();
    request.claim = claim(2, 0);
    count_last(trips, world.take(request)).await.claimed
}

/// A worker, and the first task of a run of this plan.
async fn begin(
    world: &mut World,
    plan: &Arc<Plan>,
) -> (tidegate_core::lifecycle::WorkerId, Claimed) {
    let worker = world.worker_of_all(&[tidegate_testkit::QUEUE]).await;
    world.submit(plan).await;
    (worker, world.claim_one(worker).await)
}

#[test]
fn claims_submits_and_ends_take_one_trip() {
    check_trips("claim of ready tasks", 1, async |world, trips| {
        let (worker, _) = begin(world, &one().build()).await;
        world.submit(&one().build()).await;
        world.submit(&chain(2).build()).await;
        let claimed = count_last(trips, world.claim(worker, 2)).await;
        assert_eq!(claimed.len(), 2);
    });
    check_trips("submit and claim", 1, async |world, trips| {
        let (worker, _) = begin(world, &one().build()).await;
        let new = world.new_run(&chain(2).build());
        let mut request = world.request_of(worker);
        request.submits.push(new);
        request.claim = claim(1, 0);
        let reply = count_last(trips, world.take(request)).await;
        assert_eq!(reply.claimed.len(), 1);
    });
    check_trips("ends of runs of one task, and claim", 1, async |world, trips| {
        let (worker, first) = begin(world, &one().build()).await;
        for _ in 0..3 {
            world.submit(&one().build()).await;
        }
        let second = world.claim_one(worker).await;
        let claimed = end_and_claim(world, trips, worker, &[first, second]).await;
        assert_eq!(claimed.len(), 2);
    });
    check_trips("end in a chain, and claim of the next", 1, async |world, trips| {
        let (worker, first) = begin(world, &chain(3).build()).await;
        let claimed = end_and_claim(world, trips, worker, &[first]).await;
        assert_eq!(claimed.len(), 1);
    });
    check_trips("end of the last parent, and claim of its child", 1, async |world, trips| {
        let (worker, first) = begin(world, &diamond().build()).await;
        let parents = end_and_claim(world, trips, worker, &[first]).await;
        end_and_claim(world, trips, worker, &parents[..1]).await;
        let claimed = end_and_claim(world, trips, worker, &parents[1..]).await;
        assert_eq!(claimed.len(), 1);
    });
    check_trips("alarm of a parked task, and claim", 1, async |world, trips| {
        let (worker, task) = begin(world, &one().build()).await;
        let due = world.now() + Duration::from_secs(1);
        world.tell(worker, change::park(&task, Some(due))).await;
        world.advance(Duration::from_secs(2));
        assert_eq!(count_last(trips, world.claim(worker, 1)).await.len(), 1);
    });
    check_trips("defer and step", 1, async |world, trips| {
        let (worker, task) = begin(world, &one().build()).await;
        let defer = change::defer(&task, Duration::from_secs(1), "x");
        let ops = vec![ask::step("a", "1"), ask::step("b", "2")];
        let defer = tidegate_core::store::Change { waits: ops, ..defer };
        count_last(trips, world.tell(worker, defer)).await;
    });
}

#[test]
fn keys_and_retries_take_one_trip() {
    check_trips("submit under a key that exists", 1, async |world, trips| {
        let keyed = |new: NewRun| NewRun { key: Some("k".to_owned()), ..new };
        let plan = one().build();
        let new = keyed(world.new_run(&plan));
        world.submit_run(new).await;
        let new = keyed(world.new_run(&plan));
        assert!(count_last(trips, world.submit_run(new)).await.existing);
    });
    check_trips("failure that is tried again", 1, async |world, trips| {
        let plan = one().rules(|rules| rules.retries = 2).build();
        let (worker, task) = begin(world, &plan).await;
        count_last(trips, world.tell(worker, change::fail(&task))).await;
    });
}

#[test]
fn large_fan_in_takes_a_trip_for_several_times_as_many_parents() {
    for (width, expected) in [(4, 1), (16, 2), (64, 3), (200, 4)] {
        let name = format!("end of the last of {width} parents");
        check_trips(&name, expected, async |world, trips| {
            let (worker, first) = begin(world, &fan(width).build()).await;
            world.tell(worker, change::succeed(&first)).await;
            let parents = world.claim(worker, width as u32).await;
            let (last, others) = parents.split_first().expect("there are parents");
            for parent in others {
                world.tell(worker, change::succeed(parent)).await;
            }
            let claimed = end_and_claim(world, trips, worker, std::slice::from_ref(last)).await;
            assert_eq!(claimed.len(), 1);
        });
    }
}

#[test]
fn failures_and_cancels_take_two_trips_at_most() {
    check_trips("failure for good in a chain", 2, async |world, trips| {
        let (worker, task) = begin(world, &chain(3).build()).await;
        count_last(trips, world.tell(worker, change::fail(&task))).await;
    });
    check_trips("cancel of a run of one task", 1, async |world, trips| {
        let submitted = world.submit(&one().build()).await;
        let cancel = Operation::Cancel(submitted.id);
        count_last(trips, world.perform_operation(cancel)).await;
    });
    check_trips("cancel of a run of several tasks, and claim", 1, async |world, trips| {
        let (worker, task) = begin(world, &diamond().build()).await;
        for _ in 0..3 {
            world.submit(&one().build()).await;
        }
        let mut request = world.request_of(worker);
        request.operations.push(Operation::Cancel(task.run));
        request.claim = claim(2, 0);
        let reply = count_last(trips, world.take(request)).await;
        assert_eq!((reply.ended.len(), reply.claimed.len()), (1, 2));
    });
    check_trips("pause of a run", 1, async |world, trips| {
        let submitted = world.submit(&diamond().build()).await;
        let pause = Operation::Pause(Scope::Run(submitted.id));
        count_last(trips, world.perform_operation(pause)).await;
    });
    check_trips("recovery of tasks, and claim", 1, async |world, trips| {
        let (dead, _) = begin(world, &one().build()).await;
        world.submit(&diamond().build()).await;
        world.claim(dead, 3).await;
        world.kill(dead).await;
        let worker = world.worker_of_all(&[tidegate_testkit::QUEUE]).await;
        let mut request = world.request_of(worker);
        request.recover = Some(dead);
        request.claim = claim(2, 0);
        let reply = count_last(trips, world.take(request)).await;
        assert_eq!((reply.recovered, reply.claimed.len()), (2, 2));
    });
}

#[test]
fn limits_take_two_trips() {
    let limited = || one().limit("api").build();
    check_trips("claim under a limit", 1, async |world, trips| {
        world.declare(Limit::new("api").at_once(1)).await;
        let worker = world.worker_of_all(&[tidegate_testkit::QUEUE]).await;
        world.submit(&limited()).await;
        assert_eq!(count_last(trips, world.claim(worker, 1)).await.len(), 1);
    });
    check_trips("submit and claim under a limit", 1, async |world, trips| {
        world.declare(Limit::new("api").at_once(1)).await;
        let worker = world.worker_of_all(&[tidegate_testkit::QUEUE]).await;
        let new = world.new_run(&limited());
        let mut request = world.request_of(worker);
        request.submits.push(new);
        request.claim = claim(1, 0);
        assert_eq!(count_last(trips, world.take(request)).await.claimed.len(), 1);
    });
    check_trips("end under a full limit, and claim of the next", 2, async |world, trips| {
        world.declare(Limit::new("api").at_once(1)).await;
        let (worker, task) = begin(world, &limited()).await;
        world.submit(&limited()).await;
        world.submit(&limited()).await;
        assert!(world.claim(worker, 2).await.is_empty(), "the limit is full");
        assert_eq!(end_and_claim(world, trips, worker, &[task]).await.len(), 1);
    });
    check_trips("end under two full limits, one with keys and a rate", 2, async |world, trips| {
        world.declare(Limit::new("api").at_once(1)).await;
        world.declare(Limit::new("db").at_once(1).rate(100, Duration::from_secs(1))).await;
        let plan =
            plan("two").task("a", &[]).limit("api").limit(LimitUse::of("db").by("k")).build();
        let keyed = |mut new: NewRun| {
            new.keys = vec![(tidegate_core::graph::TaskIndex::from_u32(0), vec!["x".into()])];
            new
        };
        let worker = world.worker_of_all(&[tidegate_testkit::QUEUE]).await;
        for _ in 0..3 {
            let new = keyed(world.new_run(&plan));
            world.submit_run(new).await;
        }
        let tasks = world.claim(worker, 3).await;
        assert_eq!(end_and_claim(world, trips, worker, &tasks).await.len(), 1);
    });
}

#[test]
fn signals_and_child_runs_take_two_trips() {
    check_trips("signal that no task waits for", 2, async |world, trips| {
        let submitted = world.submit(&one().build()).await;
        count_last(trips, world.send(submitted.id, "go", "x")).await;
    });
    check_trips("signal that ends a wait", 2, async |world, trips| {
        let (worker, task) = begin(world, &chain(2).build()).await;
        let go = WaitId::new(WaitKind::Signal, "go", 0);
        let parks = change::park_on(&task, None, [go]);
        let waits = vec![ask::signal("go", 0)];
        world.tell(worker, tidegate_core::store::Change { waits, ..parks }).await;
        count_last(trips, world.send(task.run, "go", "x")).await;
    });
    check_trips("begin of a wait for a signal", 1, async |world, trips| {
        let (worker, task) = begin(world, &chain(2).build()).await;
        let op = ask::signal("go", 0);
        count_last(trips, world.asks(worker, &task, op)).await;
    });
    check_trips("begin of a child run", 1, async |world, trips| {
        let (worker, task) = begin(world, &one().build()).await;
        let new = child_of(world, &task);
        count_last(trips, world.asks(worker, &task, ask::child(new))).await;
    });
    check_trips("end of a child run, and claim of its parent", 2, async |world, trips| {
        let (worker, task) = begin(world, &one().build()).await;
        let new = child_of(world, &task);
        let on = new.parent.as_ref().expect("it has a parent").wait.clone();
        let parks = change::park_on(&task, None, [on]);
        let waits = vec![ask::child(new)];
        world.tell(worker, tidegate_core::store::Change { waits, ..parks }).await;
        let child = world.claim_one(worker).await;
        assert_eq!(end_and_claim(world, trips, worker, &[child]).await.len(), 1);
    });
    check_trips("begin of a wait for another run", 1, async |world, trips| {
        let (worker, task) = begin(world, &one().build()).await;
        let other = world.submit(&diamond().build()).await;
        count_last(trips, world.asks(worker, &task, ask::run(other.id))).await;
    });
}

fn child_of(world: &mut World, task: &Claimed) -> NewRun {
    let wait = WaitId::new(WaitKind::Child, "", 0);
    let parent = Some(Parent::new(task.key, task.life.fence, wait));
    NewRun { parent, ..world.new_run(&one().build()) }
}
