//! `sample`: the short form of the figures, one JSON line for each part.
//!
//! # The protocol
//!
//! `compare` runs the program of another revision, so these lines are a contract between revisions:
//!
//! - `sample --list` prints the names of all parts, one per line. `p2` chooses every part `p2.…`.
//! - `sample NAME…` measures each chosen part once and prints one line of JSON for it, with
//!   `figure` (its name), `tasks`, `seconds`, `cpu_seconds`, `allocations` and `allocated_bytes`.
//!   The rate of a part is `tasks / seconds`; a latency gives `seconds` as its median times `tasks`.
//!   `allocations` and `allocated_bytes` are `null` where child processes do the work.
//! - The exit code is 0, and nothing else is printed to stdout.
//!
//! Later revisions keep this: they may add parts and add members to the object, which readers ignore;
//! the meaning and the size of a part stay, or it gets another name. A revision that cannot run a part
//! does not list it. `--scale` is not part of the contract.

use crate::cost::Cost;
use crate::{allocations, commands, deferred, grown, processes, slots, store, stream, waiting};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A part of a figure with a number of its own.
pub(crate) struct FigurePart {
    pub(crate) name: &'static str,
    measure: fn(Scale) -> Cost,
    /// Whether it measures the binary `tidegate` beside this program.
    pub(crate) runs_command_line: bool,
}

const fn part(name: &'static str, measure: fn(Scale) -> Cost) -> FigurePart {
    FigurePart { name, measure, runs_command_line: false }
}

const fn command_part(name: &'static str, measure: fn(Scale) -> Cost) -> FigurePart {
    FigurePart { name, measure, runs_command_line: true }
}

/// The short form. All of it in at most two minutes on two idle cores, so that eleven pairs take no
/// longer than 45 minutes.
pub(crate) const PARTS: [FigurePart; 18] = [
    part("p1.uncontended", slots::sample_uncontended),
    part("p1.alike", slots::sample_alike),
    part("p1.mixed", slots::sample_mixed),
    part("p2.1024", store::sample_lives_at_once),
    part("p2.64", store::sample_lives_in_line),
    part("p3", store::sample_start),
    part("p4", store::sample_hops),
    part("p5.plain", deferred::sample_woken),
    part("p5.store", waiting::sample_woken),
    part("p6", grown::sample_growth),
    command_part("p8", commands::sample_many),
    part("p9.threads", stream::sample_threads),
    part("p9.alone", stream::sample_alone),
    command_part("p10.cold", commands::sample_cold_start),
    command_part("p10.warm", commands::sample_warm_start),
    part("p11.one", processes::sample_one),
    part("p11.two", processes::sample_two),
    part("p11.beside", processes::sample_beside),
];

/// How much of the short form is done: all of it, except in tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale(f64);

impl Scale {
    /// A number of tasks, at least one.
    pub(crate) fn of(self, tasks: usize) -> usize {
        ((tasks as f64 * self.0) as usize).max(1)
    }

    /// A time in which tasks are counted.
    pub(crate) fn of_time(self, time: Duration) -> Duration {
        time.mul_f64(self.0)
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|scale| (f64::MIN_POSITIVE..=1.0).contains(scale)).map(Scale)
    }
}

/// One line of the protocol.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampleLine {
    pub(crate) figure: String,
    #[serde(flatten)]
    pub(crate) cost: Cost,
}

impl SampleLine {
    /// The cost of `figure`, from all that a program printed for it.
    pub(crate) fn parse(printed: &str, figure: &str) -> Result<Cost, String> {
        let line: SampleLine = serde_json::from_str(printed)
            .map_err(|error| format!("{error} in its answer {:?}", printed.trim_end()))?;
        let cost = line.cost;
        if line.figure != figure {
            return Err(format!("it has measured {:?}", line.figure));
        }
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        if cost.tasks == 0 || !is_positive(cost.seconds) || !is_positive(cost.cpu_seconds) {
            return Err(format!("it has measured nothing: {}", printed.trim_end()));
        }
        Ok(cost)
    }
}

/// Whether `chosen` names the part or the figure it belongs to.
pub(crate) fn is_chosen(part: &str, chosen: &str) -> bool {
    part == chosen || part.strip_prefix(chosen).is_some_and(|rest| rest.starts_with('.'))
}

/// The parts that `chosen` names, in their own order; all of them when it is empty.
pub(crate) fn choose_parts(chosen: &[String]) -> Result<Vec<&'static FigurePart>, String> {
    let is_known = |name: &String| PARTS.iter().any(|part| is_chosen(part.name, name));
    if let Some(unknown) = chosen.iter().find(|name| !is_known(name)) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        let known = known.join(", ");
        return Err(format!("there is no figure \"{unknown}\" in short; there are: {known}"));
    }
    let is_wanted = |part: &&FigurePart| {
        chosen.is_empty() || chosen.iter().any(|name| is_chosen(part.name, name))
    };
    Ok(PARTS.iter().filter(is_wanted).collect())
}

/// `sample (--list | [NAME…] [--scale FRACTION])`.
pub(crate) fn command(arguments: &[String]) -> Result<(), String> {
    let mut scale = Scale(1.0);
    let mut chosen = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => {
                PARTS.iter().for_each(|part| println!("{}", part.name));
                return Ok(());
            }
            "--scale" => {
                let given = arguments.next().and_then(|text| Scale::parse(text));
                scale = given.ok_or("--scale takes a number above 0 and up to 1")?;
            }
            _ => chosen.push(argument.to_lowercase()),
        }
    }
    let parts = choose_parts(&chosen)?;
    allocations::start_counting();
    for part in parts {
        let line = SampleLine { figure: part.name.to_owned(), cost: (part.measure)(scale) };
        println!("{}", serde_json::to_string(&line).expect("it is plain data"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<&'static str>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(choose_parts(&names)?.iter().map(|part| part.name).collect())
    }

    #[test]
    fn figure_chooses_its_parts_and_no_figure_chooses_all() {
        assert_eq!(chosen(&["p2", "p1.mixed"]), Ok(vec!["p1.mixed", "p2.1024", "p2.64"]));
        assert_eq!(chosen(&["p1"]).map(|parts| parts.len()), Ok(3));
        assert_eq!(chosen(&[]).map(|parts| parts.len()), Ok(PARTS.len()));
        assert!(chosen(&["p7"]).is_err_and(|error| error.contains("\"p7\"")));
    }

    #[test]
    fn sample_line_is_read_as_it_is_written_and_unknown_members_are_ignored() {
        let printed = r#"{"figure":"p3","tasks":2,"seconds":1.0,"cpu_seconds":0.5,"allocations":7,
            "allocated_bytes":null,"instructions":1}"#;
        let cost = SampleLine::parse(printed, "p3").expect("it is a line");
        assert_eq!((cost.tasks, cost.allocations, cost.allocated_bytes), (2, Some(7), None));
        let line = SampleLine { figure: "p3".into(), cost };
        let written = serde_json::to_string(&line).expect("it is plain data");
        assert_eq!(SampleLine::parse(&written, "p3"), Ok(cost));
    }

    #[test]
    fn answer_that_measures_nothing_or_another_figure_is_refused() {
        let line = |tasks: u32, seconds: &str| {
            let cost = format!(r#""seconds":{seconds},"cpu_seconds":1.0,"allocations":null"#);
            format!(r#"{{"figure":"p3","tasks":{tasks},{cost},"allocated_bytes":null}}"#)
        };
        assert!(SampleLine::parse(&line(1, "1.0"), "p3").is_ok());
        for wrong in [line(0, "1.0"), line(1, "0.0"), "12 tasks".into(), line(1, "1.0") + "{}"] {
            assert!(SampleLine::parse(&wrong, "p3").is_err(), "{wrong}");
        }
        assert!(SampleLine::parse(&line(1, "1.0"), "p4").is_err_and(|why| why.contains("p3")));
    }

    #[test]
    fn scale_is_a_fraction_and_leaves_at_least_one_task() {
        assert_eq!(Scale::parse("0.5").map(|scale| scale.of(10)), Some(5));
        assert_eq!(Scale::parse("0.0001").map(|scale| scale.of(10)), Some(1));
        for wrong in ["0", "-1", "2", "NaN", "some"] {
            assert_eq!(Scale::parse(wrong), None, "{wrong}");
        }
    }
}
