//! What is measured, in which unit, and what becomes of its values in several rounds.

use crate::{deviations::Deviations, stats::Spread};

/// One kind of figure in a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    /// Its name in a report.
    pub(crate) name: &'static str,
    /// The unit of its values.
    pub(crate) unit: &'static str,
    pub(crate) over_rounds: OverRounds,
}

/// How the values of several rounds become one line of a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OverRounds {
    /// Median, smallest and largest.
    Spread,
    /// All of them together, for counts.
    Total,
    /// The largest, for errors: the worst is what matters.
    Largest,
}

impl Metric {
    const fn spread(name: &'static str, unit: &'static str) -> Self {
        let over_rounds = OverRounds::Spread;
        Self { name, unit, over_rounds }
    }

    const fn total(name: &'static str) -> Self {
        let (unit, over_rounds) = ("count", OverRounds::Total);
        Self { name, unit, over_rounds }
    }

    /// Brings the values of all rounds together.
    pub(crate) fn combine(&self, values: &[f64]) -> Option<Spread> {
        match self.over_rounds {
            OverRounds::Spread => Spread::of(values),
            OverRounds::Total => Some(Spread::exactly(values.iter().sum())),
            OverRounds::Largest => Spread::of(values).map(|spread| Spread::exactly(spread.max)),
        }
    }
}

/// Time of one operation.
pub(crate) static TIME_PER_OP: Metric = Metric::spread("time_per_op", "ns");
/// `thiscpu`'s time of one operation divided by the contender's.
pub(crate) static THISCPU_RATIO: Metric = Metric::spread("thiscpu_ratio", "ratio");
/// The time of one operation with the library's cache divided by the contender's.
pub(crate) static CACHE_RATIO: Metric = Metric::spread("cache_ratio", "ratio");
/// The time of one operation with this project's `malloc`, or the memory that is resident with it, divided by the
/// contender's.
pub(crate) static MALLOC_RATIO: Metric = Metric::spread("malloc_ratio", "ratio");
/// The time of one operation with this project's `malloc` hardened, divided by the same without that.
pub(crate) static HARDENED_RATIO: Metric = Metric::spread("hardened_ratio", "ratio");
/// The contender's time of one operation divided by the time without accounting.
pub(crate) static RATIO_TO_NONE: Metric = Metric::spread("ratio_to_none", "ratio");
/// How many sums were taken.
pub(crate) static SUMS: Metric = Metric::total("sums");
/// How many of them were neither 0 nor 1.
pub(crate) static WRONG_SUMS: Metric = Metric::total("wrong_sums");
/// The largest distance of a sum from 0 or 1, whichever is nearer.
pub(crate) static MAX_ERROR: Metric =
    Metric { name: "max_error", unit: "count", over_rounds: OverRounds::Largest };
/// The median time of a call to sum.
pub(crate) static TIME_PER_SUM: Metric = Metric::spread("time_per_sum", "ns");
/// The 99.9th percentile of the same.
pub(crate) static TIME_PER_SUM_P999: Metric = Metric::spread("time_per_sum_p999", "ns");
/// How often the token moved while sums were taken.
pub(crate) static TOKEN_MOVES: Metric = Metric::total("token_moves");
/// How much less two adders get done while a third thread sums.
pub(crate) static ADDERS_SLOWDOWN: Metric = Metric::spread("adders_slowdown", "percent");
/// Grants with which more was held than the limit allows.
pub(crate) static OVER_GRANTS: Metric = Metric::total("over_grants");
/// Refusals of what was free all the time.
pub(crate) static WRONG_REFUSALS: Metric = Metric::total("wrong_refusals");
/// How many calls were audited for the two above, or charges for the two below.
pub(crate) static AUDITED: Metric = Metric::total("audited");
/// How many of the audited calls that acquire were refused.
pub(crate) static REFUSED: Metric = Metric::spread("refused", "percent");
/// How often a second all units were gathered.
pub(crate) static RECALLS_PER_SECOND: Metric = Metric::spread("recalls_per_second", "count");
/// Units that were charged to an account and are missing.
pub(crate) static LOST_UNITS: Metric = Metric::total("lost_units");
/// Units that are in an account and nobody charged.
pub(crate) static DOUBLED_UNITS: Metric = Metric::total("doubled_units");
/// Accounts that were opened amid charges.
pub(crate) static OPENED: Metric = Metric::total("opened");
/// Accounts that were accounted for and closed.
pub(crate) static CLOSED: Metric = Metric::total("closed");
/// Moves of units from account to account.
pub(crate) static TRANSFERS: Metric = Metric::total("transfers");
/// Reports of all accounts.
pub(crate) static SNAPSHOTS: Metric = Metric::total("snapshots");
/// Children that were forked, and found everything right.
pub(crate) static FORKS: Metric = Metric::total("forks");
/// Charges that touched nothing but a cache of this CPU's or thread's.
pub(crate) static HIT_RATE: Metric = Metric::spread("hit_rate", "percent");
/// The median time of a report over all accounts.
pub(crate) static TIME_PER_SNAPSHOT: Metric = Metric::spread("time_per_snapshot", "ns");
/// The 99.99th percentile of the times of charges while reports are made.
pub(crate) static CHARGE_P9999: Metric = Metric::spread("charge_p9999", "ns");
/// The same without reports.
pub(crate) static CHARGE_P9999_ALONE: Metric = Metric::spread("charge_p9999_alone", "ns");
/// The longest time of a charge while reports are made.
pub(crate) static LONGEST_CHARGE: Metric = Metric::spread("longest_charge", "ns");
/// The median time of a scrape of all counters.
pub(crate) static TIME_PER_SCRAPE: Metric = Metric::spread("time_per_scrape", "ns");
/// How many counters were scraped.
pub(crate) static SERIES: Metric = Metric::spread("series", "count");
/// How many counters were made.
pub(crate) static COUNTERS: Metric = Metric::spread("counters", "count");
/// Resident memory that one counter came to.
pub(crate) static RESIDENT_PER_COUNTER: Metric =
    Metric::spread("resident_bytes_per_counter", "bytes");
/// How many accounts were opened.
pub(crate) static ACCOUNTS: Metric = Metric::spread("accounts", "count");
/// Resident memory that one account came to, what its users have of it included.
pub(crate) static RESIDENT_PER_ACCOUNT: Metric =
    Metric::spread("resident_bytes_per_account", "bytes");
/// Resident memory that all of them came to.
pub(crate) static RESIDENT: Metric = Metric::spread("resident", "MB");
/// Memory that is resident because of all objects together.
pub(crate) static RESIDENT_BYTES: Metric = Metric::spread("resident_bytes", "bytes");
/// Time to make one counter, or open one account.
pub(crate) static TIME_PER_CREATE: Metric = Metric::spread("time_per_create", "ns");

/// One thing that measuring a contender once gave.
#[derive(Debug)]
pub(crate) enum Reading {
    /// A value of one metric.
    Value(&'static Metric, f64),
    /// How far each sum was from what can be true.
    Deviations(Box<Deviations>),
}

impl Metric {
    /// Pairs the metric with a value of it.
    pub(crate) fn reads(&'static self, value: f64) -> Reading {
        Reading::Value(self, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_combined_by_the_metric() {
        let values = [3.0, 1.0, 2.0];
        let spread = TIME_PER_OP.combine(&values).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(WRONG_SUMS.combine(&values), Some(Spread::exactly(6.0)));
        assert_eq!(MAX_ERROR.combine(&values), Some(Spread::exactly(3.0)));
    }
}
