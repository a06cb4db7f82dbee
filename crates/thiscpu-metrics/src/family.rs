//! Families: the series of a name.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use thiscpu::Counters;

use crate::{
    builder::Settings,
    counter::{Counter, Repr, RowCounter},
    error::Kind,
    gauge::{CurrentScrape, Gauge},
    histogram::Histogram,
    name::{self, Labels},
    presence::Presence,
};

/// All series of a name.
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// The name that the program uses.
    pub(crate) origin: String,
    /// Whether the help text is from `describe_*` of the facade.
    pub(crate) is_described: bool,
    /// The texts of all series, concatenated, and those of removed ones.
    text: String,
    /// The bytes of removed series in `text`.
    removed_bytes: usize,
    pub(crate) series: Vec<Series>,
    /// If a structure has other series at each scrape, where they are; there are no others then.
    pub(crate) samples: Option<Samples>,
}

/// Series that differ from scrape to scrape.
pub(crate) struct Samples {
    /// The slot of the structure, which keeps it.
    pub(crate) slot: usize,
    /// The labels of all of them, as they are written between braces.
    pub(crate) labels: String,
    /// The number of scrapes before the registration.
    #[cfg(feature = "opentelemetry")]
    pub(crate) scrapes_before: u64,
}

/// One series.
pub(crate) struct Series {
    /// The range of its text in that of the family, which sets it.
    pub(crate) text: Range<usize>,
    /// The slot of its source.
    pub(crate) slot: usize,
    /// The index of its first value among those of its source.
    pub(crate) index: usize,
    pub(crate) instrument: Instrument,
    /// The number of scrapes before its registration.
    #[cfg(feature = "opentelemetry")]
    pub(crate) scrapes_before: u64,
    /// The number of the series.
    pub(crate) id: u64,
    pub(crate) presence: Presence,
    /// The time of its registration, in milliseconds since 1970.
    pub(crate) created: i64,
}

/// The handle of a series.
#[derive(Clone, Debug)]
pub(crate) enum Instrument {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    /// A value that a structure of the program has, which is read at each scrape.
    Shown,
}

/// Returns a number that no other series of the process has.
pub(crate) fn next_id() -> u64 {
    static SO_FAR: AtomicU64 = AtomicU64::new(0);
    // Relaxed: each call gets another number, which orders nothing.
    SO_FAR.fetch_add(1, Relaxed)
}

impl Instrument {
    /// Returns an instrument that no scrape shows.
    pub(crate) fn detached(
        kind: Kind,
        name: &str,
        settings: &Settings,
        current_scrape: &Arc<CurrentScrape>,
    ) -> Instrument {
        let id = next_id();
        match kind {
            Kind::Counter => {
                let own = RowCounter::new(id, Arc::new(Counters::new()), 0);
                Instrument::Counter(Counter(Repr::Row(Arc::new(own))))
            }
            Kind::Gauge => Instrument::Gauge(Gauge::new(id, current_scrape)),
            Kind::Histogram => Instrument::Histogram(Histogram::new(id, settings.bounds(name))),
        }
    }
}

/// A request for a series.
pub(crate) struct Request<'a> {
    pub(crate) kind: Kind,
    /// The name, as formats write it.
    pub(crate) name: &'a str,
    /// The name that the program uses.
    pub(crate) origin: &'a str,
    pub(crate) help: &'a str,
    pub(crate) labels: Labels<'a>,
}

/// The suffixes of the lines of a histogram.
const HISTOGRAM_SUFFIXES: &[&str] = &["_bucket", "_sum", "_count", "_created"];

/// The suffixes of the lines of a counter, and of its heading, in OpenMetrics.
const COUNTER_SUFFIXES: &[&str] = &["", "_created"];

impl Family {
    /// Returns a family without series.
    pub(crate) fn new(request: &Request<'_>, described: Option<String>) -> Family {
        let described = described.unwrap_or_default();
        let is_described = request.help.is_empty() && !described.is_empty();
        Family {
            name: request.name.to_owned(),
            kind: request.kind,
            help: if request.help.is_empty() { described } else { request.help.to_owned() },
            origin: request.origin.to_owned(),
            is_described,
            text: String::new(),
            removed_bytes: 0,
            series: Vec::new(),
            samples: None,
        }
    }

    /// Appends a series, and returns its index.
    pub(crate) fn push(&mut self, text: &str, mut series: Series) -> usize {
        let begin = self.text.len();
        self.text.push_str(text);
        series.text = begin..self.text.len();
        self.series.push(series);
        self.series.len() - 1
    }

    /// Returns the text of a series, without its value.
    pub(crate) fn text(&self, series: &Series) -> &str {
        &self.text[series.text.clone()]
    }

    /// Forgets the text of a series that is no longer in `series`.
    pub(crate) fn remove_text(&mut self, removed: &Series) {
        self.removed_bytes += removed.text.len();
        if self.removed_bytes > self.text.len() / 2 {
            let mut text = String::with_capacity(self.text.len() - self.removed_bytes);
            for series in &mut self.series {
                let begin = text.len();
                text.push_str(&self.text[series.text.clone()]);
                series.text = begin..text.len();
            }
            (self.text, self.removed_bytes) = (text, 0);
            self.series.shrink_to(2 * self.series.len());
        }
    }

    /// Returns whether a scrape shows the family.
    pub(crate) fn is_shown(&self) -> bool {
        self.samples.is_some() || self.series.iter().any(|series| !series.presence.is_hidden())
    }

    /// Returns the names of its lines and headings, other than its own name.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        lines(self.kind, &self.name)
    }

    /// Returns the length of the texts of all series.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the name in the headings of OpenMetrics.
    pub(crate) fn openmetrics_name(&self) -> &str {
        openmetrics_name(self.kind, &self.name)
    }

    /// Returns the labels of a series, as they are written between braces.
    pub(crate) fn labels(&self, series: &Series) -> &str {
        labels_in(&self.name, self.text(series))
    }
}

/// Returns the text between the braces of a series.
pub(crate) fn labels_in<'a>(name: &str, series: &'a str) -> &'a str {
    series[name.len()..].strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or("")
}

/// Returns the names of lines and headings of a family, other than its own name.
pub fn lines(kind: Kind, name: &str) -> impl Iterator<Item = String> {
    let (base, suffixes) = match kind {
        Kind::Counter => (openmetrics_name(kind, name), COUNTER_SUFFIXES),
        Kind::Gauge => (name, &[][..]),
        Kind::Histogram => (name, HISTOGRAM_SUFFIXES),
    };
    suffixes.iter().map(move |suffix| format!("{base}{suffix}"))
}

/// Returns the name of a family in headings of OpenMetrics, where a counter has no suffix.
pub(crate) fn openmetrics_name(kind: Kind, name: &str) -> &str {
    let counter = || name.strip_suffix(name::TOTAL).unwrap_or(name);
    if kind == Kind::Counter { counter() } else { name }
}
