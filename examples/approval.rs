//! A person has to say yes before an order goes out, and the process dies while everybody waits.
//!
//! Run it with `cargo run --release --example approval`. The task `order` charges a card, in a step
//! that is stored, and waits for the signal `approve`, for four hours at most. The engine is stopped
//! meanwhile and another one goes on: the card is not charged again, and the signal, which was sent
//! while no engine ran the task, is there.

use serde_json::json;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidegate::{Context, Engine, TaskError, TaskHandle, Value, Workflow, task};

#[derive(Debug)]
enum Woke {
    Approved(Value),
    Late,
}

#[task(parkable)]
async fn order(context: &mut Context<String>, handle: &TaskHandle) -> Result<String, TaskError> {
    let (charges, customer) = (context.state::<Charges>()?, context.input());
    let receipt = handle.step("charge", charges.charge(customer)).await?;
    let woke = handle
        .wait_any([
            handle.wait_for_signal("approve").map(Woke::Approved),
            handle.sleep(Duration::from_secs(4 * 3_600)).map(|()| Woke::Late),
        ])
        .await?;
    match woke {
        Woke::Approved(by) => {
            Ok(format!("{customer}: receipt {receipt}, approved by {}", by["by"]))
        }
        Woke::Late => Err(TaskError::permanent(format!("nobody approved receipt {receipt}"))),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let charges = Arc::new(Charges::default());
    let start = async || {
        let builder = Engine::builder(&store).workflow(Workflow::of(order::task())?);
        let builder = builder.park_after(Duration::from_millis(10)).state_arc(charges.clone());
        Ok::<_, Box<dyn Error>>(builder.start().await?)
    };

    let engine = start().await?;
    let run = engine.submit("order", "Ada").await?;
    let id = run.id();
    let (wait, _) = loop {
        if let Some(waits) = run.status().await?.tasks[0].waits_for.clone() {
            break waits;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    println!("the order waits for {wait}");
    run.signal("approve", json!({ "by": "Grace" })).await?;
    engine.shutdown(Duration::ZERO).await;
    println!("the engine has stopped");

    let engine = start().await?;
    let status = engine.run(id).await?.wait().await?;
    let confirmed: String = status.output("order")?;
    println!("{confirmed}");
    assert_eq!(confirmed, "Ada: receipt 1, approved by \"Grace\"");
    assert_eq!(charges.count.load(Ordering::Relaxed), 1, "the card was charged once");
    let refused = engine.signal(id, "approve", json!({ "by": "Alan" })).await;
    println!("a second one: {}", refused.expect_err("the run is over"));
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// The outside world, which keeps count.
#[derive(Default)]
struct Charges {
    count: AtomicU32,
}

impl Charges {
    async fn charge(&self, customer: &str) -> Result<u32, TaskError> {
        println!("{customer}'s card is charged");
        Ok(self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
