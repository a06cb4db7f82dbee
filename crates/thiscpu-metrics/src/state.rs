//! The state under the registry's lock: families of series, and where their values are in a scrape.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::{Arc, MutexGuard},
};

use thiscpu::{Counters, Summable};

use crate::{
    builder::{Membership, Settings},
    counter::{Counter, GroupCounter, ROW_LEN, Repr, RowCounter},
    error::{Error, Kind},
    gauge::{self, CurrentScrape, Gauge},
    histogram::{self, Histogram},
    name::{self, Labels},
    rejected::Rejected,
    row::{self, Row},
};

/// All registered series.
#[derive(Default)]
pub(crate) struct State {
    /// In order of registration, as are `sources` and `gauges`.
    pub(crate) families: Vec<Family>,
    pub(crate) sources: Vec<Source>,
    /// Gauges, each with the index of its counter's value in a scrape.
    pub(crate) gauges: Vec<(Arc<gauge::Core>, usize)>,
    /// The number of values of all sources.
    values: usize,
    /// The number of series whose values another library has.
    #[cfg(feature = "malloc")]
    pub(crate) externals: usize,
    /// Names of lines, each with the index of its family.
    owners: HashMap<String, usize>,
    /// Series by their text, each with the index of its family and its index in the family.
    series: HashMap<String, (usize, usize)>,
    /// Rows of groups by group and labels, each with the index of its first value in a scrape.
    rows: HashMap<(usize, String), (Arc<dyn Row>, usize)>,
    /// The row that the next counters without a group use.
    ///
    /// With the number of its counters in use, and the index of its first value in a scrape.
    open_row: Option<(Arc<Counters<ROW_LEN>>, usize, usize)>,
    /// Help texts of metrics that are not registered yet.
    helps: HashMap<String, String>,
    pub(crate) rejected: Rejected,
    /// The number of scrapes so far.
    pub(crate) scrapes: u64,
}

/// All series of a name.
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// The facade's name for the metric; `name`, if it is not from the facade.
    origin: String,
    /// The texts of all series, concatenated.
    text: String,
    pub(crate) series: Vec<Series>,
}

/// One series.
pub(crate) struct Series {
    /// The range of its text in that of the family.
    text: Range<usize>,
    /// The index of its first value in a scrape; for a gauge, the index of the gauge.
    pub(crate) at: usize,
    pub(crate) instrument: Instrument,
}

/// The handle of a series.
#[derive(Clone)]
pub(crate) enum Instrument {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    /// A value that another library has, which is read at each scrape.
    #[cfg(feature = "malloc")]
    External,
}

/// A row, or a counter, that a scrape sums.
pub(crate) enum Source {
    CounterRow(Arc<Counters<ROW_LEN>>),
    GroupRow(Arc<dyn Row>),
    Gauge(Arc<gauge::Core>),
    Histogram(Arc<histogram::Core>),
}

/// The values of a scrape, with the registry's lock: no series is added while this exists.
pub(crate) struct Reading<'a> {
    pub(crate) state: MutexGuard<'a, State>,
    /// The values of counters and histograms, and of the counters of gauges.
    pub(crate) values: Vec<i64>,
    pub(crate) gauges: Vec<f64>,
    /// The values that another library has. Series without one are not shown.
    #[cfg(feature = "malloc")]
    pub(crate) externals: Vec<Option<u64>>,
}

/// A request for a series.
pub(crate) struct Request<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    /// The facade's name for the metric; `name`, if it is not from the facade.
    pub(crate) origin: &'a str,
    pub(crate) help: &'a str,
    pub(crate) labels: Labels<'a>,
}

/// The suffixes of the lines of a histogram.
const HISTOGRAM_SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

impl Source {
    pub(crate) fn summable(&self) -> &dyn Summable {
        match self {
            Source::CounterRow(row) => &**row,
            Source::GroupRow(row) => row.summable(),
            Source::Gauge(gauge) => gauge.whole(),
            Source::Histogram(histogram) => histogram.row().summable(),
        }
    }
}

impl Family {
    /// Returns the text of a series, without its value.
    pub(crate) fn text(&self, series: &Series) -> &str {
        &self.text[series.text.clone()]
    }

    /// Returns the length of the texts of all series.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the labels of a series, as they are written between braces.
    pub(crate) fn labels(&self, series: &Series) -> &str {
        labels_in(&self.name, self.text(series))
    }
}

/// Returns the text between the braces of a series.
fn labels_in<'a>(name: &str, series: &'a str) -> &'a str {
    series[name.len()..].strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or("")
}

impl State {
    /// Returns the requested series, and whether it existed before.
    pub(crate) fn find_or_add(
        &mut self,
        request: &Request<'_>,
        settings: &Settings,
        current_scrape: &Arc<CurrentScrape>,
    ) -> Result<(Instrument, bool), Error> {
        let series = name::series(request.name, request.labels)?;
        let family = self.family(request)?;
        if let Some(&(family, place)) = self.series.get(&series) {
            return Ok((self.families[family].series[place].instrument.clone(), true));
        }
        let membership = settings.membership(request.name);
        if let (Some(membership), Kind::Gauge | Kind::Histogram) = (membership, request.kind) {
            let reason =
                format!("{} is a {}; groups contain only counters", request.name, request.kind);
            let group = settings.group_name(membership.group).to_owned();
            return Err(Error::InvalidGroup { group, reason });
        }
        // No error is returned from here on.
        let family = family.unwrap_or_else(|| self.add_family(request));
        if self.families[family].help.is_empty() {
            self.families[family].help = request.help.to_owned();
        }
        let (at, instrument) = match (request.kind, membership) {
            (Kind::Counter, None) => self.add_counter(),
            (Kind::Counter, Some(membership)) => {
                let labels = labels_in(request.name, &series);
                self.add_group_counter(membership, labels, settings.members(membership.group))
            }
            (Kind::Gauge, _) => self.add_gauge(current_scrape),
            (Kind::Histogram, _) => self.add_histogram(request.name, settings),
        };
        self.add_series(family, series, at, instrument.clone());
        Ok((instrument, false))
    }

    /// Adds a series whose value another library has.
    #[cfg(feature = "malloc")]
    pub(crate) fn add_external(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let series = name::series(request.name, request.labels)?;
        let family = self.family(request)?;
        if self.series.contains_key(&series) {
            return Err(Error::DuplicateSeries { series });
        }
        let family = family.unwrap_or_else(|| self.add_family(request));
        self.add_series(family, series, self.externals, Instrument::External);
        self.externals += 1;
        Ok(())
    }

    /// Sets the help text of a metric, unless it has one.
    pub(crate) fn describe(&mut self, name: &str, help: &str) {
        match self.owners.get(name).map(|&family| &mut self.families[family]) {
            Some(family) if family.name == name && family.help.is_empty() => {
                family.help = help.to_owned();
            }
            Some(_) => {}
            None => drop(self.helps.entry(name.to_owned()).or_insert_with(|| help.to_owned())),
        }
    }

    /// Moves whole units out of the billionths of all histograms.
    pub(crate) fn carry_billionths(&self, values: &[i64]) {
        for series in self.families.iter().flat_map(|family| &family.series) {
            if let Instrument::Histogram(Histogram(core)) = &series.instrument {
                core.carry_billionths(values[series.at + core.bounds().buckets() + 1]);
            }
        }
    }

    /// Returns the family of the requested series, if it exists and the request fits it.
    fn family(&self, request: &Request<'_>) -> Result<Option<usize>, Error> {
        let name = request.name.to_owned();
        let Some(&at) = self.owners.get(request.name) else {
            return self.check_lines(request).map(|()| None);
        };
        let family = &self.families[at];
        if family.name != request.name {
            return Err(Error::HistogramNameConflict { name, histogram: family.name.clone() });
        }
        if family.kind != request.kind {
            return Err(Error::KindMismatch {
                name,
                existing: family.kind,
                requested: request.kind,
            });
        }
        if family.origin != request.origin {
            let (first, second) = (family.origin.clone(), request.origin.to_owned());
            return Err(Error::NameCollision { name, first, second });
        }
        let have_both = !request.help.is_empty() && !family.help.is_empty();
        if have_both && family.help != request.help {
            let (existing, requested) = (family.help.clone(), request.help.to_owned());
            return Err(Error::HelpMismatch { name, existing, requested });
        }
        Ok(Some(at))
    }

    /// Checks that no line of a new histogram has the name of another metric.
    fn check_lines(&self, request: &Request<'_>) -> Result<(), Error> {
        let taken = lines(request.kind, request.name).find(|line| self.owners.contains_key(line));
        taken.map_or(Ok(()), |name| {
            Err(Error::HistogramNameConflict { name, histogram: request.name.to_owned() })
        })
    }

    fn add_family(&mut self, request: &Request<'_>) -> usize {
        let at = self.families.len();
        let described = self.helps.remove(request.name).unwrap_or_default();
        let help = if request.help.is_empty() { described } else { request.help.to_owned() };
        self.owners.insert(request.name.to_owned(), at);
        self.owners.extend(lines(request.kind, request.name).map(|line| (line, at)));
        self.families.push(Family {
            name: request.name.to_owned(),
            kind: request.kind,
            help,
            origin: request.origin.to_owned(),
            text: String::new(),
            series: Vec::new(),
        });
        at
    }

    fn add_series(&mut self, family: usize, series: String, at: usize, instrument: Instrument) {
        let index = family;
        let family = &mut self.families[index];
        let begin = family.text.len();
        family.text.push_str(&series);
        self.series.insert(series, (index, family.series.len()));
        family.series.push(Series { text: begin..family.text.len(), at, instrument });
    }

    fn add_counter(&mut self) -> (usize, Instrument) {
        let (row, index, at) = match self.open_row.take() {
            Some(known) if known.1 < ROW_LEN => known,
            _ => {
                let row = Arc::new(Counters::new());
                let at = self.add_source(Source::CounterRow(Arc::clone(&row)), ROW_LEN);
                (row, 0, at)
            }
        };
        self.open_row = Some((Arc::clone(&row), index + 1, at));
        (at + index, Instrument::Counter(Counter(Repr::Row(RowCounter { row, index }))))
    }

    /// Adds a counter of a group, to the row of those with the same labels.
    fn add_group_counter(
        &mut self,
        member: Membership,
        labels: &str,
        members: usize,
    ) -> (usize, Instrument) {
        let (row, at) = match self.rows.entry((member.group, labels.to_owned())) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let (row, length) = row::with_len(members);
                self.sources.push(Source::GroupRow(Arc::clone(&row)));
                self.values += length;
                new.insert((row, self.values - length)).clone()
            }
        };
        let cell = Repr::Group(Arc::new(GroupCounter { row, index: member.index }));
        (at + member.index, Instrument::Counter(Counter(cell)))
    }

    fn add_gauge(&mut self, current_scrape: &Arc<CurrentScrape>) -> (usize, Instrument) {
        let core = Arc::new(gauge::Core::new(Arc::clone(current_scrape)));
        let at = self.add_source(Source::Gauge(Arc::clone(&core)), 1);
        self.gauges.push((Arc::clone(&core), at));
        (self.gauges.len() - 1, Instrument::Gauge(Gauge(core)))
    }

    fn add_histogram(&mut self, name: &str, settings: &Settings) -> (usize, Instrument) {
        let (core, length) = histogram::Core::new(Arc::clone(settings.bounds(name)));
        let core = Arc::new(core);
        let at = self.add_source(Source::Histogram(Arc::clone(&core)), length);
        (at, Instrument::Histogram(Histogram(core)))
    }

    /// Adds a source, and returns the index of its first value in a scrape.
    fn add_source(&mut self, source: Source, values: usize) -> usize {
        self.sources.push(source);
        self.values += values;
        self.values - values
    }
}

/// Returns the names of the lines of a family, other than its own name.
fn lines(kind: Kind, name: &str) -> impl Iterator<Item = String> {
    let suffixes: &[&str] = if kind == Kind::Histogram { &HISTOGRAM_SUFFIXES } else { &[] };
    suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
}
