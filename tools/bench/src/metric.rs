//! Metrics: the name, the unit and the description of each, and what its rounds are combined to.

use crate::{deviations::Deviations, stats::Spread};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Metric {
    /// Its name in results.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Its name in tables and plots.
    pub(crate) title: &'static str,
    /// The description: a phrase without a full stop.
    pub(crate) what: &'static str,
    over_rounds: OverRounds,
}

/// The way in which the values of several rounds become one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OverRounds {
    Spread,
    Total,
    /// The largest, for errors: the worst is what matters.
    Largest,
}
use OverRounds::{Largest, Spread as Median, Total};

macro_rules! metrics {
    ($($METRIC:ident: $over:ident $name:literal $unit:literal $title:literal $what:literal;)*) => {
        $(#[doc = $what]
        pub(crate) static $METRIC: Metric =
            Metric { name: $name, unit: $unit, title: $title, what: $what, over_rounds: $over };)*

        impl Metric {
            pub(crate) const ALL: [&'static Self; [$($name),*].len()] = [$(&$METRIC),*];
        }
    };
}

metrics! {
    TIME_PER_OP: Median "time_per_op" "ns" "time per op"
        "Time of an operation as a thread sees it while it runs, without waits for a CPU that \
         another program has; with more threads than CPUs, wall time x CPUs / operations";
    THISCPU_RATIO: Median "thiscpu_ratio" "ratio" "thiscpu / this"
        "thiscpu's time per operation (or scrape) / this contender's, round by round";
    CACHE_RATIO: Median "cache_ratio" "ratio" "thiscpu-cache / this"
        "thiscpu-cache's time per operation / this contender's, round by round";
    MALLOC_RATIO: Median "malloc_ratio" "ratio" "thiscpu-malloc / this"
        "thiscpu-malloc's time per operation (or memory) / this contender's, round by round";
    HARDENED_RATIO: Median "hardened_ratio" "ratio" "hardened / this"
        "thiscpu-hardened's time per operation / thiscpu-malloc's, round by round";
    RATIO_TO_NONE: Median "ratio_to_none" "ratio" "this / none"
        "This contender's time per operation / that without accounting, round by round";
    SUMS: Total "sums" "count" "sums" "Sums taken in all rounds";
    WRONG_SUMS: Total "wrong_sums" "count" "wrong sums" "Sums that were neither 0 nor 1";
    MAX_ERROR: Largest "max_error" "count" "max error"
        "The largest distance of a sum from a possible value";
    TIME_PER_SUM: Median "time_per_sum" "ns" "time per sum"
        "Median time of a sum, the clock's own 30 ns or so included";
    TIME_PER_SUM_P999: Median "time_per_sum_p999" "ns" "p99.9"
        "99.9th percentile of the times of sums";
    TOKEN_MOVES: Total "token_moves" "count" "token moves" "Moves of the token in all rounds";
    ADDERS_SLOWDOWN: Median "adders_slowdown" "percent" "adders' slowdown"
        "Loss of the adders' undisturbed work";
    OVER_GRANTS: Total "over_grants" "count" "over-grants"
        "Audited grants after which more was held than the limit";
    WRONG_REFUSALS: Total "wrong_refusals" "count" "wrong refusals"
        "Audited refusals of units that were available at every instant of the call";
    AUDITED: Total "audited" "count" "audited"
        "Calls, or charges, that were audited and not timed";
    REFUSED: Median "refused" "percent" "refused" "Refused share of the audited calls that acquire";
    GRANTED: Median "granted" "percent" "granted" "Share of the attempts that acquired a unit";
    TIME_PER_GRANT: Median "time_per_grant" "ns" "time per grant"
        "Time of all attempts / those that acquired a unit";
    GRANT_RATIO: Median "grant_ratio" "ratio" "thiscpu / this, per grant"
        "thiscpu's time per grant / this contender's, round by round";
    RECALLS_PER_SECOND: Median "recalls_per_second" "count" "recalls/s"
        "How often thiscpu recalled all units";
    ADMITTED_IN_A_SECOND: Largest "admitted_in_a_second" "count" "worst second"
        "The most calls that were admitted within one second, at 100 a second";
    LOST_UNITS: Total "lost_units" "count" "lost units" "Charged units that are missing; must be 0";
    DOUBLED_UNITS: Total "doubled_units" "count" "doubled units"
        "Units that nobody charged; must be 0";
    OPENED: Total "opened" "count" "opened" "Accounts opened during charges";
    CLOSED: Total "closed" "count" "closed" "Accounts checked and closed";
    TRANSFERS: Total "transfers" "count" "transfers" "Transfers of units between accounts";
    SNAPSHOTS: Total "snapshots" "count" "snapshots" "Snapshots of all accounts";
    FORKS: Total "forks" "count" "forks" "Forked children that found every unit";
    HIT_RATE: Median "hit_rate" "percent" "hits"
        "Share of the charges that touched no memory which all CPUs share";
    TIME_PER_SNAPSHOT: Median "time_per_snapshot" "ns" "time per snapshot"
        "Median time of a snapshot of all accounts at one instant";
    CHARGE_P9999: Median "charge_p9999" "ns" "charge, p99.99"
        "99.99th percentile of the times of charges during snapshots";
    CHARGE_P9999_ALONE: Median "charge_p9999_alone" "ns" "charge alone, p99.99"
        "99.99th percentile of the times of charges without snapshots";
    LONGEST_CHARGE: Median "longest_charge" "ns" "longest charge"
        "The longest time of a charge during snapshots";
    TIME_PER_SCRAPE: Median "time_per_scrape" "ns" "time per scrape"
        "Median time of a scrape of all series";
    SERIES: Median "series" "count" "series" "Counters that were scraped";
    COUNTERS: Median "counters" "count" "counters" "Counters that were made";
    RESIDENT_PER_COUNTER: Median "resident_bytes_per_counter" "bytes" "resident per counter"
        "Resident memory per counter";
    ACCOUNTS: Median "accounts" "count" "accounts" "Accounts that were opened";
    RESIDENT_PER_ACCOUNT: Median "resident_bytes_per_account" "bytes" "resident per account"
        "Resident memory per account, its users' handle included";
    RESIDENT: Median "resident" "MB" "resident" "Resident memory of all counters or accounts";
    RESIDENT_BYTES: Median "resident_bytes" "bytes" "resident"
        "Resident memory with all objects, less that without them";
    PEAK_BYTES: Median "peak_bytes" "bytes" "peak"
        "The most memory that was resident, less that before the first allocation";
    TIME_PER_OP_ALONE: Median "time_per_op_alone" "ns" "alone"
        "Time of an operation with a thousand counters";
    LIFETIME_RATIO: Median "lifetime_ratio" "ratio" "this / alone"
        "Time of an operation with a million counters / with a thousand, round by round";
    TIME_PER_OP_FRESH: Median "time_per_op_fresh" "ns" "fresh"
        "Time to make and use one of a million new counters, and to drop it with all others";
    FRESH_RATIO: Median "fresh_ratio" "ratio" "this / fresh"
        "Time of an operation with a million counters / of new counters, round by round";
    TIME_PER_CREATE: Median "time_per_create" "ns" "time per create"
        "Time to make a counter or to open an account";
}

/// A result of measuring one contender once.
#[derive(Debug)]
pub(crate) enum Reading {
    Value(&'static Metric, f64),
    /// The distances of all sums from a possible value.
    Deviations(Box<Deviations>),
}

impl Metric {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|metric| metric.name == name)
    }

    pub(crate) fn reads(&'static self, value: f64) -> Reading {
        Reading::Value(self, value)
    }

    pub(crate) fn combine(&self, values: &[f64]) -> Option<Spread> {
        match self.over_rounds {
            OverRounds::Spread => Spread::of(values),
            OverRounds::Total => Some(Spread::exactly(values.iter().sum())),
            OverRounds::Largest => Spread::of(values).map(|spread| Spread::exactly(spread.max)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_combined_as_the_metric_says() {
        let values = [3.0, 1.0, 2.0];
        let spread = TIME_PER_OP.combine(&values).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(WRONG_SUMS.combine(&values), Some(Spread::exactly(6.0)));
        assert_eq!(MAX_ERROR.combine(&values), Some(Spread::exactly(3.0)));
    }
}
