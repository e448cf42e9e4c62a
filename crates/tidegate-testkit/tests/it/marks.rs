//! The marks of rows in a delta: which are final, and which are plain.

use crate::memory::Memory;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::decision::{Decision, decide};
use tidegate_core::graph::When;
use tidegate_core::limit::Limit;
use tidegate_core::memory::MemoryStore;
use tidegate_core::store::{NewRun, Operation, Parent, Request};
use tidegate_core::testing::{AnyLoader, Decider};
use tidegate_core::wait::{WaitId, WaitKind};
use tidegate_core::want::Known;
use tidegate_testkit::{
    Harness, QUEUE, Sketch, World, ask, chain, change, check_with, diamond, one, plan,
};

/// Keeps the marks of the last delta, by task.
#[derive(Default)]
struct MarkDecider(Mutex<Vec<Marks>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    task: u32,
    is_final: bool,
    is_plain: bool,
}

impl MarkDecider {
    fn marks(&self) -> Vec<Marks> {
        self.0.lock().expect("no test panics with it").clone()
    }

    /// The tasks whose rows are final.
    fn final_tasks(&self) -> Vec<u32> {
        self.marks().iter().filter(|marks| marks.is_final).map(|marks| marks.task).collect()
    }

    /// Whether the first row of the last delta is plain.
    fn is_plain(&self) -> bool {
        self.marks()[0].is_plain
    }
}

impl Decider for MarkDecider {
    fn decide_request(&self, request: &Request, loader: &mut AnyLoader<'_>) -> Decision {
        let mut loader = loader;
        let Ok(decision) = decide(request, Known::new(), &mut loader);
        let marks = decision.delta.tasks.iter().map(|write| Marks {
            task: write.row.index.as_u32(),
            is_final: write.is_final,
            is_plain: write.is_plain,
        });
        *self.0.lock().expect("no test panics with it") = marks.collect();
        decision
    }

    fn check_applied(&self, _: &mut AnyLoader<'_>) {}
}

fn check_marks(case: impl AsyncFnOnce(&mut World, &MarkDecider)) {
    let decider = Arc::new(MarkDecider::default());
    let open = async || {
        Box::new(Memory(Arc::new(MemoryStore::with_decider(decider.clone())))) as Box<dyn Harness>
    };
    check_with(open, async |world| case(world, &decider).await);
}

#[test]
fn ended_row_is_final_unless_it_carries_an_open_run() {
    check_marks(async |world, marks| {
        let worker = world.worker_of_all(&[QUEUE]).await;
        world.submit(&chain(3).build()).await;
        let first = world.claim_one(worker).await;
        world.tell(worker, change::succeed(&first)).await;
        assert_eq!(marks.final_tasks(), [] as [u32; 0], "the first row carries the run");
        let second = world.claim_one(worker).await;
        world.tell(worker, change::succeed(&second)).await;
        assert_eq!(marks.final_tasks(), [1]);
        let third = world.claim_one(worker).await;
        world.tell(worker, change::succeed(&third)).await;
        assert_eq!(marks.final_tasks(), [0, 2], "the run has ended with the last task");
    });
    check_marks(async |world, marks| {
        let submitted = world.submit(&diamond().build()).await;
        world.perform_operation(Operation::Cancel(submitted.id)).await;
        assert_eq!(marks.final_tasks(), [0, 1, 2, 3]);
    });
}

#[test]
fn ready_row_is_plain_if_its_claim_bears_on_nothing_else() {
    let is_plain = |sketch: Sketch, change: fn(&mut NewRun)| {
        let mut is_plain = None;
        check_marks(async |world, marks| {
            world.declare(Limit::new("api").at_once(5)).await;
            let mut new = world.new_run(&sketch.build());
            change(&mut new);
            world.submit_run(new).await;
            is_plain = Some(marks.is_plain());
        });
        is_plain.expect("a run was submitted")
    };
    let hour = Duration::from_secs(3_600);
    assert!(is_plain(one(), |_| {}));
    assert!(is_plain(chain(2), |_| {}));
    assert!(!is_plain(one().weight(2), |_| {}));
    assert!(!is_plain(one().limit("api"), |_| {}));
    assert!(!is_plain(one().rules(|rules| rules.queue_timeout = Some(hour)), |_| {}));
    assert!(!is_plain(one().rules(|rules| rules.deadline = Some(hour)), |_| {}));
    assert!(!is_plain(one(), |new| new.not_before = Some(Timestamp::from_micros(i64::MAX))));
}

#[test]
fn row_with_waits_or_parents_that_may_have_failed_is_not_plain() {
    check_marks(async |world, marks| {
        let worker = world.worker_of_all(&[QUEUE]).await;
        let cleanup = plan("w").task("a", &[]).task("b", &["a"]).when(When::AllDone);
        world.submit(&cleanup.build()).await;
        let first = world.claim_one(worker).await;
        world.tell(worker, change::succeed(&first)).await;
        assert!(marks.marks().iter().all(|marks| !marks.is_plain));
    });
    check_marks(async |world, marks| {
        let worker = world.worker_of_all(&[QUEUE]).await;
        world.submit(&one().build()).await;
        let task = world.claim_one(worker).await;
        world.asks(worker, &task, ask::step("s", "x")).await;
        world.tell(worker, change::hand_back(&task)).await;
        assert!(!marks.is_plain());
    });
}

#[test]
fn paused_awaited_and_suspect_rows_are_not_plain() {
    check_marks(async |world, marks| {
        let submitted = world.submit(&one().build()).await;
        let scope = || tidegate_core::store::Scope::Run(submitted.id);
        world.perform_operation(Operation::Pause(scope())).await;
        assert!(!marks.is_plain());
        world.perform_operation(Operation::Unpause(scope())).await;
        assert!(marks.is_plain());
    });
    check_marks(async |world, marks| {
        let worker = world.worker_of_all(&[QUEUE]).await;
        world.submit(&one().build()).await;
        let task = world.claim_one(worker).await;
        let wait = WaitId::new(WaitKind::Child, "", 0);
        let parent = Some(Parent::new(task.key, task.life.fence, wait));
        let child = NewRun { parent, ..world.new_run(&one().build()) };
        world.asks(worker, &task, ask::child(child)).await;
        assert!(marks.marks().iter().all(|marks| !marks.is_plain), "a task waits for its run");
    });
    check_marks(async |world, marks| {
        world.submit(&one().build()).await;
        for is_plain in [true, false] {
            let dead = world.worker_of_all(&[QUEUE]).await;
            world.claim_one(dead).await;
            world.kill(dead).await;
            world.recover(dead).await;
            assert_eq!(marks.is_plain(), is_plain);
        }
    });
}
