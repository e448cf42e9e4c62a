//! What happens next, by chance; and the end, where everything has to.

use super::ledger::Drawn;
use super::ledger::now_or_never;
use super::post::Ignored;
use super::process::{Closing, Name, Process};
use super::profile::Profile;
use super::script::{self, Draw, HEAVIEST, LIMITS, Mood, QUEUES, SIGNALS};
use super::world::{Asked, Checked, Fault, World};
use super::{Options, Summary};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::dispatcher::Input;
use tidegate_core::graph::OnFailure;
use tidegate_core::store::{Knows, NewRun, NewWorker, Operation, Scope, Store};
use tidegate_core::wait::NewSignal;
use tidegate_core::{RunId, Timestamp};

/// Every so many steps the whole store is audited.
const AUDIT_EVERY: u64 = 100;

/// Steps and time in which everything ends once the faults have stopped. The longest of what is
/// drawn (waits, back-offs, five deaths of a poison task, the roll call) is over long before.
const STEPS_MAX: u32 = 40_000;
const CALM_EVERY: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(3_600);

/// After so long nothing is under way any more.
const UNDER_WAY: Duration = Duration::from_secs(30);

/// Signals of each name that runs get then.
const SENT_AT_ONCE: usize = 4;

/// One seed.
pub(super) struct Simulation {
    world: World,
    profile: Profile,
    options: Options,
    has_faults: bool,
    ids: u64,
    signals: u64,
}

/// What can happen next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Deliver(usize),
    HandIn(usize),
    Reach(usize),
    Answer(usize),
    Ring(usize),
    Body(usize, Name),
    Vanish(usize, Name),
    Advance,
    Park(usize, Name),
    Submit,
    Signal,
    Limit,
    Cancel,
    Pause,
    Unpause,
    RollCall(usize),
    Look(usize),
    Kill(usize),
    Close(usize),
    Skew(usize),
    HoldStarts(usize),
    Begin,
    Lie,
}

impl Simulation {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut world = World::new(seed, options);
        let profile = Profile::draw(&mut world.chance);
        world.trace.add(format_args!("{profile:?}"));
        world.outsiders_err = profile.faults > 0;
        Simulation { world, profile, options, has_faults: true, ids: 0, signals: 0 }
    }

    pub(super) fn into_trace(mut self) -> Vec<String> {
        self.world.trace.lines()
    }

    pub(super) fn into_summary(mut self) -> Summary {
        while !self.world.processes.is_empty() {
            self.world.bury(0);
        }
        let World { mut summary, ledger, mut trace, .. } = self.world;
        let (runs, tasks) = ledger.ended_count();
        (summary.runs, summary.tasks) = (runs as u64, tasks as u64);
        summary.crash_loops = ledger.crash_loops;
        summary.trace_hash = trace.hash();
        if self.options.keeps_trace {
            summary.trace = trace.lines();
        }
        summary
    }

    pub(super) fn run(&mut self) -> Checked {
        for _ in 0..self.options.steps {
            self.step()?;
        }
        self.world.trace.add(format_args!("the faults stop"));
        (self.has_faults, self.world.outsiders_err) = (false, false);
        for at in 0..self.world.processes.len() {
            self.world.processes[at].dispatcher.handle(Input::HoldStarts(false));
            self.world.stir(at)?;
        }
        let from = self.world.now;
        let (mut next_calm, mut ignored) = (from, Vec::<Ignored>::new());
        for _ in 0..STEPS_MAX {
            if self.world.now >= next_calm {
                let still = self.world.ignored();
                if let Some((task, id, brought)) = still.iter().find(|one| ignored.contains(*one)) {
                    let (task, brought) = (task.0, String::from_utf8_lossy(brought));
                    return Err(format!("task {task}: {id} goes on, and {brought} is there"));
                }
                ignored.clear();
                self.calm_down()?;
                next_calm = self.world.now + CALM_EVERY;
            } else if ignored.is_empty() && self.world.now + UNDER_WAY >= next_calm {
                ignored = self.world.ignored();
            }
            if self.is_over()? {
                return self.finish();
            }
            if self.world.now.since(from) > PATIENCE {
                break;
            }
            self.step()?;
        }
        let stranded = self.world.ledger.stranded(&self.world.store)?;
        let owned = self.world.processes.iter().map(|process| {
            let (id, readings) = (process.id.0, process.dispatcher.readings());
            format!("w{id} has {} bodies, {readings:?}", process.entries.len())
        });
        let all: Vec<String> = stranded.into_iter().chain(owned).collect();
        Err(format!("it does not end: {}", all.join("; ")))
    }

    // ------------------------------------------------------------------------------- the end --

    /// Nothing is paused, and what never ends is cancelled, unless it was told to stop: then it does.
    /// Again and again: a pause whose answer was lost may be repeated, what never ends may begin,
    /// and the store may refuse.
    fn calm_down(&mut self) -> Checked {
        let ledger = &self.world.ledger;
        let mut asked: Vec<_> = ledger.paused().into_iter().map(Operation::Unpause).collect();
        let endless = ledger.open.iter().filter(|&&id| ledger.is_endless(id));
        asked.extend(endless.map(|&id| Operation::Cancel(id)));
        // What was never declared is, and whoever waits for a signal gets some.
        for name in LIMITS.into_iter().flatten() {
            if !self.world.bounds.declared.contains_key(name) {
                asked.push(Operation::Declare(script::limit(&mut self.world.chance, name)));
            }
        }
        let ledger = &self.world.ledger;
        let open: Vec<RunId> = ledger.open.iter().copied().collect();
        for run in open {
            let is_wanted = |name: &&str| self.world.ledger.receivers(run, name).next().is_some();
            let names: Vec<&str> = SIGNALS.into_iter().filter(is_wanted).collect();
            for name in names.iter().flat_map(|name| [name; SENT_AT_ONCE]) {
                let signal = self.new_signal(run, name);
                asked.push(Operation::Signal(signal));
            }
        }
        let mut asked = asked.into_iter().map(|asked| Asked::Operation(asked, false));
        match self.profile.is_quiet && !self.world.processes.is_empty() {
            true => asked.try_for_each(|asked| self.world.ask(0, asked)),
            false => self.world.ask_outside(asked.collect()),
        }
    }

    /// Whether everything that was submitted has ended, and nobody has anything left of it.
    fn is_over(&mut self) -> Result<bool, String> {
        let world = &mut self.world;
        let has_unanswered = !world.asked.is_empty();
        let is_busy = |process: &Process| {
            let readings = process.dispatcher.readings();
            let underway = process.request.is_some() || !process.inbox.is_empty();
            underway
                || readings.owned > 0
                || !process.dispatcher.is_idle()
                || !process.entries.is_empty()
        };
        if has_unanswered || world.processes.iter().any(is_busy) {
            return Ok(false);
        }
        Ok(world.ledger.stranded(&world.store)?.is_empty())
    }

    fn finish(&mut self) -> Checked {
        let world = &self.world;
        for process in &world.processes {
            let readings = process.dispatcher.readings();
            let (in_use, waiting) = (process.book.in_use(), process.book.waiting());
            let left = readings.ahead + readings.deferred + readings.suspects;
            if in_use > 0 || waiting > 0 || left > 0 {
                let id = process.id.0;
                return Err(format!("w{id} has {in_use} slots in use, {waiting}, {readings:?}"));
            }
        }
        self.world.audit()?;
        self.world.ledger.finish(&self.world.store)
    }

    // ----------------------------------------------------------------------------- next, please --

    fn step(&mut self) -> Checked {
        self.world.summary.steps += 1;
        let choices = self.choices();
        let step = self.world.chance.weigh(&choices).expect("there is always something");
        self.happen(step)?;
        for at in 0..self.world.processes.len() {
            self.world.check_process(at)?;
        }
        self.dismiss_closed()?;
        match self.world.summary.steps.is_multiple_of(AUDIT_EVERY) {
            true => self.world.audit(),
            false => Ok(()),
        }
    }

    fn choices(&self) -> Vec<(u32, Step)> {
        let (world, profile) = (&self.world, &self.profile);
        let mut choices = vec![(60, Step::Advance)];
        for (at, process) in world.processes.iter().enumerate() {
            self.choices_of(at, process, &mut choices);
        }
        let healthy = world.processes.iter().filter(|process| {
            process.closing.is_none() && process.slots >= HEAVIEST && process.serves_all
        });
        if world.processes.len() < profile.processes {
            choices.push((20, Step::Begin));
        } else if !self.has_faults && healthy.count() == 0 {
            choices.push((50, Step::Begin));
        }
        if self.has_faults {
            let may_submit = self.ids < profile.runs as u64;
            choices.push((if may_submit { 40 } else { 0 }, Step::Submit));
            choices.push((profile.operations, Step::Cancel));
            choices.push((profile.operations / 2, Step::Pause));
            choices.push((profile.operations, Step::Unpause));
            choices.push((profile.signals, Step::Signal));
            choices.push((profile.resizes, Step::Limit));
            choices.push((if profile.is_quiet { 0 } else { 5 }, Step::Lie));
        }
        choices
    }

    fn choices_of(&self, at: usize, process: &Process, choices: &mut Vec<(u32, Step)>) {
        let (now, profile) = (self.world.now, &self.profile);
        if !process.inbox.is_empty() {
            choices.push((100, Step::Deliver(at)));
        }
        match &process.request {
            None if process.stirred => choices.push((100, Step::HandIn(at))),
            None => {}
            Some(handed) if handed.answer.is_some() => choices.push((100, Step::Answer(at))),
            Some(_) => choices.push((100, Step::Reach(at))),
        }
        if process.has_due_timers(now) {
            choices.push((100, Step::Ring(at)));
        }
        for (&name, entry) in &process.entries {
            if entry.can_step(now, process.skew) {
                choices.push((80, Step::Body(at, name)));
            }
            if entry.parks().is_some() {
                choices.push((profile.parks, Step::Park(at, name)));
            }
            if entry.dropping {
                choices.push((40, Step::Vanish(at, name)));
            }
        }
        if self.has_faults {
            choices.push((profile.holds, Step::HoldStarts(at)));
        }
        if self.has_faults && !profile.is_quiet {
            choices.push((3, Step::RollCall(at)));
            choices.push((3, Step::Look(at)));
            choices.push((profile.kills, Step::Kill(at)));
            choices.push((
                if process.closing.is_none() { profile.closes } else { 0 },
                Step::Close(at),
            ));
            choices.push((5 * u32::from(profile.skew > 0), Step::Skew(at)));
        }
    }

    fn happen(&mut self, step: Step) -> Checked {
        let world = &mut self.world;
        match step {
            Step::Deliver(at) => world.deliver(at),
            Step::HandIn(at) => {
                world.hand_in(at);
                Ok(())
            }
            Step::Reach(at) => {
                let fault = self.fault();
                self.world.reach(at, fault)
            }
            Step::Answer(at) => world.answer(at),
            Step::Ring(at) => world.ring(at),
            Step::Body(at, name) => world.body(at, name),
            Step::Vanish(at, name) => {
                world.vanish(at, name);
                Ok(())
            }
            Step::Advance => {
                self.advance();
                Ok(())
            }
            Step::RollCall(at) => {
                world.processes[at].dispatcher.handle(Input::RollCall);
                world.stir(at)
            }
            Step::Look(at) => {
                world.look_for_dead(at)?;
                world.stir(at)
            }
            Step::Kill(at) => world.kill(at, None),
            Step::Close(at) => self.close(at),
            Step::Skew(at) => {
                let skew = world.chance.below(2 * self.profile.skew) as i64;
                world.processes[at].skew = skew - self.profile.skew as i64;
                Ok(())
            }
            Step::HoldStarts(at) => {
                let hold = world.chance.one_in(2);
                world.summary.holds += u64::from(hold);
                world.trace.add(format_args!("w{} holds starts: {hold}", world.processes[at].id.0));
                world.processes[at].dispatcher.handle(Input::HoldStarts(hold));
                world.stir(at)
            }
            Step::Begin => self.begin(),
            Step::Lie => world.lie(),
            Step::Park(at, name) => world.park(at, name),
            Step::Signal => match self.some_run() {
                Some(run) => {
                    let name = *self.world.chance.pick(&SIGNALS).expect("there are some");
                    let signal = self.new_signal(run, name);
                    self.ask(Asked::Operation(Operation::Signal(signal), false))
                }
                None => Ok(()),
            },
            Step::Limit => {
                let names = LIMITS.as_flattened();
                let name = *world.chance.pick(names).expect("there are some");
                let limit = script::limit(&mut world.chance, name);
                let operation = match world.chance.one_in(2) {
                    true => Operation::Declare(limit),
                    false => Operation::Resize(limit),
                };
                self.ask(Asked::Operation(operation, false))
            }
            Step::Submit => {
                let new = self.new_run();
                self.ask(Asked::Submit(new))
            }
            Step::Cancel => match self.some_run() {
                Some(id) => {
                    let is_known = self.world.ledger.runs[&id].acknowledged;
                    self.ask(Asked::Operation(Operation::Cancel(id), is_known))
                }
                None => Ok(()),
            },
            Step::Pause => {
                let scope = self.some_scope();
                self.ask(Asked::Operation(Operation::Pause(scope), false))
            }
            Step::Unpause => {
                let scope = self.some_scope();
                self.ask(Asked::Operation(Operation::Unpause(scope), false))
            }
        }
    }

    fn fault(&mut self) -> Fault {
        if !self.has_faults || !self.world.chance.one_in(self.profile.faults) {
            return Fault::None;
        }
        // What is lost is found by looking around.
        if self.profile.is_quiet {
            return Fault::Fails;
        }
        let faults = [Fault::Fails, Fault::LosesAnswer, Fault::LosesAnswer, Fault::LosesQuestion];
        *self.world.chance.pick(&faults).expect("there are some")
    }

    /// The clock goes on: to the next timer, or a little, or past several.
    fn advance(&mut self) {
        let world = &mut self.world;
        world.summary.advances += 1;
        let now = world.now;
        let timers = world.processes.iter().map(Process::next_timer).filter(|&at| at > now);
        // What comes never is no timer.
        let soon = |at: &Timestamp| at.since(now) < Duration::from_secs(3_600);
        let next = timers.min().filter(soon).unwrap_or(now + Duration::from_millis(500));
        let to = match world.chance.below(10) {
            0 => now + world.chance.millis(1, 200),
            1 => next + world.chance.millis(1, 3_000),
            _ => next,
        };
        world.now = to;
        world.trace.add(format_args!("-- {to}"));
    }

    // ------------------------------------------------------------------------------ processes --

    fn begin(&mut self) -> Checked {
        let (world, profile) = (&mut self.world, &self.profile);
        let is_odd = self.has_faults && !profile.is_quiet;
        let slots = world.chance.small(if is_odd { 1 } else { HEAVIEST }, 6);
        let in_memory_max = slots + profile.in_memory_more;
        let serves_all = !is_odd || !world.chance.one_in(4);
        let queues = match !serves_all {
            true => vec![QUEUES[0].to_owned()],
            false => QUEUES.map(str::to_owned).to_vec(),
        };
        let new = NewWorker {
            now: world.now,
            name: "sim".to_owned(),
            queues,
            knows: Knows::These(script::known()),
            slots: 8,
        };
        let id = now_or_never(world.store.enlist(new))?;
        world.summary.processes += 1;
        world.trace.add(format_args!("w{} begins with {slots} slots", id.0));
        let mut process = Process::new(id, slots, in_memory_max, world.now);
        process.serves_all = serves_all;
        if profile.is_quiet {
            process.stop_watching();
        }
        world.processes.push(process);
        Ok(())
    }

    fn close(&mut self, at: usize) -> Checked {
        let world = &mut self.world;
        let grace = world.chance.millis(0, 3_000);
        let process = &mut world.processes[at];
        process.closing = Some(Closing { drops_at: world.now + grace, has_dropped: false });
        process.dispatcher.handle(Input::Close);
        world.trace.add(format_args!("w{} closes", process.id.0));
        world.stir(at)
    }

    /// Whoever closes and has nothing left signs off.
    fn dismiss_closed(&mut self) -> Checked {
        let world = &mut self.world;
        let is_done = |process: &Process| {
            process.closing.is_some() && process.dispatcher.is_idle() && process.request.is_none()
        };
        while let Some(at) = world.processes.iter().position(is_done) {
            let id = world.processes[at].id;
            world.trace.add(format_args!("w{} signs off", id.0));
            now_or_never(world.store.dismiss(id))?;
            world.summary.closed += 1;
            world.bury(at);
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------- operations --

    /// Somebody asks a worker, or the store itself.
    fn ask(&mut self, asked: Asked) -> Checked {
        let world = &mut self.world;
        let open = |(at, process): (usize, &Process)| process.closing.is_none().then_some(at);
        let open: Vec<usize> = world.processes.iter().enumerate().filter_map(open).collect();
        let goes_outside = open.is_empty() || self.profile.outsiders && world.chance.one_in(3);
        match world.chance.pick(&open).filter(|_| !goes_outside) {
            Some(&at) => world.ask(at, asked),
            None => world.ask_outside(vec![asked]),
        }
    }

    fn some_run(&mut self) -> Option<RunId> {
        let open: Vec<RunId> = self.world.ledger.open.iter().copied().collect();
        self.world.chance.pick(&open).copied()
    }

    fn some_scope(&mut self) -> Scope {
        match (self.world.chance.below(3), self.some_run()) {
            (0, _) => Scope::Store,
            // What a task has begun is paused with it.
            (1, Some(id)) if self.world.ledger.runs[&id].parent.is_none() => Scope::Run(id),
            _ => {
                let queue = self.world.chance.pick(&QUEUES).expect("there are some");
                Scope::Queue((*queue).to_owned())
            }
        }
    }

    fn new_signal(&mut self, run: RunId, name: &str) -> NewSignal {
        self.signals += 1;
        let body = Some(Arc::from(self.signals.to_string().into_bytes()));
        NewSignal { id: self.signals.into(), run, name: name.into(), body }
    }

    fn new_run(&mut self) -> NewRun {
        self.ids += 1;
        let id = RunId::from_u128(self.ids.into());
        let Simulation { world, profile, .. } = self;
        let now = world.now;
        let before = match world.again.is_empty() {
            true => None,
            false => Some(world.again.remove(0)),
        };
        let runs: Vec<RunId> = world.ledger.runs.keys().copied().collect();
        let mood = profile.mood;
        let mut draw = Draw { chance: &mut world.chance, mood, runs: &runs, own: id, depth: 0 };
        // Whoever got no answer tries again with the same key, as another run.
        let new = match before {
            Some(before) => NewRun { id, ..before },
            None => {
                let plan = draw.plan();
                let keys = draw.keys(&plan);
                let chance = &mut *draw.chance;
                let key = chance.one_in(3).then(|| format!("k{}", chance.below(4)));
                let input = chance.below(3) as u8;
                let queue = Arc::from(*chance.pick(&QUEUES).expect("there are some"));
                NewRun {
                    priority: if chance.one_in(4) { chance.small(0, 60) as i32 - 30 } else { 0 },
                    key,
                    not_before: chance.one_in(5).then(|| now + chance.millis(0, 10_000)),
                    input: (input > 0).then(|| Arc::from([input.min(1)])),
                    keys,
                    ..NewRun::new(id, plan, queue)
                }
            }
        };
        // Where a failure stops what computes, something should compute.
        let kills = new.plan.on_failure() == OnFailure::FailFastKill;
        let never = if kills { mood.never / 4 } else { mood.never };
        draw.mood = Mood { never, ..mood };
        let tempers = draw.tempers(&new.plan);
        let (plan, keys) = (new.plan.clone(), new.keys.clone());
        world.ledger.expect(id, Drawn::new(plan, tempers, keys, new.not_before, None));
        new
    }
}
