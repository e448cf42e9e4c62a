//! A task waits for a file that arrives late, and others use its slot meanwhile.
//!
//! Run it with `cargo run --release --example late_file`. There is one slot. `import` takes it, finds
//! that its file is not there, and gives it back; three chores are done on it; then the file arrives
//! and `import` goes on where it stood.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate::{Context, Engine, TaskError, TaskHandle, Workflow, condition, task};

const CHORES: usize = 3;

#[task]
async fn import(context: &mut Context<PathBuf>, handle: &TaskHandle) -> Result<usize, TaskError> {
    let (file, diary) = (context.input(), context.state::<Arc<Diary>>()?);
    diary.note("import has the slot, but no file; it waits");
    handle
        .defer_until(condition::file(file), Duration::from_millis(10))
        .timeout(Duration::from_secs(30))
        .named("the numbers")
        .await?;
    diary.note("import has the slot again, and the file");
    Ok(std::fs::read_to_string(file)?.lines().count())
}

#[task]
async fn chore(context: &mut Context<usize>) -> Result<(), TaskError> {
    let (number, diary) = (context.input(), context.state::<Arc<Diary>>()?);
    diary.note(format!("chore {number} has the slot"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    diary.note(format!("chore {number} is done"));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("numbers.csv");
    let diary = Arc::new(Diary { began: Instant::now(), lines: Mutex::default() });
    let engine = Engine::builder("memory:")
        .slots(1)
        .workflow(Workflow::of(import::task())?)
        .workflow(Workflow::of(chore::task())?)
        .state(diary.clone())
        .start()
        .await?;

    let import = engine.submit("import", &file).await?;
    for chore in engine.submit_many("chore", 1..=CHORES).await? {
        chore.wait().await?;
    }
    let status = import.status().await?;
    let (wait, _) = status.tasks[0].waits_for.as_ref().ok_or("import still waits")?;
    diary.note(format!("import still waits for {wait}"));

    // Renamed into place, so that nobody sees half of it. For senders who do not do that there is
    // `condition::file_unchanged`.
    let unfinished = folder.path().join("numbers.tmp");
    std::fs::write(&unfinished, "1\n2\n3\n")?;
    diary.note("the file arrives");
    std::fs::rename(&unfinished, &file)?;
    let rows: usize = import.wait().await?.output("import")?;
    println!("import read {rows} rows");
    assert_eq!(rows, 3);

    let lines = diary.lines.lock().expect("nobody panics with it").clone();
    let done = lines.iter().filter(|line| line.ends_with("is done")).count();
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert!(first.starts_with("import has the slot, but") && done == CHORES);
    assert!(last.starts_with("import has the slot again"), "the chores were done during the wait");
    engine.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Who had the slot when. Bodies run only with a slot, so what they note is in the order in which
/// they had it.
struct Diary {
    began: Instant,
    lines: Mutex<Vec<String>>,
}

impl Diary {
    fn note(&self, line: impl Into<String>) {
        let line = line.into();
        println!("{:>4} ms  {line}", self.began.elapsed().as_millis());
        self.lines.lock().expect("nobody panics with it").push(line);
    }
}
