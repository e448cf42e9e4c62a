//! What follows from the load of a machine: held starts, and how many slots there are.

use proptest::prelude::*;
use std::ops::RangeInclusive;
use tidegate_core::Timestamp;
use tidegate_core::load::{
    MachineLoad, Pressure, ProcessLoad, Reached, Resource, Sample, StartBelow, next_capacity,
};

/// A machine of four processors of which so much is in use.
fn sample(cpu: impl Into<Option<f64>>, memory: impl Into<Option<f64>>) -> Sample {
    let mut sample = Sample::new(Timestamp::from_micros(0));
    (sample.machine.cpu, sample.machine.memory) = (cpu.into(), memory.into());
    sample.machine.cores = Some(4.0);
    sample
}

#[test]
fn a_mark_is_reached_at_and_above_it_and_not_where_nothing_is_known() {
    let marks = StartBelow::cpu(0.8).and_memory(0.5);
    let (cpu, memory) = (Resource::Cpu, Resource::Memory);
    assert_eq!(marks.reached(&sample(0.79, 0.49)), []);
    let at = |what, value, mark| Reached { what, value, mark };
    assert_eq!(marks.reached(&sample(0.8, 0.49)), [at(cpu, 0.8, 0.8)]);
    assert_eq!(marks.reached(&sample(0.9, 0.6)), [at(cpu, 0.9, 0.8), at(memory, 0.6, 0.5)]);
    assert_eq!(marks.reached(&sample(None, 0.6)), [at(memory, 0.6, 0.5)]);
    assert_eq!(marks.reached(&sample(None, None)), []);
    assert_eq!(StartBelow::memory(0.5).reached(&sample(1.0, 0.1)), []);
    assert_eq!(StartBelow::default().reached(&sample(1.0, 1.0)), []);
}

#[test]
fn slots_grow_by_a_quarter_while_they_are_wanted_and_the_machine_has_room() {
    let bounds = 2..=20;
    let mut now = 2;
    let mut seen = vec![now];
    while now < 20 {
        now = next_capacity(now, &bounds, &sample(0.3, 0.3), true);
        seen.push(now);
    }
    assert_eq!(seen, [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 20]);
    assert_eq!(next_capacity(8, &bounds, &sample(0.3, 0.3), false), 8, "nobody wants more");
    assert_eq!(next_capacity(8, &bounds, &sample(0.8, 0.3), true), 8, "between the marks");
    assert_eq!(next_capacity(8, &bounds, &sample(0.3, 0.85), true), 8);
    assert_eq!(next_capacity(8, &bounds, &sample(None, 0.1), true), 8, "who knows");
}

#[test]
fn slots_shrink_by_a_quarter_above_a_mark_whether_they_are_wanted_or_not() {
    let bounds = 2..=20;
    for wanted in [true, false] {
        assert_eq!(next_capacity(20, &bounds, &sample(0.95, 0.1), wanted), 15);
        assert_eq!(next_capacity(20, &bounds, &sample(0.1, 0.95), wanted), 15);
        assert_eq!(next_capacity(3, &bounds, &sample(None, 0.95), wanted), 2);
        assert_eq!(next_capacity(2, &bounds, &sample(1.0, 1.0), wanted), 2);
    }
    let mut pressed = sample(0.3, 0.3);
    let mut pressure = Pressure::default();
    pressure.cpu = Some(0.7);
    pressed.pressure = Some(pressure);
    assert_eq!(next_capacity(20, &bounds, &pressed, true), 15);
    pressed.pressure.as_mut().unwrap().cpu = Some(0.3);
    assert_eq!(next_capacity(15, &bounds, &pressed, true), 15);
}

#[test]
fn a_slot_is_not_made_that_would_be_taken_away_again() {
    let mut busy = sample(0.6, 0.1);
    // One slot keeps 2.4 of 4 processors busy; a second one would take too much.
    busy.process.cpu = Some(2.4);
    assert_eq!(next_capacity(1, &(1..=8), &busy, true), 1);
    busy.process.cpu = Some(0.4);
    assert_eq!(next_capacity(1, &(1..=8), &busy, true), 2, "it is somebody else's load");
}

fn fraction() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(prop_oneof![0.0..=1.0, Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)])
}

prop_compose! {
    fn any_sample()(
        cpu in fraction(), memory in fraction(), cores in fraction(), own in fraction(),
        pressure in proptest::option::of(fraction()),
    ) -> Sample {
        let mut sample = sample(cpu, memory);
        sample.machine.cores = cores;
        sample.process.cpu = own;
        sample.pressure = pressure.map(|cpu| {
            let mut pressure = Pressure::default();
            pressure.cpu = cpu;
            pressure
        });
        sample
    }
}

fn bounds() -> impl Strategy<Value = RangeInclusive<u32>> {
    (1..2_000_u32, 0..2_000_u32).prop_map(|(min, more)| min..=min + more)
}

proptest! {
    #[test]
    fn capacity_stays_in_its_bounds_and_moves_in_steps(
        bounds in bounds(), at in 0.0..=1.0_f64, sample in any_sample(), wanted: bool,
    ) {
        let span = bounds.end() - bounds.start();
        let now = bounds.start() + (f64::from(span) * at) as u32;
        let next = next_capacity(now, &bounds, &sample, wanted);
        prop_assert!(bounds.contains(&next));
        prop_assert!(next.abs_diff(now) <= (now / 4).max(1));
    }

    #[test]
    fn capacity_from_outside_its_bounds_comes_back(
        bounds in bounds(), now: u32, sample in any_sample(), wanted: bool,
    ) {
        prop_assert!(bounds.contains(&next_capacity(now, &bounds, &sample, wanted)));
    }

    /// Each slot keeps so much of the machine busy, and others so much: whatever that is, and wherever
    /// it begins, after a while nothing moves any more.
    #[test]
    fn under_a_steady_load_capacity_settles(
        bounds in bounds(), at in 0.0..=1.0_f64, each in 0.0001..=0.6_f64, others in 0.0..=1.0_f64,
    ) {
        let span = bounds.end() - bounds.start();
        let mut now = bounds.start() + (f64::from(span) * at) as u32;
        let mut trail = Vec::new();
        for _ in 0..80 {
            let ours = (each * f64::from(now)).min(1.0);
            let mut sample = sample((ours + others).min(1.0), 0.1);
            sample.process.cpu = Some(ours * 4.0);
            now = next_capacity(now, &bounds, &sample, true);
            trail.push(now);
        }
        prop_assert!(trail[70..].iter().all(|then| *then == now), "{trail:?}");
    }
}

#[test]
fn what_is_not_known_is_nothing() {
    let nothing = Sample::new(Timestamp::from_micros(7));
    assert_eq!(nothing.process, ProcessLoad::default());
    assert_eq!(nothing.machine, MachineLoad::default());
    assert_eq!(next_capacity(5, &(1..=9), &nothing, true), 5);
}
