//! Three processes share the work of one file; one of them is killed, and the others go on with what it
//! had in hand.
//!
//! `cargo run --release --example fleet` starts itself three times as a worker. This process only
//! submits, and kills one worker with SIGKILL in the middle of its work. What happened then is read from
//! the records that the store keeps of every end: who did what and when, and what was taken over by whom.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};
use tidegate::engine::{Happened, Record, WorkerId};
use tidegate::{
    Context, Engine, EngineBuilder, RunId, RunOutcome, Task, TaskError, TaskHandle, Timestamp,
    Workflow,
};

const PHOTOS: u32 = 45;
const NAMES: [char; 3] = ['A', 'B', 'C'];

/// Photos that the one which is killed begins to resize before that: with two slots it has ended some.
const BEGUN_BEFORE: usize = 5;

/// Waits for somebody outside; its slot is free meanwhile.
async fn fetch(_: &mut Context<u32>, handle: &TaskHandle) -> Result<u32, TaskError> {
    handle.sleep(Duration::from_millis(150)).await?;
    Ok(std::process::id())
}

/// Keeps its slot for as long as it takes.
async fn resize(_: &mut Context<u32>) -> Result<u32, TaskError> {
    println!("resizing");
    tokio::time::sleep(Duration::from_millis(120)).await;
    Ok(std::process::id())
}

const TASKS: [&str; 2] = ["fetch", "resize"];

fn engine(store: &str) -> Result<EngineBuilder, Box<dyn Error>> {
    let photo = Workflow::builder("photo")
        .task(Task::new(TASKS[0], fetch))
        .task(Task::new(TASKS[1], resize).after([TASKS[0]]));
    Ok(Engine::builder(store).slots(2).workflow(photo.build()?))
}

/// A worker: all there is to it.
async fn work(store: &str) -> Result<(), Box<dyn Error>> {
    let engine = engine(store)?.start().await?;
    println!("ready");
    // Until its parent lets go of it.
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

fn start(store: &str) -> Result<(Child, BufReader<ChildStdout>), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg(store).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("its output is piped")?);
    out.read_line(&mut String::new())?;
    Ok((child, out))
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(store) = std::env::args().nth(1) {
        return work(&store).await;
    }
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let client = engine(&store)?.connect().await?;
    let mut workers = Vec::new();
    for _ in NAMES {
        workers.push(start(&store)?);
    }
    let began = now();
    let runs = client.submit_many("photo", 0..PHOTOS).await?;
    println!("{PHOTOS} photos, each to be fetched and resized, by 3 processes with 2 slots each");

    let (killed, heard) = &mut workers[1];
    for _ in heard.lines().take(BEGUN_BEFORE) {}
    // Before it is: somebody may notice while this process still waits to hear that it is gone.
    let died = now();
    killed.kill()?;
    killed.wait()?;
    for run in &runs {
        assert_eq!(run.wait().await?.outcome(), Some(RunOutcome::Succeeded));
    }

    // Each task has returned the process it ran in, and each record names its worker.
    let records = client.store().records(None, 0, u32::MAX).await?;
    let names = names(&client, &records, &workers).await?;
    let story = Story { began, died, names: &names, records: &records };
    story.lanes();
    story.takeovers();
    story.check()?;
    let findings = client.audit().await?;
    assert!(findings.is_empty(), "{findings:?}");
    println!("\nEach of the {} tasks has ended once, and the audit is clean.", 2 * PHOTOS);
    for (mut worker, _) in workers {
        drop(worker.stdin.take());
        worker.wait()?;
    }
    client.shutdown(Duration::ZERO).await;
    Ok(())
}

/// The names of the workers.
async fn names(
    client: &Engine,
    records: &[Record],
    workers: &[(Child, BufReader<ChildStdout>)],
) -> Result<HashMap<WorkerId, char>, Box<dyn Error>> {
    let mut names = HashMap::new();
    for record in records.iter().filter(|record| record.what == Happened::Succeeded) {
        let worker = record.worker.ok_or("somebody has done it")?;
        if names.contains_key(&worker) {
            continue;
        }
        let task = TASKS[record.task.as_usize()];
        let process: u32 = client.run(record.run_id).await?.output(task).await?;
        let at = workers.iter().position(|(child, _)| child.id() == process);
        names.insert(worker, NAMES[at.ok_or("it was done by one of these")?]);
    }
    Ok(names)
}

/// What the records tell.
struct Story<'a> {
    began: Timestamp,
    died: Timestamp,
    names: &'a HashMap<WorkerId, char>,
    records: &'a [Record],
}

impl Story<'_> {
    fn name(&self, record: &Record) -> char {
        record.worker.and_then(|worker| self.names.get(&worker)).copied().unwrap_or('?')
    }

    fn ms(&self, at: Timestamp) -> u128 {
        at.since(self.began).as_millis()
    }

    /// How many tasks each had in hand, every so often.
    fn lanes(&self) {
        let last = self.records.iter().map(|record| self.ms(record.at)).max().unwrap_or(0);
        let step = (last / 64 + 1).max(25);
        println!("\ntasks in hand, every {step} ms (x: killed, after {} ms)", self.ms(self.died));
        for name in NAMES {
            let mut line = String::new();
            for at in (0..=last).step_by(usize::try_from(step).unwrap_or(25)) {
                let of_it = self.records.iter().filter(|record| self.name(record) == name);
                let in_hand = of_it.filter(|record| {
                    let begun = record.begun_at.map_or(u128::MAX, |begun| self.ms(begun));
                    begun <= at && at < self.ms(record.at)
                });
                let is_dead = name == NAMES[1] && at >= self.ms(self.died);
                line.push(match in_hand.count() {
                    _ if is_dead && at < self.ms(self.died) + step => 'x',
                    _ if is_dead => ' ',
                    0 => '.',
                    count => char::from_digit(count as u32, 36).unwrap_or('+'),
                });
            }
            println!("  {name} {}", line.trim_end());
        }
        for name in NAMES {
            let of_it = |record: &&Record| self.name(record) == name;
            let ended = self.records.iter().filter(of_it);
            let ended = ended.filter(|record| record.what == Happened::Succeeded).count();
            println!("  {name} has ended {ended} tasks");
        }
    }

    /// What the dead one had begun, and what became of it.
    fn takeovers(&self) {
        println!("\nwhat B had begun (times since the first submit)");
        println!("  photo task    B begins  B dies  taken over       goes on at   ends");
        let photos: BTreeMap<RunId, usize> = {
            let mut ids: Vec<RunId> = self.records.iter().map(|record| record.run_id).collect();
            ids.sort();
            ids.dedup();
            ids.into_iter().enumerate().map(|(at, id)| (id, at)).collect()
        };
        let mut taken_over: Vec<&Record> = self.recovered().collect();
        taken_over.sort_by_key(|record| record.begun_at);
        for record in taken_over {
            let begun = record.begun_at.map_or(0, |begun| self.ms(begun));
            let (died, taken) = (self.ms(self.died), self.ms(record.at));
            let Some(end) = self.end_of(record) else { continue };
            println!(
                "  {:>5} {:<7}{begun:>6} ms {died:>4} ms {taken:>5} ms (+{:>4}){:>7} {:>5} ms {:>5} ms",
                photos[&record.run_id],
                TASKS[record.task.as_usize()],
                taken.saturating_sub(died),
                self.name(end),
                end.begun_at.map_or(0, |begun| self.ms(begun)),
                self.ms(end.at),
            );
        }
    }

    fn recovered(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| record.what == Happened::Recovered)
    }

    /// How the task of a record has ended.
    fn end_of(&self, record: &Record) -> Option<&Record> {
        self.records.iter().find(|end| {
            (end.run_id, end.task) == (record.run_id, record.task)
                && end.what == Happened::Succeeded
        })
    }

    fn check(&self) -> Result<(), Box<dyn Error>> {
        let mut ends: HashMap<(RunId, usize), u32> = HashMap::new();
        for record in self.records.iter().filter(|record| record.what == Happened::Succeeded) {
            *ends.entry((record.run_id, record.task.as_usize())).or_default() += 1;
        }
        assert_eq!(ends.len(), 2 * PHOTOS as usize, "every task has ended");
        assert!(ends.values().all(|&ends| ends == 1), "each has ended once");
        let first = self.recovered().next().ok_or("B had something in hand when it died")?;
        for record in self.recovered() {
            assert_eq!(self.name(record), NAMES[1], "only B has died");
            let end = self.end_of(record).ok_or("what was taken over has ended")?;
            assert_ne!(self.name(end), NAMES[1], "somebody else has ended it");
            assert!(record.at >= self.died, "nobody is taken for dead who is not");
        }
        let mut after = self.records.iter().filter(|record| record.seq > first.seq);
        assert!(
            after.all(|it| self.name(it) != NAMES[1] || it.what == Happened::Recovered),
            "what is dead writes nothing"
        );
        Ok(())
    }
}
