//! Measures tidegate against references taken in the same run.
//!
//! `cargo run --release -p tidegate-bench` prints a table, then one JSON line per figure. Names
//! given as arguments (`p1 p5 p9`) pick figures; `p8` and `p10` measure the binary that `cargo build
//! --release -p tidegate-cli` makes; `p7` and its parts (`p7.life`, …) measure PostgreSQL and need the
//! feature `postgres`; `bare` alone prints the bare SQLite loops. `crash [KILLS] [--processes WORKERS]
//! [--postgres]` kills real workers again and again, `poison` runs a task that kills its own. `compare [REV] [FIGURE…] [--pairs N]` holds this tree against another revision, by way of
//! `sample`, the short form of the figures.

mod allocations;
mod bare;
mod commands;
mod compare;
mod cost;
mod crash;
mod deferred;
mod figure;
mod files;
mod grown;
mod parked;
#[cfg(feature = "postgres")]
mod postgres;
mod processes;
mod sample;
mod server;
mod slots;
mod store;
mod stream;
mod waiting;

use figure::Figure;

type Measure = fn() -> Vec<Figure>;

/// All figures but P7, by name.
const FIGURES: [(&str, Measure); 14] = [
    ("p1", slots::measure),
    ("p2", store::measure_lives),
    ("p3", store::measure_start),
    ("p4", store::measure_hops),
    ("p5", || [deferred::measure(), waiting::measure()].into_iter().flatten().collect()),
    ("p5f", files::measure),
    ("p6", grown::measure_growth),
    ("p8", commands::measure_many),
    ("p8m", commands::measure_memory),
    ("p9", stream::measure),
    ("p10", commands::measure_start),
    ("p11", processes::measure),
    ("p12", grown::measure_long),
    ("parked", parked::measure),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).map(|name| name.to_lowercase()).collect();
    let case = wanted.first().and_then(|name| name.strip_prefix("p5."));
    if let Some(case) = case.and_then(|case| case.parse().ok()) {
        return figure::hand_over(&deferred::case(case));
    }
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match wanted.first().map(String::as_str) {
        Some("compare") => return end(compare::command(&arguments), "compare"),
        Some("sample") => return end(sample::command(&arguments).map(|()| true), "sample"),
        Some("crash") => return crash::command(&arguments),
        Some("p5f.0") => return figure::hand_over(&files::case()),
        #[cfg(feature = "postgres")]
        Some("p7.worker") => return postgres::run_worker(&arguments),
        Some("p11.worker") => return processes::worker(&arguments),
        Some("p5s.0") => return figure::hand_over(&waiting::case(0)),
        Some("p5s.1") => return figure::hand_over(&waiting::case(1)),
        Some("poison") => return crash::poison(),
        Some("crash-worker") => return crash::worker(&arguments),
        _ => {}
    }
    if wanted == ["bare"] {
        return bare::show();
    }
    let is_on_postgres = |name: &String| sample::is_chosen(name, "p7");
    let (on_postgres, wanted): (Vec<String>, Vec<String>) =
        wanted.into_iter().partition(is_on_postgres);
    if let Some(unknown) = wanted.iter().find(|name| FIGURES.iter().all(|(known, _)| known != name))
    {
        let known: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no figure \"{unknown}\"; there are: {}, p7", known.join(", "));
        std::process::exit(2);
    }
    let mut figures = Vec::new();
    for (name, measure) in FIGURES {
        // The long ones only when they are asked for.
        let is_long = matches!(name, "p8m" | "p12" | "parked");
        let is_meant = wanted.is_empty() && on_postgres.is_empty() && !is_long;
        if is_meant || wanted.iter().any(|wanted| wanted == name) {
            eprintln!("measuring {name} …");
            figures.extend(measure());
        }
    }
    if !on_postgres.is_empty() {
        match measure_postgres(&on_postgres) {
            Ok(measured) => figures.extend(measured),
            Err(error) => return end(Err(error), "measure"),
        }
    }
    figure::print(&figures);
}

/// P7, which needs a server, only when it is asked for.
#[cfg(feature = "postgres")]
fn measure_postgres(parts: &[String]) -> Result<Vec<Figure>, String> {
    postgres::measure_chosen(parts)
}

#[cfg(not(feature = "postgres"))]
fn measure_postgres(_: &[String]) -> Result<Vec<Figure>, String> {
    Err("P7 is on PostgreSQL: build with --features postgres".to_owned())
}

/// Ends with 0 when all is well, with 1 when it is not, and with 2 when `command` could not be done.
fn end(outcome: Result<bool, String>, command: &str) {
    match outcome {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("cannot {command}: {error}");
            std::process::exit(2);
        }
    }
}
