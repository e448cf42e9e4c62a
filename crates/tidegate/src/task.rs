//! A unit of work with a name: what it does, and the rules of its life.
//!
//! What it does is a [`Body`]: an async function (here), a function that may block (`blocking`), or
//! a command (`command`).

mod blocking;
#[cfg(unix)]
mod command;
mod dressed;

pub use blocking::BlockingFn;
#[cfg(unix)]
pub use command::CommandFn;
#[cfg(unix)]
pub(crate) use command::{Commands, log_of};
pub(crate) use dressed::dress;

use crate::context::{Around, Context, encode};
use crate::engine::{EntryEvent, Hook, StoredEnd};
use crate::handle::TaskHandle;
use crate::task_error::TaskError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::Backoff;
use tidegate_core::graph::{Node, When};
use tidegate_core::plan::{LimitUse, TaskPlan};
use tidegate_core::store::Bytes;

/// A task of a [workflow](crate::Workflow): a name, a function, and how it is to be run.
///
/// The function takes the context, and the handle if it wants to wait without its slot:
///
/// ```
/// use tidegate::{Context, Task, TaskError, TaskHandle};
/// # use std::time::Duration;
///
/// async fn extract(context: &mut Context) -> Result<u64, TaskError> {
///     Ok(context.input().as_u64().unwrap_or(1))
/// }
///
/// async fn load(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
///     let rows: u64 = context.output("extract")?;
///     handle.sleep(Duration::from_millis(rows)).await?;
///     Ok(())
/// }
///
/// let extract = Task::new("extract", extract);
/// let load = Task::new("load", load).after(["extract"]).retries(3).timeout(Duration::from_secs(60));
/// ```
///
/// It may be entered again after a crash or a hand-back: everything it does to the outside should
/// stand being done twice, or carry [`TaskHandle::task_execution_id`], which is the same on every
/// entry.
#[derive(Clone)]
pub struct Task {
    pub(crate) node: Node,
    pub(crate) plan: TaskPlan,
    pub(crate) body: Arc<dyn Body>,
    pub(crate) hook: Option<Hook>,
    pub(crate) keeps_output: bool,
}

/// What a body leaves behind.
pub(crate) struct Returned {
    pub(crate) output: Option<Bytes>,
    pub(crate) inserts: Option<Bytes>,
}

pub(crate) type Entered = Pin<Box<dyn Future<Output = Result<Returned, TaskError>> + Send>>;

/// A function with everything about its types forgotten.
pub(crate) trait Body: Send + Sync {
    fn enter(&self, around: Around, handle: TaskHandle) -> Entered;

    fn manner(&self) -> Manner {
        Manner::Yielding
    }

    /// Who hears that it is entered, and of its end.
    fn hook(&self) -> Option<Hook> {
        None
    }
}

/// How a body can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// By dropping it, at its next await.
    Yielding,
    /// Not at all: it is told, given up, and keeps its slot until it returns.
    Blocking,
    /// By telling it: it sees to it that nothing of it is left, and only then returns.
    Orderly,
}

/// A future that borrows what it was given.
type Borrowing<'a, T> = Pin<Box<dyn Future<Output = Result<T, TaskError>> + Send + 'a>>;

/// What [`Task::new`] takes: an async function, or an async closure that captures nothing, of a
/// context or of a context and a handle. `M` only tells the two apart; it is always inferred, and
/// `#[task]` writes its shape, so that the compiler names the type that does not fit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the body of a task",
    note = "a task is an `async fn(&mut Context) -> Result<T, E>` or an \
            `async fn(&mut Context, &TaskHandle) -> Result<T, E>`",
    note = "its future must be `Send`, `T` must be `Serialize`, and `E` must convert into `TaskError`"
)]
pub trait TaskFn<M>: Send + Sync + 'static {
    /// The type of the run's input.
    #[doc(hidden)]
    type Input: DeserializeOwned + Send + 'static;
    /// What it returns.
    #[doc(hidden)]
    type Output: Serialize + Send + 'static;
    /// Calls it.
    #[doc(hidden)]
    fn call<'a>(
        &self,
        context: &'a mut Context<Self::Input>,
        handle: &'a TaskHandle,
    ) -> Borrowing<'a, Self::Output>;
}

/// The function of a task, called with one lifetime.
#[doc(hidden)]
pub trait Plain<'a, I: 'a>: Fn(&'a mut Context<I>) -> Self::Future {
    type Future: Future<Output = Result<Self::Value, Self::Error>> + Send + 'a;
    type Value;
    type Error;
}

impl<'a, I: 'a, F, R, T, E> Plain<'a, I> for F
where
    F: Fn(&'a mut Context<I>) -> R,
    R: Future<Output = Result<T, E>> + Send + 'a,
{
    type Future = R;
    type Value = T;
    type Error = E;
}

/// The function of a task that wants its handle, called with one lifetime.
#[doc(hidden)]
pub trait Handled<'a, I: 'a>: Fn(&'a mut Context<I>, &'a TaskHandle) -> Self::Future {
    type Future: Future<Output = Result<Self::Value, Self::Error>> + Send + 'a;
    type Value;
    type Error;
}

impl<'a, I: 'a, F, R, T, E> Handled<'a, I> for F
where
    F: Fn(&'a mut Context<I>, &'a TaskHandle) -> R,
    R: Future<Output = Result<T, E>> + Send + 'a,
{
    type Future = R;
    type Value = T;
    type Error = E;
}

impl<F, I, T, E> TaskFn<(I, T, E)> for F
where
    F: for<'a> Plain<'a, I, Value = T, Error = E> + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
    E: Into<TaskError> + 'static,
{
    type Input = I;
    type Output = T;

    fn call<'a>(&self, context: &'a mut Context<I>, _: &'a TaskHandle) -> Borrowing<'a, T> {
        let body = self(context);
        Box::pin(async move { body.await.map_err(Into::into) })
    }
}

impl<F, I, T, E> TaskFn<(TaskHandle, I, T, E)> for F
where
    F: for<'a> Handled<'a, I, Value = T, Error = E> + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
    E: Into<TaskError> + 'static,
{
    type Input = I;
    type Output = T;

    fn call<'a>(&self, context: &'a mut Context<I>, handle: &'a TaskHandle) -> Borrowing<'a, T> {
        let body = self(context, handle);
        Box::pin(async move { body.await.map_err(Into::into) })
    }
}

struct Function<F, M> {
    function: Arc<F>,
    marker: std::marker::PhantomData<fn() -> M>,
}

impl<F: TaskFn<M>, M: 'static> Body for Function<F, M> {
    fn enter(&self, around: Around, handle: TaskHandle) -> Entered {
        let function = self.function.clone();
        Box::pin(async move {
            let mut context = Context::new(around)?;
            let output = function.call(&mut context, &handle).await?;
            let output = encode("what the task returned", &output)?;
            Ok(Returned { output, inserts: context.into_inserts()? })
        })
    }
}

impl Task {
    /// A task of this name that runs this function.
    pub fn new<M: 'static>(name: impl Into<String>, function: impl TaskFn<M>) -> Self {
        let marker = std::marker::PhantomData;
        Task::of(name, Arc::new(Function { function: Arc::new(function), marker }))
    }

    fn of(name: impl Into<String>, body: Arc<dyn Body>) -> Self {
        let (node, plan) = (Node::new(name), TaskPlan::default());
        Task { node, plan, body, hook: None, keeps_output: true }
    }

    /// Comes after these tasks too.
    pub fn after(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.node = self.node.after(names);
        self
    }

    /// When it runs, seen from the tasks it comes after.
    pub fn when(mut self, when: When) -> Self {
        self.node = self.node.when(when);
        self
    }

    /// Attempts after the first, for failures that another attempt might mend.
    pub fn retries(mut self, retries: u32) -> Self {
        self.plan.rules.retries = retries;
        self
    }

    /// The pause before each further attempt.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.plan.rules.backoff = backoff;
        self
    }

    /// How long one attempt may compute; the time it waits does not count. Running out of it is a
    /// failure and is retried like one.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.plan.timeout = Some(limit);
        self
    }

    /// How long it may be ready without being begun. Final.
    pub fn queue_timeout(mut self, limit: Duration) -> Self {
        self.plan.rules.queue_timeout = Some(limit);
        self
    }

    /// How long all of it may take from its first start, waiting and retries included. Final.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.plan.rules.deadline = Some(limit);
        self
    }

    /// How many slots it takes; 1 unless said otherwise.
    pub fn weight(mut self, weight: u32) -> Self {
        self.plan.weight = weight;
        self
    }

    /// A head start in seconds over tasks that became ready at the same time.
    pub fn priority(mut self, seconds: i32) -> Self {
        self.plan.priority = seconds;
        self
    }

    /// Takes one unit of a limit while it runs, also while it waits, unless the wait
    /// [gives it back](crate::Wait::releasing): of `"api"`; of two units by `("api", 2)`; by key with
    /// [`LimitUse`]. Of several limits it takes all or none. The limit is declared by
    /// [`EngineBuilder::limit`](crate::EngineBuilder::limit).
    pub fn limit(mut self, limit: impl Into<LimitUse>) -> Self {
        self.plan.limits.push(limit.into());
        self
    }

    /// Takes all of these. See [`limit`](Self::limit).
    pub fn limits(self, limits: impl IntoIterator<Item = impl Into<LimitUse>>) -> Self {
        limits.into_iter().fold(self, Task::limit)
    }

    /// May wait as a row of the store, without anything of it in memory: a wait for time, a signal or
    /// a run that takes [long](crate::Config::park_after). When what it waits for has come, its
    /// function is called anew, from the beginning; what it has waited for, and its
    /// [steps](TaskHandle::step), are answered at once. So it must ask for the same waits in the same
    /// order each time, and do nothing between them that may not be repeated, except in steps.
    pub fn parkable(mut self) -> Self {
        self.plan.parkable = true;
        self
    }

    /// Is done once for each item of a list, and returns what came of each, in the order of the
    /// list.
    ///
    /// The list is what a task of this name returned that this one depends on; or else what is in
    /// the context under this name, put there by a task above or with the input. It is looked for
    /// when the task's turn has come.
    ///
    /// Each item is a task of its own, with its own attempts, in a run of their own that belongs to
    /// this task: [`retries`](Self::retries), [`timeout`](Self::timeout),
    /// [`queue_timeout`](Self::queue_timeout), [`weight`](Self::weight), [`limit`](Self::limit) and
    /// [`priority`](Self::priority) are the items', [`deadline`](Self::deadline) is for all of them
    /// together. When an item has failed for good, the task fails, and what becomes of the other
    /// items, and from then on of the rest of the run, is told by the workflow's
    /// [`on_failure`](crate::WorkflowBuilder::on_failure).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use serde_json::json;
    /// use tidegate::{Context, Engine, Task, TaskError, Workflow};
    ///
    /// async fn double(context: &mut Context) -> Result<u64, TaskError> {
    ///     Ok(context.item::<u64>()? * 2)
    /// }
    ///
    /// let doubling = Workflow::of(Task::new("double", double).each("numbers"))?;
    /// let engine = Engine::builder("memory:").workflow(doubling).start().await?;
    /// let run = engine.submit("double", json!({ "numbers": [1, 2, 3] })).await?;
    /// assert_eq!(run.wait().await?.output::<Vec<u64>>("double")?, [2, 4, 6]);
    /// # engine.shutdown(std::time::Duration::from_secs(1)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn each(mut self, source: impl Into<String>) -> Self {
        self.plan.each = Some(source.into());
        self
    }

    /// What tells what it does from what another version of it does: a command line, a version, a hash.
    /// It is stored with each run, and a [retry](crate::Engine::retry) takes over what a task came to
    /// only where this is the same, as is what it comes after. Clocks, retries, weight and limits say
    /// how it is done: with others of them, what has succeeded still has.
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.plan.fingerprint = Some(fingerprint.into());
        self
    }

    /// What it returns is not stored: whoever asks for its output finds nothing, `null`. For a task
    /// that is done for [each](Self::each) of a list this goes for its items and for the list of what
    /// they return, which otherwise has to fit into one value.
    pub fn without_output(mut self) -> Self {
        self.keeps_output = false;
        self
    }

    /// Calls this function when an entry of the task begins and when it ends: here, in the worker that
    /// enters it, in order, and before its slot is free for another. Of a task that is done for
    /// [each](Self::each) of a list it hears of the items.
    ///
    /// The function should be quick, since the worker waits for it. It hears what the task is going to
    /// report; whether that counts (it may have been cancelled in the meantime) is the store's to
    /// say. A function that may [block](Self::blocking) and goes on beyond its time-out is told of when it
    /// returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tidegate::engine::EntryStage;
    /// use tidegate::{Context, Engine, Task, TaskError, Workflow};
    ///
    /// static FAILURES: AtomicU64 = AtomicU64::new(0);
    ///
    /// async fn fails(_: &mut Context) -> Result<(), TaskError> {
    ///     Err("no")?
    /// }
    ///
    /// let task = Task::new("fails", fails).on_entry(|event| {
    ///     if let EntryStage::Failed { is_final: true, .. } = event.stage {
    ///         FAILURES.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// let engine = Engine::builder("memory:").workflow(Workflow::of(task)?).start().await?;
    /// engine.submit("fails", ()).await?.wait().await?;
    /// assert_eq!(FAILURES.load(Ordering::Relaxed), 1);
    /// # engine.shutdown(std::time::Duration::from_secs(1)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_entry(mut self, hear: impl Fn(&EntryEvent<'_>) + Send + Sync + 'static) -> Self {
        self.hook.get_or_insert_default().set_entry(hear);
        self
    }

    /// Calls this function when the store has the end of an entry that has succeeded or failed, or has
    /// refused it: here, in the worker that has entered it, once for each such end. Of a task that is done
    /// for [each](Self::each) of a list it hears of the items.
    ///
    /// The function should be quick, since the loop of the worker waits for it. By the time it hears of an
    /// end, the next task may have begun on the slot.
    ///
    /// # After a crash
    /// An end that it has heard of is not lost. An end of which it has not heard may be stored all the same.
    pub fn on_stored_end(mut self, hear: impl Fn(&StoredEnd<'_>) + Send + Sync + 'static) -> Self {
        self.hook.get_or_insert_default().set_stored_end(hear);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.node.name
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("node", &self.node).field("plan", &self.plan).finish()
    }
}
