//! `compare [REV] [FIGURE…] [--pairs N]`: this tree against another revision, figure by figure.
//!
//! Both are built in release ([`programs`]), and each side runs its own program with `sample`, whose
//! lines the two have to agree on. A pair is one sample of each side, one right after the other; the
//! order is turned round with every pair, so that a machine that gets slower or faster hurts neither.
//! [`ratios`] makes of the pairs what [`table`] prints.
//!
//! Without REV it is the revision that `bench/BASELINE` names, and without FIGURE every part of the
//! short form. The exit code is 0 when every figure is no worse, 1 when one is worse or undecided, and
//! 2 when nothing could be compared.

mod programs;
mod ratios;
mod table;

use crate::cost::Cost;
use crate::sample::{self, FigurePart};
use programs::{BenchProgram, BenchPrograms};
use ratios::{ComparisonVerdict, FigureComparison, PAIRS, PAIRS_TO_DECIDE};
use std::time::Instant;

const USAGE: &str = "usage: compare [REV] [FIGURE…] [--pairs N]";

/// What is to be compared.
#[derive(Debug, PartialEq)]
struct CompareOptions {
    revision: Option<String>,
    figures: Vec<String>,
    pairs: usize,
}

impl CompareOptions {
    /// A first word that is a figure is no revision; `refs/heads/p2` is a branch of that name.
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = CompareOptions { revision: None, figures: Vec::new(), pairs: PAIRS };
        let mut is_first = true;
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--pairs" {
                let pairs = arguments.next().and_then(|number| number.parse().ok());
                options.pairs = pairs
                    .filter(|pairs| *pairs > 0)
                    .ok_or(format!("--pairs takes a number of at least 1; {USAGE}"))?;
                continue;
            }
            if argument.starts_with('-') {
                return Err(format!("there is no option \"{argument}\"; {USAGE}"));
            }
            let figure = argument.to_lowercase();
            if is_first && sample::choose_parts(std::slice::from_ref(&figure)).is_err() {
                options.revision = Some(argument.clone());
            } else {
                options.figures.push(figure);
            }
            is_first = false;
        }
        Ok(options)
    }
}

/// Compares, prints, and says whether every figure is no worse.
pub(crate) fn command(arguments: &[String]) -> Result<bool, String> {
    let options = CompareOptions::parse(arguments)?;
    let parts = sample::choose_parts(&options.figures)?;
    let with_command_line = parts.iter().any(|part| part.runs_command_line);
    let programs = BenchPrograms::build(options.revision.as_deref(), with_command_line)?;
    let known = programs.base.list_parts()?;
    let (parts, missing): (Vec<&FigurePart>, Vec<&FigurePart>) =
        parts.into_iter().partition(|part| known.iter().any(|name| name == part.name));
    if parts.is_empty() {
        return Err(format!("{} has none of these figures", programs.base.label));
    }
    let comparisons = take_pairs(&programs, &parts, options.pairs)?;
    table::print(&programs, &comparisons, options.pairs);
    for part in missing {
        println!("{} is not compared: {} does not have it", part.name, programs.base.label);
    }
    Ok(comparisons.iter().all(|figure| figure.verdict == ComparisonVerdict::NoWorse))
}

/// Which side is measured first in a pair: ABBA, so that a drift cancels.
fn is_here_first(pair: usize) -> bool {
    pair.is_multiple_of(2)
}

fn take_pairs(
    programs: &BenchPrograms,
    parts: &[&FigurePart],
    pairs: usize,
) -> Result<Vec<FigureComparison>, String> {
    let mut costs: Vec<Vec<[Cost; 2]>> = parts.iter().map(|_| Vec::new()).collect();
    let began = Instant::now();
    for pair in 0..pairs {
        for (part, costs) in parts.iter().zip(&mut costs) {
            let (here, base) = take_pair(programs, part, is_here_first(pair))?;
            let [ours, theirs] = [here, base].map(|cost| table::short(cost.rate()));
            let label = &programs.base.label;
            eprintln!("pair {} of {pairs}: {}: {ours}/s, {label} {theirs}/s", pair + 1, part.name);
            costs.push([here, base]);
        }
        let left = began.elapsed().div_f64((pair + 1) as f64).mul_f64((pairs - pair - 1) as f64);
        if !left.is_zero() {
            eprintln!("about {} min {} s to go", left.as_secs() / 60, left.as_secs() % 60);
        }
    }
    let compared = parts.iter().zip(costs);
    Ok(compared.map(|(part, costs)| FigureComparison::new(part.name, &costs)).collect())
}

fn take_pair(
    programs: &BenchPrograms,
    part: &FigurePart,
    here_first: bool,
) -> Result<(Cost, Cost), String> {
    let sample = |program: &BenchProgram| program.sample(part.name);
    if here_first {
        let here = sample(&programs.here)?;
        Ok((here, sample(&programs.base)?))
    } else {
        let base = sample(&programs.base)?;
        Ok((sample(&programs.here)?, base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<CompareOptions, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        CompareOptions::parse(&words)
    }

    fn options(revision: Option<&str>, figures: &[&str], pairs: usize) -> CompareOptions {
        let figures = figures.iter().map(|name| (*name).to_owned()).collect();
        CompareOptions { revision: revision.map(str::to_owned), figures, pairs }
    }

    #[test]
    fn sides_take_turns_in_being_first_so_that_drift_cancels() {
        // A machine that gets slower by one unit with every sample.
        let mut behind = [0, 0];
        for pair in 0..10 {
            let first = usize::from(!is_here_first(pair));
            behind[first] += 2 * pair;
            behind[1 - first] += 2 * pair + 1;
        }
        assert_eq!(behind[0], behind[1]);
        assert!(is_here_first(0) && !is_here_first(1));
    }

    #[test]
    fn revision_comes_first_and_may_be_left_out() {
        assert_eq!(parse(""), Ok(options(None, &[], 11)));
        assert_eq!(parse("HEAD~3"), Ok(options(Some("HEAD~3"), &[], 11)));
        assert_eq!(parse("p2 P1.mixed"), Ok(options(None, &["p2", "p1.mixed"], 11)));
        assert_eq!(parse("--pairs 31 main p2"), Ok(options(Some("main"), &["p2"], 31)));
        assert_eq!(parse("refs/heads/p2"), Ok(options(Some("refs/heads/p2"), &[], 11)));
    }

    #[test]
    fn bad_arguments_are_refused() {
        for wrong in ["--pairs", "--pairs 0", "--pairs some", "--rounds 3"] {
            assert!(parse(wrong).is_err_and(|error| error.contains("usage:")), "{wrong}");
        }
        let words = ["HEAD".to_owned(), "p99".to_owned()];
        assert!(command(&words).is_err_and(|error| error.contains("\"p99\"")));
    }
}
