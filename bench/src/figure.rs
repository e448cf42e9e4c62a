//! A figure, its reference and its target; how they are printed; what the process uses.

use serde::{Deserialize, Serialize};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Something measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// The reference, measured in the same run, in the same unit.
    pub(crate) reference: Option<(String, f64)>,
    pub(crate) target: Target,
}

/// What a figure has to reach.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Target {
    /// The value is at most this.
    AtMost(f64),
    /// The value is at least this.
    AtLeast(f64),
    /// The value is at most so many times the reference.
    TimesReference(f64),
    /// The value is at least so many times the reference.
    AtLeastReference(f64),
    /// The value is at most so much above the reference.
    AboveReference(f64),
    /// There is none; the value is for reading.
    None,
}

impl Figure {
    fn ratio(&self) -> Option<f64> {
        self.reference.as_ref().map(|(_, reference)| self.value / reference)
    }

    fn verdict(&self) -> Option<bool> {
        let reference = self.reference.as_ref().map(|(_, reference)| reference);
        match self.target {
            Target::AtMost(most) => Some(self.value <= most),
            Target::AtLeast(least) => Some(self.value >= least),
            Target::TimesReference(most) => reference.map(|r| self.value <= r * most),
            Target::AtLeastReference(least) => reference.map(|r| self.value >= r * least),
            Target::AboveReference(most) => reference.map(|r| self.value <= r + most),
            Target::None => None,
        }
    }

    fn target_text(&self) -> String {
        match self.target {
            Target::AtMost(most) => format!("≤ {most} {}", self.unit),
            Target::AtLeast(least) => format!("≥ {least} {}", self.unit),
            Target::TimesReference(most) => format!("≤ {most}×"),
            Target::AtLeastReference(least) => format!("≥ {least}×"),
            Target::AboveReference(most) => format!("≤ +{most} {}", self.unit),
            Target::None => String::new(),
        }
    }

    fn json(&self) -> String {
        let line = serde_json::json!({
            "figure": self.name,
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "reference": self.reference.as_ref().map(|(_, value)| value),
            "ratio": self.ratio(),
            "target": self.target_text(),
            "reached": self.verdict(),
        });
        line.to_string()
    }
}

/// Measures in a child process, which prints its figures for its parent.
pub(crate) fn in_child(argument: &str) -> Vec<Figure> {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program).arg(argument).stderr(Stdio::inherit()).output();
    let output = output.expect("this program can be run again");
    assert!(output.status.success(), "{argument} failed");
    serde_json::from_slice(&output.stdout).expect("the child prints figures")
}

/// Prints figures for the parent process.
pub(crate) fn hand_over(figures: &[Figure]) {
    println!("{}", serde_json::to_string(figures).expect("figures are plain data"));
}

/// One table, then one JSON line per figure.
pub(crate) fn print(figures: &[Figure]) {
    let mut rows =
        vec![["", "what", "measured", "reference", "ratio", "target", ""].map(String::from)];
    for figure in figures {
        let reference = figure.reference.as_ref();
        let reference = reference.map(|(name, value)| format!("{name}: {}", short(*value)));
        rows.push([
            figure.name.clone(),
            figure.what.clone(),
            format!("{} {}", short(figure.value), figure.unit),
            reference.unwrap_or_default(),
            figure.ratio().map(|ratio| format!("{ratio:.2}×")).unwrap_or_default(),
            figure.target_text(),
            figure.verdict().map_or("", |reached| if reached { "ok" } else { "MISSED" }).to_owned(),
        ]);
    }
    let widths: Vec<usize> = (0..7)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    println!();
    figures.iter().for_each(|figure| println!("{}", figure.json()));
}

fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// The median of several rounds of two rivals, taken in turn so that both meet the same machine.
pub(crate) fn duel(
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> (f64, f64) {
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        them.push(theirs());
        us.push(ours());
    }
    (median(&mut us), median(&mut them))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds per operation.
pub(crate) fn per(elapsed: Duration, operations: usize) -> f64 {
    elapsed.as_nanos() as f64 / operations as f64
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * 4096.0
}

/// The processor time this process has used, in seconds.
pub(crate) fn processor_time() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// The part of one core that is used while `during` passes.
pub(crate) async fn load(during: Duration) -> f64 {
    let (began, before) = (Instant::now(), processor_time());
    tokio::time::sleep(during).await;
    (processor_time() - before) / began.elapsed().as_secs_f64() * 100.0
}
