//! One worker process: a dispatcher, its slots, its bodies and its timers, as the real loop has them.
//!
//! What a body says goes through an inbox, in order. A body that is dropped goes on existing, and
//! holding its slot, until chance has it vanish.

use super::chance::Chance;
use super::journal::{Answer, Around, Journal, Open, Polled};
use super::script::{Act, Birth, Part};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::dispatcher::{Dispatcher, End, Input, Said};
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Failure, Fence, Kind, WorkerId};
use tidegate_core::slot::{Lane, Moment, SlotBook, SlotRequest, Ticket, Turn as Place};
use tidegate_core::store::{
    Applied, Bytes, Claimed, NewRun, Parent, Reply, Request, RequestId, RunKey, StoreError, TaskKey,
};
use tidegate_core::wait::{WaitAnswer, WaitId, WaitKind, WaitOp, WaitOutcome};
use tidegate_core::{RunId, Timestamp};

/// How often a worker looks for dead ones.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// A time that does not come.
const NEVER: Timestamp = Timestamp::from_micros(i64::MAX);

/// Every so many looks it compares what it owns with what the store thinks.
const ROLL_CALL_EVERY: u32 = 60;

/// One entry: a task, and the claim of it.
pub(super) type Name = (TaskKey, Fence);

/// A worker process.
pub(super) struct Process {
    pub(super) id: WorkerId,
    pub(super) dispatcher: Dispatcher,
    pub(super) slots: u32,
    pub(super) in_memory_max: u32,
    /// Whether it serves all queues.
    pub(super) serves_all: bool,
    /// How far its clock is off, in microseconds.
    pub(super) skew: i64,
    pub(super) book: SlotBook<Name>,
    /// Units that belong to the request in flight.
    pub(super) reserved: u32,
    pub(super) entries: BTreeMap<Name, Entry>,
    pub(super) inbox: VecDeque<(TaskKey, Fence, Said)>,
    pub(super) request: Option<Handed>,
    /// What the last request came to when it was first taken.
    pub(super) first_try: Option<(RequestId, Vec<Applied>)>,
    retry_at: Option<Timestamp>,
    watch_at: Timestamp,
    looks: u32,
    pub(super) compares: bool,
    pub(super) closing: Option<Closing>,
    /// Runs that its requests have ended and that it was not told of.
    pub(super) owed: BTreeSet<RunId>,
    /// What its bodies have done that concerns the world.
    pub(super) news: Vec<News>,
    /// Steps that its bodies have done, and runs that they have wanted to begin.
    made: u64,
    /// Whether something has happened since a request was last asked for.
    pub(super) stirred: bool,
    /// Whose the tasks are that it has started.
    pub(super) runs: BTreeMap<TaskKey, RunKey>,
    /// Runs of which something has failed since a request was last made.
    pub(super) stopped: BTreeSet<RunKey>,
}

/// A request that was handed in.
pub(super) struct Handed {
    pub(super) request: Arc<Request>,
    /// What will be answered, once the store has been reached.
    pub(super) answer: Option<Result<Reply, StoreError>>,
}

/// How far a shutdown is.
pub(super) struct Closing {
    /// When everything is dropped.
    pub(super) drops_at: Timestamp,
    pub(super) has_dropped: bool,
}

/// A body, or what will enter it.
pub(super) struct Entry {
    pub(super) claimed: Box<Claimed>,
    pub(super) stage: Stage,
    asks: bool,
    weight: u32,
    priority: i32,
    ticket: Option<Ticket>,
    pub(super) holds: u32,
    pub(super) acts: VecDeque<Act>,
    /// Time computed in this attempt before the present stretch.
    active: Duration,
    pub(super) dropping: bool,
    /// Whether it has said that it waits, and not that it goes on.
    away: bool,
    pub(super) journal: Journal,
    /// What it waits for, if the store knows it.
    pub(super) open: Option<Open>,
    /// The step it has done.
    step: Option<WaitId>,
    /// How its last wait ended.
    last: Option<WaitOutcome>,
    pub(super) released: Released,
    /// The names of its limits, in order.
    limits: Vec<Arc<str>>,
}

/// What a body has done that concerns the world.
pub(super) enum News {
    /// It wants to begin this run.
    Begets(Name, Box<NewRun>, Arc<Birth>),
    /// It does this step.
    Does(Name, WaitId),
    /// This wait has ended for it.
    Gets(Name, WaitId, WaitOutcome),
}

/// Whether it has given limits back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    No,
    /// It has, for the so many-th time.
    Yes(u32),
    /// It has, and has asked for them again.
    Asked(u32),
    /// It has, so often, and holds them again.
    Held(u32),
}

impl Released {
    fn again(self) -> Self {
        match self {
            Released::No => Released::Yes(1),
            Released::Yes(times) | Released::Asked(times) | Released::Held(times) => {
                Released::Yes(times + 1)
            }
        }
    }
}

impl Entry {
    /// Whether its body was entered.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::New | Stage::Lines | Stage::OperationOutcome | Stage::Asks(_))
    }
}

/// Where a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was done.
    New,
    /// Stands in line for its first slot.
    Lines,
    /// Has its first slot.
    OperationOutcome,
    /// Wants leave to enter, and has it or not.
    Asks(bool),
    /// Computes, since and until.
    Computes(Timestamp, Timestamp),
    /// Has done a step, which is not stored, as far as it knows.
    Stores,
    /// Has asked for a wait, and keeps its slot for a moment.
    Checks,
    /// Waits without its slot, until.
    Waits(Timestamp),
    /// Waits without its slot for what the store knows.
    Awaits,
    /// Has done waiting and wants the limits again that it has given back.
    Retakes,
    /// Wants leave to go on, and has it or not.
    WantsOn(bool),
    /// Stands in line to go on.
    LinesAgain,
    /// Has its slot again.
    GrantedAgain,
}

/// What a step of a body means for the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stepped {
    /// Nothing.
    On,
    /// It enters its body: it wants its script.
    Enters,
    /// It goes on computing.
    Computes,
    /// It takes its process with it.
    Kills,
}

impl Process {
    pub(super) fn new(id: WorkerId, slots: u32, in_memory_max: u32, now: Timestamp) -> Self {
        Process {
            id,
            dispatcher: Dispatcher::new(id, in_memory_max),
            slots,
            in_memory_max,
            serves_all: true,
            skew: 0,
            book: SlotBook::new(NonZeroU32::new(slots).expect("a worker has slots")),
            reserved: 0,
            entries: BTreeMap::new(),
            inbox: VecDeque::new(),
            request: None,
            first_try: None,
            retry_at: None,
            watch_at: now,
            looks: 0,
            compares: false,
            closing: None,
            owed: BTreeSet::new(),
            news: Vec::new(),
            made: 0,
            stirred: true,
            runs: BTreeMap::new(),
            stopped: BTreeSet::new(),
        }
    }

    /// What its own clock says.
    pub(super) fn clock(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros() + self.skew)
    }

    // -------------------------------------------------------------------------------- timers --

    /// When its next timer is due, by the world's clock.
    pub(super) fn next_timer(&self) -> Timestamp {
        let own = self.entries.values().filter_map(|entry| entry.next_timer(self.skew)).min();
        let next = [self.loop_timer(), own.unwrap_or(self.watch_at)];
        next.into_iter().min().expect("there are two")
    }

    fn loop_timer(&self) -> Timestamp {
        let alarm = self.dispatcher.alarm();
        let alarm = alarm.map(|at| Timestamp::from_micros(at.as_micros() - self.skew));
        let closes = self.closing.as_ref().filter(|closing| !closing.has_dropped);
        let closes = closes.map(|closing| closing.drops_at);
        let limits = self.entries.values().filter_map(Entry::limit_at).min();
        let others = [alarm, closes, limits, self.retry_at].into_iter().flatten();
        others.fold(self.watch_at, Timestamp::min)
    }

    pub(super) fn has_due_timers(&self, now: Timestamp) -> bool {
        self.loop_timer() <= now
    }

    /// Deals with all timers of the loop that are due. True if dead workers are to be looked for.
    pub(super) fn ring(&mut self, now: Timestamp, chance: &mut Chance) -> bool {
        self.stirred = true;
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.dispatcher.handle(Input::Retry);
        }
        if self.dispatcher.alarm().is_some_and(|at| at <= self.clock(now)) {
            self.dispatcher.handle(Input::Alarm);
        }
        let over = self.entries.iter().filter(|(_, entry)| entry.is_over_time(now));
        let over: Vec<Name> = over.map(|(name, _)| *name).collect();
        over.into_iter().for_each(|name| self.time_out(name, chance));
        if let Some(closing) = &mut self.closing
            && !closing.has_dropped
            && closing.drops_at <= now
        {
            closing.has_dropped = true;
            self.dispatcher.handle(Input::DropAll);
        }
        self.watch_at <= now && self.watch(now)
    }

    /// It never looks around by itself.
    pub(super) fn stop_watching(&mut self) {
        self.watch_at = NEVER;
    }

    /// A look at the world around, as the real loop takes it every second.
    pub(super) fn watch(&mut self, now: Timestamp) -> bool {
        self.watch_at = now + WATCH_EVERY;
        self.looks += 1;
        if std::mem::take(&mut self.compares) || self.looks.is_multiple_of(ROLL_CALL_EVERY) {
            self.dispatcher.handle(Input::RollCall);
        }
        self.dispatcher.handle(Input::Alarm);
        self.closing.is_none()
    }

    /// A body has used up its time: its end is reported without it.
    fn time_out(&mut self, (task, fence): Name, chance: &mut Chance) {
        let entry = self.entries.get_mut(&(task, fence)).expect("it was just found");
        entry.dropping = true;
        let (failure, permanent, chance) = (Failure::Timeout, false, chance.part());
        let end = End::Failed { failure, permanent, chance, error: "too long".to_owned() };
        self.dispatcher.handle(Input::Said { task, fence, said: Said::Ends(end) });
    }

    pub(super) fn retry_after(&mut self, pause: Duration, now: Timestamp) {
        self.retry_at = Some(now + pause);
        self.compares = true;
    }

    // --------------------------------------------------------------------------------- requests --

    /// The next request, if there is one; with units kept for it.
    pub(super) fn hand_in(&mut self, id: RequestId, now: Timestamp) -> Option<Arc<Request>> {
        self.stirred = false;
        let now = self.clock(now);
        let Process { dispatcher, book, reserved, .. } = self;
        let request = dispatcher.next_request(id, now, self.slots, |wanted| {
            assert_eq!(*reserved, 0, "units are kept for one request at a time");
            let units = wanted.min(book.available());
            *reserved = if units > 0 && book.try_take(units) { units } else { 0 };
            *reserved
        })?;
        if !request.again {
            self.stopped.clear();
        }
        self.request = Some(Handed { request: request.clone(), answer: None });
        Some(request)
    }

    /// What was kept for a request and not used is free again.
    pub(super) fn free_reserve(&mut self) {
        if self.dispatcher.units_in_flight() == 0 && self.reserved > 0 {
            let units = std::mem::take(&mut self.reserved);
            self.give_back(units);
        }
    }

    // -------------------------------------------------------------------------------- bodies --

    /// Starts an entry; on units of the reserve, if it is begun.
    pub(super) fn start(&mut self, claimed: Box<Claimed>, asks: bool) -> Result<(), String> {
        let planned = claimed.plan.task(claimed.index);
        let (weight, priority) = (planned.weight, planned.priority);
        let begun = claimed.life.state.kind() == Kind::Active;
        let name = (claimed.key, claimed.life.fence);
        let run = claimed.key.run(claimed.index);
        if self.stopped.contains(&run) {
            return Err(format!("{name:?} is started beside a failure that stops its run"));
        }
        self.runs.insert(claimed.key, run);
        if begun {
            let left = self.reserved.checked_sub(weight);
            self.reserved = left.ok_or("a task is begun on units that were not kept for it")?;
        }
        let entry = Entry {
            stage: if begun { Stage::Asks(true) } else { Stage::New },
            asks,
            weight,
            priority,
            ticket: None,
            holds: if begun { weight } else { 0 },
            acts: VecDeque::new(),
            active: claimed.life.active,
            dropping: false,
            away: false,
            journal: Journal::new(&claimed.waits),
            open: None,
            step: None,
            last: None,
            released: Released::No,
            limits: planned.limits.iter().map(|used| used.name.as_str().into()).collect(),
            claimed,
        };
        match self.entries.insert(name, entry) {
            None => Ok(()),
            Some(_) => Err(format!("task {} is started twice by one claim", name.0.0)),
        }
    }

    /// The entry of this task that was started last, if there is one.
    pub(super) fn entry(&mut self, task: TaskKey) -> Option<&mut Entry> {
        let all = (task, Fence(0))..=(task, Fence(u64::MAX));
        self.entries.range_mut(all).next_back().map(|(_, entry)| entry)
    }

    /// The body does what it does next.
    pub(super) fn step(&mut self, name: Name, now: Timestamp, chance: &mut Chance) -> Stepped {
        let entry = self.entries.get_mut(&name).expect("who steps is there");
        match entry.stage {
            Stage::New => self.line_up(name, Lane::Start, now),
            Stage::OperationOutcome => {
                entry.stage = Stage::Asks(!entry.asks);
                let asks = entry.asks;
                self.say(name, Said::Begins);
                if !asks {
                    return Stepped::Enters;
                }
            }
            Stage::Asks(_) => return Stepped::Enters,
            Stage::Computes(since, until) => {
                entry.active += until.since(since);
                return self.act(name, now, chance);
            }
            Stage::Waits(_) | Stage::Retakes => return self.go_on(name, now, chance),
            Stage::Checks | Stage::Awaits => return self.look(name, now, chance),
            Stage::Stores => return self.stored(name, now, chance),
            Stage::WantsOn(_) => self.line_up(name, Lane::Resume, now),
            Stage::GrantedAgain => return self.act(name, now, chance),
            Stage::Lines | Stage::LinesAgain => unreachable!("who stands in line does nothing"),
        }
        Stepped::On
    }

    /// The next act of the script.
    pub(super) fn act(&mut self, name: Name, now: Timestamp, chance: &mut Chance) -> Stepped {
        let entry = self.entries.get_mut(&name).expect("who acts is there");
        let end = match entry.acts.pop_front().expect("a script ends with an end") {
            Act::Part(Part::Compute(time)) => {
                entry.stage = Stage::Computes(now, now + time);
                return Stepped::Computes;
            }
            Act::ComputeForever => {
                entry.stage = Stage::Computes(now, NEVER);
                return Stepped::Computes;
            }
            // What was told to go away does not begin to wait: it is gone.
            Act::Part(_) if entry.dropping => {
                self.vanish(name);
                return Stepped::On;
            }
            Act::Part(Part::Wait(time, releases)) => {
                let from = entry.limits.len().saturating_sub(releases);
                let names = entry.limits[from..].to_vec();
                if !names.is_empty() {
                    entry.released = entry.released.again();
                    self.say(name, Said::Asks(WaitOp::Release(names)));
                }
                self.wait(name, Stage::Waits(now + time));
                return Stepped::On;
            }
            Act::Part(Part::Step(step)) => return self.do_step(name, step, now, chance),
            Act::Part(Part::Stored(leaf)) => {
                entry.open = Some(Open::one(&mut entry.journal, &leaf));
                return self.look(name, now, chance);
            }
            Act::Part(Part::Any(leaves, patience)) => {
                entry.open = Some(Open::any(&mut entry.journal, &leaves, patience));
                return self.look(name, now, chance);
            }
            Act::Conclude => match entry.last {
                Some(WaitOutcome::Ended(RunOutcome::Succeeded)) => {
                    End::Succeeded { output: Some(Arc::from(&b"[]"[..])), inserts: None }
                }
                _ => {
                    let (failure, permanent, chance) = (Failure::Error, true, chance.part());
                    End::Failed { failure, permanent, chance, error: "its items".to_owned() }
                }
            },
            Act::KillProcess => return Stepped::Kills,
            Act::Succeed => End::Succeeded { output: Some(Arc::from(&b"done"[..])), inserts: None },
            Act::Fail(failure, permanent) => {
                let (chance, error) = (chance.part(), "as drawn".to_owned());
                End::Failed { failure, permanent, chance, error }
            }
            Act::Snooze(delay) => End::Snoozed(delay),
        };
        self.leave(name);
        self.say(name, Said::Ends(end));
        Stepped::On
    }

    /// The body does a step, unless an earlier entry has.
    fn do_step(&mut self, name: Name, step: &str, now: Timestamp, chance: &mut Chance) -> Stepped {
        let entry = self.entries.get_mut(&name).expect("who acts is there");
        let id = entry.journal.next(WaitKind::Step, step);
        if let Some(outcome) = entry.journal.known(&id).and_then(|known| known.outcome.clone()) {
            self.news.push(News::Gets(name, id, outcome));
            return self.act(name, now, chance);
        }
        // No two have the same value.
        self.made += 1;
        let value = format!("{}.{}", self.id.0, self.made).into_bytes();
        let (label, outcome) = (Arc::from(""), WaitOutcome::Value(Some(value.into())));
        let op = WaitOp::End { id: id.clone(), label, outcome };
        entry.journal.ask(&id, op.clone());
        entry.stage = Stage::Stores;
        entry.step = Some(id.clone());
        self.news.push(News::Does(name, id));
        self.say(name, Said::Asks(op));
        Stepped::On
    }

    /// Its step is stored.
    fn stored(&mut self, name: Name, now: Timestamp, chance: &mut Chance) -> Stepped {
        let entry = self.entries.get_mut(&name).expect("who stores is there");
        let id = entry.step.take().expect("who stores has done a step");
        if let Answer::Over(outcome) = entry.journal.look(&id) {
            entry.journal.forget(&id);
            self.news.push(News::Gets(name, id, outcome));
        }
        self.act(name, now, chance)
    }

    /// The body looks at what it waits for.
    fn look(&mut self, name: Name, now: Timestamp, chance: &mut Chance) -> Stepped {
        let now_here = self.clock(now);
        let Process { entries, news, made, id: worker, .. } = self;
        let entry = entries.get_mut(&name).expect("who waits is there");
        let (mut ops, mut released) = (Vec::new(), false);
        let claimed = &entry.claimed;
        let mut begets = |birth: &Arc<Birth>, wait: WaitId| {
            *made += 1;
            let new = beget(claimed, name, birth, wait, (worker.0, *made));
            news.push(News::Begets(name, Box::new(new.clone()), birth.clone()));
            new
        };
        let mut open = entry.open.take().expect("who waits has something to wait for");
        let polled = open.poll(&mut Around {
            journal: &mut entry.journal,
            now: now_here,
            away: entry.away,
            limits: &entry.limits,
            ops: &mut ops,
            released: &mut released,
            begets: &mut begets,
        });
        if released {
            entry.released = entry.released.again();
        }
        let keeps_slot = entry.holds > 0 && entry.stage != Stage::Checks;
        let is_away = entry.away;
        match polled {
            Polled::Ready(id, outcome) => {
                if let WaitOutcome::Refused(_) = outcome {
                    entry.acts = VecDeque::from([Act::Fail(Failure::Error, true)]);
                }
                (entry.last, entry.stage) = (Some(outcome.clone()), Stage::GrantedAgain);
                news.push(News::Gets(name, id, outcome));
                ops.into_iter().for_each(|op| self.say(name, Said::Asks(op)));
                return self.go_on(name, now, chance);
            }
            polled => {
                entry.open = Some(open);
                ops.into_iter().for_each(|op| self.say(name, Said::Asks(op)));
                let entry = self.entries.get_mut(&name).expect("who waits is there");
                match polled {
                    Polled::Checking if keeps_slot => entry.stage = Stage::Checks,
                    _ if is_away => entry.stage = Stage::Awaits,
                    _ => self.wait(name, Stage::Awaits),
                }
            }
        }
        Stepped::On
    }

    /// A wait is over: first the limits, then the slot, then on.
    fn go_on(&mut self, name: Name, now: Timestamp, chance: &mut Chance) -> Stepped {
        let entry = self.entries.get_mut(&name).expect("who goes on is there");
        if let Released::Yes(times) = entry.released {
            (entry.released, entry.stage) = (Released::Asked(times), Stage::Retakes);
            self.say(name, Said::Asks(WaitOp::Retake(times)));
            return Stepped::On;
        }
        if entry.holds > 0 {
            return self.act(name, now, chance);
        }
        (entry.stage, entry.away) = (Stage::WantsOn(false), false);
        self.say(name, Said::Resumes);
        Stepped::On
    }

    /// The body begins to wait, without its slot.
    fn wait(&mut self, name: Name, stage: Stage) {
        let entry = self.entries.get_mut(&name).expect("who waits is there");
        let (active, wait) = (entry.active, "the tide".to_owned());
        (entry.stage, entry.away) = (stage, true);
        let units = std::mem::take(&mut entry.holds);
        self.give_back(units);
        self.say(name, Said::Defers { active, wait });
    }

    /// The body is dropped and waits as a row.
    pub(super) fn park(&mut self, name: Name) {
        let entry = self.entries.get(&name).expect("who parks is there");
        let (on, wake) = entry.parks().expect("who parks can");
        let (active, wait) = (entry.active, "the tide".to_owned());
        self.leave(name);
        self.say(name, Said::Ends(End::Parked { active, wake, wait, on }));
    }

    /// The store has answered.
    pub(super) fn answered(&mut self, name: Name, answer: WaitAnswer) {
        let Some(entry) = self.entries.get_mut(&name) else { return };
        match (answer.id.kind, &answer.outcome) {
            (WaitKind::Limits, Some(_)) => {
                let times = answer.id.occurrence;
                if entry.released == Released::Asked(times) {
                    entry.released = Released::Held(times);
                }
            }
            (WaitKind::Limits, None) => {}
            _ => entry.journal.answer(answer),
        }
    }

    /// The body asks again for everything that was not answered.
    pub(super) fn ask_again(&mut self, name: Name) {
        let Some(entry) = self.entries.get(&name) else { return };
        let mut ops = entry.journal.unanswered();
        if let Released::Asked(times) = entry.released {
            ops.push(WaitOp::Retake(times));
        }
        ops.into_iter().for_each(|op| self.say(name, Said::Asks(op)));
    }

    /// A body that was dropped is gone, and says so.
    pub(super) fn vanish(&mut self, name: Name) {
        let active = self.entries.get(&name).map_or(Duration::ZERO, |entry| entry.active);
        self.leave(name);
        self.say(name, Said::Ends(End::Dropped { active }));
    }

    /// An entry is over: its units are free.
    fn leave(&mut self, name: Name) {
        let Some(mut entry) = self.entries.remove(&name) else { return };
        if let Some(ticket) = entry.ticket.take() {
            let mut woken = Vec::new();
            self.book.leave(ticket, |next| woken.push(next));
            self.wake(woken);
        }
        self.give_back(entry.holds);
    }

    fn line_up(&mut self, name: Name, lane: Lane, now: Timestamp) {
        let entry = self.entries.get_mut(&name).expect("who lines up is there");
        let weight = entry.weight;
        let (lines, granted) = match lane {
            Lane::Start => (Stage::Lines, Stage::OperationOutcome),
            Lane::Resume => (Stage::LinesAgain, Stage::GrantedAgain),
        };
        if self.book.try_take(weight) {
            (entry.stage, entry.holds) = (granted, weight);
            return;
        }
        let since = Moment(now.as_micros().saturating_mul(1_000));
        let operation = SlotRequest { lane, weight, priority: entry.priority, since };
        entry.stage = lines;
        entry.ticket = Some(self.book.join(operation, name));
    }

    fn give_back(&mut self, units: u32) {
        let mut woken = Vec::new();
        self.book.give_back(units, |next| woken.push(next));
        self.wake(woken);
    }

    fn wake(&mut self, woken: Vec<Name>) {
        for name in woken {
            let entry = self.entries.get_mut(&name).expect("who waits in line is there");
            let ticket = entry.ticket.take().expect("who waits in line has a ticket");
            let place = self.book.collect(ticket, |_| {});
            assert!(matches!(place, Place::Granted), "who is woken has its units");
            entry.holds = entry.weight;
            entry.stage = match entry.stage {
                Stage::LinesAgain => Stage::GrantedAgain,
                _ => Stage::OperationOutcome,
            };
        }
    }

    fn say(&mut self, (task, fence): Name, said: Said) {
        self.inbox.push_back((task, fence, said));
    }
}

impl Entry {
    /// Whether it can take a step; `now` is by the clock of the world, and its worker's is off.
    pub(super) fn can_step(&self, now: Timestamp, skew: i64) -> bool {
        let here = Timestamp::from_micros(now.as_micros() + skew);
        let open = || self.open.as_ref().expect("who waits has something to wait for");
        match self.stage {
            // What was told to go away goes on only as long as it computes.
            Stage::Computes(_, until) => until <= now,
            _ if self.dropping => false,
            Stage::Waits(until) => until <= now,
            Stage::Awaits => open().is_ripe(&self.journal, here, self.away),
            Stage::Stores => {
                let step = self.step.as_ref().expect("who stores has done a step");
                matches!(self.journal.look(step), Answer::Over(_))
            }
            Stage::Retakes => matches!(self.released, Released::Held(_)),
            Stage::New | Stage::OperationOutcome | Stage::GrantedAgain | Stage::Checks => true,
            Stage::Asks(leave) | Stage::WantsOn(leave) => leave,
            Stage::Lines | Stage::LinesAgain => false,
        }
    }

    /// On what it can wait as a row and until when, if it can.
    pub(super) fn parks(&self) -> Option<(Vec<WaitId>, Option<Timestamp>)> {
        let is_parkable = self.claimed.plan.task(self.claimed.index).parkable;
        let waits = self.stage == Stage::Awaits && !self.dropping;
        self.open.as_ref().filter(|_| is_parkable && waits)?.parks()
    }

    /// Whether it waits without its slot.
    pub(super) fn waits(&self) -> bool {
        self.away
    }

    /// Whether its body computes and nobody has told it to stop.
    pub(super) fn computes(&self) -> bool {
        let computes = matches!(self.stage, Stage::Computes(..) | Stage::Stores | Stage::Checks);
        computes && !self.dropping
    }

    /// Whether its body believes that it holds all its limits.
    pub(super) fn believes(&self) -> bool {
        !self.dropping && matches!(self.released, Released::No | Released::Held(_))
    }

    /// Whether it stands before its first entry into the body and has not said that it begins.
    pub(super) fn is_unbegun(&self) -> bool {
        matches!(self.stage, Stage::New | Stage::Lines | Stage::OperationOutcome)
    }

    fn next_timer(&self, skew: i64) -> Option<Timestamp> {
        match self.stage {
            Stage::Computes(_, until) => Some(until),
            Stage::Waits(until) if !self.dropping => Some(until),
            Stage::Awaits if !self.dropping => {
                let due = self.open.as_ref().and_then(Open::due)?;
                Some(Timestamp::from_micros(due.as_micros() - skew))
            }
            _ => None,
        }
    }

    /// When its time is used up, if it computes.
    fn limit_at(&self) -> Option<Timestamp> {
        let limit = self.claimed.plan.task(self.claimed.index).timeout?;
        match self.stage {
            Stage::Computes(since, _) if !self.dropping => {
                Some(since + limit.saturating_sub(self.active))
            }
            _ => None,
        }
    }

    fn is_over_time(&self, now: Timestamp) -> bool {
        self.limit_at().is_some_and(|at| at <= now)
    }
}

/// A run that a body begins, by a name that no other has; items by that of their task.
fn beget(
    claimed: &Claimed,
    (task, fence): Name,
    birth: &Birth,
    wait: WaitId,
    (worker, made): (u64, u64),
) -> NewRun {
    let id = match birth.is_of_items() {
        true => RunId::of_items(claimed.execution()),
        false => RunId::from_u128(1 << 80 | u128::from(worker) << 40 | u128::from(made)),
    };
    let mut parent = Parent::new(task, fence, wait);
    if let Some((queue, priority)) = birth.apart {
        (parent.queue, parent.priority) = (Some(queue.into()), Some(priority));
    }
    let items = if birth.is_of_items() { birth.tempers.len() } else { 0 };
    NewRun {
        priority: 7,
        parent: Some(parent),
        items: (0..items).map(|_| Bytes::from(&b"an item"[..])).collect(),
        keys: birth.keys.clone(),
        // It has its parent's queue and priority, whatever is asked for here.
        ..NewRun::new(id, birth.plan.clone(), "elsewhere".into())
    }
}
