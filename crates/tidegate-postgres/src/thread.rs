//! The thread on which a store's connections live.
//!
//! It has a runtime of its own: bodies that keep the application's runtime busy hold up no request, and
//! tests that pause the application's clock pause no connection. Callers hand in jobs and await their
//! answers; a job that has begun goes on when its caller is gone.

use crate::error::Error;
use futures_util::future::LocalBoxFuture;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

/// Work for the thread, which has the state `S`.
type Job<S> = Box<dyn FnOnce(Rc<S>) -> LocalBoxFuture<'static, ()> + Send>;

/// A thread with a runtime and a state.
#[derive(Debug)]
pub(crate) struct StoreThread<S> {
    jobs: Mutex<Option<mpsc::UnboundedSender<Job<S>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<S: 'static> StoreThread<S> {
    /// Starts a thread and makes its state there.
    ///
    /// # Errors
    /// That of the state, or the thread cannot be started.
    pub(crate) async fn start_thread<F>(make: F) -> Result<Self, Error>
    where
        F: AsyncFnOnce() -> Result<S, Error> + Send + 'static,
    {
        let (jobs, queue) = mpsc::unbounded_channel::<Job<S>>();
        let (made, is_made) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("tidegate-postgres".to_owned())
            .spawn(move || run_thread(make, queue, made))
            .map_err(Error::Thread)?;
        is_made.await.unwrap_or(Err(Error::Closed))?;
        Ok(StoreThread { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    /// Has a job done.
    ///
    /// # Errors
    /// Its own, or the thread is gone.
    pub(crate) async fn run_job<T, F>(&self, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: AsyncFnOnce(Rc<S>) -> Result<T, Error> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job<S> = Box::new(move |state| {
            Box::pin(async move {
                // A caller that is gone does not need it.
                let _ = answer.send(job(state).await);
            })
        });
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
            if !sent {
                return Err(Error::Closed);
            }
        }
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Lets the jobs that have begun come to their end, then ends the thread.
    pub(crate) async fn stop_thread(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

fn run_thread<S: 'static, F>(
    make: F,
    mut queue: mpsc::UnboundedReceiver<Job<S>>,
    made: oneshot::Sender<Result<(), Error>>,
) where
    F: AsyncFnOnce() -> Result<S, Error>,
{
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(made.send(Err(Error::Thread(error)))),
    };
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        let state = match make().await {
            Ok(state) => Rc::new(state),
            Err(error) => return drop(made.send(Err(error))),
        };
        let _ = made.send(Ok(()));
        let mut begun = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                job = queue.recv() => match job {
                    Some(job) => drop(begun.spawn_local(job(state.clone()))),
                    None => break,
                },
                Some(_) = begun.join_next() => {}
            }
        }
        while begun.join_next().await.is_some() {}
    });
}
