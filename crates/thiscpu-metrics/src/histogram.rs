//! Histograms: observations counted in buckets.
//!
//! The buckets and the sum of the observations are counters of one row, so that a scrape reads them at one instant. What is stored for a
//! bucket is what is in it alone; the text adds up those below. The sum is two counters, whole units and billionths.

use std::sync::Arc;

use crate::{
    error::Error,
    format::{self, BILLION},
    row::{self, Row},
};

/// From here on an observation is not in the sum: not every whole number is an `f64`.
const SUMMED_MAX: f64 = 9_007_199_254_740_992.0;

/// The most bounds there can be: a row's counters, less one for what is above all bounds and two for the sum.
pub(crate) const BOUNDS_MAX: usize = row::LEN_MAX - 3;

/// The bounds of histograms for which nobody gave any: those that Prometheus' own libraries have, for seconds.
pub(crate) const DEFAULT_BOUNDS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A series of observations, counted in buckets: a handle, which is cheap to clone; all clones are the same series.
///
/// [`record`](Histogram::record) is two or three sections, some nanoseconds, wait-free, and blocks nobody. It may be called from signal
/// handlers and in children of `fork`.
///
/// **What is counted where.** An observation is in the first bucket whose bound it does not exceed. What exceeds all bounds, and NaN, is
/// in `+Inf`. The sum has a resolution of a billionth; infinities, NaN, and what is 2^53 or larger in size are in a bucket and
/// not in the sum.
///
/// **What a scrape may see.** Buckets and sum are read at one instant, and `_count` is what the buckets come to. A `record` that
/// is under way at that instant may be in its bucket and not, or only with its whole units, in the sum; never in the sum and not in
/// its bucket. Once it has returned it is in both.
///
/// **Range.** Whole units of the sum wrap around at 2^63. The billionths are carried into them by each scrape; a histogram that takes more than
/// 9 thousand million observations between two scrapes has a wrong sum.
///
/// ```
/// let registry = thiscpu_metrics::Registry::new();
/// let latency = registry.histogram("latency_seconds", "Time of a request.", &[])?;
/// latency.record(0.004);
/// latency.record(3.25);
/// let text = registry.render();
/// assert!(text.contains("latency_seconds_bucket{le=\"0.005\"} 1\n"));
/// assert!(text.contains("latency_seconds_bucket{le=\"+Inf\"} 2\n"));
/// assert!(text.contains("latency_seconds_sum 3.254\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone)]
pub struct Histogram(pub(crate) Arc<Core>);

/// Upper bounds of buckets, and how they are written.
pub(crate) struct Bounds {
    values: Box<[f64]>,
    texts: Box<[String]>,
}

/// What a histogram is made of: for each bucket a counter, then whole units, then billionths.
pub(crate) struct Core {
    row: Arc<dyn Row>,
    bounds: Arc<Bounds>,
}

impl Histogram {
    /// Counts an observation.
    ///
    /// # Panics
    ///
    /// As [`thiscpu::Counter::add`].
    #[inline]
    pub fn record(&self, value: f64) {
        self.0.record(value, 1);
    }

    /// Counts so many equal observations, for the price of one.
    ///
    /// # Panics
    ///
    /// As [`record`](Histogram::record).
    pub fn record_many(&self, value: f64, count: u64) {
        self.0.record(value, count);
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("bounds", &self.0.bounds.values).finish_non_exhaustive()
    }
}

impl Bounds {
    /// Those of `metric`, if they are in order.
    pub(crate) fn new(metric: &str, values: &[f64]) -> Result<Bounds, Error> {
        // A last bound that is infinite is there in any case.
        let values = values.strip_suffix(&[f64::INFINITY]).unwrap_or(values);
        let reason = if values.is_empty() {
            "there is no bound; give at least one that is finite"
        } else if values.len() > BOUNDS_MAX {
            "there are more than 61 bounds; leave some out"
        } else if values.iter().any(|bound| !bound.is_finite()) {
            "a bound is no finite number; `+Inf` is added by itself"
        } else if values.windows(2).any(|pair| pair[0] >= pair[1]) {
            "each bound has to be larger than the one before it"
        } else {
            let texts = values.iter().map(|&bound| format::number(bound)).collect();
            return Ok(Bounds { values: values.into(), texts });
        };
        Err(Error::InvalidBuckets { metric: metric.to_owned(), reason })
    }

    /// How the bounds of the buckets are written, `+Inf` included.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str).chain(["+Inf"])
    }

    /// How many buckets there are, `+Inf` included.
    pub(crate) fn buckets(&self) -> usize {
        self.values.len() + 1
    }

    /// The bucket of an observation.
    fn bucket(&self, value: f64) -> usize {
        // What cannot be compared, NaN, is above all bounds.
        self.values.partition_point(|&bound| value.is_nan() || bound < value)
    }
}

impl Core {
    /// A histogram, and how many counters its row has.
    pub(crate) fn new(bounds: Arc<Bounds>) -> (Core, usize) {
        let (row, length) = row::with_len(bounds.buckets() + 2);
        (Core { row, bounds }, length)
    }

    pub(crate) fn row(&self) -> &dyn Row {
        &*self.row
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    #[inline]
    pub(crate) fn record(&self, value: f64, count: u64) {
        let (bucket, count) = (self.bounds.bucket(value), count as i64);
        let whole_at = self.bounds.buckets();
        let (whole, billionths) = if value.abs() < SUMMED_MAX { parts(value) } else { (0, 0) };
        let amounts = [
            (bucket, count),
            (whole_at, whole.wrapping_mul(count)),
            (whole_at + 1, billionths.wrapping_mul(count)),
        ];
        // The bucket first: see what a scrape may see. Observations are often less than a unit, or whole.
        match (whole, billionths) {
            (0, 0) => self.row.add(&amounts[..1]),
            (0, _) => self.row.add(&[amounts[0], amounts[2]]),
            (_, 0) => self.row.add(&amounts[..2]),
            _ => self.row.add(&amounts),
        }
    }

    /// Carries whole units out of the billionths, of which there were so many. Only by whoever holds the registry's lock, without which
    /// nobody reads them: in between, the sum is another.
    pub(crate) fn carry_billionths(&self, billionths: i64) {
        let whole = billionths / BILLION;
        // Seldom, and long before an `i64` is full.
        if whole.unsigned_abs() >= 1 << 20 {
            let whole_at = self.bounds.buckets();
            self.row.add(&[(whole_at, whole), (whole_at + 1, -whole * BILLION)]);
        }
    }
}

/// Whole units and billionths, both with the sign of the value.
fn parts(value: f64) -> (i64, i64) {
    let whole = value as i64;
    let billionths = (value - whole as f64) * BILLION as f64;
    (whole, (billionths + 0.5_f64.copysign(billionths)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_decimals_are_exact_below_8_million() {
        for whole in [0, 1, 123_456, 7_999_999, (1 << 23) - 1] {
            for billionths in [1, 123_456_789, 499_999_999, 500_000_001, 999_999_999] {
                let value: f64 = format!("{whole}.{billionths:09}").parse().unwrap();
                assert_eq!(parts(value), (whole, billionths));
                assert_eq!(parts(-value), (-whole, -billionths));
            }
        }
    }

    #[test]
    fn an_observation_is_in_the_first_bucket_that_it_does_not_exceed() {
        let bounds = Bounds::new("a", &[-1.0, 0.0, 2.5]).unwrap();
        for (value, bucket) in [
            (f64::NEG_INFINITY, 0),
            (-1.0, 0),
            (-0.5, 1),
            (-0.0, 1),
            (0.1, 2),
            (2.5, 2),
            (2.6, 3),
            (f64::INFINITY, 3),
            (f64::NAN, 3),
        ] {
            assert_eq!(bounds.bucket(value), bucket, "{value}");
        }
    }

    #[test]
    fn parts_come_to_the_value() {
        for (value, wanted) in [
            (0.25, (0, 250_000_000)),
            (-0.25, (0, -250_000_000)),
            (3.0, (3, 0)),
            (-1.5, (-1, -500_000_000)),
            (1e-9, (0, 1)),
            (4e-10, (0, 0)),
            (0.3, (0, 300_000_000)),
        ] {
            assert_eq!(parts(value), wanted, "{value}");
        }
    }

    #[test]
    fn bounds_are_finite_and_in_order() {
        let with_infinity = Bounds::new("a", &[1.0, f64::INFINITY]).unwrap();
        assert!(with_infinity.texts().eq(["1", "+Inf"]));
        let many: Vec<f64> = (0..=BOUNDS_MAX).map(|bound| bound as f64).collect();
        Bounds::new("a", &many[1..]).map(drop).unwrap();
        for bad in [&[][..], &[1.0, 1.0], &[2.0, 1.0], &[f64::NAN], &[f64::INFINITY, 1.0], &many] {
            let Err(Error::InvalidBuckets { .. }) = Bounds::new("a", bad) else {
                panic!("{bad:?}")
            };
        }
    }
}
