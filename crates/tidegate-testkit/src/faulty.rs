//! A store that fails on demand, for tests of whoever uses one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_core::lifecycle::WorkerId;
use tidegate_core::store::{Answer, Reply, Request, Store, StoreError};
use tokio::sync::oneshot;

/// A store whose requests go wrong when told so; all else goes through to the store inside.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    faults: Mutex<VecDeque<(Condition, Todo)>>,
}

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing of it is done, and the store says so.
    Fails,
    /// It is done, and its answer is lost.
    LosesAnswer,
    /// Nothing of it is done, and whether it was is not known.
    LosesQuestion,
}

/// An answer that is kept back until this is dropped. The request itself is done at once.
#[derive(Debug)]
#[must_use = "the answer comes as soon as this is dropped"]
pub struct Held(#[allow(dead_code, reason = "dropping it is what releases")] oneshot::Sender<()>);

#[derive(Debug)]
enum Todo {
    Fault(Fault),
    Hold(oneshot::Receiver<()>),
}

type Test = dyn Fn(&Request) -> bool + Send + Sync;

/// Which request it is for.
struct Condition(Box<Test>);

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}

impl Faulty {
    /// Nothing goes wrong until it is told to.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Faulty { inner, faults: Mutex::default() }
    }

    /// This goes wrong with the next request that is not spoken for.
    pub fn next(&self, fault: Fault) {
        self.on(|_| true, fault);
    }

    /// This goes wrong with the next request of which the test is true. Each fault comes once; of
    /// several for one request, the one told first.
    pub fn on(&self, test: impl Fn(&Request) -> bool + Send + Sync + 'static, fault: Fault) {
        self.faults().push_back((Condition(Box::new(test)), Todo::Fault(fault)));
    }

    /// The answer to the next request of which the test is true is kept back. The request is done.
    pub fn hold(&self, test: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Held {
        let (release, released) = oneshot::channel();
        self.faults().push_back((Condition(Box::new(test)), Todo::Hold(released)));
        Held(release)
    }

    /// How many faults have not come yet.
    pub fn pending(&self) -> usize {
        self.faults().len()
    }

    fn faults(&self) -> MutexGuard<'_, VecDeque<(Condition, Todo)>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn todo_for(&self, request: &Request) -> Option<Todo> {
        let mut faults = self.faults();
        let at = faults.iter().position(|(Condition(test), _)| test(request))?;
        faults.remove(at).map(|(_, todo)| todo)
    }
}

/// It was told to go wrong.
#[derive(Debug)]
struct AsTold;

impl fmt::Display for AsTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a test wants it so")
    }
}

impl std::error::Error for AsTold {}

impl Store for Faulty {
    fn request(&self, request: Arc<Request>) -> Answer<'_, Reply> {
        Box::pin(async move {
            match self.todo_for(&request) {
                None => self.inner.request(request).await,
                Some(Todo::Fault(Fault::Fails)) => Err(StoreError::Failed(Arc::new(AsTold))),
                Some(Todo::Fault(Fault::LosesQuestion)) => {
                    Err(StoreError::Unknown(Arc::new(AsTold)))
                }
                Some(Todo::Fault(Fault::LosesAnswer)) => {
                    self.inner.request(request).await?;
                    Err(StoreError::Unknown(Arc::new(AsTold)))
                }
                Some(Todo::Hold(released)) => {
                    let answer = self.inner.request(request).await;
                    // An error says that the other half was dropped, which is what is waited for.
                    let _ = released.await;
                    answer
                }
            }
        })
    }

    fn dismiss(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.inner.dismiss(worker)
    }

    crate::forward_store!(inner);
}
