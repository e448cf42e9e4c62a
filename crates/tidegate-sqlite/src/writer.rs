//! The thread that writes.
//!
//! It takes what is queued into one transaction, bounded in time, commits, and then answers. While it
//! commits, the next batch gathers by itself. When one of a batch goes wrong, or panics, all of it is
//! rolled back and each is done in a transaction of its own, so that none fails for another's sake.
//!
//! The log is folded back into the database when there is nothing to do, and always when it has grown
//! long. The thread ends when the store is closed or dropped, after all that was queued before.

use crate::error::{Error, catch_panic};
use crate::fetch::Fetch;
use crate::ledger::Ledger;
use crate::open::{Opened, Place};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_core::store::StoreError;
use tokio::sync::oneshot;

/// Work in one transaction, however much is queued: so long do others wait at least.
const WORK_MAX: Duration = Duration::from_millis(10);

/// With nothing to do for so long, the log is folded back.
const IDLE: Duration = Duration::from_millis(50);

/// A log of this length is folded back although there is something to do.
const LOG_MAX: u64 = 64 << 20;

/// If that did not help, because somebody reads what is in it, then again after so much more.
const LOG_STEP: u64 = 16 << 20;

/// How long to wait for whoever reads what is in the log.
const READERS_MAX: Duration = Duration::from_millis(20);

/// From this length of the log on, that is waited for longer than anybody here reads at a time, so
/// that only somebody else's reader can make the log grow without end.
const LOG_URGENT: u64 = 160 << 20;

/// See [`LOG_URGENT`].
const URGENT_READERS_MAX: Duration = Duration::from_millis(1_500);

/// Something to be done in a transaction, perhaps more than once, of which the last time counts.
pub(crate) trait Job: Send {
    fn run(&mut self, ledger: &mut Ledger<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, failed: Option<StoreError>);
}

/// Work with an answer.
struct Work<T, W> {
    work: W,
    done: Option<T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Job for Work<T, W>
where
    T: Send,
    W: FnMut(&mut Ledger<'_>) -> Result<T, Error> + Send,
{
    fn run(&mut self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        self.done = Some((self.work)(ledger)?);
        Ok(())
    }

    fn answer(self: Box<Self>, failed: Option<StoreError>) {
        let answer = match (failed, self.done) {
            (Some(error), _) => Err(error),
            (None, done) => Ok(done.expect("what has not failed is done")),
        };
        // Whoever has gone away does not want to know.
        let _ = self.answer.send(answer);
    }
}

enum Message {
    Do(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// The callers' end of the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    inbox: Sender<Message>,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(opened: Opened) -> Result<Self, Error> {
        let (inbox, messages) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = thread::Builder::new().name("tidegate-sqlite".to_owned());
        let serve = move || {
            // Answered when the connection is closed and the locks are released, and not before.
            if let Some(closing) = serve(opened, &messages, &ready) {
                let _ = closing.send(());
            }
        };
        thread.spawn(serve).map_err(Error::Thread)?;
        is_ready.recv().map_err(|_| Error::Closed)??;
        Ok(Writer { inbox })
    }

    /// Does this in a transaction, which is committed once this returns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Ledger<'_>) -> Result<T, Error> + Send + 'static,
        place: &Place,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(Work { work, done: None, answer });
        let closed = || Error::Closed.at(&place.path);
        self.inbox.send(Message::Do(job)).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Ends the thread after what is queued. At once if it has ended.
    pub(crate) async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.inbox.send(Message::Close(answer)).is_ok() {
            // An error means that somebody else has closed it in between.
            let _ = answered.await;
        }
    }
}

/// All that the thread does: says whether it can, does it, and says whom to tell of the end.
fn serve(
    opened: Opened,
    messages: &Receiver<Message>,
    ready: &Sender<rusqlite::Result<()>>,
) -> Option<oneshot::Sender<()>> {
    let ledger = match Ledger::new(&opened) {
        Ok(ledger) => ledger,
        Err(error) => {
            let _ = ready.send(Err(error));
            return None;
        }
    };
    // Whoever asked has gone only if it has died.
    let _ = ready.send(Ok(()));
    Thread::new(ledger).serve(messages)
}

/// What happens in the thread.
struct Thread<'c> {
    ledger: Ledger<'c>,
    page: u64,
    /// Whether something was written since the log was last folded back.
    dirty: bool,
    /// From where on the log is too long.
    log_max: u64,
}

impl<'c> Thread<'c> {
    fn new(ledger: Ledger<'c>) -> Self {
        let page = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let page = ledger.opened.connection.pragma_query_value(None, "page_size", page);
        let page = page.ok().and_then(|page| u64::try_from(page).ok()).unwrap_or(4_096);
        // Somebody else may have left something in the log.
        Thread { ledger, page, dirty: true, log_max: LOG_MAX }
    }

    /// Until nobody wants anything any more. Says whom to tell.
    fn serve(mut self, messages: &Receiver<Message>) -> Option<oneshot::Sender<()>> {
        let closing = loop {
            match self.next(messages) {
                Ok(Message::Do(job)) => {
                    if let Some(closing) = self.batch(job, messages) {
                        break Some(closing);
                    }
                }
                Ok(Message::Close(closing)) => break Some(closing),
                Err(_) => break None,
            }
        };
        self.fold_back("TRUNCATE");
        closing
    }

    /// The next message; while there is none, the log is folded back.
    fn next(&mut self, messages: &Receiver<Message>) -> Result<Message, mpsc::RecvError> {
        if self.dirty {
            match messages.recv_timeout(IDLE) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) => drop(self.fold_back("PASSIVE")),
                Err(RecvTimeoutError::Disconnected) => return Err(mpsc::RecvError),
            }
        }
        messages.recv()
    }

    /// One transaction of the first job and of what is queued behind it.
    fn batch(
        &mut self,
        first: Box<dyn Job>,
        messages: &Receiver<Message>,
    ) -> Option<oneshot::Sender<()>> {
        let mut jobs = vec![first];
        let mut closing = None;
        if let Err(error) = self.ledger.begin() {
            self.ledger.roll_back();
            // What is queued would only wait as long, one after the other.
            let error = error.at(self.path());
            jobs.extend(std::iter::from_fn(|| take(messages, &mut closing)));
            jobs.into_iter().for_each(|job| job.answer(Some(error.clone())));
            return closing;
        }
        let began = Instant::now();
        let mut done = run(&mut jobs[0], &mut self.ledger);
        while done.is_ok() && began.elapsed() < WORK_MAX {
            let Some(mut job) = take(messages, &mut closing) else { break };
            done = run(&mut job, &mut self.ledger);
            jobs.push(job);
        }
        match done.and_then(|()| self.ledger.commit()) {
            Ok(()) => jobs.into_iter().for_each(|job| job.answer(None)),
            Err(error) => {
                self.ledger.roll_back();
                self.one_by_one(jobs, error);
            }
        }
        self.dirty = true;
        self.keep_log_short();
        closing
    }

    /// Each in a transaction of its own, after all together have failed.
    fn one_by_one(&mut self, mut jobs: Vec<Box<dyn Job>>, error: Error) {
        if jobs.len() == 1
            && let Some(job) = jobs.pop()
        {
            return job.answer(Some(error.at(self.path())));
        }
        tracing::debug!(%error, jobs = jobs.len(), "a transaction failed; now one by one");
        for mut job in jobs {
            let begun = self.ledger.begin();
            let done = begun.and_then(|()| run(&mut job, &mut self.ledger));
            let done = done.and_then(|()| self.ledger.commit());
            let done = done.inspect_err(|_| self.ledger.roll_back());
            job.answer(done.err().map(|error| error.at(self.path())));
        }
    }

    fn keep_log_short(&mut self) {
        let pages = self.ledger.sql.log_size.fetch_one::<(i64, i64)>([]);
        let log = pages.map_or(0, |(_, pages)| u64::try_from(pages).unwrap_or(0) * self.page);
        if log < self.log_max {
            return;
        }
        let connection = &self.ledger.opened.connection;
        // Without waiting first, so that there is little left to do while everybody waits.
        self.fold_back("PASSIVE");
        let wait = if log < LOG_URGENT { READERS_MAX } else { URGENT_READERS_MAX };
        let _ = connection.busy_timeout(wait);
        let all = self.fold_back("RESTART");
        let _ = self.ledger.opened.connection.busy_timeout(Duration::ZERO);
        self.dirty = true;
        // Its length tells nothing yet: it begins anew with the next write.
        self.log_max = if all { LOG_MAX } else { log + LOG_STEP };
    }

    /// Folds the log back as far as nobody is in the way; whether that was all of it.
    fn fold_back(&mut self, how: &str) -> bool {
        self.dirty = false;
        let fold = format!("PRAGMA wal_checkpoint({how})");
        let busy = self.ledger.opened.connection.query_row(&fold, [], |row| row.get::<_, i64>(0));
        busy.inspect_err(|error| {
            tracing::warn!(%error, how, "the log could not be folded back");
        })
        .is_ok_and(|busy| busy == 0)
    }

    fn path(&self) -> &std::path::Path {
        &self.ledger.opened.place.path
    }
}

/// The next job that is queued, unless the store is to be closed first.
fn take(
    messages: &Receiver<Message>,
    closing: &mut Option<oneshot::Sender<()>>,
) -> Option<Box<dyn Job>> {
    if closing.is_some() {
        return None;
    }
    match messages.try_recv() {
        Ok(Message::Do(job)) => Some(job),
        Ok(Message::Close(caller)) => {
            *closing = Some(caller);
            None
        }
        Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
    }
}

/// A panic is an error of the job alone. What was half changed in the ledger is forgotten when the
/// transaction is rolled back.
fn run(job: &mut Box<dyn Job>, ledger: &mut Ledger<'_>) -> Result<(), Error> {
    catch_panic(|| job.run(ledger))
}
