//! Sixty agents on 32 slots; each model takes two questions at once, and the account 25 in 400 ms.
//!
//! Run it with `cargo run --release --example models`. Two limits that all workers of a store share:
//! `model` counts for each model by itself (the key is in the input of the run), `account` counts what
//! begins in any 400 ms. An agent takes both together or none; while it waits for its answer it keeps
//! its place at the model and gives its slot back.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, Limit, LimitUse, TaskError, TaskHandle, Workflow, task};

const AGENTS: usize = 60;
const MODELS: [&str; 3] = ["large", "small", "tiny"];
const AT_ONCE: usize = 2;
const RATE: usize = 25;
const STRETCH: Duration = Duration::from_millis(400);

#[derive(Serialize, Deserialize)]
struct Question {
    model: String,
}

#[task(limits = [LimitUse::of("model").by("model"), "account"])]
async fn ask(context: &mut Context<Question>, handle: &TaskHandle) -> Result<(), TaskError> {
    let (book, model) = (context.state::<Book>()?, context.input().model.as_str());
    book.enter(model);
    handle.sleep(Duration::from_millis(20)).named("the answer").await?;
    book.leave(model);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (folder, book) = (tempfile::tempdir()?, Arc::new(Book::default()));
    let engine = Engine::builder(format!("sqlite:{}", folder.path().join("jobs.db").display()))
        .slots(32)
        .limit(Limit::new("model").at_once(AT_ONCE as u32))
        .limit(Limit::new("account").rate(RATE as u32, STRETCH))
        .workflow(Workflow::of(ask::task())?)
        .state_arc(book.clone())
        .start()
        .await?;
    let began = Instant::now();
    let questions = (0..AGENTS).map(|n| Question { model: MODELS[n % 3].to_owned() });
    let runs = engine.submit_many("ask", questions).await?;
    for state in engine.limits().await? {
        let (name, key) = (state.limit.name(), &state.key);
        println!(
            "{name:>8} {key:6} {:2} in use, {:2} wait ({})",
            state.in_use, state.waiting, state.limit
        );
    }
    for run in &runs {
        run.wait().await?;
    }
    println!("{AGENTS} agents took {:.2?}", began.elapsed());
    let records = engine.store().records(None, 0, u32::MAX).await?;
    let mut begins: Vec<_> = records.iter().filter_map(|record| record.begun_at).collect();
    begins.sort();
    let in_time =
        begins.windows(RATE + 1).all(|stretch| stretch[RATE].since(stretch[0]) >= STRETCH);
    assert!(in_time, "never did more than {RATE} begin in {STRETCH:?}");
    for (model, Seats { most, .. }) in book.seats.lock().expect("nobody panics with it").iter() {
        println!("{model:>8} at most {most} at once");
        assert!(*most <= AT_ONCE);
    }
    engine.shutdown(STRETCH).await;
    Ok(())
}

/// Who is at which model.
#[derive(Default)]
struct Book {
    seats: Mutex<BTreeMap<String, Seats>>,
}

#[derive(Default)]
struct Seats {
    taken: usize,
    most: usize,
}

impl Book {
    fn enter(&self, model: &str) {
        let mut seats = self.seats.lock().expect("nobody panics with it");
        let Seats { taken, most } = seats.entry(model.to_owned()).or_default();
        *taken += 1;
        *most = (*most).max(*taken);
    }

    fn leave(&self, model: &str) {
        let mut seats = self.seats.lock().expect("nobody panics with it");
        seats.entry(model.to_owned()).or_default().taken -= 1;
    }
}
