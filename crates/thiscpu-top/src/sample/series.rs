//! Counters and groups of counters, and how fast they change.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use thiscpu::__internal::capi::DynCountersView;
use thiscpu::{Bounds, CounterView, ObjectKind, SegmentView};

/// A value at one time, and its change since the time before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) bounds: Bounds,
    /// The change in a second, if there was a time before.
    pub(crate) rate: Option<f64>,
    at: Instant,
}

impl Reading {
    fn new(bounds: Bounds, at: Instant, before: Option<Reading>, age_max: Duration) -> Reading {
        let rate = before.and_then(|before| {
            let age = at.duration_since(before.at);
            let is_known = is_known(&bounds) && is_known(&before.bounds);
            // As integers: a float has too few digits for the change of a large value.
            let change = i128::from(bounds.estimate) - i128::from(before.bounds.estimate);
            let change = change as f64;
            (is_known && !age.is_zero() && age <= age_max).then(|| change / age.as_secs_f64())
        });
        Reading { bounds, rate, at }
    }

    /// Returns whether the value is exact.
    pub(crate) fn is_exact(&self) -> bool {
        self.bounds.low == self.bounds.high
    }

    /// Returns whether anything is known about the value.
    pub(crate) fn is_known(&self) -> bool {
        is_known(&self.bounds)
    }
}

fn is_known(bounds: &Bounds) -> bool {
    (bounds.low, bounds.high) != (i64::MIN, i64::MAX)
}

/// The way to the values of an object.
enum View {
    /// Nobody has asked for the values yet.
    Unopened,
    Counter(CounterView),
    Group(DynCountersView),
    /// The record is damaged.
    Failed,
}

/// A counter, or a group of counters that are read together.
pub(crate) struct Series {
    pub(crate) name: String,
    len: u32,
    view: View,
    /// One for each counter, once they were read.
    readings: Vec<Reading>,
    read_in: u64,
}

impl Series {
    /// Returns the series of an object, if it is one.
    pub(super) fn new(name: &str, kind: ObjectKind) -> Option<Series> {
        let len = match kind {
            ObjectKind::Counter => 1,
            ObjectKind::Counters(len) => len,
            _ => return None,
        };
        let (view, readings) = (View::Unopened, Vec::new());
        Some(Series { name: name.to_owned(), len, view, readings, read_in: 0 })
    }

    /// Returns the number of counters.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the name of a counter.
    pub(crate) fn counter_name(&self, counter: u32) -> Cow<'_, str> {
        match self.len {
            1 => Cow::Borrowed(&self.name),
            _ => Cow::Owned(format!("{}[{counter}]", self.name)),
        }
    }

    /// Returns the last reading of a counter.
    pub(crate) fn reading(&self, counter: u32) -> Option<&Reading> {
        self.readings.get(counter as usize)
    }

    /// Reads all counters, unless this has happened in the same tick.
    ///
    /// A rate needs a reading before that is at most `age_max` old. Returns whether it has read.
    pub(super) fn read(&mut self, segment: &SegmentView, tick: u64, age_max: Duration) -> bool {
        if self.read_in == tick {
            return false;
        }
        self.read_in = tick;
        if matches!(self.view, View::Unopened) {
            self.view = self.open(segment);
        }
        let at = Instant::now();
        let before = |readings: &[Reading], counter: usize| readings.get(counter).copied();
        self.readings = match &self.view {
            View::Unopened | View::Failed => return true,
            View::Counter(view) => {
                let new = Reading::new(view.bounds(), at, before(&self.readings, 0), age_max);
                match self.readings.first_mut() {
                    Some(reading) => *reading = new,
                    None => self.readings.push(new),
                }
                return true;
            }
            View::Group(view) => {
                let bounds = view.bounds().into_iter().enumerate();
                let new = |(counter, bounds)| {
                    Reading::new(bounds, at, before(&self.readings, counter), age_max)
                };
                bounds.map(new).collect()
            }
        };
        true
    }

    fn open(&self, segment: &SegmentView) -> View {
        match self.len {
            1 => segment.counter(&self.name).map_or(View::Failed, View::Counter),
            len => DynCountersView::open(segment, &self.name, len as usize)
                .map_or(View::Failed, View::Group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: i64, at: Instant, before: Option<Reading>) -> Reading {
        let bounds = Bounds { low: value, estimate: value, high: value };
        Reading::new(bounds, at, before, Duration::from_secs(3))
    }

    #[test]
    fn rate_is_change_in_a_second() {
        let begun = Instant::now();
        let first = reading(10, begun, None);
        assert_eq!(first.rate, None);
        let second = reading(40, begun + Duration::from_secs(2), Some(first));
        assert_eq!(second.rate, Some(15.0));
        let third = reading(30, begun + Duration::from_secs(4), Some(second));
        assert_eq!(third.rate, Some(-5.0));
    }

    #[test]
    fn rate_of_a_large_value_is_exact() {
        let begun = Instant::now();
        let first = reading(1 << 62, begun, None);
        let second = reading((1 << 62) + 7, begun + Duration::from_secs(1), Some(first));
        assert_eq!(second.rate, Some(7.0));
        let extreme = reading(i64::MIN, begun, None);
        let other = reading(i64::MAX, begun + Duration::from_secs(1), Some(extreme));
        assert_eq!(other.rate, Some(u64::MAX as f64));
    }

    #[test]
    fn rate_is_unknown_after_a_gap_or_without_bounds() {
        let begun = Instant::now();
        let first = reading(10, begun, None);
        assert_eq!(reading(20, begun + Duration::from_secs(4), Some(first)).rate, None);
        assert_eq!(reading(20, begun, Some(first)).rate, None);
        let unknown = Bounds { low: i64::MIN, estimate: 0, high: i64::MAX };
        let later = begun + Duration::from_secs(1);
        let second = Reading::new(unknown, later, Some(first), Duration::from_secs(3));
        assert!(!second.is_known() && second.rate.is_none());
    }
}
