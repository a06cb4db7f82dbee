//! The registry of a segment, whose scrape is written as text.

use std::fmt::Write as _;

use thiscpu::{Segment, SharedFamily, SharedRegistry, SharedSeries};

use super::{Contender, METRIC};

/// The series that the registry has room for.
const SERIES: u32 = 100_000;

/// The registry of a segment without a name, and the family of all counters.
pub(crate) struct ThisCpuShared {
    registry: SharedRegistry,
    family: SharedFamily,
}

impl ThisCpuShared {
    /// Creates a registry with a family that has these labels.
    pub(super) fn with_labels(labels: &[&str]) -> Self {
        let segment = Segment::options().series(SERIES).anonymous().expect("memory");
        let registry = segment.registry().expect("a registry");
        let family = registry.counter_family(METRIC, "Requests", labels).expect("room");
        ThisCpuShared { registry, family }
    }

    /// Returns the series of these values.
    #[inline(always)]
    pub(super) fn series(&self, values: &[&str]) -> SharedSeries {
        self.family.series(values).expect("room")
    }

    /// Returns the text of a scrape.
    pub(super) fn text(&self) -> String {
        let scrape = self.registry.scrape().expect("memory");
        let mut text = String::new();
        for sample in scrape.samples() {
            text.push_str(sample.name());
            for (number, (label, value)) in sample.labels().enumerate() {
                text.push_str(if number == 0 { "{" } else { "," });
                // No value of this program has a character that must be escaped.
                let all = [label, "=\"", value, "\""];
                all.into_iter().for_each(|part| text.push_str(part));
            }
            let value = sample.value().expect("an exact value");
            writeln!(text, "}} {value}").expect("writing to a string does not fail");
        }
        text
    }
}

impl Contender for ThisCpuShared {
    type Handle = SharedSeries;

    fn new() -> Self {
        Self::with_labels(&["path"])
    }

    fn counter(&self, label: &str) -> SharedSeries {
        self.series(&[label])
    }

    #[inline(always)]
    fn increment(counter: &SharedSeries) {
        counter.inc();
    }

    fn scrape(&self) -> String {
        self.text()
    }
}
