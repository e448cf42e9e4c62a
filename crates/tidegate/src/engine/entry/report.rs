//! The end of an entry, which is reported whatever happens.
//!
//! Between the return of a body and the report of its end there is code of the user's: the words of an
//! error, destructors. A panic there, or anywhere else in the task of an entry, is a failure of the
//! attempt. Only a task that is dropped has not ended, and is handed back.

use super::{Entry, LEAKY, OVER};
use crate::contain::{contain_panic, discard_value};
use crate::engine::hook::{EntryStage, Hook};
use crate::error::Panic;
use crate::slot::SlotToken;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tidegate_core::dispatcher::{End, Said};
use tidegate_core::lifecycle::Failure;

/// How an entry ended, and the slot it held to the end; `None`: as if it had been dropped.
type Ending = Option<(End, Option<SlotToken>)>;

pin_project! {
    /// The task of an entry.
    pub(super) struct EntryTask<F> {
        #[pin]
        work: Option<F>,
        // After the work: nothing of the body is left, and its slot is free, before the end is reported.
        report: Report,
    }
}

impl<F> EntryTask<F> {
    pub(super) fn new(work: F, report: Report) -> Self {
        EntryTask { work: Some(work), report }
    }
}

impl<F: Future<Output = Ending>> Future for EntryTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(work) = this.work.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let ending = match contain_panic(|| work.poll(cx)) {
            Ok(polled) => ready!(polled),
            Err(panic) => Some((panicked(&panic), None)),
        };
        if let Err(panic) = contain_panic(|| this.work.set(None)) {
            tracing::warn!(%panic, "a destructor panicked");
        }
        if let Some((end, slot)) = ending {
            this.report.end(end, slot);
        }
        Poll::Ready(())
    }
}

/// The end of an entry that panicked between its body and its report.
pub(super) fn panicked(panic: &Panic) -> End {
    let (failure, permanent, chance) = (Failure::Panic, false, fastrand::f64());
    let error = format!("panicked while its end was being reported: {}", panic.message());
    End::Failed { failure, permanent, chance, error }
}

/// Reports the end of an entry, at the latest when it is dropped, and so always. By then nothing of
/// the body is left and its slot is free.
pub(super) struct Report {
    entry: Arc<Entry>,
    /// Hears of the end, if the body was entered.
    hook: Option<Hook>,
    over: bool,
}

impl Report {
    pub(super) fn new(entry: Arc<Entry>, hook: Option<Hook>) -> Self {
        Report { entry, hook, over: false }
    }

    fn end(&mut self, end: End, slot: Option<SlotToken>) {
        self.hear(&end);
        // After a failure nothing else of the run may begin on its slot before the loop knows. All
        // others are free at once.
        let slot = slot.filter(|_| self.entry.ends_others(&end));
        self.tell(end, slot);
    }

    fn hear(&self, end: &End) {
        if let Some(hook) = self.hook.as_ref().filter(|_| self.entry.has_begun()) {
            self.entry.tell(hook, EntryStage::of(end, self.entry.is_final_failure(end)));
        }
    }

    fn tell(&mut self, end: End, slot: Option<SlotToken>) {
        self.over = true;
        let entry = &self.entry;
        if entry.stage.swap(OVER, Ordering::AcqRel) == LEAKY {
            entry.shared.pool.set_leaky(false);
        }
        entry.say_with(Said::Ends(end), slot);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.over {
            let end = End::Dropped { active: self.entry.active() };
            self.hear(&end);
            self.tell(end, None);
        }
        // What hears of entries may be its last owner's.
        discard_value(self.hook.take());
    }
}
