//! Wake-ups between processes, by LISTEN and NOTIFY.
//!
//! After a commit, the reasons to wake others are sent on the channel of the store, from a connection that
//! does nothing else; reasons that come up while one message is under way go out together with the next.
//! Every process reads the messages of others for its own workers. Workers of this process are woken
//! directly.
//!
//! Nothing rests on a message: workers poll as well. A listener that does not hear its own ping connects
//! again, and then takes everything for changed, because messages may have been lost.

use crate::claim::ClaimBounds;
use crate::error::Error;
use crate::open::{OpenedServer, RawConnection};
use crate::open_error::PostgresOpenError;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::Wakeup;
use tidegate_core::wakeup::{WakeupReasons, Wakeups};
use tidegate_core::want::ServedTasks;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_postgres::{AsyncMessage, Client};

/// The payload of a notification has less than 8,000 bytes.
const TEXT_MAX: usize = 7_900;

/// The time between two pings.
const PING_EVERY: Duration = Duration::from_secs(10);

/// A ping that is not heard for this long is lost, and with it the connection.
const PING_MAX: Duration = Duration::from_secs(5);

/// The longest pause between two attempts to connect again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How often, and with which pauses, a listener looks whether the notification of another connection has
/// arrived. It is there after the first look, unless a pooler has kept it.
const PROBE_LOOKS: u32 = 50;
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// The wake-ups of the workers of this process, until they are asked for.
#[derive(Debug, Default)]
pub(crate) struct WakeupInboxes {
    of: Mutex<HashMap<WorkerId, Arc<WakeupInbox>>>,
}

#[derive(Debug, Default)]
struct WakeupInbox {
    /// The tasks that the worker can run; `None` before it is known.
    served: Mutex<Option<ServedTasks>>,
    pending: Mutex<Wakeup>,
    changed: Notify,
}

impl WakeupInboxes {
    /// Adds a worker that lives in this process.
    pub(crate) fn add_worker(&self, worker: WorkerId, served: ServedTasks) {
        *lock_value(&self.find_inbox(worker).served) = Some(served);
    }

    /// Removes a worker.
    pub(crate) fn remove_worker(&self, worker: WorkerId) {
        lock_value(&self.of).remove(&worker);
    }

    /// Waits until there is a reason to wake a worker, and takes all there are.
    pub(crate) async fn wait_for_wakeup(&self, worker: WorkerId) -> Wakeup {
        let inbox = self.find_inbox(worker);
        loop {
            let wakeup = std::mem::take(&mut *lock_value(&inbox.pending));
            if wakeup != Wakeup::default() {
                return wakeup;
            }
            inbox.changed.notified().await;
        }
    }

    /// Adds reasons for all workers but one.
    fn add_reasons(
        &self,
        except: Option<WorkerId>,
        reasons: impl Fn(WorkerId, &ServedTasks) -> Wakeup,
    ) {
        for (worker, inbox) in lock_value(&self.of).iter() {
            let wakeup = match &*lock_value(&inbox.served) {
                Some(served) if Some(*worker) != except => reasons(*worker, served),
                _ => continue,
            };
            if wakeup != Wakeup::default() {
                lock_value(&inbox.pending).add_reasons(wakeup);
                inbox.changed.notify_one();
            }
        }
    }

    fn find_inbox(&self, worker: WorkerId) -> Arc<WakeupInbox> {
        lock_value(&self.of).entry(worker).or_default().clone()
    }
}

fn lock_value<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends wake-ups to other processes and receives theirs.
#[derive(Debug)]
pub(crate) struct Notifier {
    shared: Rc<NotifierState>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
struct NotifierState {
    server: Rc<OpenedServer>,
    inboxes: Arc<WakeupInboxes>,
    claim_bounds: Rc<ClaimBounds>,
    channel: String,
    /// The beginning of the messages of this process.
    sender: String,
    unsent: RefCell<WakeupReasons>,
    has_unsent: Notify,
    next_ping: Cell<u64>,
}

impl Notifier {
    /// Listens, and checks that a notification of another connection arrives.
    ///
    /// # Errors
    /// It does not: a pooler stands before the server.
    pub(crate) async fn start_listening(
        server: Rc<OpenedServer>,
        inboxes: Arc<WakeupInboxes>,
        claim_bounds: Rc<ClaimBounds>,
    ) -> Result<Self, Error> {
        let shared = Rc::new(NotifierState {
            channel: format!("tidegate_{:x}", server.store_id),
            sender: format!("{:016x}", fastrand::u64(..)),
            server,
            inboxes,
            claim_bounds,
            unsent: RefCell::default(),
            has_unsent: Notify::new(),
            next_ping: Cell::new(0),
        });
        let mut link = shared.connect_link().await?;
        shared.check_notifications(&mut link).await?;
        let listener = tokio::task::spawn_local(shared.clone().listen_forever(link));
        Ok(Notifier { shared, listener })
    }

    /// Wakes the workers that a committed delta concerns, in this process and in others, but not the
    /// worker whose request it was.
    pub(crate) fn notify_workers(&self, wakeups: &Wakeups, requester: Option<WorkerId>) {
        let shared = &self.shared;
        for (queue, order) in wakeups.ready_orders() {
            shared.claim_bounds.lower_bound(queue, order);
        }
        shared.inboxes.add_reasons(requester, |worker, served| wakeups.for_worker(worker, served));
        if shared.server.connector.config.sends_notifications {
            let mut unsent = shared.unsent.borrow_mut();
            unsent.add_wakeups(wakeups);
            if !unsent.is_empty() {
                shared.has_unsent.notify_one();
            }
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// The reason for which a listener connects again.
enum LinkEnd {
    Closed,
    Failed(tokio_postgres::Error),
    Silent,
}

/// A connection that listens.
struct ListenerLink {
    client: Client,
    messages: mpsc::UnboundedReceiver<String>,
}

impl NotifierState {
    async fn connect_link(&self) -> Result<ListenerLink, tokio_postgres::Error> {
        let connector = &self.server.connector;
        let (client, connection) = connector.connect_raw("listener").await?;
        let (sender, messages) = mpsc::unbounded_channel();
        tokio::spawn(forward_messages(connection, sender));
        connector.apply_settings(&client).await?;
        // A notification need not survive a crash of the server.
        let listen = format!("SET synchronous_commit = off; LISTEN {}", self.channel);
        client.batch_execute(&listen).await?;
        Ok(ListenerLink { client, messages })
    }

    /// Checks that a notification of another connection arrives.
    async fn check_notifications(&self, link: &mut ListenerLink) -> Result<(), Error> {
        let probe = self.next_ping_text();
        let second = self.server.take_connection().await?;
        second.execute(SEND, &[&self.channel, &probe]).await?;
        drop(second);
        for look in 0..PROBE_LOOKS {
            if look > 0 {
                tokio::time::sleep(PROBE_PAUSE).await;
            }
            // The server hands notifications out before it answers.
            link.client.batch_execute("SELECT 1").await?;
            while let Ok(message) = link.messages.try_recv() {
                if message == probe {
                    return Ok(());
                }
            }
        }
        let server = self.server.connector.server.clone();
        Err(PostgresOpenError::Pooler { server }.into())
    }

    async fn listen_forever(self: Rc<Self>, mut link: ListenerLink) {
        let server = &self.server.connector.server;
        loop {
            match self.serve_link(&mut link).await {
                LinkEnd::Closed => tracing::warn!(server, "the listener's connection has broken"),
                LinkEnd::Failed(error) => {
                    tracing::warn!(server, %error, "the listener's connection has broken");
                }
                LinkEnd::Silent => {
                    tracing::warn!(server, "no notification arrives; the listener connects again");
                }
            }
            link = self.connect_again().await;
            let everything = WakeupReasons::of_everything();
            self.claim_bounds.lower_all();
            self.inboxes.add_reasons(None, |worker, served| everything.for_worker(worker, served));
        }
    }

    async fn connect_again(&self) -> ListenerLink {
        let mut pause = Duration::from_millis(20);
        loop {
            match timeout(PING_MAX, self.connect_link()).await {
                Ok(Ok(link)) => return link,
                Ok(Err(error)) => tracing::debug!(%error, "the listener cannot connect yet"),
                Err(_) => tracing::debug!("the listener cannot connect yet"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
        }
    }

    /// Receives and sends until the connection breaks.
    async fn serve_link(&self, link: &mut ListenerLink) -> LinkEnd {
        let ListenerLink { client, messages } = link;
        let mut ping_timer = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unheard: Option<String> = None;
        loop {
            let text = tokio::select! {
                message = messages.recv() => {
                    let Some(message) = message else { return LinkEnd::Closed };
                    if unheard.as_ref() == Some(&message) {
                        unheard = None;
                    }
                    self.read_message(&message);
                    continue;
                }
                () = self.has_unsent.notified() => {
                    let reasons = std::mem::take(&mut *self.unsent.borrow_mut());
                    format!("{} {}", self.sender, reasons.to_text(TEXT_MAX - 17))
                }
                _ = ping_timer.tick() => {
                    // It had the whole time between two pings, which is longer than it may take.
                    if unheard.is_some() {
                        return LinkEnd::Silent;
                    }
                    unheard.insert(self.next_ping_text()).clone()
                }
            };
            let channel = &self.channel;
            let send = async { client.execute(SEND, &[channel, &text]).await };
            match timeout(PING_MAX, send).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return LinkEnd::Failed(error),
                Err(_) => return LinkEnd::Silent,
            }
        }
    }

    fn read_message(&self, message: &str) {
        let Some((sender, text)) = message.split_once(' ') else { return };
        if sender == self.sender {
            return;
        }
        // The ping of another process.
        if text.starts_with("ping ") {
            return;
        }
        let reasons = WakeupReasons::parse_text(text);
        match reasons.ready_orders() {
            Some(orders) => {
                orders.for_each(|(queue, order)| self.claim_bounds.lower_bound(queue, order));
            }
            None => self.claim_bounds.lower_all(),
        }
        self.inboxes.add_reasons(None, |worker, served| reasons.for_worker(worker, served));
    }

    fn next_ping_text(&self) -> String {
        let number = self.next_ping.get();
        self.next_ping.set(number + 1);
        format!("{} ping {number}", self.sender)
    }
}

/// Sends a notification: the channel and the payload.
const SEND: &str = "SELECT pg_notify($1, $2)";

/// Drives a connection and hands its notifications on.
async fn forward_messages(mut connection: RawConnection, messages: mpsc::UnboundedSender<String>) {
    let mut stream = poll_fn(move |context| connection.poll_message(context));
    // It ends with the connection, and the listener learns of it by the end of the channel.
    while let Some(Ok(message)) = stream.next().await {
        if let AsyncMessage::Notification(notification) = message
            && messages.send(notification.payload().to_owned()).is_err()
        {
            return;
        }
    }
}
