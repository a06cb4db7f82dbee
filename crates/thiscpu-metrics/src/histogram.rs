//! Histograms: observations that are counted in buckets.
//!
//! The buckets and the sum of the observations are counters of one row, so that a scrape reads them
//! at one instant. A bucket's counter counts that bucket alone; a scrape accumulates them. The sum
//! is two counters, of whole units and of billionths.

use std::sync::{Arc, OnceLock};

use crate::{
    error::Error,
    exemplar::{Exemplar, Slot},
    format::{self, BILLION},
    name::Labels,
    row::{self, Row},
};

/// Observations from here on, 2^53, are not in the sum: not every integer is an `f64`.
const SUMMED_MAX: f64 = 9_007_199_254_740_992.0;

/// The largest number of bounds.
///
/// A row's counters, less one for the bucket `+Inf` and two for the sum.
pub(crate) const BOUNDS_MAX: usize = row::LEN_MAX - 3;

/// The default bounds: those of Prometheus' own libraries, for seconds.
pub(crate) const DEFAULT_BOUNDS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A handle of a series of observations, which are counted in buckets.
///
/// A handle is cheap to clone; all clones are the same series.
///
/// [`record`](Histogram::record) is two or three sections, which take some nanoseconds. It is
/// wait-free, blocks no thread, and may be called from signal handlers and in children of `fork`.
///
/// **Buckets.** An observation is counted in the first bucket whose bound it does not exceed, or in
/// `+Inf` if it exceeds all bounds or is NaN.
///
/// **Sum.** The sum has a resolution of a billionth. Infinities, NaN, and observations of 2^53 or
/// more, of either sign, are counted in a bucket but are not in the sum.
///
/// **Scrapes.** A scrape reads buckets and sum at one instant; `_count` is the total of the
/// buckets. A `record` that is in progress at that instant may be in its bucket but not in the sum,
/// or only with its whole units. It is never in the sum without being in its bucket. After `record`
/// has returned, the observation is in both.
///
/// **Range.** The whole units of the sum wrap around at 2^63. Each scrape carries the billionths
/// into them; the sum is wrong if more than 9 billion observations are recorded between two
/// scrapes.
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

/// The upper bounds of buckets, as numbers and as text.
pub(crate) struct Bounds {
    values: Box<[f64]>,
    texts: Box<[String]>,
}

/// The state of a histogram, which its handles share.
///
/// The row has a counter for each bucket, then one for whole units, then one for billionths.
pub(crate) struct Core {
    /// The number of the series.
    pub(crate) id: u64,
    row: Arc<dyn Row>,
    bounds: Arc<Bounds>,
    /// A slot for each bucket, once there was an exemplar.
    exemplars: OnceLock<Box<[Slot]>>,
}

impl Histogram {
    pub(crate) fn new(id: u64, bounds: &Arc<Bounds>) -> Histogram {
        Histogram(Arc::new(Core::new(id, Arc::clone(bounds))))
    }

    /// Records an observation.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::add`].
    #[inline]
    pub fn record(&self, value: f64) {
        self.0.record(value, 1);
    }

    /// Records `count` equal observations, at the cost of one.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`record`](Histogram::record).
    pub fn record_many(&self, value: f64, count: u64) {
        self.0.record(value, count);
    }

    /// Records an observation, and attaches `labels` to its bucket as an exemplar.
    ///
    /// An exemplar names one event, usually by the label `trace_id`. Scrapes in OpenMetrics show
    /// the last one of each bucket, with `value` and the time. A scrape in progress may show it,
    /// and not count the observation yet. Names and values of its labels have at most 128
    /// characters together.
    ///
    /// Takes a lock and allocates, some 100 ns. Must not be called from a signal handler.
    ///
    /// ```
    /// use thiscpu_metrics::{Format, Registry};
    ///
    /// let registry = Registry::new();
    /// let latency = registry.histogram("latency_seconds", "", &[])?;
    /// latency.record_with_exemplar(0.004, &[("trace_id", "4bf92f35")])?;
    /// let text = registry.render_as(Format::OpenMetrics);
    /// assert!(text.contains("{le=\"0.005\"} 1 # {trace_id=\"4bf92f35\"} 0.004 "));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidExemplar`]; then nothing is recorded.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`record`](Histogram::record).
    pub fn record_with_exemplar(&self, value: f64, labels: Labels<'_>) -> Result<(), Error> {
        let exemplar = Exemplar::new(value, labels)?;
        self.record(value);
        self.0.exemplars_or_new()[self.0.bounds.bucket(value)].set(exemplar);
        Ok(())
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("bounds", &self.0.bounds.values).finish_non_exhaustive()
    }
}

impl Bounds {
    /// Returns bounds, if they are valid. `metric` is for the error.
    pub(crate) fn new(metric: &str, values: &[f64]) -> Result<Bounds, Error> {
        // The bucket `+Inf` is added in any case.
        let values = values.strip_suffix(&[f64::INFINITY]).unwrap_or(values);
        let reason = if values.is_empty() {
            "there is no bound; give at least one finite number"
        } else if values.len() > BOUNDS_MAX {
            "there are more than 61 bounds; remove some"
        } else if values.iter().any(|bound| !bound.is_finite()) {
            "a bound is not a finite number; `+Inf` is added automatically"
        } else if values.windows(2).any(|pair| pair[0] >= pair[1]) {
            "a bound is not larger than the one before it; sort them"
        } else {
            let texts = values.iter().map(|&bound| format::bound(bound)).collect();
            return Ok(Bounds { values: values.into(), texts });
        };
        Err(Error::InvalidBuckets { metric: metric.to_owned(), reason })
    }

    /// Returns the bounds as text, `+Inf` included.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str).chain(["+Inf"])
    }

    /// Returns the number of buckets, `+Inf` included.
    pub(crate) fn buckets(&self) -> usize {
        self.values.len() + 1
    }

    /// Returns whether negative observations have buckets of their own.
    pub(crate) fn has_negative(&self) -> bool {
        self.values[0] < 0.0
    }

    /// Returns the bucket of an observation.
    fn bucket(&self, value: f64) -> usize {
        // NaN does not compare; it counts as above all bounds.
        self.values.partition_point(|&bound| value.is_nan() || bound < value)
    }
}

impl Core {
    pub(crate) fn new(id: u64, bounds: Arc<Bounds>) -> Core {
        let row = row::with_len(bounds.buckets() + 2);
        Core { id, row, bounds, exemplars: OnceLock::new() }
    }

    pub(crate) fn row(&self) -> &dyn Row {
        &*self.row
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    fn exemplars_or_new(&self) -> &[Slot] {
        let new = || (0..self.bounds.buckets()).map(|_| Slot::default()).collect();
        self.exemplars.get_or_init(new)
    }

    /// Returns the slot of a bucket's exemplar, if the histogram has exemplars.
    pub(crate) fn exemplar(&self, bucket: usize) -> Option<&Slot> {
        self.exemplars.get()?.get(bucket)
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
        // The bucket first, as `Histogram` promises for scrapes. Many observations are less than a
        // unit or integers, so that one part of the sum needs no add.
        match (whole, billionths) {
            (0, 0) => self.row.add(&amounts[..1]),
            (0, _) => self.row.add(&[amounts[0], amounts[2]]),
            (_, 0) => self.row.add(&amounts[..2]),
            _ => self.row.add(&amounts),
        }
    }

    /// Moves whole units out of the billionths, of which the last scrape read `billionths`.
    ///
    /// The caller holds the registry's lock, so that no scrape reads the sum between the two adds.
    pub(crate) fn carry_billionths(&self, billionths: i64) {
        let whole = billionths / BILLION;
        // Rarely, and long before the `i64` overflows.
        if whole.unsigned_abs() >= 1 << 20 {
            let whole_at = self.bounds.buckets();
            self.row.add(&[(whole_at, whole), (whole_at + 1, -whole * BILLION)]);
        }
    }
}

/// Splits a value into whole units and billionths, both with its sign.
fn parts(value: f64) -> (i64, i64) {
    let whole = value as i64;
    let billionths = (value - whole as f64) * BILLION as f64;
    (whole, (billionths + 0.5_f64.copysign(billionths)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exact_to_nine_decimals_below_8_million() {
        for whole in [0, 1, 123_456, 7_999_999, (1 << 23) - 1] {
            for billionths in [1, 123_456_789, 499_999_999, 500_000_001, 999_999_999] {
                let value: f64 = format!("{whole}.{billionths:09}").parse().unwrap();
                assert_eq!(parts(value), (whole, billionths));
                assert_eq!(parts(-value), (-whole, -billionths));
            }
        }
    }

    #[test]
    fn observation_falls_into_first_bucket_that_it_does_not_exceed() {
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
    fn parts_add_up_to_the_value() {
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
    fn bounds_must_be_finite_and_sorted() {
        let with_infinity = Bounds::new("a", &[1.0, f64::INFINITY]).unwrap();
        assert!(with_infinity.texts().eq(["1.0", "+Inf"]));
        let many: Vec<f64> = (0..=BOUNDS_MAX).map(|bound| bound as f64).collect();
        Bounds::new("a", &many[1..]).map(drop).unwrap();
        for bad in [&[][..], &[1.0, 1.0], &[2.0, 1.0], &[f64::NAN], &[f64::INFINITY, 1.0], &many] {
            let Err(Error::InvalidBuckets { .. }) = Bounds::new("a", bad) else {
                panic!("{bad:?}")
            };
        }
    }
}
