//! Exemplars: labels of one event of a series, such as the id of its trace.

use std::{
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    error::Error,
    format,
    name::{self, Labels},
};

/// The largest number of characters of all names and values of an exemplar's labels.
const CHARS_MAX: usize = 128;

/// One exemplar.
pub(crate) struct Exemplar {
    /// The labels in braces.
    labels: String,
    value: f64,
    /// The time since 1970, in milliseconds.
    millis: i64,
}

/// The last exemplar of a counter or of a bucket.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Option<Box<Exemplar>>>);

impl Exemplar {
    /// Returns an exemplar of this moment.
    pub(crate) fn new(value: f64, labels: Labels<'_>) -> Result<Exemplar, Error> {
        let invalid = |reason: String| Error::InvalidExemplar { reason };
        let count = |(label, value): &(&str, &str)| label.chars().count() + value.chars().count();
        let chars: usize = labels.iter().map(count).sum();
        if chars > CHARS_MAX {
            return Err(invalid(format!(
                "its labels have {chars} characters; names and values may have {CHARS_MAX}"
            )));
        }
        let mut text = String::with_capacity(chars + 2 + 4 * labels.len());
        text.push('{');
        for (index, (label, value)) in labels.iter().enumerate() {
            if !name::is_label(label) {
                return Err(invalid(format!("{label:?} is not the name of a label")));
            }
            if labels[..index].iter().any(|(other, _)| other == label) {
                return Err(invalid(format!("it has two labels {label:?}")));
            }
            if index > 0 {
                text.push(',');
            }
            name::push_label(label, value, &mut text);
        }
        text.push('}');
        Ok(Exemplar { labels: text, value, millis: millis_now() })
    }
}

/// Returns the time since 1970 in milliseconds.
pub(crate) fn millis_now() -> i64 {
    // A clock before 1970 is wrong.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

/// Appends a time as seconds since 1970.
pub(crate) fn push_time(millis: i64, out: &mut String) {
    const NANOS_PER_MILLI: i64 = 1_000_000;
    format::push_fixed(millis / 1_000, millis % 1_000 * NANOS_PER_MILLI, out);
}

impl Slot {
    pub(crate) fn set(&self, exemplar: Exemplar) {
        let exemplar = Some(Box::new(exemplar));
        // The lock is held for a few instructions; the old exemplar is freed after it.
        let _old = std::mem::replace(&mut *self.lock(), exemplar);
    }

    /// Appends the exemplar as OpenMetrics writes it after a value.
    pub(crate) fn push(&self, out: &mut String) {
        if let Some(exemplar) = &*self.lock() {
            out.push_str(" # ");
            out.push_str(&exemplar.labels);
            out.push(' ');
            format::push_number(exemplar.value, out);
            out.push(' ');
            push_time(exemplar.millis, out);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<Exemplar>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exemplars_are_written_with_value_and_time() {
        let slot = Slot::default();
        let mut text = String::new();
        slot.push(&mut text);
        assert_eq!(text, "");
        let mut exemplar = Exemplar::new(0.25, &[("trace_id", "a\"b"), ("x", "")]).unwrap();
        exemplar.millis = 1_520_879_607_089;
        slot.set(exemplar);
        slot.push(&mut text);
        assert_eq!(text, " # {trace_id=\"a\\\"b\",x=\"\"} 0.25 1520879607.089");
    }

    #[test]
    fn invalid_exemplars_are_rejected() {
        let long = "ä".repeat(CHARS_MAX - 1);
        Exemplar::new(1.0, &[("x", &long)]).map(drop).unwrap();
        for labels in [&[("xx", &*long)][..], &[("a.b", "")], &[("", "")], &[("x", ""), ("x", "")]]
        {
            let outcome = Exemplar::new(1.0, labels).map(drop);
            assert!(matches!(outcome, Err(Error::InvalidExemplar { .. })), "{labels:?}");
        }
    }
}
