//! Runs the seeded simulation: one seed with its trace, or many with what happened in them.
//!
//! ```text
//! cargo run --release -p tidegate-testkit --example simulate -- --seeds 100000 [--from N]
//! cargo run --release -p tidegate-testkit --example simulate -- --seed N
//! ```
//!
//! `--steps N` sets the steps with faults, `--failures N` how many failing seeds are looked for,
//! `--brief` prints them without their traces.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_testkit::simulation::{self, Failure, Options, Summary};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|argument| argument == name)?;
        let text = arguments.get(at + 1).unwrap_or_else(|| usage());
        Some(text.parse().unwrap_or_else(|_| usage()))
    };
    let mut options = Options::default();
    if let Some(steps) = value("--steps") {
        options.steps = u32::try_from(steps).unwrap_or_else(|_| usage());
    }
    if let Some(seed) = value("--seed") {
        return one(seed, Options { keeps_trace: true, ..options });
    }
    let (from, seeds) = (value("--from").unwrap_or(0), value("--seeds").unwrap_or(10_000));
    let wanted = value("--failures").unwrap_or(1);
    let is_brief = arguments.iter().any(|argument| argument == "--brief");
    // A panic inside a world is a finding like any other, and is printed as one.
    std::panic::set_hook(Box::new(|_| {}));
    many(from, seeds, wanted as usize, is_brief, options)
}

fn usage() -> ! {
    eprintln!("simulate [--seeds N] [--from N] [--steps N] [--failures N] [--brief] | --seed N");
    std::process::exit(2)
}

fn one(seed: u64, options: Options) -> ExitCode {
    match simulation::run(seed, options) {
        Ok(summary) => {
            summary.trace.iter().for_each(|line| println!("{line}"));
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, seeds: u64, wanted: usize, is_brief: bool, options: Options) -> ExitCode {
    let next = AtomicU64::new(from);
    let total = Mutex::new((Summary::default(), Vec::<Box<Failure>>::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from.saturating_add(seeds) {
                return;
            }
            let ran = simulation::run(seed, options);
            let mut total = total.lock().expect("nobody panics with it");
            match ran {
                Ok(summary) => total.0.add(&summary),
                Err(failure) => total.1.push(failure),
            }
            if total.1.len() >= wanted {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (summary, failures) = total.into_inner().expect("nobody panics with it");
    for failure in &failures {
        match is_brief {
            true => println!("seed {}: {}", failure.seed, failure.what),
            false => println!("{failure}\n"),
        }
    }
    println!("{summary}");
    if failures.is_empty() {
        println!("{:>12}  seeds from {from} on, and nothing was violated", seeds);
        return ExitCode::SUCCESS;
    }
    println!("{:>12}  seeds failed", failures.len());
    ExitCode::FAILURE
}
