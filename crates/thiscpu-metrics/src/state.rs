//! What is under the registry's lock: families of series, and where in a scrape their values are.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::{Arc, MutexGuard},
};

use thiscpu::{Counters, Summable};

use crate::{
    builder::{Membership, Settings},
    counter::{Cell, Counter, Member, NEIGHBOURS, Own},
    error::{Error, Kind},
    gauge::{self, Gauge, UnderWay},
    histogram::{self, Histogram},
    name::{self, Labels},
    rejected::Rejected,
    row::{self, Row},
};

/// Everything that is registered.
#[derive(Default)]
pub(crate) struct State {
    /// In the order they were registered, as all that follows.
    pub(crate) families: Vec<Family>,
    pub(crate) sources: Vec<Source>,
    /// Gauges, and where in a scrape their counters' values are.
    pub(crate) gauges: Vec<(Arc<gauge::Core>, usize)>,
    /// How many values all sources have.
    values: usize,
    /// Which family's lines have a name.
    owners: HashMap<String, usize>,
    /// Series by what they are written as: family, and place in it.
    series: HashMap<String, (usize, usize)>,
    /// Rows of groups by group and labels, and where in a scrape their values begin.
    rows: HashMap<(usize, String), (Arc<dyn Row>, usize)>,
    /// The row that counters without a group go to, how many it has, and where in a scrape its values begin.
    neighbours: Option<(Arc<Counters<NEIGHBOURS>>, usize, usize)>,
    /// Help texts of what is not registered yet.
    helps: HashMap<String, String>,
    pub(crate) rejected: Rejected,
    /// How many scrapes there were.
    pub(crate) scrapes: u64,
}

/// All series of one name.
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// The facade's name for it.
    origin: String,
    /// Series as they are written, one after the other.
    text: String,
    pub(crate) series: Vec<Series>,
}

/// One series.
pub(crate) struct Series {
    /// Where in its family's text it is.
    text: Range<usize>,
    /// Where in a scrape its values begin; of a gauge, which gauge it is.
    pub(crate) at: usize,
    pub(crate) instrument: Instrument,
}

/// What a series is, for whoever changes it.
#[derive(Clone)]
pub(crate) enum Instrument {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// What has to be summed for a scrape.
pub(crate) enum Source {
    Neighbours(Arc<Counters<NEIGHBOURS>>),
    Row(Arc<dyn Row>),
    Gauge(Arc<gauge::Core>),
    Histogram(Arc<histogram::Core>),
}

/// All values, and, for as long as this is there, the lock without which there are no more series.
pub(crate) struct Reading<'a> {
    pub(crate) state: MutexGuard<'a, State>,
    /// Of counters and histograms.
    pub(crate) values: Vec<i64>,
    pub(crate) gauges: Vec<f64>,
}

/// A registration.
pub(crate) struct Asked<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    /// What the facade calls it; the name, if it did not come from there.
    pub(crate) origin: &'a str,
    pub(crate) help: &'a str,
    pub(crate) labels: Labels<'a>,
}

/// The lines that a histogram has, beside its name.
const LINES_OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_sum", "_count"];

impl Source {
    pub(crate) fn summed(&self) -> &dyn Summable {
        match self {
            Source::Neighbours(row) => &**row,
            Source::Row(row) => row.summed(),
            Source::Gauge(gauge) => gauge.whole(),
            Source::Histogram(histogram) => histogram.row().summed(),
        }
    }
}

impl Family {
    /// A series as it is written, without its value.
    pub(crate) fn text(&self, series: &Series) -> &str {
        &self.text[series.text.clone()]
    }

    /// How long all of that is.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The labels of a series as they are written between braces.
    pub(crate) fn labels(&self, series: &Series) -> &str {
        labels_in(&self.name, self.text(series))
    }
}

/// What is between the braces of a series as it is written.
fn labels_in<'a>(name: &str, series: &'a str) -> &'a str {
    series[name.len()..].strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or("")
}

impl State {
    /// The series that was asked for, if it is there, and whether that was there first.
    pub(crate) fn find_or_add(
        &mut self,
        asked: &Asked<'_>,
        settings: &Settings,
        under_way: &Arc<UnderWay>,
    ) -> Result<(Instrument, bool), Error> {
        let series = name::series(asked.name, asked.labels)?;
        let family = self.family(asked)?;
        if let Some(&(family, place)) = self.series.get(&series) {
            return Ok((self.families[family].series[place].instrument.clone(), true));
        }
        let membership = settings.membership(asked.name);
        if let (Some(membership), Kind::Gauge | Kind::Histogram) = (membership, asked.kind) {
            let reason = format!("{} is a {}, and groups have counters", asked.name, asked.kind);
            let group = settings.group_name(membership.group).to_owned();
            return Err(Error::InvalidGroup { group, reason });
        }
        // Nothing is refused from here on.
        let family = family.unwrap_or_else(|| self.add_family(asked));
        if self.families[family].help.is_empty() {
            self.families[family].help = asked.help.to_owned();
        }
        let (at, instrument) = match (asked.kind, membership) {
            (Kind::Counter, None) => self.add_counter(),
            (Kind::Counter, Some(membership)) => {
                let labels = labels_in(asked.name, &series);
                self.add_member(membership, labels, settings.members(membership.group))
            }
            (Kind::Gauge, _) => self.add_gauge(under_way),
            (Kind::Histogram, _) => self.add_histogram(asked.name, settings),
        };
        self.add_series(family, series, at, instrument.clone());
        Ok((instrument, false))
    }

    /// Says what a metric is, once: the first text counts.
    pub(crate) fn describe(&mut self, name: &str, help: &str) {
        match self.owners.get(name).map(|&family| &mut self.families[family]) {
            Some(family) if family.name == name && family.help.is_empty() => {
                family.help = help.to_owned();
            }
            Some(_) => {}
            None => drop(self.helps.entry(name.to_owned()).or_insert_with(|| help.to_owned())),
        }
    }

    /// Carries whole units out of the billionths of all histograms.
    pub(crate) fn carry(&self, values: &[i64]) {
        for series in self.families.iter().flat_map(|family| &family.series) {
            if let Instrument::Histogram(Histogram(core)) = &series.instrument {
                core.carry(values[series.at + core.bounds().buckets() + 1]);
            }
        }
    }

    /// The family that the series belongs to, if there is one that it can belong to.
    fn family(&self, asked: &Asked<'_>) -> Result<Option<usize>, Error> {
        let name = asked.name.to_owned();
        let Some(&at) = self.owners.get(asked.name) else {
            return self.check_lines(asked).map(|()| None);
        };
        let family = &self.families[at];
        if family.name != asked.name {
            return Err(Error::HistogramNameConflict { name, histogram: family.name.clone() });
        }
        if family.kind != asked.kind {
            return Err(Error::KindMismatch { name, existing: family.kind, requested: asked.kind });
        }
        if family.origin != asked.origin {
            let (first, second) = (family.origin.clone(), asked.origin.to_owned());
            return Err(Error::NameCollision { name, first, second });
        }
        let are_both = !asked.help.is_empty() && !family.help.is_empty();
        if are_both && family.help != asked.help {
            let (existing, requested) = (family.help.clone(), asked.help.to_owned());
            return Err(Error::HelpMismatch { name, existing, requested });
        }
        Ok(Some(at))
    }

    /// Whether no line of a new histogram has a name that somebody has.
    fn check_lines(&self, asked: &Asked<'_>) -> Result<(), Error> {
        let taken = lines(asked.kind, asked.name).find(|line| self.owners.contains_key(line));
        taken.map_or(Ok(()), |name| {
            Err(Error::HistogramNameConflict { name, histogram: asked.name.to_owned() })
        })
    }

    fn add_family(&mut self, asked: &Asked<'_>) -> usize {
        let at = self.families.len();
        let told = self.helps.remove(asked.name).unwrap_or_default();
        let help = if asked.help.is_empty() { told } else { asked.help.to_owned() };
        self.owners.insert(asked.name.to_owned(), at);
        self.owners.extend(lines(asked.kind, asked.name).map(|line| (line, at)));
        self.families.push(Family {
            name: asked.name.to_owned(),
            kind: asked.kind,
            help,
            origin: asked.origin.to_owned(),
            text: String::new(),
            series: Vec::new(),
        });
        at
    }

    fn add_series(&mut self, family: usize, series: String, at: usize, instrument: Instrument) {
        let of = &mut self.families[family];
        let begin = of.text.len();
        of.text.push_str(&series);
        self.series.insert(series, (family, of.series.len()));
        of.series.push(Series { text: begin..of.text.len(), at, instrument });
    }

    fn add_counter(&mut self) -> (usize, Instrument) {
        let (row, index, at) = match self.neighbours.take() {
            Some(known) if known.1 < NEIGHBOURS => known,
            _ => {
                let row = Arc::new(Counters::new());
                let at = self.add_source(Source::Neighbours(Arc::clone(&row)), NEIGHBOURS);
                (row, 0, at)
            }
        };
        self.neighbours = Some((Arc::clone(&row), index + 1, at));
        (at + index, Instrument::Counter(Counter(Cell::Own(Own { row, index }))))
    }

    /// A counter of a group: in the row that those with the same labels are in.
    fn add_member(
        &mut self,
        member: Membership,
        labels: &str,
        members: usize,
    ) -> (usize, Instrument) {
        let (row, at) = match self.rows.entry((member.group, labels.to_owned())) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let (row, length) = row::of(members);
                self.sources.push(Source::Row(Arc::clone(&row)));
                self.values += length;
                new.insert((row, self.values - length)).clone()
            }
        };
        let cell = Cell::Member(Arc::new(Member { row, index: member.index }));
        (at + member.index, Instrument::Counter(Counter(cell)))
    }

    fn add_gauge(&mut self, under_way: &Arc<UnderWay>) -> (usize, Instrument) {
        let core = Arc::new(gauge::Core::new(Arc::clone(under_way)));
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

    /// Where the values of a new source begin.
    fn add_source(&mut self, source: Source, values: usize) -> usize {
        self.sources.push(source);
        self.values += values;
        self.values - values
    }
}

/// Names of lines that a family has, beside its own.
fn lines(kind: Kind, name: &str) -> impl Iterator<Item = String> {
    let suffixes: &[&str] = if kind == Kind::Histogram { &LINES_OF_HISTOGRAMS } else { &[] };
    suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
}
