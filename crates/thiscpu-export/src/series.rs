//! Series of registries: which of them are shown, in one family for all segments.

use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::ptr;

use thiscpu::{Sample, Scrape};
use thiscpu_metrics::__internal::lines;
use thiscpu_metrics::{Format, Kind};

/// The prefix of this program's own families.
pub(crate) const OWN_PREFIX: &str = "thiscpu_";

/// The label that tells segments apart.
pub(crate) const SEGMENT: &str = "segment";

/// Labels that have other names in the answer, as Prometheus itself renames them.
const RENAMED: [(&str, &str); 2] =
    [(SEGMENT, "exported_segment"), ("exported_segment", "exported_exported_segment")];

/// A family in all segments that have it.
#[derive(Default)]
pub(crate) struct Family<'a> {
    pub(crate) help: &'a str,
    pub(crate) parts: Vec<Part<'a>>,
}

/// The series of a family in one segment.
pub(crate) struct Part<'a> {
    /// The number of the segment.
    pub(crate) segment: usize,
    pub(crate) samples: Vec<Sample<'a>>,
}

/// How many series of a segment are shown, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) exact: u64,
    pub(crate) bounds: u64,
    /// Series without bounds, or with names that the answer cannot have.
    pub(crate) missing: u64,
    /// Series that no library inserts, because another one has their name and labels.
    pub(crate) damaged: u64,
}

/// Families of all segments by name, and tallies of the series that are in none.
pub(crate) struct Families<'a> {
    by_name: BTreeMap<&'a str, Family<'a>>,
    left_out: Vec<Tally>,
}

impl<'a> Families<'a> {
    /// Returns the families whose names the text format can have.
    pub(crate) fn of(scrapes: &[Option<&'a Scrape>]) -> Families<'a> {
        let left_out = vec![Tally::default(); scrapes.len()];
        let mut families = Families { by_name: BTreeMap::new(), left_out };
        for (segment, scrape) in scrapes.iter().enumerate() {
            let Some(scrape) = *scrape else { continue };
            for samples in parts(scrape) {
                families.add(segment, samples);
            }
        }
        families
    }

    /// Adds a family of a segment.
    fn add(&mut self, segment: usize, mut samples: Vec<Sample<'a>>) {
        let tally = &mut self.left_out[segment];
        let name = samples[0].name();
        // Before anything is taken from the family.
        if name.starts_with(OWN_PREFIX) || !samples.iter().all(has_names) {
            tally.missing += samples.len() as u64;
            return;
        }
        let family = self.by_name.entry(name).or_default();
        if family.parts.last().is_some_and(|part| part.segment == segment) {
            tally.damaged += samples.len() as u64;
            return;
        }
        let before = samples.len();
        let mut seen = HashSet::with_capacity(before);
        samples.retain(|&sample| seen.insert(Labels(sample)));
        tally.damaged += (before - samples.len()) as u64;
        if family.help.is_empty() {
            family.help = samples[0].help();
        }
        family.parts.push(Part { segment, samples });
    }

    /// Returns the families that a format shows, and a tally of each segment.
    pub(crate) fn shown(&self, format: Format) -> (Vec<(&'a str, &Family<'a>)>, Vec<Tally>) {
        let hidden = match format {
            Format::OpenMetrics => self.clashes(),
            _ => HashSet::new(),
        };
        let (mut shown, mut tallies) = (Vec::new(), self.left_out.clone());
        for (&name, family) in &self.by_name {
            for Part { segment, samples } in &family.parts {
                let tally = &mut tallies[*segment];
                match hidden.contains(name) {
                    true => tally.missing += samples.len() as u64,
                    false => samples.iter().for_each(|sample| tally.count(sample)),
                }
            }
            if !hidden.contains(name) {
                shown.push((name, family));
            }
        }
        (shown, tallies)
    }

    /// Returns the families that have a line or heading of a shorter name in OpenMetrics.
    ///
    /// Of two such names, such as `x_total` and `x_created_total`, one is always shorter.
    fn clashes(&self) -> HashSet<&'a str> {
        let mut names: Vec<_> = self.by_name.keys().copied().collect();
        names.sort_by_key(|name| name.len());
        let (mut taken, mut clashes) = (HashSet::new(), HashSet::new());
        for name in names {
            let own = || lines(Kind::Counter, name).chain([name.to_owned()]);
            if own().any(|line| taken.contains(&line)) {
                clashes.insert(name);
            } else {
                taken.extend(own());
            }
        }
        clashes
    }
}

impl Tally {
    fn count(&mut self, sample: &Sample<'_>) {
        match (sample.value(), value(sample)) {
            (Some(_), _) => self.exact += 1,
            (None, Some(_)) => self.bounds += 1,
            (None, None) => self.missing += 1,
        }
    }
}

/// The labels of a series, which no other series of its family has.
struct Labels<'a>(Sample<'a>);

impl Hash for Labels<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.labels().for_each(|label| label.hash(state));
    }
}

impl PartialEq for Labels<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.labels().eq(other.0.labels())
    }
}

impl Eq for Labels<'_> {}

/// Returns an iterator over the series of each family of a scrape.
///
/// Each family keeps its name at a place of its own, also if a damaged one has an equal name.
fn parts(scrape: &Scrape) -> impl Iterator<Item = Vec<Sample<'_>>> {
    let mut samples = scrape.samples().peekable();
    std::iter::from_fn(move || {
        let first = samples.next()?;
        let is_of_family = |next: &Sample<'_>| ptr::eq(next.name(), first.name());
        let rest = std::iter::from_fn(|| samples.next_if(is_of_family));
        Some([first].into_iter().chain(rest).collect())
    })
}

/// Returns whether the answer has names for the labels of a series.
///
/// A scrape has only names that Prometheus allows. But only this program makes the last label.
fn has_names(sample: &Sample<'_>) -> bool {
    let made = RENAMED[RENAMED.len() - 1].1;
    sample.labels().all(|(label, _)| label != made)
}

/// Returns the value that is shown: of bounds, their middle.
///
/// Both bounds of a counter lie between its values at the beginning and at the end of the look. So
/// the middle of a later look is not lower.
pub(crate) fn value(sample: &Sample<'_>) -> Option<u64> {
    match (sample.low(), sample.high()) {
        (0, u64::MAX) => None,
        (low, high) => Some(low.midpoint(high)),
    }
}

/// Returns an iterator over the labels of a series as they are shown.
pub(crate) fn labels<'a>(sample: &Sample<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    sample.labels().map(|(label, value)| {
        let other = RENAMED.iter().find(|(name, _)| *name == label);
        (other.map_or(label, |(_, other)| other), value)
    })
}
