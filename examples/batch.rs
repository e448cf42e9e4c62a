//! A batch that stops at its first failure, and the same batch when it keeps going.
//!
//! Run it with `cargo run --release --example batch`.

use std::time::Duration;
use tidegate::{Batch, ExecutionResults, TaskError};

const FILES: [&str; 8] =
    ["Cargo.toml", "README.md", "no-such-file", "LICENSE-MIT", "test", "nor-this", "examples", "."];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let batch = Batch::new().parallel_limit(2).task_timeout(Duration::from_secs(10));

    let results = batch.run_all(files()).await?;
    show("fail-fast: nothing new starts after the first failure", &results);
    assert!(!results.cancelled.is_empty());

    // A batch can be used again, also after a failure.
    let results = batch.continue_on_error(true).run_all(files()).await?;
    show("keep-going: everything is tried", &results);
    assert_eq!((results.failed.len(), results.cancelled.len()), (2, 0));
    Ok(())
}

/// One task for each file: how large is it?
fn files() -> impl Iterator<Item = (&'static str, impl Future<Output = Result<u64, TaskError>>)> {
    FILES.into_iter().map(|file| {
        let task = async move {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(std::fs::metadata(path)?.len())
        };
        (file, task)
    })
}

fn show(title: &str, results: &ExecutionResults<u64>) {
    println!("{title}");
    for result in &results.succeeded {
        println!(
            "  {:<9}  {:<13} {:>8} bytes",
            result.status,
            result.name,
            result.output.unwrap_or(0)
        );
    }
    for result in results.failed.iter().chain(&results.cancelled) {
        let error = result.error.as_ref().map(ToString::to_string).unwrap_or_default();
        println!("  {:<9}  {:<13} {error}", result.status, result.name);
    }
    println!("  {} in all, {:.0?}\n", results.total, results.duration);
}
