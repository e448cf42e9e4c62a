//! Ratios of pairs, their median and spread, and the verdict.

use crate::cost::Cost;

/// Pairs a verdict needs.
pub(super) const PAIRS: usize = 11;

/// Pairs after which a rate and a processor time that disagree are judged.
pub(super) const PAIRS_TO_DECIDE: usize = 31;

/// The least part of the other's rate that is no worse.
pub(super) const LEAST_RATE: f64 = 0.95;

/// The most times the other's processor time per task that is no worse.
pub(super) const MOST_CPU: f64 = 1.05;

/// Fewer allocations and bytes than these per task are the harness's own.
const LEAST_ALLOCATIONS: f64 = 0.01;
const LEAST_BYTES: f64 = 1.0;

/// Where the middle half of several ratios lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RatioSpread {
    pub(super) lower_quartile: f64,
    pub(super) median: f64,
    pub(super) upper_quartile: f64,
}

impl RatioSpread {
    fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        let [lower_quartile, median, upper_quartile] =
            [0.25, 0.5, 0.75].map(|fraction| quantile(&ratios, fraction));
        RatioSpread { lower_quartile, median, upper_quartile }
    }
}

/// The value below which a fraction of the sorted ones lies; between two, in proportion.
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * fraction;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    // Also where both are infinite.
    if below == above { below } else { below + (above - below) * place.fract() }
}

/// How the allocations of two sides compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AllocationRatio {
    /// One of them did not count.
    Uncounted,
    /// Neither side allocates.
    Nothing,
    Spread(RatioSpread),
}

impl AllocationRatio {
    fn of(costs: &[[Cost; 2]], per_task: fn(&Cost) -> Option<f64>, least: f64) -> Self {
        let both = |[here, base]: &[Cost; 2]| Some([per_task(here)?, per_task(base)?]);
        let Some(pairs) = costs.iter().map(both).collect::<Option<Vec<_>>>() else {
            return AllocationRatio::Uncounted;
        };
        if pairs.iter().flatten().all(|each| *each < least) {
            return AllocationRatio::Nothing;
        }
        // A side without any is taken to have next to none, which is a large ratio and not infinite.
        let ratio = |[here, base]: [f64; 2]| here.max(least) / base.max(least);
        AllocationRatio::Spread(RatioSpread::of(pairs.into_iter().map(ratio).collect()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparisonVerdict {
    NoWorse,
    Worse,
    /// Rate and processor time disagree, and the pairs are too few to say more.
    Undecided,
}

/// Both the rate and the processor time per task have to hold. Where only one does, more pairs decide.
pub(super) fn judge(rate: f64, cpu: f64, pairs: usize) -> ComparisonVerdict {
    match (rate >= LEAST_RATE, cpu <= MOST_CPU) {
        (true, true) => ComparisonVerdict::NoWorse,
        (false, false) => ComparisonVerdict::Worse,
        _ if pairs >= PAIRS_TO_DECIDE => ComparisonVerdict::Worse,
        _ => ComparisonVerdict::Undecided,
    }
}

/// One figure of both sides: ratios of this tree to the other revision, pair by pair.
pub(super) struct FigureComparison {
    pub(super) figure: &'static str,
    pub(super) rate: RatioSpread,
    pub(super) cpu: RatioSpread,
    pub(super) allocations: AllocationRatio,
    pub(super) bytes: AllocationRatio,
    pub(super) verdict: ComparisonVerdict,
}

impl FigureComparison {
    /// Of pairs of this tree and the other revision.
    pub(super) fn new(figure: &'static str, costs: &[[Cost; 2]]) -> Self {
        let spread = |of: fn(&Cost) -> f64| {
            RatioSpread::of(costs.iter().map(|[here, base]| of(here) / of(base)).collect())
        };
        let (rate, cpu) = (spread(Cost::rate), spread(Cost::cpu_per_task));
        FigureComparison {
            figure,
            rate,
            cpu,
            allocations: AllocationRatio::of(costs, Cost::allocations_per_task, LEAST_ALLOCATIONS),
            bytes: AllocationRatio::of(costs, Cost::bytes_per_task, LEAST_BYTES),
            verdict: judge(rate.median, cpu.median, costs.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ComparisonVerdict::{NoWorse, Undecided, Worse};
    use super::*;

    fn cost(seconds: f64, cpu_seconds: f64, allocations: Option<u64>) -> Cost {
        Cost { tasks: 100, seconds, cpu_seconds, allocations, allocated_bytes: allocations }
    }

    #[test]
    fn spread_is_median_and_quartiles() {
        let spread = RatioSpread::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((spread.lower_quartile, spread.median, spread.upper_quartile), (2.0, 3.0, 4.0));
        let spread = RatioSpread::of(vec![2.0, 1.0]);
        assert_eq!(
            (spread.lower_quartile, spread.median, spread.upper_quartile),
            (1.25, 1.5, 1.75)
        );
        assert_eq!(RatioSpread::of(vec![7.0]).upper_quartile, 7.0);
    }

    #[test]
    fn no_worse_needs_both_the_rate_and_the_processor_time() {
        assert_eq!(judge(0.95, 1.05, 11), NoWorse);
        assert_eq!(judge(2.0, 0.5, 1), NoWorse);
        assert_eq!(judge(0.94, 1.06, 11), Worse);
    }

    #[test]
    fn rate_and_processor_time_that_disagree_are_decided_by_31_pairs() {
        for (rate, cpu) in [(0.94, 1.0), (1.0, 1.06)] {
            assert_eq!(judge(rate, cpu, 11), Undecided);
            assert_eq!(judge(rate, cpu, 30), Undecided);
            assert_eq!(judge(rate, cpu, 31), Worse);
        }
        assert_eq!(judge(0.95, 1.05, 31), NoWorse);
    }

    #[test]
    fn ratios_are_here_by_base_pair_by_pair() {
        // The second pair met a machine that was three times as slow.
        let pairs = [(1.0, 2.0), (3.0, 6.0), (1.0, 2.0)];
        let costs =
            pairs.map(|(here, base)| [cost(here, here, Some(300)), cost(base, base, Some(200))]);
        let compared = FigureComparison::new("p2.64", &costs);
        assert_eq!((compared.rate.median, compared.cpu.median), (2.0, 0.5));
        assert_eq!((compared.rate.lower_quartile, compared.rate.upper_quartile), (2.0, 2.0));
        assert!(matches!(compared.allocations, AllocationRatio::Spread(all) if all.median == 1.5));
        assert_eq!(compared.verdict, NoWorse);
    }

    #[test]
    fn allocations_are_no_ratio_where_they_are_not_counted_or_are_none() {
        let of = |here, base| {
            let costs = [[cost(1.0, 1.0, here), cost(1.0, 1.0, base)]];
            FigureComparison::new("p1.mixed", &costs).allocations
        };
        assert_eq!(of(Some(5), None), AllocationRatio::Uncounted);
        assert_eq!(of(Some(0), Some(0)), AllocationRatio::Nothing);
        // One per task, against none.
        assert!(
            matches!(of(Some(100), Some(0)), AllocationRatio::Spread(all) if all.median > 99.0)
        );
    }
}
