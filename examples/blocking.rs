//! Code that computes or blocks, beside async tasks that stay responsive.
//!
//! Run it with `cargo run --release --example blocking`. The runtime has one thread, so a task that
//! computed on it would stop everything. `Task::blocking` runs a plain function on a thread of its
//! own. Such a function cannot be dropped when its time is up: it is told, its time-out is reported,
//! and its slot stays taken, shown as leaky, until it returns.

use std::error::Error;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};
use tidegate::engine::Kind;
use tidegate::{Context, Engine, Task, TaskError, TaskHandle, Workflow, task};

const ANSWERS: u32 = 100;

/// What the blocking tasks listen to. A sender that is gone counts as a word, so that no thread is
/// left behind if this program ends early.
struct Words {
    enough: Mutex<Receiver<()>>,
    block_is_written: Mutex<Receiver<()>>,
}

/// Looks for primes until somebody says that it is enough.
fn primes(context: &mut Context) -> Result<usize, TaskError> {
    let words = context.state::<Words>()?;
    let enough = words.enough.lock().expect("nobody panics with it");
    let go_on = || enough.try_recv() == Err(TryRecvError::Empty);
    let is_prime = |n: &u64| (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    Ok((2..).take_while(|_| go_on()).filter(is_prime).count())
}

#[task]
async fn answer(context: &mut Context<u32>) -> Result<u32, TaskError> {
    Ok(context.input() * 2)
}

/// Writes block after block, and can only stop between two of them.
fn archive(context: &mut Context, handle: &TaskHandle) -> Result<(), TaskError> {
    let words = context.state::<Words>()?;
    let written = words.block_is_written.lock().expect("nobody panics with it");
    while written.recv().is_ok() {
        if handle.is_cancelled() {
            println!("archive: asks, hears that it is cancelled, and returns");
            Err("cancelled between two blocks")?;
        }
    }
    Ok(())
}

// One thread for all async code.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (say_enough, enough) = mpsc::channel();
    let (say_written, block_is_written) = mpsc::channel();
    let [enough, block_is_written] = [enough, block_is_written].map(Mutex::new);
    let archive = Task::blocking("archive", archive).timeout(Duration::from_millis(100));
    let engine = Engine::builder("memory:")
        .slots(2)
        .workflow(Workflow::of(Task::blocking("primes", primes))?)
        .workflow(Workflow::of(answer::task())?)
        .workflow(Workflow::of(archive)?)
        .state(Words { enough, block_is_written })
        .start()
        .await?;

    // One slot computes, and the other answers all the same.
    let computing = engine.submit("primes", ()).await?;
    let mut slowest = Duration::ZERO;
    for number in 0..ANSWERS {
        let began = Instant::now();
        let answered = engine.submit("answer", number).await?.wait().await?;
        assert_eq!(answered.output::<u32>("answer")?, number * 2);
        slowest = slowest.max(began.elapsed());
    }
    assert_eq!(computing.status().await?.tasks[0].kind, Kind::Active);
    say_enough.send(())?;
    let found: usize = computing.wait().await?.output("primes")?;
    println!("{ANSWERS} answers, the slowest after {slowest:.1?}; {found} primes found meanwhile");

    // The time-out is reported while the thread is in the middle of a block.
    let ended = engine.submit("archive", ()).await?.wait().await?;
    println!("archive: {}", ended.tasks[0].error.as_deref().unwrap_or_default());
    assert_eq!(ended.tasks[0].kind, Kind::TimedOut);
    let slots = engine.slots();
    println!("slots: {} in use, {} of them leaky", slots.in_use(), slots.leaky());
    assert_eq!((slots.in_use(), slots.leaky()), (1, 1));

    say_written.send(())?;
    while slots.leaky() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("slots: {} in use, {} of them leaky", slots.in_use(), slots.leaky());
    assert_eq!(slots.in_use(), 0);
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
