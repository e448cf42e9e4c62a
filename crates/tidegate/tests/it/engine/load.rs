//! The load of the machine: samples, starts that are held while it is high, slots that move with it.

use super::gates::{Gates, fake_clock, is_sound, life, on_paused_time, until_kind, with_gates};
use super::support::{Place, on_every_store, until};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::engine::{Kind, Resource, Sample, StartBelow, Why, WorkerId};
use tidegate::{
    Config, Context, Engine, EngineBuilder, RunOutcome, Task, TaskError, TaskHandle, Workflow,
};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// The load of a machine, as a test sets it.
#[derive(Clone, Default)]
struct Load {
    used: Arc<Mutex<(f64, f64)>>,
    samples: Arc<AtomicU64>,
}

impl Load {
    /// So much of the processors and of the memory is in use.
    fn set(&self, cpu: f64, memory: f64) {
        *self.used.lock().unwrap() = (cpu, memory);
    }

    /// How often somebody has looked.
    fn samples(&self) -> u64 {
        self.samples.load(Ordering::SeqCst)
    }

    fn on(&self, engine: EngineBuilder) -> EngineBuilder {
        let load = self.clone();
        engine.clock(fake_clock()).load(move |at| {
            load.samples.fetch_add(1, Ordering::SeqCst);
            let (cpu, memory) = *load.used.lock().unwrap();
            let mut sample = Sample::new(at);
            (sample.machine.cpu, sample.machine.memory) = (Some(cpu), Some(memory));
            sample
        })
    }
}

/// Waits for the next sample, and until the loop has heard what follows from it.
async fn next_sample(engine: &Engine) -> Sample {
    let sample = engine.samples().next().await.expect("the engine is there");
    engine.unpause_queue("nobody's").await.unwrap();
    sample
}

/// Waits for a run of `hold`, without its slot.
async fn parent(context: &mut Context<String>, handle: &TaskHandle) -> Result<String, TaskError> {
    context.state::<Gates>()?.pass("parent").await;
    let gate = context.input().clone();
    Ok(handle.run_child("hold", gate).await?.output("hold")?)
}

on_paused_time! {
    async fn a_sample_is_published_every_five_seconds_and_no_burst_follows_a_stall(place: Place) {
        let load = Load::default();
        let engine = load.on(place.engine()).start().await.unwrap();
        load.set(0.25, 0.5);
        assert_eq!(load.samples(), 1, "the first is there when the engine is");
        let at = engine.sample().expect("the first was published").at;
        let (begun, mut samples) = (Instant::now(), engine.samples());
        for number in 1..=3 {
            let sample = samples.next().await.unwrap();
            assert_eq!(begun.elapsed(), number * 5 * SECOND);
            assert_eq!(sample.at, at + number * 5 * SECOND);
            assert_eq!((sample.machine.cpu, sample.machine.memory), (Some(0.25), Some(0.5)));
            assert_eq!(engine.sample(), Some(sample));
            let metrics = engine.metrics();
            assert_eq!((metrics.machine_cpu, metrics.machine_memory), (Some(0.25), Some(0.5)));
        }
        let before = load.samples();
        tokio::time::advance(62 * SECOND).await;
        samples.next().await.unwrap();
        let stalled = Instant::now();
        samples.next().await.unwrap();
        assert_eq!((load.samples() - before, stalled.elapsed()), (2, 5 * SECOND));
        engine.shutdown(SECOND).await;
        assert_eq!(samples.next().await, None, "it ends with the engine");
        assert_eq!(engine.samples().next().await, None);
    }

    async fn above_a_mark_nothing_starts_and_what_has_begun_goes_on(place: Place) {
        let (load, gates) = (Load::default(), Gates::default());
        let engine = with_gates(load.on(place.engine()), &gates).slots(2);
        let marks = StartBelow::cpu(0.8).and_memory(0.9);
        let engine = engine.start_below(marks).start().await.unwrap();
        let computes = engine.submit("hold", "computes").await.unwrap();
        let waits = engine.submit("wait", "waits").await.unwrap();
        gates.arrived("computes", 1).await;
        gates.arrived("waits", 1).await;
        assert!(!engine.metrics().starts_held);

        load.set(0.8, 0.1);
        next_sample(&engine).await;
        assert!(engine.metrics().starts_held);
        let held = engine.submit("hold", "held").await.unwrap();
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(gates.arrivals("held"), 0, "a slot is free, and it does not start");
        assert_eq!(engine.slots().available(), 1);
        let explained = held.explain("hold").await.unwrap();
        let why = |what, value, mark| Why::StartBelow { worker: WorkerId(1), what, value, mark };
        assert_eq!(explained.reasons, [why(Resource::Cpu, 0.8, 0.8)]);
        assert_eq!(explained.estimate, None);

        gates.open("waits");
        waits.wait().await.expect("who has waited goes on");
        assert_eq!(life(engine.store(), computes.id()).await.state.kind(), Kind::Active);
        load.set(0.9, 0.95);
        next_sample(&engine).await;
        let both = [why(Resource::Cpu, 0.9, 0.8), why(Resource::Memory, 0.95, 0.9)];
        assert_eq!(held.explain("hold").await.unwrap().reasons, both);
        gates.open("computes");
        assert_eq!(computes.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(gates.arrivals("held"), 0, "nor when a slot becomes free");

        load.set(0.79, 0.89);
        let below = Instant::now();
        gates.arrived("held", 1).await;
        assert!(below.elapsed() <= 5 * SECOND, "with the next sample: {:?}", below.elapsed());
        assert!(!engine.metrics().starts_held);
        gates.open("held");
        held.wait().await.unwrap();
        is_sound(engine.store()).await;
    }

    async fn what_was_claimed_ahead_goes_back_and_begins_when_it_may(place: Place) {
        let (load, gates) = (Load::default(), Gates::default());
        let engine = with_gates(load.on(place.engine()), &gates).slots(1);
        let engine = engine.start_below(StartBelow::memory(0.9)).start().await.unwrap();
        engine.submit("hold", "first").await.unwrap();
        let ahead = engine.submit("hold", "ahead").await.unwrap();
        gates.arrived("first", 1).await;
        until_kind(engine.store(), ahead.id(), Kind::Claimed).await;
        load.set(0.0, 0.95);
        next_sample(&engine).await;
        until_kind(engine.store(), ahead.id(), Kind::Ready).await;
        assert_eq!(engine.metrics().handed_back_total, 1);
        gates.open("first");
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!((gates.arrivals("ahead"), engine.slots().in_use()), (0, 0));
        load.set(0.0, 0.5);
        gates.open("ahead");
        let task = ahead.wait().await.unwrap().tasks[0].clone();
        assert_eq!((task.kind, task.attempt, task.entries), (Kind::Succeeded, 1, 1));
        is_sound(engine.store()).await;
    }

    async fn what_somebody_waits_for_starts_all_the_same(place: Place) {
        let (load, gates) = (Load::default(), Gates::default());
        let parent = Workflow::of(Task::new("parent", parent)).unwrap();
        let engine = with_gates(load.on(place.engine()), &gates).slots(1).workflow(parent);
        let engine = engine.start_below(StartBelow::cpu(0.5)).start().await.unwrap();
        let parent = engine.submit("parent", "child").await.unwrap();
        gates.arrived("parent", 1).await;
        load.set(1.0, 0.0);
        next_sample(&engine).await;
        let other = engine.submit("hold", "other").await.unwrap();
        gates.open("parent");
        gates.open("child");
        assert_eq!(parent.wait().await.unwrap().output::<String>("parent").unwrap(), "child");
        assert_eq!(life(engine.store(), other.id()).await.state.kind(), Kind::Ready);
    }

    async fn starts_are_held_from_the_beginning(place: Place) {
        let (load, gates) = (Load::default(), Gates::default());
        let other = with_gates(place.engine().clock(fake_clock()), &gates).queues(["later"]);
        let run = other.start().await.unwrap().submit("hold", "a").queue("default").await.unwrap();
        load.set(1.0, 1.0);
        let engine = with_gates(load.on(place.engine()), &gates);
        let engine = engine.start_below(StartBelow::cpu(0.5)).start().await.unwrap();
        tokio::time::sleep(4 * SECOND).await;
        assert_eq!(gates.arrivals("a"), 0);
        load.set(0.0, 1.0);
        gates.arrived("a", 1).await;
        gates.open("a");
        engine.run(run.id()).await.unwrap().wait().await.unwrap();
    }

    async fn slots_move_with_the_load_between_their_bounds(place: Place) {
        let (load, gates) = (Load::default(), Gates::default());
        load.set(0.1, 0.1);
        let engine = with_gates(load.on(place.engine()), &gates).slots_between(2, 5);
        let engine = engine.start().await.unwrap();
        assert_eq!(engine.slots().capacity(), 2, "it begins with the fewest");
        for _ in 0..3 {
            next_sample(&engine).await;
        }
        assert_eq!(engine.slots().capacity(), 2, "nobody wants more");
        let runs = engine.submit_many("hold", ["a"; 12]).await.unwrap();
        gates.arrived("a", 2).await;
        for slots in [3, 4, 5, 5, 5] {
            next_sample(&engine).await;
            assert_eq!(engine.slots().capacity(), slots);
            gates.arrived("a", slots as usize).await;
            until("all are in use", async || engine.slots().in_use() == slots).await;
        }
        let metrics = engine.metrics();
        assert_eq!((metrics.slots, metrics.slots_min, metrics.slots_max), (5, 2, 5));
        assert_eq!(metrics.resizes_total, 3);
        load.set(0.95, 0.1);
        for slots in [4, 3, 2, 2] {
            next_sample(&engine).await;
            assert_eq!((engine.slots().capacity(), engine.slots().in_use()), (slots, 5));
        }
        assert_eq!(gates.arrivals("a"), 5, "nothing was killed, and nothing began");
        gates.open("a");
        for run in &runs {
            assert_eq!(run.wait().await.unwrap().outcome(), Some(RunOutcome::Succeeded));
        }
        is_sound(engine.store()).await;
    }

    async fn a_fixed_number_of_slots_does_not_move(place: Place) {
        let (load, gates) = (Load::default(), Gates::default());
        let engine = with_gates(load.on(place.engine()), &gates).slots(2).start().await.unwrap();
        engine.submit_many("hold", ["a"; 9]).await.unwrap();
        for cpu in [0.0, 1.0] {
            load.set(cpu, cpu);
            next_sample(&engine).await;
            assert_eq!(engine.slots().capacity(), 2);
        }
    }
}

#[cfg(target_os = "linux")]
on_every_store! {
    async fn the_machine_itself_holds_starts(place: Place) {
        let gates = Gates::default();
        let engine = with_gates(place.engine(), &gates);
        // No machine has so little in use.
        let engine = engine.start_below(StartBelow::memory(0.000_001)).start().await.unwrap();
        let run = engine.submit("hold", "a").await.unwrap();
        let reasons = run.explain("hold").await.unwrap().reasons;
        let [Why::StartBelow { what: Resource::Memory, value, mark, .. }] = reasons[..] else {
            panic!("it is held, and nothing else: {reasons:?}");
        };
        assert_eq!(mark, 0.000_001);
        assert!(value > mark && value <= 1.0, "{value}");
        assert_eq!(engine.sample().unwrap().machine.memory, Some(value));
        assert!(engine.sample().unwrap().process.memory.is_some_and(|bytes| bytes > 0));
        assert_eq!(gates.arrivals("a"), 0);
        engine.shutdown(Duration::ZERO).await;

        let next = with_gates(place.engine(), &gates).start().await.unwrap();
        gates.open("a");
        next.run(run.id()).await.unwrap().wait().await.unwrap();
    }
}

#[tokio::test]
async fn marks_and_bounds_that_make_no_sense_are_refused() {
    let refused = async |engine: EngineBuilder, says: &str| {
        assert_eq!(engine.start().await.unwrap_err().to_string(), says);
    };
    let engine = || Engine::builder("memory:");
    for (mark, told) in [(0.0, "0"), (-0.5, "-0.5"), (1.5, "1.5"), (f64::NAN, "NaN")] {
        let must = "it must be a fraction above 0, and 1 at most";
        let says = format!("start_below.cpu cannot be {told}; {must}");
        refused(engine().start_below(StartBelow::cpu(mark)), &says).await;
        let says = format!("start_below.memory cannot be {told}; {must}");
        refused(engine().start_below(StartBelow::cpu(1.0).and_memory(mark)), &says).await;
    }
    refused(engine().slots_between(0, 3), "slots cannot be 0; it must be at least 1").await;
    let says = "slots_max cannot be 3; it must be at least as many as slots";
    refused(engine().slots_between(4, 3), says).await;
    let mut config = Config::default();
    (config.slots_max, config.in_memory_max) = (Some(9), 8);
    let says = "in_memory_max cannot be 8; it must be at least as many as there are slots";
    refused(engine().config(config), says).await;

    async fn nothing(_: &mut Context) -> Result<(), TaskError> {
        Ok(())
    }
    let heavy = Workflow::of(Task::new("heavy", nothing).weight(3)).unwrap();
    let says = "task \"heavy\" of workflow \"heavy\" weighs 3 and there may be no more than 2 slots; \
                it might never run";
    refused(engine().slots_between(2, 8).workflow(heavy), says).await;
}
