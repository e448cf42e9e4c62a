//! Where the inputs of a batch come from.

use crate::slot::Work;
use crate::task_error::TaskError;
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a batch takes: an iterator or a stream of pairs of a name and a [`Work`]. `M` only tells
/// the kinds apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "a batch cannot run `{Self}`",
    note = "it takes an iterator or a stream of pairs of a name and a task, all `Send + 'static`",
    note = "a task is a future of a `Result`, as in `(\"name\", async {{ Ok::<_, TaskError>(7) }})`",
    note = "or takes a handle, as in `(\"name\", async move |handle: TaskHandle| {{ .. Ok(7) }})`"
)]
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

/// Where pairs come from.
pub trait Origin: Send + 'static {
    type Pair;

    fn poll_pair(&mut self, cx: &mut Context<'_>) -> Poll<Option<Self::Pair>>;

    fn size_hint(&self) -> (usize, Option<usize>);

    const AT_ONCE: bool;
}

/// An iterator.
pub struct Items<I>(I);

impl<I: Iterator + Send + 'static> Origin for Items<I> {
    type Pair = I::Item;

    fn poll_pair(&mut self, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    const AT_ONCE: bool = true;
}

/// A stream.
pub struct Arriving<S>(Pin<Box<S>>);

impl<S: Stream + Send + 'static> Origin for Arriving<S> {
    type Pair = S::Item;

    fn poll_pair(&mut self, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.0.as_mut().poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    const AT_ONCE: bool = false;
}

impl<O, N, W, M> Producer<M> for O
where
    O: Origin<Pair = (N, W)>,
    N: Into<String>,
    W: Work<M>,
    W::Error: Into<TaskError>,
{
    type Value = W::Value;
    type Work = W;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(String, W)>> {
        self.poll_pair(cx).map(|pair| pair.map(|(name, work)| (name.into(), work)))
    }

    fn left(&self) -> Option<usize> {
        let (least, most) = self.size_hint();
        most.filter(|&most| most == least)
    }

    const AT_ONCE: bool = O::AT_ONCE;
}

/// Marks inputs that come from an iterator.
#[derive(Debug)]
pub struct FromIterator;

impl<I, W, M> Inputs<(FromIterator, M)> for I
where
    I: IntoIterator,
    I::IntoIter: Send + 'static,
    Items<I::IntoIter>: Producer<M, Work = W>,
    W: Work<M>,
    M: Send + 'static,
{
    type Value = <Items<I::IntoIter> as Producer<M>>::Value;
    type Mark = M;
    type Producer = Items<I::IntoIter>;

    fn into_producer(self) -> Items<I::IntoIter> {
        Items(self.into_iter())
    }
}

/// Marks inputs that come from a stream.
#[derive(Debug)]
pub struct FromStream;

impl<S, W, M> Inputs<(FromStream, M)> for S
where
    S: Stream + Send + 'static,
    Arriving<S>: Producer<M, Work = W>,
    W: Work<M>,
    M: Send + 'static,
{
    type Value = <Arriving<S> as Producer<M>>::Value;
    type Mark = M;
    type Producer = Arriving<S>;

    fn into_producer(self) -> Arriving<S> {
        Arriving(Box::pin(self))
    }
}
