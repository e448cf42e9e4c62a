//! What a task asks for of its waits.

use super::*;

/// It waits for this, under this name and number.
pub fn begin(id: WaitId, due: Option<Timestamp>, what: Awaited) -> WaitOp {
    WaitOp::Begin { id, label: "".into(), due, what, releasing: Vec::new() }
}

/// It waits for a signal, for the so many-th of this name.
pub fn signal(name: &str, number: u32) -> WaitOp {
    begin(WaitId::new(WaitKind::Signal, name, number), None, Awaited::Signal)
}

/// It sleeps, for the so many-th time.
pub fn sleep(number: u32, due: Timestamp) -> WaitOp {
    begin(WaitId::new(WaitKind::Sleep, "", number), Some(due), Awaited::Time)
}

/// It waits for the end of another run.
pub fn run(run: RunId) -> WaitOp {
    begin(WaitId::new(WaitKind::Run, run.to_string(), 0), None, Awaited::Run(run))
}

/// It begins a run and waits for its end.
pub fn child(new: NewRun) -> WaitOp {
    let Parent { wait, label, due, releasing, .. } = new.parent.clone().expect("a child");
    WaitOp::Begin { id: wait, label, due, what: Awaited::Child(Arc::new(new)), releasing }
}

/// It has come to the end of a step.
pub fn step(name: &str, value: &str) -> WaitOp {
    let id = WaitId::new(WaitKind::Step, name, 0);
    WaitOp::End { id, label: "".into(), outcome: self::value(value) }
}

/// One of its waits has ended like this.
pub fn end(id: WaitId, outcome: WaitOutcome) -> WaitOp {
    WaitOp::End { id, label: "".into(), outcome }
}

/// The same wait, in which these limits are given back.
pub fn releasing(op: WaitOp, names: &[&str]) -> WaitOp {
    let names: Vec<Arc<str>> = names.iter().map(|&name| name.into()).collect();
    match op {
        WaitOp::Begin { id, label, due, what: Awaited::Child(new), .. } => {
            let mut new = (*new).clone();
            new.parent.as_mut().expect("a child").releasing.clone_from(&names);
            let what = Awaited::Child(Arc::new(new));
            WaitOp::Begin { id, label, due, what, releasing: names }
        }
        WaitOp::Begin { id, label, due, what, .. } => {
            WaitOp::Begin { id, label, due, what, releasing: names }
        }
        other => other,
    }
}

/// What a step came to, or what a signal brought.
pub fn value(body: &str) -> WaitOutcome {
    WaitOutcome::Value(Some(Bytes::from(body.as_bytes())))
}
