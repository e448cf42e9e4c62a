//! One thread that owns the connection and commits what is queued together.
//!
//! Callers send a command and wait for its answer. The writer takes what is queued into one
//! transaction, bounded in number and time, commits, then answers. It neither spins nor waits to
//! gather: while it commits, the next batch gathers by itself.

use super::ledger::{Holder, Key, Ledger, Store};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// Commands in a transaction. More rows cost little less each, and the first of them waits.
const BATCH_MAX: usize = 1_000;

/// Work in a transaction before it is committed, however many commands are queued.
const BATCH_TIME: Duration = Duration::from_millis(10);

/// The clock is read once in so many commands.
const CLOCK_EVERY: usize = 64;

/// Up to here the writer answers by itself. More answers are fired from within the runtime, so that
/// the writer can go on with the next batch meanwhile.
const ANSWERED_HERE_MAX: usize = 8;

/// Without a command for so long, the log is folded back.
const IDLE: Duration = Duration::from_millis(50);

/// What a caller asks for. An answer of `None` means that the task was not as the command requires.
enum Ask {
    Insert { input: String },
    Claim { key: Key, holder: Holder },
    Finish { key: Key, holder: Holder },
}

type Answer = (oneshot::Sender<Option<Key>>, Option<Key>);

struct Command {
    ask: Ask,
    answer: oneshot::Sender<Option<Key>>,
}

/// The callers' end of the writer thread, which ends when all clones are dropped.
#[derive(Clone)]
pub(crate) struct Writer {
    inbox: Sender<Command>,
}

impl Writer {
    /// Makes the database and starts the thread, which hands the database back when it ends. Must
    /// be called within a runtime.
    pub(crate) fn start(path: PathBuf) -> (Writer, JoinHandle<Store>) {
        let (inbox, commands) = mpsc::channel();
        let (answers, fired) = unbounded_channel();
        tokio::spawn(fire(fired));
        let store = Store::create(&path);
        let thread = thread::Builder::new().name("bare-writer".into());
        let thread = thread.spawn(move || {
            serve(&mut store.ledger(), &commands, &answers);
            store
        });
        (Writer { inbox }, thread.expect("a thread can be started"))
    }

    /// Once this returns, the run, its task and its payload are on the disk.
    pub(crate) async fn insert(&self, input: String) -> Key {
        self.ask(Ask::Insert { input }).await.expect("a row can always be inserted")
    }

    /// Ready → running. False: it was not ready.
    pub(crate) async fn claim(&self, key: Key, holder: Holder) -> bool {
        self.ask(Ask::Claim { key, holder }).await.is_some()
    }

    /// Running → succeeded, with its run and an event. False: this holder does not hold it.
    pub(crate) async fn finish(&self, key: Key, holder: Holder) -> bool {
        self.ask(Ask::Finish { key, holder }).await.is_some()
    }

    async fn ask(&self, ask: Ask) -> Option<Key> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Command { ask, answer }).expect("the writer outlives its callers");
        answered.await.expect("the writer answers every command")
    }
}

/// The writer's loop: wait, write a batch, answer; fold the log back when idle or when it is long.
fn serve(
    ledger: &mut Ledger<'_>,
    commands: &Receiver<Command>,
    fire: &UnboundedSender<Vec<Answer>>,
) {
    loop {
        let first = match commands.recv_timeout(IDLE) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                ledger.checkpoint();
                match commands.recv() {
                    Ok(first) => first,
                    Err(_) => return,
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let answers = write(ledger, first, commands);
        if answers.len() <= ANSWERED_HERE_MAX {
            answer(answers);
        } else if let Err(unsent) = fire.send(answers) {
            answer(unsent.0);
        }
        if ledger.log_is_long() {
            ledger.checkpoint();
        }
    }
}

/// One transaction of the first command and what is queued behind it.
fn write(ledger: &mut Ledger<'_>, first: Command, commands: &Receiver<Command>) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut next = Some(first);
    let began = Instant::now();
    ledger.begin();
    while let Some(Command { ask, answer }) = next {
        answers.push((answer, apply(ledger, ask)));
        let done = answers.len();
        if done == BATCH_MAX || done % CLOCK_EVERY == 0 && began.elapsed() >= BATCH_TIME {
            break;
        }
        next = commands.try_recv().ok();
    }
    ledger.commit();
    answers
}

fn apply(ledger: &mut Ledger<'_>, ask: Ask) -> Option<Key> {
    match ask {
        Ask::Insert { input } => Some(ledger.insert(&input)),
        Ask::Claim { key, holder } => ledger.claim(key, holder).then_some(key),
        Ask::Finish { key, holder } => ledger.finish(key, holder).then_some(key),
    }
}

fn answer(answers: Vec<Answer>) {
    for (caller, value) in answers {
        // A caller that has gone away does not want to know.
        let _ = caller.send(value);
    }
}

async fn fire(mut batches: UnboundedReceiver<Vec<Answer>>) {
    while let Some(answers) = batches.recv().await {
        answer(answers);
    }
}
