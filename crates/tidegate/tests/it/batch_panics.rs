//! Panics of the user's code in a batch and on a pool, outside of bodies.

use crate::support::ms;
use std::error::Error;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use tidegate::error::RunError;
use tidegate::{Batch, SlotPool, TaskError, TaskHandle, TaskStatus};

type Outcome = Result<(), TaskError>;

/// A value that panics when it is dropped, unless that would end the process.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("boom in a destructor");
        }
    }
}

/// A future that is ready at once, and panics when it is dropped.
struct Rotten(Bomb);

impl Future for Rotten {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        Poll::Ready(Ok(()))
    }
}

/// An error whose causes cannot be looked at.
#[derive(Debug)]
struct Causeless;

impl fmt::Display for Causeless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("causeless")
    }
}

impl Error for Causeless {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        panic!("boom in the causes")
    }
}

#[tokio::test(start_paused = true)]
async fn body_that_panics_while_its_time_out_drops_it_has_timed_out() {
    let batch = Batch::new().task_timeout(ms(10)).continue_on_error(true);
    let plain = async {
        let _bomb = Bomb;
        pending::<Outcome>().await
    };
    let results = batch.run_all([("plain", plain)]).await.unwrap();
    let statuses: Vec<_> = results.failed.iter().map(|failed| failed.status).collect();
    assert_eq!((results.total, statuses), (1, vec![TaskStatus::Timeout]));
    let waits = async |_: TaskHandle| {
        let _bomb = Bomb;
        pending::<Outcome>().await
    };
    let results = batch.run_all([("with a handle", waits)]).await.unwrap();
    let statuses: Vec<_> = results.failed.iter().map(|failed| failed.status).collect();
    assert_eq!((results.total, statuses), (1, vec![TaskStatus::Timeout]));
}

#[tokio::test]
async fn panic_in_the_destructor_of_a_future_is_how_it_ended() {
    let results = Batch::new().run_all([("rotten", Rotten(Bomb))]).await.unwrap();
    let error = results.failed[0].error.as_ref().unwrap().to_string();
    assert_eq!(error, "panicked: boom in a destructor");
    let ended = SlotPool::new(1).unwrap().run(Rotten(Bomb)).await;
    assert!(
        matches!(&ended, Err(RunError::Panicked(panic)) if panic.message() == "boom in a destructor")
    );
}

#[tokio::test]
async fn panic_in_the_causes_of_an_error_is_how_its_task_ended() {
    let inputs = ["one", "two"].map(|name| (name, async { Err::<(), _>(Causeless) }));
    let results = Batch::new().continue_on_error(true).run_all(inputs).await.unwrap();
    assert_eq!((results.total, results.failed.len()), (2, 2));
    for failed in &results.failed {
        assert_eq!(failed.error.as_ref().unwrap().to_string(), "panicked: boom in the causes");
    }
}

#[tokio::test]
async fn task_that_never_began_is_reported_although_its_destructor_panics() {
    let fails: fn(Bomb) -> Pin<Box<dyn Future<Output = Outcome> + Send>> = |bomb| {
        std::mem::forget(bomb);
        Box::pin(async { Err("no luck".into()) })
    };
    let rotten: fn(Bomb) -> Pin<Box<dyn Future<Output = Outcome> + Send>> =
        |bomb| Box::pin(Rotten(bomb));
    let inputs = [("first", fails), ("second", rotten)].map(|(name, make)| (name, make(Bomb)));
    let results = Batch::new().parallel_limit(1).run_all(inputs).await.unwrap();
    let names: Vec<_> = results.cancelled.iter().map(|result| result.name.as_str()).collect();
    assert_eq!((results.total, names), (2, vec!["second"]));
}
