//! What an entry knows of the waits that are stored, and what it has asked of them.
//!
//! A wait has an identity ([`WaitId`]): its kind, its name, and which of those it is. Entries of a
//! task ask for the same waits in the same order, so the next entry finds what the one before has
//! left. What an entry has asked for stands here until it is answered; after an answer may have been
//! lost, everything unanswered is asked for again.

use crate::sync::{Mutex, lock};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};
use tidegate_core::RunId;
use tidegate_core::wait::{WaitAnswer, WaitId, WaitKind, WaitOp, WaitOutcome, Waiting};

/// What an entry knows of its stored waits.
#[derive(Default)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// What earlier entries have left.
    known: HashMap<WaitId, (Waiting, Option<RunId>)>,
    /// How many of each name were asked for in this entry.
    counts: HashMap<(WaitKind, Arc<str>), u32>,
    /// What was asked for in this entry and not given up.
    asked: HashMap<WaitId, Asked>,
}

struct Asked {
    /// What was asked, until it is over: it may be as large as the input of a run.
    op: Option<WaitOp>,
    answer: Answer,
    waker: Option<Waker>,
}

/// What is known of something asked for.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Nothing yet.
    None,
    /// It is written and has not ended.
    Open,
    /// It has ended.
    Over(WaitOutcome),
}

impl Journal {
    /// With what earlier entries have left.
    pub(crate) fn new(waits: Vec<(Waiting, Option<RunId>)>) -> Self {
        let known = waits.into_iter().map(|(wait, run)| (wait.id.clone(), (wait, run)));
        let inner = Inner { known: known.collect(), ..Inner::default() };
        Journal { inner: Mutex::new(inner) }
    }

    /// The identity of the next wait of this kind and name.
    pub(crate) fn next(&self, kind: WaitKind, name: &str) -> WaitId {
        let mut inner = lock(&self.inner);
        let name: Arc<str> = name.into();
        let count = inner.counts.entry((kind, name.clone())).or_default();
        let id = WaitId::new(kind, name, *count);
        *count += 1;
        id
    }

    /// What earlier entries have left of a wait, and the run it is for.
    pub(crate) fn known(&self, id: &WaitId) -> Option<(Waiting, Option<RunId>)> {
        lock(&self.inner).known.get(id).cloned()
    }

    /// Notes that something is asked for; what was asked before under this identity is not any more.
    pub(crate) fn ask(&self, id: &WaitId, op: WaitOp) {
        let asked = Asked { op: Some(op), answer: Answer::None, waker: None };
        let before = lock(&self.inner).asked.insert(id.clone(), asked);
        drop(before);
    }

    /// What is known of something asked for. Until it is over, the waker is woken when that changes.
    pub(crate) fn look(&self, id: &WaitId, cx: &mut Context<'_>) -> Answer {
        let mut inner = lock(&self.inner);
        let Some(asked) = inner.asked.get_mut(id) else { return Answer::None };
        if let Answer::Over(_) = asked.answer {
            return asked.answer.clone();
        }
        let waker = match &asked.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => asked.waker.replace(cx.waker().clone()),
        };
        let answer = asked.answer.clone();
        drop(inner);
        drop(waker);
        answer
    }

    /// The store has answered.
    pub(crate) fn answer(&self, answered: WaitAnswer) {
        let mut inner = lock(&self.inner);
        let Some(asked) = inner.asked.get_mut(&answered.id) else { return };
        asked.answer = match (answered.outcome, &asked.answer) {
            (_, Answer::Over(_)) => return,
            (None, _) => Answer::Open,
            (Some(outcome), _) => Answer::Over(outcome),
        };
        let is_over = matches!(asked.answer, Answer::Over(_));
        let (waker, op) = (asked.waker.take(), asked.op.take_if(|_| is_over));
        drop(inner);
        drop(op);
        waker.into_iter().for_each(Waker::wake);
    }

    /// It is not of interest any more.
    pub(crate) fn forget(&self, id: &WaitId) {
        let asked = lock(&self.inner).asked.remove(id);
        drop(asked);
    }

    /// Everything that was asked for and is not over.
    pub(crate) fn unanswered(&self) -> Vec<WaitOp> {
        lock(&self.inner).asked.values().filter_map(|asked| asked.op.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(id: &WaitId) -> WaitOp {
        WaitOp::Close(id.clone())
    }

    #[test]
    fn the_next_of_a_name_has_the_next_number() {
        let journal = Journal::default();
        assert_eq!(journal.next(WaitKind::Step, "a").occurrence, 0);
        assert_eq!(journal.next(WaitKind::Step, "a").occurrence, 1);
        assert_eq!(journal.next(WaitKind::Step, "b").occurrence, 0);
        assert_eq!(journal.next(WaitKind::Signal, "a").occurrence, 0);
    }

    #[test]
    fn what_is_over_stays_so_and_is_not_asked_again() {
        let journal = Journal::default();
        let (one, two) = (journal.next(WaitKind::Step, "a"), journal.next(WaitKind::Step, "a"));
        journal.ask(&one, close(&one));
        journal.ask(&two, close(&two));
        let over = Some(WaitOutcome::Elapsed);
        journal.answer(WaitAnswer { id: one.clone(), outcome: over });
        journal.answer(WaitAnswer { id: one.clone(), outcome: None });
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(matches!(journal.look(&one, cx), Answer::Over(WaitOutcome::Elapsed)));
        assert_eq!(journal.unanswered().len(), 1);
        journal.forget(&two);
        assert!(journal.unanswered().is_empty());
    }
}
