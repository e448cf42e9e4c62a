//! P8 and P10: the command line, against others that run commands, and from nothing to the end of one.
//!
//! The binary is the one beside this program: `cargo build --release -p tidegate-cli` makes it. Every
//! call has a folder of its own, with a store that is made for it.

use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target, duel};
use crate::sample::Scale;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Inputs of P8.
const INPUTS: u32 = 1_000;

const ROUNDS: usize = 7;

/// Calls of P10.
const CALLS: usize = 50;

/// Lines of the trial of memory, and how many go to one command.
const LINES: u32 = 10_000_000;
const TOGETHER: u32 = 5_000;

fn binary() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    let binary = here.with_file_name("tidegate");
    assert!(
        binary.exists(),
        "there is no {}: cargo build --release -p tidegate-cli",
        binary.display()
    );
    binary
}

/// A folder in which the store of a call is made.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join(".tidegate")).expect("a folder can be made");
    folder
}

/// What a command takes for the lines of a file.
fn timed(program: &Path, arguments: &[&str], folder: &Path, lines: &Path) -> Cost {
    let lines = fs::File::open(lines).expect("it was just written");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(lines);
    let meter = CostMeter::of_children();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let cost = meter.read(1);
    assert!(status.is_ok_and(|status| status.success()), "{} failed", program.display());
    cost
}

/// Writes a file of `count` lines.
fn write_lines(folder: &Path, count: usize) -> PathBuf {
    let lines = folder.join("lines");
    let text: String = (0..count).map(|number| format!("{number}\n")).collect();
    fs::write(&lines, text).expect("it can be written");
    lines
}

/// `p8` in short.
pub(crate) fn sample_many(scale: Scale) -> Cost {
    let (binary, place, count) = (binary(), folder(), scale.of(2 * INPUTS as usize));
    let lines = write_lines(place.path(), count);
    let cost = timed(&binary, &["each", "-j2", "true"], place.path(), &lines);
    Cost { tasks: count as u64, ..cost }
}

/// `p10.cold` in short.
pub(crate) fn sample_cold_start(scale: Scale) -> Cost {
    sum_of_calls((0..scale.of(CALLS)).map(|_| run_twice(&binary())[0]))
}

/// `p10.warm` in short.
pub(crate) fn sample_warm_start(scale: Scale) -> Cost {
    sum_of_calls((0..scale.of(CALLS)).map(|_| run_twice(&binary())[1]))
}

/// All calls together, with the median of their times.
fn sum_of_calls(calls: impl Iterator<Item = Cost>) -> Cost {
    let calls: Vec<Cost> = calls.collect();
    let times = calls.iter().map(|call| Duration::from_secs_f64(call.seconds)).collect();
    let sum = calls.into_iter().reduce(Cost::plus).expect("there is a call");
    sum.with_median(times)
}

/// `tidegate run` of one `true` in a new folder: the store is made for it, then it is there.
fn run_twice(binary: &Path) -> [Cost; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, "[tasks.one]\nrun = [\"true\"]\n").expect("it can be written");
    [(); 2].map(|()| timed(binary, &["run"], folder.path(), &file))
}

/// Many small commands.
pub(crate) fn measure_many() -> Vec<Figure> {
    let (binary, place) = (binary(), folder());
    let lines = write_lines(place.path(), INPUTS as usize);
    let milliseconds = |program: &Path, arguments: &[&str], folder: &Path| {
        timed(program, arguments, folder, &lines).seconds * 1e3
    };
    let ours = || milliseconds(&binary, &["each", "-j2", "true"], folder().path());
    let others: [(&str, &[&str]); 2] =
        [("xargs", &["-P2", "-n1", "true"]), ("parallel", &["-j2", "true"])];
    let mut figures = Vec::new();
    for (name, arguments) in others {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).status();
        if found.is_err() {
            eprintln!("there is no {name} here to be measured against");
            continue;
        }
        let theirs = || milliseconds(Path::new(name), arguments, place.path());
        let (ours, theirs) = duel(ROUNDS, ours, theirs);
        figures.push(Figure {
            name: "P8".into(),
            what: format!("tidegate each -j2, {INPUTS} × true, with a store"),
            value: ours,
            unit: "ms".into(),
            reference: Some((format!("{name} {}", arguments[0]), theirs)),
            target: if name == "xargs" { Target::TimesReference(1.5) } else { Target::None },
        });
    }
    figures
}

/// One command, from nothing: the store is made for it.
pub(crate) fn measure_start() -> Vec<Figure> {
    let binary = binary();
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        let [first, second] = run_twice(&binary).map(|call| call.seconds * 1e3);
        cold.push(first);
        warm.push(second);
    }
    let figure = |what: &str, mut values: Vec<f64>, target| {
        values.sort_by(f64::total_cmp);
        Figure {
            name: "P10".into(),
            what: format!("tidegate run of one true, {what}, p50 of {CALLS}"),
            value: values[values.len() / 2],
            unit: "ms".into(),
            reference: None,
            target,
        }
    };
    vec![
        figure("its store made for it", cold, Target::AtMost(50.0)),
        figure("its store there", warm, Target::None),
    ]
}

/// Ten million inputs: what they take of memory.
pub(crate) fn measure_memory() -> Vec<Figure> {
    let folder = folder();
    let together = TOGETHER.to_string();
    let mut command = Command::new(binary());
    command.args(["each", "-j2", "-n", &together, "true"]).current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it can be run");
    let mut input = child.stdin.take().expect("it has an input");
    let half = Arc::new(AtomicBool::new(false));
    let is_half = half.clone();
    let writer = std::thread::spawn(move || {
        for thousand in 0..LINES / 1_000 {
            is_half.store(thousand > LINES / 2_000, Ordering::Relaxed);
            let numbers = thousand * 1_000..(thousand + 1) * 1_000;
            let text: String = numbers.map(|number| format!("{number}\n")).collect();
            input.write_all(text.as_bytes()).expect("it is read to its end");
        }
    });
    let began = Instant::now();
    let (at_half, peak) = peak(&mut child, &half);
    let took = began.elapsed();
    writer.join().expect("everything was written");
    let figure = |what: &str, value, unit: &str, reference, target| Figure {
        name: "P8".into(),
        what: format!("tidegate each -n {TOGETHER}, {LINES} lines: {what}"),
        value,
        unit: unit.into(),
        reference,
        target,
    };
    let reference = Some(("half-way".into(), at_half / 1e6));
    vec![
        figure("memory at most", peak / 1e6, "MB", reference, Target::TimesReference(1.1)),
        figure("time", took.as_secs_f64(), "s", None, Target::None),
    ]
}

/// The most memory a process has had at once, in bytes: until half of its input was written, and until
/// it has ended.
fn peak(child: &mut Child, half: &AtomicBool) -> (f64, f64) {
    let status = format!("/proc/{}/status", child.id());
    let (mut at_half, mut peak) = (0.0, 0.0_f64);
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0.0) * 1_024.0);
        if !half.load(Ordering::Relaxed) {
            at_half = peak;
        }
        if let Some(status) = child.try_wait().expect("it is our child") {
            assert!(status.success(), "it failed");
            return (at_half, peak);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
