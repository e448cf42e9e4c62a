//! The right to be computing now.

use super::{InLine, SlotPool};
use crate::error::Closed;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tidegate_core::slot::Lane;

/// One or more slots that belong to whoever has this value.
///
/// A token can be [released](Self::release) for a while and [reclaimed](Self::reclaim); dropping it
/// gives back what it holds. A released token whose reclaim was dropped is still released.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = tidegate::SlotPool::new(1)?;
/// let mut token = pool.acquire().await?;
/// assert!(token.release());
/// // Somebody else may compute here.
/// token.reclaim().await?;
/// assert!(token.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the token gives the slot back at once"]
pub struct SlotToken {
    pool: SlotPool,
    weight: u32,
    priority: i32,
    held: bool,
}

impl SlotToken {
    pub(crate) fn granted(pool: SlotPool, weight: u32, priority: i32) -> Self {
        SlotToken { pool, weight, priority, held: true }
    }

    pub(super) fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// A place in the resume lane for what this token gave back.
    pub(crate) fn line(&self) -> InLine {
        InLine::new(self.pool.clone(), Lane::Resume, self.weight, self.priority)
    }

    /// Takes over units that a place of [`line`](Self::line) was granted.
    pub(crate) fn regain(&mut self) {
        debug_assert!(!self.held, "units are granted to a token that holds none");
        self.held = true;
    }

    /// Moves the slots it holds to a token of their own, so that they can be given back where it is
    /// safe to wake others. This one is released.
    pub(crate) fn split_off(&mut self) -> Option<SlotToken> {
        let held = std::mem::replace(&mut self.held, false);
        held.then(|| SlotToken::granted(self.pool.clone(), self.weight, self.priority))
    }

    /// Moves some of the slots it holds to a token of their own.
    pub(crate) fn carve(&mut self, weight: u32, priority: i32) -> SlotToken {
        assert!(self.held && weight <= self.weight, "no more is carved than is held");
        self.weight -= weight;
        self.held = self.weight > 0;
        SlotToken::granted(self.pool.clone(), weight, priority)
    }

    /// Gives the slots back; says whether it held them. A second release frees nothing.
    pub fn release(&mut self) -> bool {
        let held = std::mem::replace(&mut self.held, false);
        if held {
            self.pool.give_back(self.weight);
        }
        held
    }

    /// Waits until the token holds its slots again: at once if it does, otherwise in the resume
    /// lane with the age of this call.
    ///
    /// # Cancel safety
    /// Dropping the future gives up its place in the queue; the token stays released and can be
    /// reclaimed again. Nothing is leaked.
    ///
    /// # Errors
    /// [`Closed`] when the pool is or becomes closed; the token stays released.
    pub fn reclaim(&mut self) -> Reclaim<'_> {
        Reclaim { token: self, line: None }
    }

    /// Whether it holds its slots.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// How many slots it stands for.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// The pool it belongs to.
    pub fn pool(&self) -> &SlotPool {
        &self.pool
    }
}

impl Drop for SlotToken {
    fn drop(&mut self) {
        self.release();
    }
}

/// Waits until a token holds its slots again. Made by [`SlotToken::reclaim`].
#[derive(Debug)]
#[must_use = "nothing is reclaimed until it is awaited"]
pub struct Reclaim<'t> {
    token: &'t mut SlotToken,
    line: Option<InLine>,
}

impl Future for Reclaim<'_> {
    type Output = Result<(), Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.token.held {
            return Poll::Ready(Ok(()));
        }
        let line = this.line.get_or_insert_with(|| this.token.line());
        let granted = ready!(line.poll(cx));
        this.line = None;
        granted.map(|()| this.token.regain()).into()
    }
}
