//! What a worker says of a task that it has claimed.

use super::ask;
use std::time::Duration;
use tidegate_core::Timestamp;
use tidegate_core::lifecycle::{Event, Failure};
use tidegate_core::store::{Bytes, Change, Claimed};
use tidegate_core::wait::{WaitId, WaitKind, WaitOp};

/// An event of a claimed task, with all that the worker knows of it.
fn report_event(task: &Claimed, event: Event) -> Change {
    Change { events: vec![event], ..asks(task, []) }
}

/// The body is entered.
pub fn begin(task: &Claimed) -> Change {
    report_event(task, Event::Begin { fence: task.life.fence })
}

/// The body returned.
pub fn succeed(task: &Claimed) -> Change {
    report_event(task, Event::Succeed { fence: task.life.fence })
}

/// The body returned this, and has put that into the context.
pub fn succeed_with(task: &Claimed, output: &str, inserts: &str) -> Change {
    let bytes = |text: &str| Some(Bytes::from(text.as_bytes()));
    Change { output: bytes(output), inserts: bytes(inserts), ..succeed(task) }
}

/// The body failed in this way; no chance in its back-off.
pub fn fail_by(task: &Claimed, failure: Failure, permanent: bool) -> Change {
    let fence = task.life.fence;
    report_event(task, Event::Fail { fence, failure, permanent, chance: 0.5 })
}

/// The body returned an error.
pub fn fail(task: &Claimed) -> Change {
    fail_by(task, Failure::Error, false)
}

/// The body wants to be run again later.
pub fn snooze(task: &Claimed, delay: Duration) -> Change {
    report_event(task, Event::Snooze { fence: task.life.fence, delay })
}

/// The body waits in memory, after having computed for so long.
pub fn defer(task: &Claimed, active: Duration, wait: &str) -> Change {
    let (fence, wait) = (task.life.fence, wait.to_owned());
    report_event(task, Event::Defer { fence, active, wait })
}

/// The body goes on.
pub fn resume(task: &Claimed) -> Change {
    report_event(task, Event::Resume { fence: task.life.fence })
}

/// The body asks for these.
pub fn asks(task: &Claimed, ops: impl IntoIterator<Item = WaitOp>) -> Change {
    Change {
        plan: Some(task.plan.clone()),
        waits: ops.into_iter().collect(),
        ..Change::none(task.key, task.index, task.life.fence)
    }
}

/// The body has stored a step.
pub fn step(task: &Claimed) -> Change {
    report_event(task, Event::Step { fence: task.life.fence })
}

/// The body waits as a row, until this time or for a signal that nobody sends.
pub fn park(task: &Claimed, wake: Option<Timestamp>) -> Change {
    match wake {
        Some(_) => park_on(task, wake, []),
        None => {
            let op = ask::signal("what nobody sends", 0);
            let on = [WaitId::new(WaitKind::Signal, "what nobody sends", 0)];
            Change { waits: vec![op], ..park_on(task, None, on) }
        }
    }
}

/// The body waits as a row, until this time or for the first of these.
pub fn park_on(
    task: &Claimed,
    wake: Option<Timestamp>,
    on: impl IntoIterator<Item = WaitId>,
) -> Change {
    let (fence, active, wait) = (task.life.fence, Duration::from_secs(2), String::from("time"));
    let event = Event::Park { fence, active, wake, wait };
    Change { parks_on: on.into_iter().collect(), ..report_event(task, event) }
}

/// The worker gives it back.
pub fn hand_back(task: &Claimed) -> Change {
    let (fence, active) = (task.life.fence, Duration::from_secs(3));
    report_event(task, Event::HandBack { fence, active, pause: Duration::ZERO })
}

/// The body is gone because it was told to stop.
pub fn stopped(task: &Claimed) -> Change {
    report_event(task, Event::Stopped { fence: task.life.fence })
}

/// The same, with what went wrong in words.
pub fn with_error(change: Change, error: &str) -> Change {
    Change { error: Some(error.to_owned()), ..change }
}
