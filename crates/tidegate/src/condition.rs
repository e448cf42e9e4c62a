//! Conditions that own their data, checked by the pool's shared poller without waking the task.
//!
//! The built-in ones ([`file()`], [`tcp`], [`command`], with the feature `http` also `http`) are
//! merged when equal: a thousand tasks that wait for one file make one check per interval. Their
//! intervals are spread by a tenth, so that they do not all fall together. [`check`] and [`poll`]
//! wrap a closure of yours; use them where the closure owns what it looks at and very many tasks
//! wait.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate::{SlotPool, TaskHandle, condition};
//!
//! let pool = SlotPool::new(1)?;
//! let handle = TaskHandle::new(pool.acquire().await?);
//! handle.defer_until(condition::file("Cargo.toml"), Duration::from_secs(5)).await?;
//! # Ok(())
//! # }
//! ```

#[cfg(unix)]
use crate::process::{self, Command};
use crate::task_error::TaskError;
use crate::tide::{Check, Watch};
use pin_project_lite::pin_project;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
#[cfg(unix)]
use tokio_util::sync::CancellationToken;

/// How long one check of a remote condition may take before it counts as "not yet".
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// By how much the intervals of built-in conditions are spread, unless the wait says otherwise.
const SPREAD: f64 = 0.1;

/// Something that becomes true by itself and owns what it looks at.
pub struct Condition {
    /// Conditions of the same name are the same condition.
    pub(crate) merge: Option<Arc<str>>,
    /// The file it looks at, if it does.
    pub(crate) watch: Option<Watch>,
    pub(crate) jitter: f64,
    pub(crate) check: Pin<Box<dyn Check>>,
}

impl Condition {
    fn new<C, F, V>(look: C) -> Self
    where
        C: FnMut() -> F + Send + 'static,
        F: Future<Output = V> + Send + 'static,
        V: Verdict + 'static,
    {
        Condition { merge: None, watch: None, jitter: 0.0, check: Box::pin(Polled::new(look)) }
    }

    fn built_in<C, F>(name: String, look: C) -> Self
    where
        C: FnMut() -> F + Send + 'static,
        F: Future<Output = Result<bool, TaskError>> + Send + 'static,
    {
        Condition { merge: Some(name.into()), jitter: SPREAD, ..Condition::new(look) }
    }

    fn on_file<C, F>(name: String, watch: &Watch, look: C) -> Self
    where
        C: FnMut() -> F + Send + 'static,
        F: Future<Output = Result<bool, TaskError>> + Send + 'static,
    {
        Condition { watch: Some(watch.clone()), ..Condition::built_in(name, look) }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition").field("merge", &self.merge).finish_non_exhaustive()
    }
}

/// A closure that looks at once. It runs on the poller's thread, so it must not block.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
/// # let handle = tidegate::TaskHandle::new(tidegate::SlotPool::new(1)?.acquire().await?);
/// let ready = Arc::new(AtomicBool::new(true));
/// let condition = tidegate::condition::check(move || ready.load(Ordering::Relaxed));
/// handle.defer_until(condition, std::time::Duration::from_secs(1)).await?;
/// # Ok(())
/// # }
/// ```
pub fn check<V: Verdict + 'static>(mut look: impl FnMut() -> V + Send + 'static) -> Condition {
    Condition::new(move || std::future::ready(look()))
}

/// An asynchronous closure that owns what it looks at. A check that takes long delays no other.
pub fn poll<C, F, V>(look: C) -> Condition
where
    C: FnMut() -> F + Send + 'static,
    F: Future<Output = V> + Send + 'static,
    V: Verdict + 'static,
{
    Condition::new(look)
}

/// True when there is something at this path. See [`file_unchanged`] for files that are still being
/// written.
///
/// With the feature `watch`, on Linux, the file system tells when something appears there, also when
/// folders on the way are missing so far, and the check is made at once. The interval remains for
/// what it does not tell: changes made by another machine on a network drive, the target of a link,
/// or everything when the system has no more watches. On tokio's paused time a check may then come
/// between two intervals.
///
/// # Errors
/// The wait ends with an error if the path cannot be looked at, for example for lack of permission.
pub fn file(path: impl AsRef<Path>) -> Condition {
    let watch = Watch::new(path.as_ref());
    Condition::on_file(format!("file {:?}", path.as_ref()), &watch.clone(), move || {
        let watch = watch.clone();
        async move { Ok(look_at(watch, true).await?.is_some()) }
    })
}

/// True when there is something at this path that has kept its size and time of change for at
/// least `quiet`, as seen by the checks.
///
/// With the feature `watch` (see [`file()`]) it is checked when it has been written and closed, and
/// when it may have been quiet for long enough.
///
/// # Errors
/// As [`file()`].
pub fn file_unchanged(path: impl AsRef<Path>, quiet: Duration) -> Condition {
    let watch = Watch::new(path.as_ref());
    let seen: Option<(Seen, Instant)> = None;
    let seen = Arc::new(std::sync::Mutex::new(seen));
    let name = format!("file {:?} unchanged for {quiet:?}", path.as_ref());
    Condition::on_file(name, &watch.clone(), move || {
        let (watch, seen) = (watch.clone(), seen.clone());
        async move {
            let (found, now) = (look_at(watch.clone(), false).await?, Instant::now());
            let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *seen = match (found, *seen) {
                (Some(found), Some((same, since))) if found == same => Some((same, since)),
                (Some(found), _) => Some((found, now)),
                (None, _) => None,
            };
            watch.look_again(seen.and_then(|(_, since)| since.checked_add(quiet)));
            Ok(seen.is_some_and(|(_, since)| now.duration_since(since) >= quiet))
        }
    })
}

/// What a file looks like from outside.
type Seen = (u64, Option<SystemTime>);

/// Also sees to it that the next change is told, unless it is `enough` that there is something.
async fn look_at(watch: Watch, enough: bool) -> Result<Option<Seen>, TaskError> {
    let path = watch.clone();
    let look = move || match seen_at(watch.path())? {
        Some(seen) if enough => Ok(Some(seen)),
        _ if watch.renew() => seen_at(watch.path()),
        seen => Ok(seen),
    };
    let looked = tokio::task::spawn_blocking(look).await;
    looked.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| {
        TaskError::from(format!("cannot look at {}: {error}", path.path().display()))
    })
}

fn seen_at(path: &Path) -> io::Result<Option<Seen>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some((found.len(), found.modified().ok()))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// True when a TCP connection to this address (`"host:port"`) can be made.
///
/// # Errors
/// The wait ends with an error if the address is not of that form. A name that is not known (yet)
/// counts as "not yet".
pub fn tcp(address: impl Into<String>) -> Condition {
    let address = address.into();
    Condition::built_in(format!("tcp {address:?}"), move || {
        let address = address.clone();
        async move {
            if !is_host_and_port(&address) {
                let wrong = format!("\"{address}\" is not of the form host:port");
                return Err(TaskError::permanent(wrong));
            }
            let connect = tokio::net::TcpStream::connect(&address);
            Ok(matches!(tokio::time::timeout(CHECK_TIMEOUT, connect).await, Ok(Ok(_))))
        }
    })
}

/// An IPv6 address as host stands in brackets.
fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok()
    })
}

/// True when this command ends with exit code 0. Its output is thrown away; if it runs longer than
/// 10 s it is killed, with all processes of its group, and counts as "not yet".
///
/// # Errors
/// The wait ends with an error if the command cannot be started.
#[cfg(unix)]
pub fn command(command: Command) -> Condition {
    Condition::built_in(format!("command {command:?}"), move || {
        let command = command.clone();
        async move {
            let spawned = process::spawn(&command, process::Start::default());
            let spawned = spawned.map_err(|error| match error.is_transient() {
                true => TaskError::from(error),
                false => TaskError::permanent(error),
            })?;
            let ended = spawned.wait(CancellationToken::new());
            match tokio::time::timeout(CHECK_TIMEOUT, ended).await {
                Ok(ended) => Ok(ended?.status.success()),
                // Dropped, and so killed.
                Err(_) => Ok(false),
            }
        }
    })
}

/// True when a GET of this address is answered with a status of success (2xx). Redirects are
/// followed.
///
/// # Errors
/// The wait ends with an error if the address is not a URL. No answer counts as "not yet".
#[cfg(feature = "http")]
pub fn http(url: impl Into<String>) -> Condition {
    let url = url.into();
    // Made at the first look: of equal conditions only one is looked at.
    let mut client = None;
    Condition::built_in(format!("http {url:?}"), move || {
        let url = url.clone();
        let client = client.get_or_insert_with(|| {
            build_http_client().map_err(|error| format!("cannot make an HTTP client: {error}"))
        });
        let client = client.clone();
        async move {
            let parsed = reqwest::Url::parse(&url).map_err(|error| {
                TaskError::permanent(format!("\"{url}\" is not a URL: {error}"))
            })?;
            let answer = client?.get(parsed).send().await;
            match answer {
                Ok(answer) => Ok(answer.status().is_success()),
                Err(error) if error.is_builder() => {
                    Err(TaskError::permanent(format!("\"{url}\" cannot be asked: {error}")))
                }
                Err(_) => Ok(false),
            }
        }
    })
}

/// A client that trusts whom the system trusts. It names its cryptography itself, because a library
/// does not choose that for the whole process.
#[cfg(feature = "http")]
fn build_http_client() -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    use rustls_platform_verifier::BuilderVerifierExt;

    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    let client = reqwest::Client::builder().timeout(CHECK_TIMEOUT);
    Ok(client.tls_backend_preconfigured(tls).build()?)
}

/// What a closure may answer: yes or no, or an error that ends the wait.
pub trait Verdict: Send {
    /// The answer, with the error as the task's.
    fn verdict(self) -> Result<bool, TaskError>;
}

impl Verdict for bool {
    fn verdict(self) -> Result<bool, TaskError> {
        Ok(self)
    }
}

impl<E: Into<TaskError> + Send> Verdict for Result<bool, E> {
    fn verdict(self) -> Result<bool, TaskError> {
        self.map_err(Into::into)
    }
}

pin_project! {
    /// A closure as a check: calls it when no check is under way, then polls what it returned.
    pub(crate) struct Polled<C, F> {
        look: C,
        #[pin]
        under_way: Option<F>,
    }
}

impl<C, F> Polled<C, F> {
    pub(crate) fn new(look: C) -> Self {
        Polled { look, under_way: None }
    }
}

impl<C, F, V> Check for Polled<C, F>
where
    C: FnMut() -> F + Send,
    F: Future<Output = V> + Send,
    V: Verdict,
{
    fn poll_check(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<bool, TaskError>> {
        let mut this = self.project();
        if this.under_way.is_none() {
            this.under_way.set(Some((this.look)()));
        }
        let under_way = this.under_way.as_mut().as_pin_mut().expect("it was just begun");
        let answer = ready!(under_way.poll(cx));
        this.under_way.set(None);
        Poll::Ready(answer.verdict())
    }
}
