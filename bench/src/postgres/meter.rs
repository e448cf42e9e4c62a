//! Readings: the rate, and the processor time per task of the server and of its client.

use super::MeasuredServer;
use super::schema::connect;
use crate::cost::{Cost, CostMeter};
use crate::figure::{Figure, Target};
use crate::server::Server;
use crate::store;
use std::fs;

/// Rounds of two sides in turn, unless `TIDEGATE_P7_ROUNDS` says otherwise.
const ROUNDS: usize = 5;

/// Ticks in a second of the times in `/proc`: the same on every Linux that PostgreSQL runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// One measurement, or the middle of several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Tasks per second.
    pub(super) rate: f64,
    /// Microseconds of processor time per task, of all processes of the server. `NaN` if that runs on
    /// another machine.
    pub(super) server_cpu: f64,
    /// The same of the process, or the processes, that use it.
    pub(super) client_cpu: f64,
}

impl Reading {
    /// The reading of a client's cost and of the seconds of processor time that the server used.
    pub(super) fn new(cost: Cost, server_seconds: f64) -> Self {
        Reading {
            rate: cost.rate(),
            server_cpu: server_seconds * 1e6 / cost.tasks as f64,
            client_cpu: cost.cpu_per_task() * 1e6,
        }
    }

    /// The median of each number by itself.
    fn median_of(readings: &[Reading]) -> Self {
        let median = |number: fn(&Reading) -> f64| {
            let mut numbers: Vec<f64> = readings.iter().map(number).collect();
            numbers.sort_by(f64::total_cmp);
            numbers[numbers.len() / 2]
        };
        Reading {
            rate: median(|reading| reading.rate),
            server_cpu: median(|reading| reading.server_cpu),
            client_cpu: median(|reading| reading.client_cpu),
        }
    }

    fn describe(&self) -> String {
        let Reading { rate, server_cpu, client_cpu } = self;
        format!("{rate:.0}/s (server {server_cpu:.1} µs, client {client_cpu:.1} µs)")
    }
}

/// How many rounds there are.
pub(super) fn round_count() -> usize {
    let rounds = std::env::var("TIDEGATE_P7_ROUNDS").ok();
    rounds.and_then(|rounds| rounds.parse().ok()).filter(|&rounds| rounds > 0).unwrap_or(ROUNDS)
}

/// The medians of several sides that alternate, each round in the opposite order of the last one, so
/// that a drift of the machine cancels.
pub(super) fn alternate<const SIDES: usize>(
    sides: [(&str, &mut dyn FnMut() -> Reading); SIDES],
) -> [Reading; SIDES] {
    let mut sides = sides;
    let mut readings: [Vec<Reading>; SIDES] = std::array::from_fn(|_| Vec::new());
    let rounds = round_count();
    for round in 0..rounds {
        for step in 0..SIDES {
            let at = if round.is_multiple_of(2) { step } else { SIDES - 1 - step };
            let (name, measure) = &mut sides[at];
            let reading = measure();
            eprintln!("  round {} of {rounds}, {name}: {}", round + 1, reading.describe());
            readings[at].push(reading);
        }
        let [first, rest @ ..] = &readings[..] else { continue };
        for (others, (name, _)) in rest.iter().zip(&sides[1..]) {
            let ratio = first[round].rate / others[round].rate;
            eprintln!("  round {} of {rounds}: {ratio:.2} × {name}", round + 1);
        }
    }
    readings.map(|readings| Reading::median_of(&readings))
}

/// The rate of a reading beside its reference, which the target is for, and the processor times of both.
pub(super) fn compared(
    what: &str,
    ours: Reading,
    (name, theirs): (&str, Reading),
    target: Target,
) -> Vec<Figure> {
    let figure = |what: String, unit: &str, ours: f64, theirs: f64, target| Figure {
        name: "P7".into(),
        what,
        value: ours,
        unit: unit.into(),
        reference: Some((name.to_owned(), theirs)),
        target,
    };
    let cpu = |side: &str, ours, theirs| {
        figure(format!("– {side} processor time per task"), "µs", ours, theirs, Target::None)
    };
    vec![
        figure(what.to_owned(), "/s", ours.rate, theirs.rate, target),
        cpu("server's", ours.server_cpu, theirs.server_cpu),
        cpu("client's", ours.client_cpu, theirs.client_cpu),
    ]
}

/// A figure that stands by itself.
pub(super) fn alone(what: String, value: f64, unit: &str, target: Target) -> Figure {
    Figure { name: "P7".into(), what, value, unit: unit.into(), reference: None, target }
}

/// The processor time of a server on this machine.
pub(super) struct ServerMeter {
    /// The process that all others of the server are children of.
    postmaster: Option<u32>,
}

impl ServerMeter {
    pub(super) fn of_server(server: &Server) -> Self {
        let backend: i32 = store::runtime().block_on(async {
            let client = connect(server.url()).await;
            let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
            row.expect("a server knows its process").get(0)
        });
        // A server on another machine may have the number of any process here.
        let stat = u32::try_from(backend).ok().and_then(read_stat);
        let postmaster = stat.filter(|stat| stat.is_postgres).map(|stat| stat.parent);
        if postmaster.is_none() {
            eprintln!("the server runs on another machine: its processor time is not measured");
        }
        ServerMeter { postmaster }
    }

    /// Seconds of processor time that all processes of the server have used so far.
    pub(super) fn read_seconds(&self) -> f64 {
        let Some(postmaster) = self.postmaster else { return f64::NAN };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let ticks = numbers.filter_map(|number: u32| {
            let stat = read_stat(number)?;
            match number == postmaster {
                // Of its children that have ended as well.
                true => Some(stat.own_ticks + stat.children_ticks),
                false => (stat.parent == postmaster).then_some(stat.own_ticks),
            }
        });
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }
}

/// A part of `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct ProcessStat {
    is_postgres: bool,
    parent: u32,
    own_ticks: f64,
    children_ticks: f64,
}

fn read_stat(process: u32) -> Option<ProcessStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<ProcessStat> {
    // The name stands in parentheses and may contain some.
    let (name, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(ProcessStat {
        is_postgres: name.ends_with("(postgres"),
        parent: fields.get(1)?.parse().ok()?,
        own_ticks: ticks(11)? + ticks(12)?,
        children_ticks: ticks(13)? + ticks(14)?,
    })
}

/// Measures this process and the server from its start.
pub(super) struct BothMeter<'server> {
    server: &'server MeasuredServer,
    server_seconds: f64,
    cost: CostMeter,
}

impl<'server> BothMeter<'server> {
    pub(super) fn start(server: &'server MeasuredServer) -> Self {
        let server_seconds = server.meter.read_seconds();
        BothMeter { server, server_seconds, cost: CostMeter::start() }
    }

    pub(super) fn read(&self, tasks: usize) -> Reading {
        let cost = self.cost.read(tasks as u64);
        Reading::new(cost, self.server.meter.read_seconds() - self.server_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_process_is_read_behind_its_name() {
        let line = "77 (postgres) S 12 77 77 0 -1 4194560 1 2 3 4 100 20 7 5 20 0 1 0 99";
        let stat =
            ProcessStat { is_postgres: true, parent: 12, own_ticks: 120.0, children_ticks: 12.0 };
        assert_eq!(parse_stat(line), Some(stat));
        let odd = parse_stat("78 (a) S 1) (b) R 13 1 1 0 -1 4 1 2 3 4 1 1 1 1 20 0");
        assert!(odd.is_some_and(|stat| stat.parent == 13 && !stat.is_postgres));
        assert_eq!(parse_stat("79 (postgres) S"), None);
    }

    #[test]
    fn medians_are_taken_of_each_number_by_itself() {
        let reading = |rate, server_cpu| Reading { rate, server_cpu, client_cpu: 1.0 };
        let median = Reading::median_of(&[reading(1.0, 9.0), reading(3.0, 7.0), reading(2.0, 8.0)]);
        assert_eq!((median.rate, median.server_cpu), (2.0, 8.0));
    }
}
