//! What became of the tasks of a batch.

use crate::task_error::TaskError;
use futures_core::Stream;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// How a task of a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// It returned its value.
    Success,
    /// It returned an error or panicked.
    Failed,
    /// It reached its time-out.
    Timeout,
    /// It never began, or was stopped.
    Cancelled,
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TaskStatus::Success => "success",
            TaskStatus::Failed => "failed",
            TaskStatus::Timeout => "timeout",
            TaskStatus::Cancelled => "cancelled",
        })
    }
}

/// What became of one task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskResult<T> {
    /// Its place among the inputs, from 0.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// How it ended.
    pub status: TaskStatus,
    /// How long it waited before it began.
    pub queued: Duration,
    /// How long it took from its beginning to its end; zero if it never began.
    pub duration: Duration,
    /// What it returned, if it succeeded.
    pub output: Option<T>,
    /// Why it did not succeed.
    pub error: Option<TaskError>,
}

/// What became of all tasks of a batch. Each input stands in exactly one list, in input order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExecutionResults<T> {
    /// How many inputs there were.
    pub total: usize,
    /// Those that returned a value.
    pub succeeded: Vec<TaskResult<T>>,
    /// Those that returned an error, panicked, or reached their time-out.
    pub failed: Vec<TaskResult<T>>,
    /// Those that never began, or were stopped.
    pub cancelled: Vec<TaskResult<T>>,
    /// How long all of it took.
    pub duration: Duration,
}

impl<T> ExecutionResults<T> {
    /// Whether everything succeeded; also when there was nothing to do.
    pub fn is_success(&self) -> bool {
        self.succeeded.len() == self.total
    }
}

pub(super) async fn collect<T>(mut stream: BatchStream<T>) -> ExecutionResults<T> {
    let mut all = Vec::new();
    while let Some(result) = stream.next().await {
        all.push(result);
    }
    all.sort_unstable_by_key(|result| result.index);
    let mut results = ExecutionResults {
        total: all.len(),
        succeeded: Vec::new(),
        failed: Vec::new(),
        cancelled: Vec::new(),
        duration: stream.began.elapsed(),
    };
    for result in all {
        match result.status {
            TaskStatus::Success => results.succeeded.push(result),
            TaskStatus::Failed | TaskStatus::Timeout => results.failed.push(result),
            TaskStatus::Cancelled => results.cancelled.push(result),
        }
    }
    results
}

/// Where a stream gets its results from.
pub(super) trait Supply<T>: Send + Sync {
    /// Some results, moved to the empty `into`; `Ready` with none when there will be no more.
    fn poll_take(&self, into: &mut VecDeque<TaskResult<T>>, cx: &mut Context<'_>) -> Poll<()>;

    /// Nobody wants results any more.
    fn abandon(&self);
}

/// The results of a batch as they come. Made by [`Batch::stream`](super::Batch::stream).
///
/// # Cancel safety
/// Dropping it cancels everything that is under way. Dropping a [`next`](Self::next) loses nothing.
#[must_use = "dropping it cancels the batch"]
pub struct BatchStream<T> {
    supply: Arc<dyn Supply<T>>,
    taken: VecDeque<TaskResult<T>>,
    began: Instant,
    ended: bool,
}

impl<T> BatchStream<T> {
    pub(super) fn new(supply: Arc<dyn Supply<T>>, began: Instant) -> Self {
        BatchStream { supply, taken: VecDeque::new(), began, ended: false }
    }

    /// The next result, or `None` when all have been given.
    pub async fn next(&mut self) -> Option<TaskResult<T>> {
        std::future::poll_fn(|cx| self.poll_result(cx)).await
    }

    fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Option<TaskResult<T>>> {
        if self.taken.is_empty() && !self.ended {
            std::task::ready!(self.supply.poll_take(&mut self.taken, cx));
            self.ended = self.taken.is_empty();
        }
        Poll::Ready(self.taken.pop_front())
    }
}

impl<T> Stream for BatchStream<T> {
    type Item = TaskResult<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_result(cx)
    }
}

impl<T> Unpin for BatchStream<T> {}

impl<T> Drop for BatchStream<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.supply.abandon();
        }
    }
}

impl<T> fmt::Debug for BatchStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStream").field("ended", &self.ended).finish_non_exhaustive()
    }
}
