//! What `compare` prints, within 100 columns.

use super::programs::BenchPrograms;
use super::ratios::{AllocationRatio, ComparisonVerdict, FigureComparison, RatioSpread};
use super::{PAIRS, PAIRS_TO_DECIDE};

pub(super) fn print(programs: &BenchPrograms, comparisons: &[FigureComparison], pairs: usize) {
    println!("here: {}", programs.here.label);
    println!("base: {}", programs.base.label);
    println!("here / base, median (quartiles) of {pairs} pairs:");
    println!();
    rows(comparisons).iter().for_each(|row| println!("{row}"));
    println!();
    notes(comparisons, pairs).iter().for_each(|note| println!("{note}"));
}

fn rows(comparisons: &[FigureComparison]) -> Vec<String> {
    let row = |cells: [&str; 6]| {
        let [figure, rate, cpu, allocations, bytes, verdict] = cells;
        let cells =
            format!("{figure:<15} {rate:<17} {cpu:<17} {allocations:<17} {bytes:<17} {verdict}");
        cells.trim_end().to_owned()
    };
    let head = ["figure", "rate", "CPU per task", "allocations", "bytes allocated", "verdict"];
    let body = comparisons.iter().map(|figure| {
        let [rate, cpu] = [figure.rate, figure.cpu].map(spread_text);
        let [allocations, bytes] = [figure.allocations, figure.bytes].map(allocation_text);
        let verdict = match figure.verdict {
            ComparisonVerdict::NoWorse => "no worse",
            ComparisonVerdict::Worse => "WORSE",
            ComparisonVerdict::Undecided => "undecided",
        };
        row([figure.figure, &rate, &cpu, &allocations, &bytes, verdict])
    });
    std::iter::once(row(head)).chain(body).collect()
}

/// What the reader has to do about the verdicts.
fn notes(comparisons: &[FigureComparison], pairs: usize) -> Vec<String> {
    let names = |verdict| {
        let chosen = comparisons.iter().filter(|figure| figure.verdict == verdict);
        chosen.map(|figure| figure.figure).collect::<Vec<_>>().join(" ")
    };
    let mut notes = Vec::new();
    let undecided = names(ComparisonVerdict::Undecided);
    if !undecided.is_empty() {
        notes.push(format!(
            "Rate and CPU disagree; {PAIRS_TO_DECIDE} pairs are needed: `{undecided} --pairs \
             {PAIRS_TO_DECIDE}` has the final word."
        ));
    }
    let worse = names(ComparisonVerdict::Worse);
    if !worse.is_empty() {
        notes.push(format!("Worse: {worse}."));
    }
    if undecided.is_empty() && worse.is_empty() {
        notes.push("No figure is worse.".to_owned());
    }
    if pairs < PAIRS {
        notes.push(format!("A verdict needs at least {PAIRS} pairs; these are {pairs}."));
    }
    notes
}

fn spread_text(spread: RatioSpread) -> String {
    let [median, lower, upper] =
        [spread.median, spread.lower_quartile, spread.upper_quartile].map(ratio_text);
    format!("{median} ({lower}–{upper})")
}

fn ratio_text(ratio: f64) -> String {
    // 9.995 would be written with five characters.
    if ratio < 9.995 { format!("{ratio:.2}") } else { format!("{:.0}", ratio.min(9_999.0)) }
}

fn allocation_text(ratio: AllocationRatio) -> String {
    match ratio {
        AllocationRatio::Uncounted => "–".to_owned(),
        AllocationRatio::Nothing => "none".to_owned(),
        AllocationRatio::Spread(spread) => spread_text(spread),
    }
}

/// A rate in few characters.
pub(super) fn short(rate: f64) -> String {
    match rate {
        1e6.. => format!("{:.1} M", rate / 1e6),
        1e4.. => format!("{:.1} k", rate / 1e3),
        100.0.. => format!("{rate:.0}"),
        _ => format!("{rate:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;

    fn compared(figure: &'static str, seconds: f64, cpu_seconds: f64) -> FigureComparison {
        let cost = |seconds, cpu_seconds, allocations| Cost {
            tasks: 1,
            seconds,
            cpu_seconds,
            allocations,
            allocated_bytes: Some(3),
        };
        let costs = [cost(seconds, cpu_seconds, None), cost(1.0, 1.0, Some(1))];
        FigureComparison::new(figure, &[costs; 11])
    }

    #[test]
    fn row_holds_medians_with_their_quartiles_and_the_verdict() {
        let [head, row] = rows(&[compared("p1.uncontended", 0.8, 1.0)]).try_into().expect("two");
        assert!(head.starts_with("figure ") && head.ends_with(" verdict"), "{head}");
        assert_eq!(
            row,
            "p1.uncontended  1.25 (1.25–1.25)  1.00 (1.00–1.00)  –                 1.00 (1.00–1.00)  \
             no worse"
        );
    }

    #[test]
    fn rows_and_notes_fit_on_a_terminal_of_100_columns() {
        // The longest of everything: a factor of thousands, and no verdict.
        let long = compared("p1.uncontended", 1e-9, 1e9);
        let rows = rows(&[long, compared("p11.beside", 2.0, 2.0)]);
        for line in &rows {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(rows[1].ends_with("undecided") && rows[2].ends_with("WORSE"), "{rows:?}");
    }

    #[test]
    fn notes_name_the_figures_and_how_many_pairs_they_need() {
        let undecided = compared("p3", 1.0, 2.0);
        let worse = compared("p4", 2.0, 2.0);
        assert_eq!(notes(&[], 11), ["No figure is worse."]);
        let said = notes(&[undecided, worse], 10);
        assert!(said[0].contains("`p3 --pairs 31`"), "{said:?}");
        assert_eq!(said[1], "Worse: p4.");
        assert!(said[2].contains("at least 11"), "{said:?}");
    }
}
