//! Where the inputs of a batch come from.

use crate::slot::Work;
use crate::task_error::TaskError;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a batch takes: an iterator or a stream of pairs of a name and a [`Work`]. `M` only tells
/// the kinds apart; it is always inferred.
pub trait Inputs<M> {
    /// What a task returns when all is well.
    type Value: Send + 'static;
    /// The kind of work.
    #[doc(hidden)]
    type Mark: Send + 'static;
    #[doc(hidden)]
    type Producer: Producer<Self::Mark, Value = Self::Value>;

    #[doc(hidden)]
    fn into_producer(self) -> Self::Producer;
}

/// Gives one input after the other.
pub trait Producer<M>: Send + 'static {
    type Value: Send + 'static;
    type Work: Work<M, Value = Self::Value, Error: Into<TaskError>>;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(String, Self::Work)>>;

    /// How many are left, where that is known.
    fn left(&self) -> Option<usize>;

    /// Whether it never makes anybody wait: then all inputs count as there from the start, and
    /// whoever is free may ask for the next.
    const AT_ONCE: bool;
}

/// Marks inputs that come from an iterator.
#[derive(Debug)]
pub struct FromIterator;

/// Marks inputs that come from a stream.
#[derive(Debug)]
pub struct FromStream;

pub struct Items<I>(I);

impl<I, N, W, M> Inputs<(FromIterator, M)> for I
where
    I: IntoIterator<Item = (N, W)>,
    I::IntoIter: Send + 'static,
    N: Into<String>,
    W: Work<M>,
    W::Error: Into<TaskError>,
    M: Send + 'static,
{
    type Value = W::Value;
    type Mark = M;
    type Producer = Items<I::IntoIter>;

    fn into_producer(self) -> Items<I::IntoIter> {
        Items(self.into_iter())
    }
}

impl<I, N, W, M> Producer<M> for Items<I>
where
    I: Iterator<Item = (N, W)> + Send + 'static,
    N: Into<String>,
    W: Work<M>,
    W::Error: Into<TaskError>,
{
    type Value = W::Value;
    type Work = W;

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<(String, W)>> {
        Poll::Ready(self.0.next().map(|(name, work)| (name.into(), work)))
    }

    fn left(&self) -> Option<usize> {
        let (least, most) = self.0.size_hint();
        most.filter(|&most| most == least)
    }

    const AT_ONCE: bool = true;
}

pub struct Arriving<S>(Pin<Box<S>>);

impl<S, N, W, M> Inputs<(FromStream, M)> for S
where
    S: Stream<Item = (N, W)> + Send + 'static,
    N: Into<String>,
    W: Work<M>,
    W::Error: Into<TaskError>,
    M: Send + 'static,
{
    type Value = W::Value;
    type Mark = M;
    type Producer = Arriving<S>;

    fn into_producer(self) -> Arriving<S> {
        Arriving(Box::pin(self))
    }
}

impl<S, N, W, M> Producer<M> for Arriving<S>
where
    S: Stream<Item = (N, W)> + Send + 'static,
    N: Into<String>,
    W: Work<M>,
    W::Error: Into<TaskError>,
{
    type Value = W::Value;
    type Work = W;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(String, W)>> {
        let next = self.0.as_mut().poll_next(cx);
        next.map(|input| input.map(|(name, work)| (name.into(), work)))
    }

    fn left(&self) -> Option<usize> {
        let (least, most) = self.0.size_hint();
        most.filter(|&most| most == least)
    }

    const AT_ONCE: bool = false;
}
