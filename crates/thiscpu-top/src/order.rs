//! The rows that a filter leaves, and their order.

use std::cmp::Ordering;
use std::ops::Range;

use crate::sample::{Budget, Reading, Sample};

/// The key by which rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SortKey {
    /// By name, from a to z
    Name,
    /// By value, or the units that are not in the pool; the largest first
    Value,
    /// By the size of the rate, or the share of the limit not in the pool; the largest first
    #[default]
    Rate,
}

impl SortKey {
    /// Returns the next one.
    pub(crate) fn next(self) -> SortKey {
        match self {
            SortKey::Name => SortKey::Value,
            SortKey::Value => SortKey::Rate,
            SortKey::Rate => SortKey::Name,
        }
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::Value => "value",
            SortKey::Rate => "rate",
        }
    }
}

/// A filter of names, and an order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// A part of the name, in any case.
    pub(crate) filter: String,
    pub(crate) sort: SortKey,
    pub(crate) is_reversed: bool,
}

/// The rows and budgets whose names fit a filter, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matching {
    pub(crate) rows: Vec<u32>,
    pub(crate) budgets: Vec<u32>,
    of: Option<(u64, String)>,
}

impl Matching {
    /// Looks for rows and budgets again if there are others, or the filter has changed.
    pub(crate) fn update(&mut self, sample: &Sample, filter: &str) {
        let of = (sample.generation, filter.to_lowercase());
        if self.of.as_ref() == Some(&of) {
            return;
        }
        let fits = |name: &str| of.1.is_empty() || name.to_lowercase().contains(&of.1);
        let rows = (0..sample.rows.len() as u32).filter(|&row| {
            let named = sample.row(row);
            named.is_some_and(|(series, counter, _)| fits(&series.counter_name(counter)))
        });
        self.rows = rows.collect();
        let budgets = sample.budgets.iter().zip(0..);
        self.budgets = budgets.filter(|(it, _)| fits(&it.name)).map(|(_, at)| at).collect();
        self.of = Some(of);
    }

    /// Forgets everything, because there is another segment.
    pub(crate) fn clear(&mut self) {
        *self = Matching::default();
    }
}

impl Choice {
    /// Returns the rows of a range in this order.
    pub(crate) fn rows(
        &self,
        sample: &Sample,
        mut rows: Vec<u32>,
        range: Range<usize>,
    ) -> Vec<u32> {
        let reading = |row| sample.row(row).and_then(|(_, _, reading)| reading);
        match self.sort {
            SortKey::Name => self.by_name(rows, range),
            SortKey::Value => window(&mut rows, range, |one, other| {
                self.directed(value(reading(one)).cmp(&value(reading(other))), one, other)
            }),
            SortKey::Rate => window(&mut rows, range, |one, other| {
                let by = rate(reading(one)).total_cmp(&rate(reading(other)));
                self.directed(by, one, other)
            }),
        }
    }

    /// Returns the budgets of a range in this order.
    pub(crate) fn budgets(
        &self,
        sample: &Sample,
        mut budgets: Vec<u32>,
        range: Range<usize>,
    ) -> Vec<u32> {
        let budget = |at: u32| sample.budgets.get(at as usize);
        match self.sort {
            SortKey::Name => self.by_name(budgets, range),
            SortKey::Value => window(&mut budgets, range, |one, other| {
                self.directed(units(budget(one)).cmp(&units(budget(other))), one, other)
            }),
            SortKey::Rate => window(&mut budgets, range, |one, other| {
                let by = share(budget(one)).total_cmp(&share(budget(other)));
                self.directed(by, one, other)
            }),
        }
    }

    fn by_name(&self, mut all: Vec<u32>, range: Range<usize>) -> Vec<u32> {
        if self.is_reversed {
            all.reverse();
        }
        let end = range.end.min(all.len());
        all[range.start.min(end)..end].to_vec()
    }

    /// Returns the order of two rows, of which the larger comes first.
    ///
    /// Equal ones are in the order of their names, so that they keep their places.
    fn directed(&self, by: Ordering, one: u32, other: u32) -> Ordering {
        let by = if self.is_reversed { by } else { by.reverse() };
        by.then(one.cmp(&other))
    }
}

fn value(reading: Option<&Reading>) -> i64 {
    reading.filter(|it| it.is_known()).map_or(i64::MIN, |reading| reading.bounds.estimate)
}

fn rate(reading: Option<&Reading>) -> f64 {
    reading.and_then(|reading| reading.rate).map_or(-1.0, f64::abs)
}

/// Returns the units by which budgets are sorted.
///
/// They are known also if the processes of a budget were not read.
fn units(budget: Option<&Budget>) -> i64 {
    budget.map_or(-1, Budget::taken)
}

fn share(budget: Option<&Budget>) -> f64 {
    let state = budget.and_then(|budget| budget.state.as_ref());
    state.map_or(-1.0, |state| units(budget) as f64 / state.limit.max(1) as f64)
}

/// Sorts so much of a list that a range of it is right, and returns that range.
fn window(
    list: &mut [u32],
    range: Range<usize>,
    mut compare: impl FnMut(u32, u32) -> Ordering,
) -> Vec<u32> {
    let end = range.end.min(list.len());
    let start = range.start.min(end);
    let mut compare = |one: &u32, other: &u32| compare(*one, *other);
    if end < list.len() {
        list.select_nth_unstable_by(end, &mut compare);
    }
    let list = &mut list[..end];
    if 0 < start && start < end {
        list.select_nth_unstable_by(start, &mut compare);
    }
    let list = &mut list[start..];
    list.sort_unstable_by(compare);
    list.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_that_of_a_sorted_list() {
        let list: Vec<u32> = (0..1000).map(|it| it * 7919 % 1000).collect();
        for range in [0..10, 0..0, 5..6, 990..1000, 995..2000, 1500..1600, 0..1000] {
            let mut sorted = list.clone();
            sorted.sort_unstable();
            let end = range.end.min(1000);
            let expected = &sorted[range.start.min(end)..end];
            assert_eq!(window(&mut list.clone(), range, |one, other| one.cmp(&other)), expected);
        }
    }
}
