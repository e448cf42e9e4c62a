//! What a body knows of its stored waits, and how it waits for them: what the real journal and the
//! real waits do, without their futures.

use super::script::{Birth, For, Leaf};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_core::store::{NewRun, Parent};
use tidegate_core::wait::{Awaited, WaitAnswer, WaitId, WaitKind, WaitOp, WaitOutcome, Waiting};
use tidegate_core::{RunId, Timestamp};

/// What an entry knows of its stored waits, and what it has asked of them.
#[derive(Default)]
pub(super) struct Journal {
    known: BTreeMap<WaitId, Waiting>,
    counts: BTreeMap<(WaitKind, Arc<str>), u32>,
    asked: BTreeMap<WaitId, (WaitOp, Answer)>,
}

/// What is known of something asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    None,
    Open,
    Over(WaitOutcome),
}

impl Journal {
    pub(super) fn new(waits: &[(Waiting, Option<RunId>)]) -> Self {
        let known = waits.iter().map(|(wait, _)| (wait.id.clone(), wait.clone()));
        Journal { known: known.collect(), ..Journal::default() }
    }

    /// The identity of the next wait of this kind and name.
    pub(super) fn next(&mut self, kind: WaitKind, name: &str) -> WaitId {
        let name: Arc<str> = name.into();
        let count = self.counts.entry((kind, name.clone())).or_default();
        *count += 1;
        WaitId::new(kind, name, *count - 1)
    }

    pub(super) fn known(&self, id: &WaitId) -> Option<&Waiting> {
        self.known.get(id)
    }

    pub(super) fn ask(&mut self, id: &WaitId, op: WaitOp) {
        self.asked.insert(id.clone(), (op, Answer::None));
    }

    pub(super) fn look(&self, id: &WaitId) -> Answer {
        self.asked.get(id).map_or(Answer::None, |(_, answer)| answer.clone())
    }

    pub(super) fn answer(&mut self, answered: WaitAnswer) {
        let Some((_, answer)) = self.asked.get_mut(&answered.id) else { return };
        *answer = match (answered.outcome, &*answer) {
            (_, Answer::Over(_)) => return,
            (None, _) => Answer::Open,
            (Some(outcome), _) => Answer::Over(outcome),
        };
    }

    pub(super) fn forget(&mut self, id: &WaitId) {
        self.asked.remove(id);
    }

    /// Everything that was asked for and is not over.
    pub(super) fn unanswered(&self) -> Vec<WaitOp> {
        let open = self.asked.values().filter(|(_, answer)| !matches!(answer, Answer::Over(_)));
        open.map(|(op, _)| op.clone()).collect()
    }
}

/// What a wait is given when it is looked at.
pub(super) struct Around<'a> {
    pub(super) journal: &'a mut Journal,
    /// By the clock of the worker.
    pub(super) now: Timestamp,
    /// Whether it has said that it waits: then what it asks is written before it goes on.
    pub(super) away: bool,
    /// The limits of the task that can be given back, in order.
    pub(super) limits: &'a [Arc<str>],
    /// What it asks of the store.
    pub(super) ops: &'a mut Vec<WaitOp>,
    /// Whether it has given limits back.
    pub(super) released: &'a mut bool,
    /// Makes a run to begin.
    pub(super) begets: &'a mut dyn FnMut(&Arc<Birth>, WaitId) -> NewRun,
}

/// What came of looking at a wait.
#[derive(Debug, PartialEq)]
pub(super) enum Polled {
    /// It is over like this, of the wait of this identity.
    Ready(WaitId, WaitOutcome),
    /// It may be about to be over.
    Checking,
    Waiting,
}

/// One stored wait, or the first of several.
pub(super) struct Open {
    waits: Vec<One>,
    any: Option<Any>,
}

struct One {
    leaf: Leaf,
    id: WaitId,
    label: Arc<str>,
    due: Option<Timestamp>,
    stage: Stage,
    /// Whether it has received a signal that has not reached the body.
    received: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Begun,
    TimingOut,
    Over,
}

struct Any {
    id: WaitId,
    label: Arc<str>,
    patience: Option<std::time::Duration>,
    due: Option<Timestamp>,
    begun: bool,
    winner: Option<u32>,
    first: Option<(WaitId, WaitOutcome)>,
}

impl Open {
    pub(super) fn one(journal: &mut Journal, leaf: &Leaf) -> Self {
        Open { waits: vec![One::new(journal, leaf)], any: None }
    }

    pub(super) fn any(
        journal: &mut Journal,
        leaves: &[Leaf],
        patience: Option<std::time::Duration>,
    ) -> Self {
        let waits: Vec<One> = leaves.iter().map(|leaf| One::new(journal, leaf)).collect();
        let id = journal.next(WaitKind::Any, "");
        let label = format!("the first of {}", waits.len()).into();
        let (due, begun, winner, first) = (None, false, None, None);
        Open { waits, any: Some(Any { id, label, patience, due, begun, winner, first }) }
    }

    pub(super) fn poll(&mut self, around: &mut Around<'_>) -> Polled {
        let Open { waits, any: Some(any) } = self else { return self.waits[0].poll(around) };
        if let Some(over) = any.begin(around) {
            // What an earlier entry has begun of them is not waited for.
            waits.iter_mut().for_each(|wait| wait.lose(around));
            return Polled::Ready(any.id.clone(), over);
        }
        let mut pending = Polled::Waiting;
        for number in 0..waits.len() {
            if any.first.is_some() || any.winner.is_some_and(|winner| winner as usize != number) {
                continue;
            }
            match waits[number].poll(around) {
                Polled::Ready(id, outcome) => {
                    let others = waits.iter_mut().enumerate().filter(|(at, _)| *at != number);
                    others.for_each(|(_, wait)| wait.lose(around));
                    any.won(number as u32, around);
                    any.first = Some((id, outcome));
                }
                Polled::Checking => pending = Polled::Checking,
                Polled::Waiting => {}
            }
        }
        if let Some((id, outcome)) = &any.first {
            let is_written = any.winner.is_some()
                || around.away
                || matches!(around.journal.look(&any.id), Answer::Over(_));
            if !is_written {
                return Polled::Checking;
            }
            around.journal.forget(&any.id);
            return Polled::Ready(id.clone(), outcome.clone());
        }
        if any.due.is_some_and(|due| due <= around.now) {
            any.end(WaitOutcome::TimedOut, around);
            waits.iter_mut().for_each(|wait| wait.lose(around));
            around.journal.forget(&any.id);
            return Polled::Ready(any.id.clone(), WaitOutcome::TimedOut);
        }
        pending
    }

    /// Whether looking at it would make a difference.
    pub(super) fn is_ripe(&self, journal: &Journal, now: Timestamp, away: bool) -> bool {
        let is_due = |due: Option<Timestamp>| due.is_some_and(|due| due <= now);
        let over = |id: &WaitId| matches!(journal.look(id), Answer::Over(_));
        match &self.any {
            Some(any) if any.first.is_some() => away || over(&any.id),
            Some(any) if is_due(any.due) => true,
            _ => self
                .waits
                .iter()
                .any(|wait| over(&wait.id) || wait.stage == Stage::Begun && is_due(wait.due)),
        }
    }

    /// When it has to be looked at, by the clock of the worker.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let begun = self.waits.iter().filter(|wait| wait.stage == Stage::Begun);
        let own = self.any.iter().filter_map(|any| any.due);
        begun.filter_map(|wait| wait.due).chain(own).min()
    }

    /// How it can be waited for as a row: on what, and until when.
    pub(super) fn parks(&self) -> Option<(Vec<WaitId>, Option<Timestamp>)> {
        let is_over = self.any.as_ref().is_some_and(|any| any.first.is_some());
        if is_over || self.waits.iter().any(|wait| wait.stage != Stage::Begun) {
            return None;
        }
        Some((self.waits.iter().map(|wait| wait.id.clone()).collect(), self.due()))
    }

    /// The waits for signals among them that the store has said to be open.
    pub(super) fn signals<'a>(&'a self, journal: &'a Journal) -> impl Iterator<Item = &'a WaitId> {
        let open =
            |wait: &&One| wait.stage == Stage::Begun && journal.look(&wait.id) == Answer::Open;
        let open = self.waits.iter().filter(open).map(|wait| &wait.id);
        open.filter(|id| id.kind == WaitKind::Signal)
    }
}

impl One {
    fn new(journal: &mut Journal, leaf: &Leaf) -> Self {
        let (kind, name, label) = match &leaf.what {
            For::Signal(name) => (WaitKind::Signal, name.to_string(), "a signal"),
            For::Sleep(_) => (WaitKind::Sleep, String::new(), "a while"),
            For::Run(run) => (WaitKind::Run, run.to_string(), "a run"),
            For::Child(birth) if birth.is_of_items() => {
                (WaitKind::Child, "items".to_owned(), "items")
            }
            For::Child(_) => (WaitKind::Child, String::new(), "a child"),
        };
        let id = journal.next(kind, &name);
        let (due, stage, received) = (None, Stage::New, false);
        One { leaf: leaf.clone(), id, label: label.into(), due, stage, received }
    }

    fn poll(&mut self, around: &mut Around<'_>) -> Polled {
        let outcome = loop {
            match self.stage {
                Stage::New => match self.begin(around) {
                    Some(outcome) => break outcome,
                    None => self.stage = Stage::Begun,
                },
                Stage::Begun => match around.journal.look(&self.id) {
                    Answer::Over(outcome) => break outcome,
                    answer if self.due.is_none_or(|due| due > around.now) => {
                        let is_sleep = self.id.kind == WaitKind::Sleep;
                        return match answer {
                            Answer::None if !is_sleep && self.leaf.releases == 0 => {
                                Polled::Checking
                            }
                            _ => Polled::Waiting,
                        };
                    }
                    _ if self.id.kind == WaitKind::Sleep => {
                        // Nobody else ends it, so it needs no answer.
                        around.ops.push(self.end_op(WaitOutcome::Elapsed));
                        break WaitOutcome::Elapsed;
                    }
                    _ => {
                        let op = self.end_op(WaitOutcome::TimedOut);
                        around.journal.ask(&self.id, op.clone());
                        around.ops.push(op);
                        self.stage = Stage::TimingOut;
                    }
                },
                Stage::TimingOut => match around.journal.look(&self.id) {
                    Answer::Over(outcome) => break outcome,
                    _ => return Polled::Waiting,
                },
                Stage::Over => unreachable!("a wait is not looked at after its end"),
            }
        };
        around.journal.forget(&self.id);
        self.stage = Stage::Over;
        let is_signal = self.id.kind == WaitKind::Signal;
        self.received = is_signal && matches!(outcome, WaitOutcome::Value(_));
        Polled::Ready(self.id.clone(), outcome)
    }

    /// Asks the store for it; `Some`: an earlier entry has seen its end.
    fn begin(&mut self, around: &mut Around<'_>) -> Option<WaitOutcome> {
        self.due = match self.leaf.what {
            For::Sleep(delay) => Some(around.now + delay),
            _ => self.leaf.patience.map(|patience| around.now + patience),
        };
        if let Some(known) = around.journal.known(&self.id) {
            if known.outcome.is_some() {
                return known.outcome.clone();
            }
            self.due = known.due.or(self.due);
        }
        let (id, label, due) = (self.id.clone(), self.label.clone(), self.due);
        let from = around.limits.len().saturating_sub(self.leaf.releases);
        let releasing = around.limits[from..].to_vec();
        *around.released |= !releasing.is_empty();
        let what = match &self.leaf.what {
            For::Signal(_) => Awaited::Signal,
            For::Sleep(_) => Awaited::Time,
            For::Run(run) => Awaited::Run(*run),
            For::Child(birth) => {
                let mut new = (around.begets)(birth, id.clone());
                let (label, releasing) = (label.clone(), releasing.clone());
                new.parent = new.parent.map(|parent| Parent { label, due, releasing, ..parent });
                Awaited::Child(Arc::new(new))
            }
        };
        let op = WaitOp::Begin { id, label, due, what, releasing };
        around.journal.ask(&self.id, op.clone());
        around.ops.push(op);
        None
    }

    fn end_op(&self, outcome: WaitOutcome) -> WaitOp {
        WaitOp::End { id: self.id.clone(), label: self.label.clone(), outcome }
    }

    /// Another was the first to be over.
    fn lose(&mut self, around: &mut Around<'_>) {
        let is_open = match self.stage {
            Stage::New => around.journal.known(&self.id).is_some(),
            Stage::Begun | Stage::TimingOut => true,
            Stage::Over => std::mem::take(&mut self.received),
        };
        self.stage = Stage::Over;
        if is_open {
            around.journal.forget(&self.id);
            around.ops.push(WaitOp::Close(self.id.clone()));
        }
    }
}

impl Any {
    /// `Some`: an earlier entry has seen that it took too long.
    fn begin(&mut self, around: &mut Around<'_>) -> Option<WaitOutcome> {
        if std::mem::replace(&mut self.begun, true) {
            return None;
        }
        let known = around.journal.known(&self.id);
        match known.and_then(|known| known.outcome.as_ref()) {
            Some(WaitOutcome::Won(winner)) => {
                self.winner = Some(*winner);
                return None;
            }
            Some(over) => return Some(over.clone()),
            None => {}
        }
        let (now, known) = (around.now, known.and_then(|known| known.due));
        self.due = self.patience.map(|patience| known.unwrap_or(now + patience));
        let (id, label, due) = (self.id.clone(), self.label.clone(), self.due);
        let (what, releasing) = (Awaited::Time, Vec::new());
        around.ops.push(WaitOp::Begin { id, label, due, what, releasing });
        None
    }

    fn won(&mut self, which: u32, around: &mut Around<'_>) {
        if self.winner.is_none() {
            self.end(WaitOutcome::Won(which), around);
        }
    }

    fn end(&mut self, outcome: WaitOutcome, around: &mut Around<'_>) {
        self.due = None;
        let op = WaitOp::End { id: self.id.clone(), label: self.label.clone(), outcome };
        around.journal.ask(&self.id, op.clone());
        around.ops.push(op);
    }
}
