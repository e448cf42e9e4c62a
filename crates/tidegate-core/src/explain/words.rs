//! Reasons in words that a person can act on.

use super::{COUNTED_MAX, Full, Slots, Why};
use crate::lifecycle::Kind;
use crate::store::{Scope, WhyUnserved};
use crate::{RunId, Timestamp};
use std::fmt::{self, Display, Formatter, Result};
use std::time::Duration;

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Told { why: self, now: None }.fmt(f)
    }
}

impl Why {
    /// In words, with how long it is from this time to the times in it.
    pub fn seen_at(&self, now: Timestamp) -> impl Display + '_ {
        Told { why: self, now: Some(now) }
    }
}

struct Told<'w> {
    why: &'w Why,
    now: Option<Timestamp>,
}

impl Display for Told<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let time = |at: Timestamp| Time { at, now: self.now };
        match self.why {
            Why::BlockedBy { tasks, open, when } => {
                write!(f, "it comes after tasks that are not over ({when}): ")?;
                in_a_row(f, tasks, |f, (name, kind)| write!(f, "\"{name}\" is {kind}"))?;
                rest(f, *open, tasks.len())
            }
            Why::NotBefore { at } => write!(f, "it may not start before {}", time(*at)),
            Why::BackOff { until, attempt, attempts, error } => {
                let until = time(*until);
                write!(f, "it failed and is in back-off until {until}; then comes attempt ")?;
                write!(f, "{attempt} of {attempts}")?;
                or_nothing(f, "; the last error was: ", error)
            }
            Why::Snoozed { until } => {
                write!(f, "it asked to be run again later, at {}", time(*until))
            }
            Why::LimitFull(full) => {
                write!(f, "{} is full: it wants ", full.limit)?;
                self.full(f, full)
            }
            Why::RateReached { limit, rate, wants, next, before } => {
                write!(f, "{limit} lets no more than {rate} begin: it wants {wants}, which may ")?;
                write!(f, "begin {}; ", time(*next))?;
                stand_before(f, *before)
            }
            Why::LimitMissing { limit } => {
                write!(f, "{limit} is not declared, and nothing begins under it until an engine ")?;
                write!(f, "is started with .limit(Limit::new(\"{}\")..)", limit.name)
            }
            Why::NoSlot { queue, before: 0, slots: Some(slots) } if slots.free() > 0 => {
                write!(f, "it is the next of queue \"{queue}\", and a slot is free ({slots})")
            }
            Why::NoSlot { queue, before, slots } => {
                f.write_str("it waits for a slot: ")?;
                count(f, *before, "ready task", "goes", "go")?;
                write!(f, " before it in queue \"{queue}\"")?;
                or_nothing(f, ", and ", slots)
            }
            Why::Claimed { worker, since, slots } => {
                write!(f, "worker {} has claimed it, and it waits there for a slot ", worker.0)?;
                write!(f, "since {}", time(*since))?;
                let Some(slots) = slots else { return Ok(()) };
                write!(f, "; {slots}, and {} in line", stand(slots.waiting))
            }
            Why::Paused { scope, since } => {
                let since = time(*since);
                match scope {
                    Scope::Store => write!(f, "the store is paused since {since}"),
                    Scope::Queue(queue) => write!(f, "queue \"{queue}\" is paused since {since}"),
                    Scope::Run(_) => write!(f, "its run is paused since {since}"),
                }
            }
            Why::InMemoryMax { worker, most } => {
                let tasks = if *most == 1 { "task" } else { "tasks" };
                write!(f, "worker {} has {most} {tasks} begun and unfinished, and ", worker.0)?;
                f.write_str("in_memory_max allows no more; nothing begins there until one ends")
            }
            Why::StartBelow { worker, what, value, mark } => {
                let (value, mark) = (Percent(*value), Percent(*mark));
                write!(f, "nothing new starts at worker {} while {mark} or more of ", worker.0)?;
                write!(f, "the {what} is in use (start_below), and {value} is")
            }
            Why::Waits { what, since, until, worker } => {
                write!(f, "it waits at worker {}, without a slot, for ", worker.0)?;
                self.wait(f, what, *since, *until)
            }
            Why::Parked { what, since, until } => {
                f.write_str("it is parked, and waits as a row for ")?;
                self.wait(f, what, *since, *until)
            }
            Why::Retakes(full) => {
                write!(f, "its wait is over, and it has to take {} again: it wants ", full.limit)?;
                self.full(f, full)
            }
            Why::Resuming { worker, slots } => {
                write!(f, "its wait is over, and it queues at worker {} for a slot; ", worker.0)?;
                write!(f, "{slots}, and {} in line", stand(slots.waiting))
            }
            Why::Quarantined { deaths, before } => {
                write!(
                    f,
                    "its process died {deaths} times while it computed, so it is run beside "
                )?;
                f.write_str("no other such task")?;
                if !before.is_empty() {
                    f.write_str("; before it goes ")?;
                }
                in_a_row(f, before, |f, (run, name)| named(f, name, *run))
            }
            Why::Unserved { queue, workflow, task, weight, why } => match why {
                WhyUnserved::Queue => write!(f, "no living worker serves queue \"{queue}\""),
                WhyUnserved::Unknown => write!(
                    f,
                    "no living worker of queue \"{queue}\" knows task \"{task}\" of workflow \
                     \"{workflow}\""
                ),
                WhyUnserved::TooHeavy { largest } => write!(
                    f,
                    "it takes {weight} slots, and no living worker that knows it has more than \
                     {largest}"
                ),
            },
            Why::Stopping { by } => {
                write!(f, "it was told to stop ({by}) and still computes")
            }
            Why::Running { worker, since } => {
                write!(f, "it is running at worker {} since {}", worker.0, time(*since))
            }
            Why::Ended { kind, reason, at, error } => {
                let has = match kind {
                    Kind::Cancelled | Kind::Skipped => "was",
                    _ => "has",
                };
                write!(f, "it {has} {}", kind.as_str().replace('_', " "))?;
                if let Some(reason) = reason {
                    write!(f, " ({reason})")?;
                }
                or_nothing(f, " at ", &at.map(time))?;
                or_nothing(f, ": ", error)
            }
        }
    }
}

impl Told<'_> {
    fn full(&self, f: &mut Formatter<'_>, full: &Full) -> Result {
        let Full { at_once, wants, in_use, holders, before, .. } = full;
        match at_once {
            Some(most) => write!(f, "{wants}, and {in_use} of {most} are in use")?,
            None => write!(f, "{wants}, and {in_use} are in use")?,
        }
        if !holders.is_empty() {
            f.write_str(", held by ")?;
        }
        in_a_row(f, holders, |f, holder| {
            named(f, &holder.name, holder.run)?;
            write!(f, " ({} since {})", holder.units, Time { at: holder.since, now: self.now })
        })?;
        let units = holders.iter().fold(0_u32, |sum, holder| sum.saturating_add(holder.units));
        if units < *in_use {
            f.write_str(" and others")?;
        }
        f.write_str("; ")?;
        stand_before(f, *before)
    }

    fn wait(
        &self,
        f: &mut Formatter<'_>,
        what: &str,
        since: Timestamp,
        until: Option<Timestamp>,
    ) -> Result {
        write!(f, "{what} since {}", Time { at: since, now: self.now })?;
        match until {
            Some(at) => write!(f, ", until {} at the latest", Time { at, now: self.now }),
            None => Ok(()),
        }
    }
}

impl Display for Slots {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Slots { capacity, in_use, .. } = self;
        match capacity {
            1 => write!(f, "{in_use} of 1 slot is in use"),
            _ => write!(f, "{in_use} of {capacity} slots are in use"),
        }
    }
}

/// A time, and how far from now it is.
struct Time {
    at: Timestamp,
    now: Option<Timestamp>,
}

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.at.fmt(f)?;
        match self.now {
            Some(now) if self.at > now => write!(f, " (in {})", Rough(self.at.since(now))),
            Some(now) => write!(f, " ({} ago)", Rough(now.since(self.at))),
            None => Ok(()),
        }
    }
}

/// A duration in its one or two largest units, as in `1h30m`, for people.
#[derive(Debug, Clone, Copy)]
pub struct Rough(pub Duration);

impl Display for Rough {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        // To the nearest of the smaller unit that is told.
        let part = match self.0.as_secs() {
            0..3_600 => 1,
            3_600..86_400 => 60,
            _ => 3_600,
        };
        let half = Duration::from_millis(part * 500);
        let seconds = self.0.saturating_add(half).as_secs() / part * part;
        match seconds {
            _ if self.0.as_secs() == 0 => write!(f, "{}ms", self.0.as_millis()),
            0..60 => write!(f, "{seconds}s"),
            60..3_600 => two(f, (seconds / 60, 'm'), (seconds % 60, 's')),
            3_600..86_400 => two(f, (seconds / 3_600, 'h'), (seconds / 60 % 60, 'm')),
            _ => two(f, (seconds / 86_400, 'd'), (seconds / 3_600 % 24, 'h')),
        }
    }
}

/// A fraction in percent. Of those below one in a thousand all digits are told.
struct Percent(f64);

impl Display for Percent {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self.0 {
            0.001.. => write!(f, "{} %", (self.0 * 1_000.0).round() / 10.0),
            few => write!(f, "{} %", (few * 1e12).round() / 1e10),
        }
    }
}

fn two(f: &mut Formatter<'_>, large: (u64, char), small: (u64, char)) -> Result {
    write!(f, "{}{}", large.0, large.1)?;
    if small.0 > 0 { write!(f, "{}{}", small.0, small.1) } else { Ok(()) }
}

fn named(f: &mut Formatter<'_>, task: &str, run: RunId) -> Result {
    write!(f, "\"{task}\" of run {run}")
}

fn in_a_row<T>(
    f: &mut Formatter<'_>,
    all: &[T],
    mut each: impl FnMut(&mut Formatter<'_>, &T) -> Result,
) -> Result {
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        each(f, one)?;
    }
    Ok(())
}

/// How many there are besides those that were named.
fn rest(f: &mut Formatter<'_>, all: u32, named: usize) -> Result {
    match (all as usize).saturating_sub(named) {
        0 => Ok(()),
        more if all >= COUNTED_MAX => write!(f, " and {more} or more others"),
        more => write!(f, " and {more} more"),
    }
}

fn or_nothing(f: &mut Formatter<'_>, before: &str, what: &Option<impl Display>) -> Result {
    what.as_ref().map_or(Ok(()), |what| write!(f, "{before}{what}"))
}

fn count(f: &mut Formatter<'_>, count: u32, noun: &str, one: &str, many: &str) -> fmt::Result {
    match count {
        0 => write!(f, "no {noun} {one}"),
        1 => write!(f, "1 {noun} {one}"),
        COUNTED_MAX.. => write!(f, "{count} or more {noun}s {many}"),
        _ => write!(f, "{count} {noun}s {many}"),
    }
}

fn stand_before(f: &mut Formatter<'_>, before: u32) -> Result {
    count(f, before, "task", "stands", "stand")?;
    f.write_str(" before it")
}

fn stand(waiting: u32) -> String {
    match waiting {
        1 => "1 task stands".to_owned(),
        _ => format!("{waiting} tasks stand"),
    }
}
