//! Series of registries: which of them are shown, in one family for all segments.

use std::collections::BTreeMap;
use std::ops::Range;

use thiscpu::{Sample, Scrape};

/// The prefix of this program's own families.
pub(crate) const OWN_PREFIX: &str = "thiscpu_";

/// The label that tells segments apart.
pub(crate) const SEGMENT: &str = "segment";

/// The suffix of the names of counters.
const TOTAL: &str = "_total";

/// Labels that have other names in the answer, as Prometheus itself renames them.
const RENAMED: [(&str, &str); 2] =
    [(SEGMENT, "exported_segment"), ("exported_segment", "exported_exported_segment")];

/// A family in all segments that have it.
#[derive(Default)]
pub(crate) struct Family<'a> {
    pub(crate) help: &'a str,
    /// The number of a segment, and its series.
    pub(crate) parts: Vec<(usize, &'a Scrape, Range<usize>)>,
}

/// How many series of a segment are shown, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) exact: u64,
    pub(crate) bounds: u64,
    /// Series without bounds, or with names that the answer cannot have.
    pub(crate) missing: u64,
}

/// Returns the families of all segments by name, and a tally of each segment.
pub(crate) fn families<'a>(
    scrapes: &[Option<&'a Scrape>],
) -> (BTreeMap<&'a str, Family<'a>>, Vec<Tally>) {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut tallies = vec![Tally::default(); scrapes.len()];
    for (segment, scrape) in scrapes.iter().enumerate() {
        let Some(scrape) = *scrape else { continue };
        for (name, range) in parts(scrape) {
            let family = families.entry(name).or_default();
            if let Some(sample) = scrape.sample(range.start).filter(|_| family.help.is_empty()) {
                family.help = sample.help();
            }
            family.parts.push((segment, scrape, range));
        }
    }
    // In OpenMetrics, `x_created` is a line of the counter `x`.
    let is_created = |base: &str| {
        let of = base.strip_suffix("_created");
        of.is_some_and(|of| families.contains_key(&*format!("{of}{TOTAL}")))
    };
    let names = families.keys().copied();
    let shown = |name: &str| {
        let base = name.strip_suffix(TOTAL).unwrap_or(name);
        !name.starts_with(OWN_PREFIX) && !is_created(base)
    };
    let hidden: Vec<_> = names.filter(|name| !shown(name)).collect();
    families.retain(|name, family| {
        let is_hidden = hidden.binary_search(name).is_ok();
        family.parts.retain(|(segment, scrape, range)| {
            let tally = &mut tallies[*segment];
            let is_shown = !is_hidden && has_names(scrape, range);
            match is_shown {
                true => count_values(scrape, range.clone(), tally),
                false => tally.missing += range.len() as u64,
            }
            is_shown
        });
        !family.parts.is_empty()
    });
    (families, tallies)
}

/// Returns an iterator over the families of a scrape, with the numbers of their series.
fn parts(scrape: &Scrape) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let name = scrape.sample(first)?.name();
        let rest = (first..).map_while(|at| scrape.sample(at));
        let len = rest.take_while(|sample| sample.name() == name).count();
        let range = first..first + len;
        first = range.end;
        Some((name, range))
    })
}

/// Returns whether the answer has names for all labels of a family.
///
/// A scrape has only names that Prometheus allows. But only this program makes the last label.
fn has_names(scrape: &Scrape, range: &Range<usize>) -> bool {
    let made = RENAMED[RENAMED.len() - 1].1;
    let mut samples = range.clone().filter_map(|at| scrape.sample(at));
    !samples.any(|sample| sample.labels().any(|(label, _)| label == made))
}

fn count_values(scrape: &Scrape, range: Range<usize>, tally: &mut Tally) {
    for sample in range.filter_map(|at| scrape.sample(at)) {
        match (sample.value(), value(&sample)) {
            (Some(_), _) => tally.exact += 1,
            (None, Some(_)) => tally.bounds += 1,
            (None, None) => tally.missing += 1,
        }
    }
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
