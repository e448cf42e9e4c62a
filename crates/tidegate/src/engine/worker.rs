//! The loop of a worker: tells the dispatcher what happens, and does what it says.
//!
//! It owns the state of the worker and awaits nothing but its channel, the request in flight, a look
//! for dead workers (a task of its own) and the next timer. Nothing in it can fail: what the store
//! refuses comes back as an answer, and what a body does happens in its own task.

mod abandon;
mod closing;
mod wakeups;

use self::closing::ClosingState;
use super::event::{Event, What};
use super::health::{NoAnswer, UnknownWorker};
use super::hook::Hook;
use super::look::{Seen, look};
use super::monitor::Beside;
use super::run::{Cell, Over};
use super::shutdown::{ShutdownReport, Stage};
use super::unstored::UnstoredEnds;
use super::{Message, Metrics, Report, Shared, SubmitError, Tickets, entry, workflows};
use crate::context::States;
use crate::deadline::deadline_after;
use crate::slot::{Ended as Counted, SlotToken, guarded};
use crate::task::Manner;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tidegate_core::RunId;
use tidegate_core::dispatcher::{Dispatcher, End, Input, Said, Ticket, Todo};
use tidegate_core::explain::{Live as Known, NAMED_MAX, Slots};
use tidegate_core::graph::RunOutcome;
use tidegate_core::lifecycle::{Failure, Fence, Kind, WorkerId};
use tidegate_core::load::Reached;
use tidegate_core::plan::Plan;
use tidegate_core::store::{
    Bytes, Claimed, Clock, Ended, Happened, OperationOutcome, Record, Reply, Request, RequestId,
    RunKey, StoreError, Submitted, TaskKey, Wakeup,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tokio::time::{Instant, Sleep};

/// With each look, what the store thinks is owned here is compared with what is: a claim whose answer
/// was lost is handed back, and what somebody else has ended is dropped. A worker that owns more than
/// this does so only every so many looks, and after a request that failed: most of what it owns waits.
const ROLL_CALL_MAX: u64 = 1_000;

/// See [`ROLL_CALL_MAX`].
const ROLL_CALL_EVERY: u32 = 60;

/// Runs somebody waits for here that are looked up with each look. Most ends are told; those of
/// other workers, and those of which the answer was lost, are found so.
const LOOKED_UP_MAX: usize = 1_000;

/// So long after the last one a request waits that can: each costs a commit, however little is in it.
const LINGER: Duration = Duration::from_millis(2);

/// How often the bodies that a request has started get a moment before the next one is handed in, as long
/// as some of them use it: one that stood in line for its slot needs three.
const MOMENTS_MAX: usize = 8;

/// A request that the store has not answered for so long is told of as a failing store.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Messages taken in before the store is asked again.
const MESSAGES_MAX: usize = 4_096;

type Handed = Pin<Box<dyn Future<Output = Result<Reply, StoreError>> + Send>>;
type Looked = JoinHandle<Result<Seen, StoreError>>;
type Heard = Pin<Box<dyn Future<Output = Result<Wakeup, StoreError>> + Send>>;

/// A worker and all that belongs to it.
pub(super) struct Worker {
    shared: Arc<Shared>,
    inbox: mpsc::UnboundedReceiver<Message>,
    reports: mpsc::UnboundedReceiver<Report>,
    /// Reports that were received and not taken in.
    heard: Vec<Report>,
    id: WorkerId,
    dispatcher: Dispatcher,
    states: Arc<States>,
    tickets: Tickets,
    submits: HashMap<Ticket, (RunId, oneshot::Sender<Result<Submitted, SubmitError>>)>,
    operations: HashMap<Ticket, oneshot::Sender<Result<OperationOutcome, StoreError>>>,
    entries: HashMap<TaskKey, Live>,
    /// Entries that have ended otherwise than by success, until that is stored.
    ending: Vec<Arc<entry::Entry>>,
    /// Entries that are over and whose end is not stored, where somebody wants to hear of that.
    unstored: UnstoredEnds,
    cells: BTreeMap<RunId, Vec<Weak<Cell>>>,
    /// The last of these whose end was looked up.
    looked_up: Option<RunId>,
    /// Units of slots that belong to the request in flight, and to what was claimed by the one before.
    reserved: Option<SlotToken>,
    granted: Option<SlotToken>,
    /// When to look whether a task has used up its time.
    limits: BinaryHeap<Reverse<(Instant, TaskKey, Fence)>>,
    request: Option<(Handed, Instant, usize)>,
    look: Option<Looked>,
    /// Whether a run has ended since that look began, which may not have seen it.
    looks_again: bool,
    /// Rings when another worker has done something that concerns this one.
    bell: Option<Heard>,
    beside: Option<Beside>,
    /// Marks of the load because of which nothing new starts.
    reached: Vec<Reached>,
    looks: u32,
    compares: bool,
    watch_at: Instant,
    retry_at: Option<Instant>,
    /// Whether the store fails, which was told.
    store_fails: bool,
    /// Until then a request that can wait does so, for more to tell.
    linger_until: Instant,
    closing: Option<ClosingState>,
    metrics: Metrics,
    idle_since: Option<Instant>,
}

/// An entry that was started.
struct Live {
    entry: Arc<entry::Entry>,
    abort: AbortHandle,
    leave: Option<oneshot::Sender<()>>,
    limit: Option<Duration>,
    manner: Manner,
    /// Whether it waits, and whether its limit is going to be looked at: while it waits, its time
    /// stands still.
    waits: bool,
    watched: bool,
    /// Whether it has succeeded, and what it returned, until its end is recorded.
    succeeded: bool,
    output: Option<Bytes>,
    /// Who hears when its end is stored.
    hook: Option<Hook>,
}

/// What the loop wakes up for.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, looked at on the spot")]
enum Woke {
    Reply(Result<Reply, StoreError>),
    Looked(Result<Result<Seen, StoreError>, JoinError>),
    Rung(Result<Wakeup, StoreError>),
    Messages,
    Reports,
    Timer,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        inbox: mpsc::UnboundedReceiver<Message>,
        reports: mpsc::UnboundedReceiver<Report>,
        id: WorkerId,
        states: Arc<States>,
        (in_memory_max, ahead_min): (u32, u32),
        beside: Beside,
    ) -> Self {
        let dispatcher = Dispatcher::new(id, in_memory_max)
            .with_waiting_max(shared.waiting_max)
            .with_store_clock(shared.clock.request_clock() == Clock::Store)
            .with_child_depth_max(shared.child_depth_max)
            .with_ahead_min(ahead_min);
        Worker {
            shared,
            inbox,
            reports,
            heard: Vec::new(),
            id,
            dispatcher,
            states,
            tickets: Tickets::default(),
            submits: HashMap::new(),
            operations: HashMap::new(),
            entries: HashMap::new(),
            ending: Vec::new(),
            unstored: UnstoredEnds::default(),
            cells: BTreeMap::new(),
            looked_up: None,
            reserved: None,
            granted: None,
            limits: BinaryHeap::new(),
            request: None,
            look: None,
            looks_again: false,
            bell: None,
            beside: Some(beside),
            reached: Vec::new(),
            looks: 0,
            compares: false,
            watch_at: Instant::now(),
            retry_at: None,
            store_fails: false,
            linger_until: Instant::now(),
            closing: None,
            metrics: Metrics::default(),
            idle_since: None,
        }
    }

    pub(super) async fn run(mut self) {
        match guarded(self.run_loop()).await {
            Ok(()) => self.finish().await,
            Err(panic) => self.abandon_tasks(&panic).await,
        }
    }

    /// The loop. It returns when the worker is closed and nothing is left to be done.
    async fn run_loop(&mut self) {
        self.bell = self.shared.watch.hears.then(|| self.listen());
        let mut messages = Vec::new();
        let mut timer = Box::pin(tokio::time::sleep_until(self.watch_at));
        loop {
            let next = self.next_timer();
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            match self.wake(&mut timer, &mut messages).await {
                Woke::Reply(answer) => self.answered(answer).await,
                Woke::Looked(done) => self.looked(done),
                Woke::Rung(Ok(news)) => self.rung(news),
                // What others do is seen with the next look.
                Woke::Rung(Err(_)) => self.bell = None,
                Woke::Messages => messages.drain(..).for_each(|message| self.hear(message)),
                Woke::Reports => self.hear_reports(),
                Woke::Timer => self.look_at_clock(Instant::now()),
            }
            self.perform();
            self.hand_in();
            self.publish_metrics();
            if self.is_closed() {
                return;
            }
        }
    }

    /// Waits for the next thing to happen.
    async fn wake(&mut self, timer: &mut Pin<Box<Sleep>>, messages: &mut Vec<Message>) -> Woke {
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if let Some((request, ..)) = &mut self.request
                && let Poll::Ready(answer) = request.as_mut().poll(cx)
            {
                return Poll::Ready(Woke::Reply(answer));
            }
            // Before the reports: whoever submits does not wait behind a hundred thousand tasks that
            // go on at once.
            if let Poll::Ready(1..) = self.inbox.poll_recv_many(cx, messages, MESSAGES_MAX) {
                return Poll::Ready(Woke::Messages);
            }
            let Worker { reports, heard, .. } = self;
            if let Poll::Ready(1..) = reports.poll_recv_many(cx, heard, MESSAGES_MAX) {
                return Poll::Ready(Woke::Reports);
            }
            if let Some(look) = &mut self.look
                && let Poll::Ready(done) = Pin::new(look).poll(cx)
            {
                self.look = None;
                return Poll::Ready(Woke::Looked(done));
            }
            if let Some(bell) = &mut self.bell
                && let Poll::Ready(news) = bell.as_mut().poll(cx)
            {
                return Poll::Ready(Woke::Rung(news));
            }
            timer.as_mut().poll(cx).map(|()| Woke::Timer)
        })
        .await
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Submit(run, cell, reply) => {
                let ticket = self.tickets.next();
                if let Some(cell) = cell {
                    self.cells.entry(run.id).or_default().push(Arc::downgrade(&cell));
                }
                self.submits.insert(ticket, (run.id, reply));
                self.dispatcher.handle(Input::Submit(run, ticket));
            }
            Message::Operation(operation, reply) => {
                let ticket = self.tickets.next();
                self.operations.insert(ticket, reply);
                self.dispatcher.handle(Input::Operation(operation, ticket));
            }
            Message::Watch(run, cell, heard) => {
                self.cells.entry(run).or_default().push(Arc::downgrade(&cell));
                // Whoever asked may have gone.
                let _ = heard.send(());
            }
            // Whoever asked may have gone.
            Message::Explain(task, reply) => drop(reply.send(self.explain(task))),
            Message::Load(reached) => {
                self.dispatcher.handle(Input::HoldStarts(!reached.is_empty()));
                self.reached = reached;
            }
            Message::Close(how) => self.close(how),
            Message::CloseNow => self.close_now(),
            Message::Pulse => self.look_at_clock(Instant::now()),
        }
    }

    /// A look is over. One that failed, or panicked, is made up for by a thorough one.
    fn looked(&mut self, done: Result<Result<Seen, StoreError>, JoinError>) {
        let board = &self.shared.board;
        match board.note(|seen| seen.watcher.note("the queue watcher", done)) {
            Some(Seen { dead, ended }) => {
                ended.into_iter().for_each(|(run, how)| self.end_cells(run, how));
                self.dispatcher.handle(Input::Dead(dead));
            }
            None => self.compares = true,
        }
        if std::mem::take(&mut self.looks_again) {
            self.look_at_store(LOOKED_UP_MAX);
        }
    }

    /// What only this worker knows of why a task is not running.
    fn explain(&self, task: TaskKey) -> Known {
        let pool = &self.shared.pool;
        let (active, waiting) = self.dispatcher.suspects();
        let active = active.filter(|active| *active != task);
        let active = active.and_then(|active| self.entries.get(&active));
        let active = active.map(|live| (live.entry.run, live.entry.name().to_owned()));
        let kept_back = waiting.clone().any(|claimed| claimed.key == task);
        let waiting = waiting.take_while(|claimed| claimed.key != task);
        let name = |claimed: &Claimed| claimed.plan.graph().name(claimed.index).to_owned();
        let waiting = waiting.map(|claimed| (claimed.run, name(claimed)));
        Known {
            worker: self.id,
            slots: Slots {
                capacity: pool.capacity(),
                in_use: pool.in_use(),
                waiting: u32::try_from(pool.waiting()).unwrap_or(u32::MAX),
            },
            in_memory_max: self.dispatcher.in_memory_max_reached(),
            start_below: self.reached.clone(),
            suspects: active.into_iter().chain(waiting).take(NAMED_MAX).collect(),
            kept_back,
            resumes: self.entries.get(&task).is_some_and(|live| live.entry.resumes()),
        }
    }

    /// An entry begins to wait, or has waited.
    fn waits(&mut self, task: TaskKey, fence: Fence, waits: bool) {
        let live = self.entries.get_mut(&task).filter(|live| live.entry.fence == fence);
        let Some(live) = live else { return };
        live.waits = waits;
        if let Some(limit) = live.limit.filter(|_| !waits && !live.watched) {
            live.watched = true;
            let at = deadline_after(Instant::now(), limit.saturating_sub(live.entry.active()));
            self.limits.push(Reverse((at, task, fence)));
        }
    }

    /// Takes in what tasks have said.
    fn hear_reports(&mut self) {
        for (task, fence, said, slot) in std::mem::take(&mut self.heard) {
            match &said {
                Said::Ends(end) => self.ended(task, fence, end),
                Said::Defers { .. } => {
                    self.waits(task, fence, true);
                    self.spare(task);
                }
                Said::Resumes => self.waits(task, fence, false),
                Said::Begins | Said::Asks(_) => {}
            }
            self.dispatcher.handle(Input::Said { task, fence, said });
            drop(slot);
        }
    }

    /// An entry is over: what is left of it is its value, until that is stored.
    fn ended(&mut self, task: TaskKey, fence: Fence, end: &End) {
        let Some(live) = self.entries.get_mut(&task).filter(|live| live.entry.fence == fence)
        else {
            return;
        };
        if matches!(end, End::Succeeded { .. } | End::Failed { .. })
            && let Some(hook) = live.hook.take()
        {
            self.unstored.add_entry(live.entry.clone(), hook);
        }
        let pool = &self.shared.pool;
        match end {
            End::Succeeded { output, .. } => {
                (live.succeeded, live.output) = (true, output.clone());
                pool.count(Counted::Succeeded);
            }
            End::Failed { failure: Failure::Timeout, .. } => pool.count(Counted::TimedOut),
            End::Failed { .. } => pool.count(Counted::Failed),
            End::Parked { .. } => {}
            // What never began was not executed.
            End::Dropped { .. } if !live.entry.has_begun() => {}
            End::Snoozed(_) | End::Dropped { .. } => pool.count(Counted::Cancelled),
        }
        if let Some(closing) = &mut self.closing {
            let name = || (live.entry.run, live.entry.name().to_owned());
            match end {
                End::Dropped { .. } if self.dispatcher.would_hand_back(task, fence) => {
                    closing.report.handed_back.push(name());
                    if closing.told && !live.waits {
                        closing.report.dropped.push(name());
                    }
                }
                // Somebody has cancelled it, or it is to be run again.
                End::Dropped { .. } | End::Snoozed(_) | End::Parked { .. } => {}
                _ => closing.report.finished += 1,
            }
        }
        if matches!(end, End::Succeeded { .. }) {
            return;
        }
        let Some(live) = self.entries.remove(&task) else { return };
        self.ending.push(live.entry.clone());
        if !live.entry.ends_others(end) {
            return;
        }
        let (run, plan) = live.entry.its_run();
        self.stop_run(run, &plan, task);
        if plan.items_of().is_some() {
            let mut others = self.entries.values();
            let list = others.find(|other| other.entry.has_items(live.entry.run));
            if let Some((run, plan)) = list.map(|list| list.entry.its_run()) {
                self.stop_run(run, &plan, task);
            }
        }
    }

    /// What of a run has not begun is handed back, and the store, once it knows that this task has
    /// failed, will not let it go again.
    fn stop_run(&mut self, run: RunKey, plan: &Plan, failed: TaskKey) {
        self.dispatcher.handle(Input::Stops(run, failed));
        if self.dispatcher.readings().ahead > 0 {
            let others =
                plan.graph().tasks().filter_map(|other| self.entries.get(&run.task(other)));
            let waiting = others.filter(|other| other.entry.hold_back());
            waiting.for_each(|other| other.abort.abort());
        }
    }

    /// Does everything the dispatcher wants done.
    fn perform(&mut self) {
        // What is done here may make the dispatcher want more.
        loop {
            let todos = self.todos();
            if todos.is_empty() {
                break;
            }
            todos.into_iter().for_each(|todo| self.do_it(todo));
        }
    }

    /// What the dispatcher wants done. What stands in line and is to go away goes first: otherwise
    /// the slot of one that computes, and goes away with it, would still let it begin.
    fn todos(&mut self) -> Vec<Todo> {
        let mut todos: Vec<Todo> = self.dispatcher.todos().collect();
        let stands_in_line = |todo: &Todo| match todo {
            Todo::Drop(task, _) => {
                self.entries.get(task).is_some_and(|live| !live.entry.has_begun())
            }
            _ => false,
        };
        if todos.iter().any(stands_in_line) {
            todos.sort_by_key(|todo| !stands_in_line(todo));
        }
        todos
    }

    fn do_it(&mut self, todo: Todo) {
        match todo {
            Todo::Start { claimed, asks } => self.start(claimed, asks),
            Todo::Enter(task) => {
                let leave = self.entries.get_mut(&task).and_then(|live| live.leave.take());
                leave.map(|leave| leave.send(()));
            }
            Todo::Resume(task) => {
                if let Some(live) = self.entries.get(&task) {
                    live.entry.may_go_on();
                }
            }
            Todo::Answer(task, fence, answer) => {
                if let Some(live) = self.live(task, fence) {
                    live.entry.answer(answer);
                }
            }
            Todo::AskAgain(task, fence) => {
                if let Some(live) = self.live(task, fence) {
                    live.entry.ask_again();
                }
            }
            Todo::Drop(task, fence) => self.drop_entry(task, fence),
            Todo::Withdraw(task, fence) => {
                let live = self.entries.get(&task).filter(|live| live.entry.fence == fence);
                if let Some(live) = live.filter(|live| live.entry.hold_back()) {
                    live.abort.abort();
                }
            }
            Todo::NotStarted(claimed) => self.hand_back_unstarted(claimed),
            Todo::Submitted(ticket, submitted) => {
                let Some((id, reply)) = self.submits.remove(&ticket) else { return };
                match &submitted {
                    Ok(submitted) if !submitted.existing => {
                        self.publish(id, || What::Submitted);
                    }
                    // Others may wait for it by the same name.
                    Ok(submitted) if submitted.id == id => {}
                    _ => drop(self.cells.remove(&id)),
                }
                // Whoever asked may have gone.
                let _ = reply.send(submitted.map_err(SubmitError::from));
            }
            Todo::OperationDone(ticket, granted) => {
                let reply = self.operations.remove(&ticket);
                reply.map(|reply| reply.send(granted));
            }
            Todo::Recorded(record, plan) => self.recorded(&record, &plan),
            Todo::RunEnded(ended) => self.run_ended(ended),
            Todo::WorkerUnknown => {
                let error = StoreError::Unusable(Arc::new(UnknownWorker));
                tracing::error!(%error, "this engine claims nothing any more");
                self.note_store_health(Some(error));
            }
            Todo::RetryAfter(pause, error) => {
                tracing::warn!(%error, ?pause, "the store did not take a request; trying again");
                self.retry_at = Some(Instant::now() + pause);
                self.compares = true;
                self.note_store_health(Some(error));
            }
        }
    }

    /// An entry that was started and is not over.
    fn live(&self, task: TaskKey, fence: Fence) -> Option<&Live> {
        self.entries.get(&task).filter(|live| live.entry.fence == fence)
    }

    fn start(&mut self, claimed: Box<Claimed>, asks: bool) {
        let planned = claimed.plan.task(claimed.index);
        let begun = claimed.life.state.kind() == Kind::Active;
        let slot = self.granted.as_mut().filter(|_| begun);
        let slot = slot.map(|granted| granted.carve(planned.weight, claimed.priority()));
        assert_eq!(slot.is_some(), begun, "what is begun was begun on units kept for it");
        let body = workflows::body(&self.shared, &claimed);
        let (key, fence, limit) = (claimed.key, claimed.life.fence, planned.timeout);
        let manner = body.manner();
        let hook = body.hook().filter(Hook::hears_stored_ends);
        if let Some(limit) = limit {
            let at = deadline_after(Instant::now(), limit.saturating_sub(claimed.life.active));
            self.limits.push(Reverse((at, key, fence)));
        }
        let (leave, given) = asks.then(oneshot::channel).unzip();
        let states = self.states.clone();
        let start = entry::Start { claimed, body, states, slot, leave: given };
        let (entry, abort) = entry::start(&self.shared, start);
        let (waits, watched, succeeded, output) = (false, limit.is_some(), false, None);
        let live =
            Live { entry, abort, leave, limit, manner, waits, watched, succeeded, output, hook };
        self.entries.insert(key, live);
    }

    /// An entry is to go away. It reports when it has; one that cannot be stopped is given up.
    fn drop_entry(&mut self, task: TaskKey, fence: Fence) {
        if !self.dispatcher.owns(task) {
            self.unstored.on_lost(task, fence);
        }
        let live = self.entries.get(&task).filter(|live| live.entry.fence == fence);
        let Some(live) = live else { return };
        live.entry.cancel();
        match live.manner {
            // What has not passed its door never will.
            Manner::Blocking | Manner::Orderly if live.entry.hold_back() => live.abort.abort(),
            Manner::Yielding => live.abort.abort(),
            Manner::Orderly => {}
            Manner::Blocking => {
                live.entry.give_up();
                let end = End::Dropped { active: live.entry.active() };
                self.end_without_it(task, fence, end);
                return;
            }
        }
        live.entry.give_up();
    }

    /// Reports the end of an entry that does not do so itself.
    fn end_without_it(&mut self, task: TaskKey, fence: Fence, end: End) {
        self.ended(task, fence, &end);
        self.dispatcher.handle(Input::Said { task, fence, said: Said::Ends(end) });
    }

    fn recorded(&mut self, record: &Record, plan: &Arc<Plan>) {
        self.unstored.on_record(record);
        let kind = match record.what {
            Happened::Succeeded | Happened::TakenOver => Some(Kind::Succeeded),
            Happened::Failed => Some(Kind::Failed),
            Happened::TimedOut => Some(Kind::TimedOut),
            Happened::Cancelled => Some(Kind::Cancelled),
            Happened::Skipped => Some(Kind::Skipped),
            _ => None,
        };
        let live = match kind {
            Some(Kind::Succeeded) => self.entries.remove(&record.run.task(record.task)),
            _ => None,
        };
        if let Some(kind) = kind
            && let Some(cells) = self.cells.get(&record.run_id)
        {
            let output = live.and_then(|live| live.output);
            for cell in cells.iter().filter_map(Weak::upgrade) {
                cell.task_ended(plan, record, kind, output.clone());
            }
        }
        self.publish(record.run_id, || What::Ended {
            task: plan.graph().name(record.task).to_owned(),
            how: record.what,
            reason: record.reason,
            attempt: record.attempt,
            error: record.error.clone(),
        });
    }

    fn run_ended(&mut self, ended: Ended) {
        self.end_cells(ended.id, Some(ended.outcome));
        self.publish(ended.id, || What::Finished { outcome: ended.outcome });
    }

    /// Tells whoever waits for a run that it has ended, or is gone.
    fn end_cells(&mut self, run: RunId, outcome: Option<RunOutcome>) {
        for cell in self.cells.remove(&run).into_iter().flatten() {
            if let Some(cell) = cell.upgrade() {
                cell.end(outcome.map_or(Over::Gone, Over::Ended));
            }
        }
    }

    fn publish(&self, run: RunId, what: impl FnOnce() -> What) {
        self.shared.publish(|| Event { at: self.shared.now(), run, what: what() });
    }

    /// Hands in the next request, if there is one.
    fn hand_in(&mut self) {
        let lingers = self.dispatcher.can_wait() && Instant::now() < self.linger_until;
        if self.request.is_some() || lingers {
            return;
        }
        let Worker { dispatcher, shared, reserved, .. } = self;
        let (id, now) = (RequestId(fastrand::u64(1..1 << 63)), shared.now());
        let slots = if shared.serves { shared.pool.capacity() } else { 0 };
        let request = dispatcher.next_request(id, now, slots, |wanted| {
            let units = wanted.min(shared.pool.available()).min(slots);
            *reserved = (units > 0).then(|| shared.pool.try_acquire(units).ok()).flatten();
            reserved.as_ref().map_or(0, SlotToken::weight)
        });
        let Some(request) = request else { return };
        let items = items(&request);
        let store = shared.store.clone();
        let handed: Handed = Box::pin(async move { store.request(request).await });
        self.request = Some((handed, Instant::now(), items));
    }

    /// A request was taken. The next one is handed in before what came of this one is done, if there is
    /// much to report: the store works meanwhile. If there is not, the bodies that are started here
    /// get a moment first: the short ones end in it, and make the next request worth its commit.
    async fn answered(&mut self, answer: Result<Reply, StoreError>) {
        if let Some((_, since, items)) = self.request.take() {
            self.metrics.requests_total += 1;
            self.metrics.request_items_total += items as u64;
            self.metrics.request_time += since.elapsed();
            if let Ok(reply) = &answer {
                self.shared.clock.follow_store(reply.now, since.elapsed());
            }
        }
        self.linger_until = Instant::now() + LINGER;
        let is_taken = answer.is_ok();
        let is_known = answer.as_ref().is_ok_and(|reply| !reply.is_unknown_worker);
        self.dispatcher.handle(Input::Answered(answer));
        if is_known {
            self.note_store_health(None);
        }
        if is_taken {
            self.ending.retain(|entry| self.dispatcher.owns_claim(entry.key, entry.fence));
        }
        // A request that is to be handed in again keeps its units.
        if self.dispatcher.units_in_flight() == 0 {
            self.granted = self.reserved.take();
        }
        self.receive_reports();
        let todos = self.todos();
        // What was claimed stands in line before the next request asks for slots. If somebody listens,
        // all is done in order, so that what they hear is.
        let heard = self.shared.events.receiver_count() > 0;
        let is_start = |todo: &Todo| heard || matches!(todo, Todo::Start { .. });
        let (starts, others): (Vec<Todo>, Vec<Todo>) = todos.into_iter().partition(is_start);
        let started = starts.len();
        starts.into_iter().for_each(|todo| self.do_it(todo));
        self.granted = None;
        // Measured: a quarter is enough for both a few slots and a thousand.
        if 4 * self.dispatcher.news() >= started.max(1) {
            self.hand_in();
        }
        others.into_iter().for_each(|todo| self.do_it(todo));
        self.perform();
        for _ in 0..MOMENTS_MAX {
            if self.request.is_some() {
                break;
            }
            let_others_run().await;
            if !self.receive_reports() {
                break;
            }
            self.perform();
        }
    }

    /// Tells of a store that begins to fail, or takes requests again.
    fn note_store_health(&mut self, error: Option<StoreError>) {
        if self.store_fails != error.is_some() {
            self.store_fails = error.is_some();
            self.shared.note_store_health(error);
        }
    }

    /// When the request in flight is too late, unless that was told.
    fn answer_due(&self) -> Option<Instant> {
        let (_, since, _) = self.request.as_ref().filter(|_| !self.store_fails)?;
        Some(*since + ANSWER_MAX)
    }

    /// Takes in what tasks have said so far, if anything.
    fn receive_reports(&mut self) -> bool {
        while self.heard.len() < MESSAGES_MAX
            && let Ok(report) = self.reports.try_recv()
        {
            self.heard.push(report);
        }
        let heard = !self.heard.is_empty();
        self.hear_reports();
        heard
    }

    fn next_timer(&self) -> Instant {
        let alarm = self.dispatcher.alarm().map(|at| {
            // Wall time may jump; the watch looks again now and then.
            let until = at.since(self.shared.now()).min(self.shared.watch.every);
            deadline_after(Instant::now(), until)
        });
        let limit = self.limits.peek().map(|Reverse((at, ..))| *at);
        let close = self.next_close();
        let can_wait = self.dispatcher.can_wait() && self.dispatcher.news() > 0;
        let linger = can_wait.then_some(self.linger_until);
        let answer = self.answer_due();
        let others = [alarm, limit, close, self.retry_at, linger, answer].into_iter().flatten();
        others.fold(self.watch_at, Instant::min)
    }

    fn look_at_clock(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.dispatcher.handle(Input::Retry);
        }
        if self.dispatcher.alarm().is_some_and(|at| at <= self.shared.now()) {
            self.dispatcher.handle(Input::Alarm);
        }
        while let Some(&Reverse((at, task, fence))) = self.limits.peek()
            && at <= now
        {
            self.limits.pop();
            self.look_at_limit(task, fence, now);
        }
        if self.watch_at <= now {
            self.watch(now);
        }
        self.close_on(now);
        if self.answer_due().is_some_and(|at| at <= now) {
            self.note_store_health(Some(NoAnswer(ANSWER_MAX).into_error()));
        }
    }

    /// Whether a task has used up its time. It is ended here and not by itself: it may block its
    /// thread.
    fn look_at_limit(&mut self, task: TaskKey, fence: Fence, now: Instant) {
        let Some(live) = self.entries.get_mut(&task) else { return };
        let Some(limit) = live.limit.filter(|_| live.entry.fence == fence) else { return };
        live.watched = !live.waits;
        if live.waits {
            return;
        }
        let left = limit.saturating_sub(live.entry.active());
        if !left.is_zero() {
            self.limits.push(Reverse((deadline_after(now, left), task, fence)));
            return;
        }
        match live.manner {
            // What it has begun must be gone before it can be tried again.
            Manner::Orderly => live.entry.time_out(),
            manner @ (Manner::Yielding | Manner::Blocking) => {
                let (entry, abort) = (live.entry.clone(), live.abort.clone());
                self.end_without_it(task, fence, entry::timed_out(limit, None));
                entry.cancel();
                if manner == Manner::Yielding {
                    abort.abort();
                }
                entry.give_up();
            }
        }
    }

    fn watch(&mut self, now: Instant) {
        // After a stall one look, not a burst.
        self.watch_at = deadline_after(now, self.shared.watch.every);
        self.looks += 1;
        let compares = std::mem::take(&mut self.compares);
        let thorough = compares || self.looks.is_multiple_of(ROLL_CALL_EVERY);
        let owned = self.dispatcher.readings().owned;
        if thorough || (1..=ROLL_CALL_MAX).contains(&owned) {
            self.dispatcher.handle(Input::RollCall);
        }
        if thorough || owned <= ROLL_CALL_MAX {
            self.cells.retain(|_, cells| cells.iter().any(|cell| cell.strong_count() > 0));
            // A success that came too late, because somebody else had ended the task.
            self.entries.retain(|&task, live| !live.succeeded || self.dispatcher.owns(task));
        }
        // Somebody else may have made something ready, without a word to this worker.
        self.dispatcher.handle(Input::Alarm);
        if self.look.is_none() {
            self.look_at_store(if compares { usize::MAX } else { LOOKED_UP_MAX });
        }
    }

    /// Looks for what nobody has told, and whether so many of the runs have ended that somebody here
    /// waits for.
    fn look_at_store(&mut self, runs: usize) {
        if self.closing.is_none() {
            let runs = self.waited_for(runs);
            let shared = &self.shared;
            self.look = Some(tokio::spawn(look(shared.store.clone(), shared.files.clone(), runs)));
        }
    }

    /// The next runs that somebody waits for, so many at most; after the last come the first.
    fn waited_for(&mut self, most: usize) -> Vec<RunId> {
        let after = self.looked_up.map_or(Bound::Unbounded, Bound::Excluded);
        let runs = self.cells.range((after, Bound::Unbounded)).take(most);
        let mut runs: Vec<RunId> = runs.map(|(&run, _)| run).collect();
        self.looked_up = runs.last().copied().filter(|_| runs.len() == most);
        // The store may not have heard of these.
        let submitted: HashSet<RunId> = self.submits.values().map(|(run, _)| *run).collect();
        runs.retain(|run| !submitted.contains(run));
        runs
    }

    fn publish_metrics(&mut self) {
        let readings = self.dispatcher.readings();
        let more_ready = self.dispatcher.has_more();
        let now = Instant::now();
        if let Some(since) = self.idle_since.take() {
            self.metrics.idle_gap += now.saturating_duration_since(since);
        }
        if more_ready && self.shared.pool.has_capacity() {
            self.idle_since = Some(now);
        }
        self.metrics = Metrics {
            owned: readings.owned,
            ahead: readings.ahead,
            deferred: readings.deferred,
            suspects: readings.suspects,
            active: readings
                .owned
                .saturating_sub(readings.ahead + readings.deferred + readings.suspects),
            more_ready,
            failed_requests_total: readings.failed_requests,
            recoveries_total: readings.recoveries,
            strays_total: readings.strays,
            lost_races_total: readings.lost_races,
            submitted_total: readings.submitted,
            runs_ended_total: readings.runs_ended,
            claimed_total: readings.claimed,
            ready_wait: readings.ready_wait,
            retries_total: readings.retries,
            parked_total: readings.parked,
            handed_back_total: readings.handed_back,
            words_total: readings.words,
            ..self.metrics
        };
        self.shared.metrics.publish(self.metrics);
    }
}

/// The loop is over, in good order or because its runtime ends: whoever waits is told.
impl Drop for Worker {
    fn drop(&mut self) {
        for cell in self.cells.values().flatten().filter_map(Weak::upgrade) {
            cell.end(Over::Closed);
        }
        self.shared.closing.send_if_modified(|stage| match stage {
            Stage::Closed(_) => false,
            _ => {
                *stage = Stage::Closed(ShutdownReport::default());
                true
            }
        });
    }
}

/// Goes to the end of the line of what can run on this thread, where other threads can take it up:
/// unlike with `yield_now`, a body that blocks this thread does not hold the loop up.
async fn let_others_run() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What a request carries, for the size of batches.
fn items(request: &Request) -> usize {
    request.changes.len() + request.submits.len() + request.operations.len()
}
