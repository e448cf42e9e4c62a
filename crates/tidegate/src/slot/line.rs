//! A place in the queue for slots.

use super::SlotPool;
use crate::error::Closed;
use std::task::{Context, Poll};
use tidegate_core::slot::{Lane, SlotRequest, Ticket, Turn};

/// A place in the queue, taken at the first poll. Dropping it leaves the queue, and gives back what
/// was granted and not yet seen.
#[derive(Debug)]
pub(crate) struct InLine {
    pool: SlotPool,
    lane: Lane,
    weight: u32,
    priority: i32,
    ticket: Option<Ticket>,
}

impl InLine {
    pub(crate) fn new(pool: SlotPool, lane: Lane, weight: u32, priority: i32) -> Self {
        InLine { pool, lane, weight, priority, ticket: None }
    }

    /// `Ready(Ok)`: the units are the caller's, who must give them back. Not to be polled after
    /// that. Wakes nobody else, so that it may be called under a lock.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let waker = cx.waker();
        let Some(ticket) = self.ticket.take() else { return self.join(cx) };
        let mut stale = None;
        let turn = self.pool.with_book(|book, _| {
            book.collect(ticket, |known| {
                if !known.will_wake(waker) {
                    stale = Some(std::mem::replace(known, waker.clone()));
                }
            })
        });
        drop(stale);
        match turn {
            Turn::Granted => Poll::Ready(Ok(())),
            Turn::Refused => Poll::Ready(Err(Closed)),
            Turn::Waiting(ticket) => {
                self.ticket = Some(ticket);
                Poll::Pending
            }
        }
    }

    fn join(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let (waker, since) = (cx.waker().clone(), self.pool.now());
        let &mut InLine { lane, weight, priority, .. } = self;
        let (answer, unused) = self.pool.with_book(|book, _| {
            if book.is_closed() {
                return (Poll::Ready(Err(Closed)), Some(waker));
            }
            if book.try_take(weight) {
                return (Poll::Ready(Ok(())), Some(waker));
            }
            self.ticket = Some(book.join(SlotRequest { lane, weight, priority, since }, waker));
            (Poll::Pending, None)
        });
        drop(unused);
        answer
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let unused =
                self.pool.with_book(|book, woken| book.leave(ticket, |waker| woken.push(waker)));
            drop(unused);
        }
    }
}
