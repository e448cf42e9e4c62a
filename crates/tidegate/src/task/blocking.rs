//! Functions that are not async and may block their thread.

use super::{Body, Entered, Manner, Returned, Task};
use crate::context::{Around, Context, encode};
use crate::handle::TaskHandle;
use crate::task_error::TaskError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl Task {
    /// A task of this name that runs this function, which is not async and may block, on a thread of
    /// its own.
    ///
    /// Such a function cannot be dropped: a time-out is reported when it is reached, and a cancelled
    /// or timed-out one keeps its slot, shown as [`leaky`](crate::SlotPool::leaky), until it returns.
    /// A further attempt may run beside it meanwhile.
    /// One that runs for long should ask its handle now and then whether it
    /// [is cancelled](TaskHandle::is_cancelled).
    ///
    /// ```
    /// use tidegate::{Context, Task, TaskError, TaskHandle};
    ///
    /// fn add_up(context: &mut Context<Vec<u64>>, handle: &TaskHandle) -> Result<u64, TaskError> {
    ///     let mut sum = 0;
    ///     for number in context.input() {
    ///         if handle.is_cancelled() {
    ///             Err("cancelled")?;
    ///         }
    ///         sum += number;
    ///     }
    ///     Ok(sum)
    /// }
    ///
    /// let add_up = Task::blocking("add_up", add_up);
    /// ```
    pub fn blocking<M: 'static>(name: impl Into<String>, function: impl BlockingFn<M>) -> Self {
        let marker = std::marker::PhantomData;
        Task::of(name, Arc::new(Blocking { function: Arc::new(function), marker }))
    }
}

/// What [`Task::blocking`] takes: a function of a context, or of a context and a handle. `M` only
/// tells the two apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the body of a blocking task",
    note = "a blocking task is a `fn(&mut Context) -> Result<T, E>` or a \
            `fn(&mut Context, &TaskHandle) -> Result<T, E>`",
    note = "`T` must be `Serialize`, and `E` must convert into `TaskError`"
)]
pub trait BlockingFn<M>: Send + Sync + 'static {
    /// The type of the run's input.
    #[doc(hidden)]
    type Input: DeserializeOwned + Send + 'static;
    /// What it returns.
    #[doc(hidden)]
    type Output: Serialize + Send + 'static;
    /// Calls it.
    #[doc(hidden)]
    fn call(
        &self,
        context: &mut Context<Self::Input>,
        handle: &TaskHandle,
    ) -> Result<Self::Output, TaskError>;
}

impl<F, I, T, E> BlockingFn<(I, T, E)> for F
where
    F: Fn(&mut Context<I>) -> Result<T, E> + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
    E: Into<TaskError> + 'static,
{
    type Input = I;
    type Output = T;

    fn call(&self, context: &mut Context<I>, _: &TaskHandle) -> Result<T, TaskError> {
        self(context).map_err(Into::into)
    }
}

impl<F, I, T, E> BlockingFn<(TaskHandle, I, T, E)> for F
where
    F: Fn(&mut Context<I>, &TaskHandle) -> Result<T, E> + Send + Sync + 'static,
    I: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
    E: Into<TaskError> + 'static,
{
    type Input = I;
    type Output = T;

    fn call(&self, context: &mut Context<I>, handle: &TaskHandle) -> Result<T, TaskError> {
        self(context, handle).map_err(Into::into)
    }
}

struct Blocking<F, M> {
    function: Arc<F>,
    marker: std::marker::PhantomData<fn() -> M>,
}

impl<F: BlockingFn<M>, M: 'static> Body for Blocking<F, M> {
    fn enter(&self, around: Around, handle: TaskHandle) -> Entered {
        let function = self.function.clone();
        Box::pin(async move {
            let span = tracing::Span::current();
            let call = move || {
                let _in = span.enter();
                let mut context = Context::new(around)?;
                let output = function.call(&mut context, &handle)?;
                let output = encode("what the task returned", &output)?;
                Ok(Returned { output, inserts: context.into_inserts()? })
            };
            match tokio::task::spawn_blocking(call).await {
                Ok(returned) => returned,
                Err(error) => match error.try_into_panic() {
                    // It is the task's own.
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends, and this with it.
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }

    fn manner(&self) -> Manner {
        Manner::Blocking
    }
}
