//! A segment as it was read: its objects, and the values that somebody has asked for.
//!
//! A segment may have a million objects. So values are read only where the caller says, and
//! lists of objects take a small share of the time.

mod budgets;
mod series;

use std::iter::Peekable;
use std::time::{Duration, Instant};

use thiscpu::__internal::inspect::{self, Usage};
use thiscpu::{ObjectKind, SegmentView};

pub(crate) use budgets::{Budget, Process, processes};
pub(crate) use series::{Reading, Series};

/// The most rows of counters, which bounds the memory for a hostile segment.
///
/// A segment with more shows the first ones by name.
const ROWS_MAX: usize = 1 << 22;
/// The share of time that lists of objects may take: one in this number.
const SCAN_SHARE: u32 = 50;

/// A counter: its series, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) series: u32,
    pub(crate) counter: u32,
}

/// A segment, and the values that were read of it.
pub(crate) struct Sample {
    view: SegmentView,
    /// In the order of their names.
    pub(crate) series: Vec<Series>,
    /// All counters, in the order of their names.
    pub(crate) rows: Vec<Row>,
    /// In the order of their names.
    pub(crate) budgets: Vec<Budget>,
    /// Records that are damaged.
    pub(crate) damaged: usize,
    /// Objects of kinds that this version does not know.
    pub(crate) unknown: usize,
    pub(crate) usage: Usage,
    /// Changes with the lists of rows and budgets.
    pub(crate) generation: u64,
    tick: u64,
    times: Times,
    scan: Scan,
    /// The places in lists of all rows and of all budgets from which reading goes on.
    next: [usize; 2],
}

/// The times of looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The most time between two readings of which there is a rate.
    pub(crate) age_max: Duration,
    /// The most time that a list of values is read for, before other work comes.
    ///
    /// A hostile segment makes each search for a name read its whole index.
    pub(crate) patience: Duration,
}

/// The last list of the objects.
struct Scan {
    ended: Instant,
    took: Duration,
}

impl Sample {
    /// Lists the objects of a segment.
    pub(crate) fn new(view: SegmentView, times: Times) -> Sample {
        let usage = inspect::usage(&view);
        let scan = Scan { ended: Instant::now(), took: Duration::ZERO };
        let mut sample = Sample {
            view,
            series: Vec::new(),
            rows: Vec::new(),
            budgets: Vec::new(),
            damaged: 0,
            unknown: 0,
            usage,
            generation: 0,
            tick: 0,
            times,
            scan,
            next: [0; 2],
        };
        sample.list_objects();
        sample
    }

    /// Sets the times of looks.
    pub(crate) fn set_times(&mut self, times: Times) {
        self.times = times;
    }

    /// Begins a new look: each value that is asked for will be read again.
    pub(crate) fn begin_tick(&mut self) {
        self.tick += 1;
        self.usage = inspect::usage(&self.view);
        // An object may be published long after its bytes were taken, which are all that `usage`
        // tells. So the list is read also if no more bytes are in use.
        if self.scan.ended.elapsed() >= self.scan.took * SCAN_SHARE {
            self.list_objects();
        }
    }

    /// Returns whether a part of the segment's file is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.view.is_lost()
    }

    /// Reads the values of some rows, and of all counters that are read together with them.
    ///
    /// Stops when this has taken too long, and returns how many rows were read or passed.
    pub(crate) fn read_rows(&mut self, rows: impl IntoIterator<Item = u32>) -> usize {
        let begun = Instant::now();
        let mut passed = 0;
        for row in rows {
            passed += 1;
            let Some(row) = self.rows.get(row as usize) else { continue };
            let series = &mut self.series[row.series as usize];
            let is_new = series.read(&self.view, self.tick, self.times.age_max);
            if is_new && begun.elapsed() >= self.times.patience {
                break;
            }
        }
        passed
    }

    /// Reads the values of all these rows, or goes on where the last call has stopped.
    pub(crate) fn read_rows_in_turn(&mut self, rows: &[u32]) {
        let first = next_place(self.next[0], rows);
        let passed = self.read_rows(rows[first..].iter().chain(&rows[..first]).copied());
        self.next[0] = first + passed;
    }

    /// Reads some budgets. Stops as [`Sample::read_rows`] does.
    pub(crate) fn read_budgets(&mut self, budgets: impl IntoIterator<Item = u32>) -> usize {
        let begun = Instant::now();
        let mut passed = 0;
        for budget in budgets {
            passed += 1;
            let Some(budget) = self.budgets.get_mut(budget as usize) else { continue };
            if budget.read(&self.view, self.tick) && begun.elapsed() >= self.times.patience {
                break;
            }
        }
        passed
    }

    /// Reads all these budgets, or goes on where the last call has stopped.
    pub(crate) fn read_budgets_in_turn(&mut self, budgets: &[u32]) {
        let first = next_place(self.next[1], budgets);
        let passed = self.read_budgets(budgets[first..].iter().chain(&budgets[..first]).copied());
        self.next[1] = first + passed;
    }

    /// Reads some budgets, and the processes that hold their units.
    ///
    /// That costs a few system calls for each process and budget. Stops as [`Sample::read_rows`]
    /// does.
    pub(crate) fn read_participants(&mut self, budgets: impl IntoIterator<Item = u32>) {
        let begun = Instant::now();
        for budget in budgets {
            let Some(budget) = self.budgets.get_mut(budget as usize) else { continue };
            budget.read(&self.view, self.tick);
            budget.read_participants(self.tick);
            if begun.elapsed() >= self.times.patience {
                break;
            }
        }
    }

    /// Returns the series and the last reading of a row.
    pub(crate) fn row(&self, row: u32) -> Option<(&Series, u32, Option<&Reading>)> {
        let Row { series, counter } = *self.rows.get(row as usize)?;
        let series = self.series.get(series as usize)?;
        Some((series, counter, series.reading(counter)))
    }

    /// Lists the objects again, and keeps the values of those that it has.
    fn list_objects(&mut self) {
        let begun = Instant::now();
        (self.damaged, self.unknown) = (0, 0);
        let (mut series, mut budgets) = (Vec::new(), Vec::new());
        for object in self.view.objects() {
            let Ok(object) = object else {
                self.damaged += 1;
                continue;
            };
            match object.kind() {
                ObjectKind::Budget => budgets.push(Budget::new(object.name())),
                kind => match Series::new(object.name(), kind) {
                    Some(new) => series.push(new),
                    None => self.unknown += 1,
                },
            }
        }
        // An object is never removed, so equal lengths mean equal lists. After damage they may
        // differ, but the names in them do not.
        let is_new = (series.len(), budgets.len()) != (self.series.len(), self.budgets.len());
        if is_new {
            series.sort_by(|one, other| one.name.cmp(&other.name));
            budgets.sort_by(|one: &Budget, other| one.name.cmp(&other.name));
            merge(&mut self.series, series, |series| (&series.name, series.len()));
            merge(&mut self.budgets, budgets, |budget| (&budget.name, 0));
            self.rows = rows(&self.series);
            self.generation += 1;
        }
        self.scan.ended = Instant::now();
        self.scan.took = begun.elapsed();
    }
}

/// Returns where a list is read from, after all before that place were read.
fn next_place(next: usize, list: &[u32]) -> usize {
    if list.is_empty() { 0 } else { next % list.len() }
}

fn rows(series: &[Series]) -> Vec<Row> {
    let all = series
        .iter()
        .zip(0..)
        .flat_map(|(of, series)| (0..of.len()).map(move |counter| Row { series, counter }));
    all.take(ROWS_MAX).collect()
}

/// Replaces a list by a new one, and keeps the elements that are in both.
fn merge<T, K: Ord>(
    list: &mut Vec<T>,
    new: Vec<T>,
    key: impl for<'a> Fn(&'a T) -> (&'a String, K),
) {
    let mut old: Peekable<_> = std::mem::take(list).into_iter().peekable();
    list.extend(new.into_iter().map(|new| {
        while old.next_if(|old| key(old) < key(&new)).is_some() {}
        old.next_if(|old| key(old) == key(&new)).unwrap_or(new)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use thiscpu::Segment;

    const TIMES: Times = Times { age_max: Duration::from_secs(3), patience: Duration::MAX };

    pub(super) fn sample_of(segment: &Segment) -> Sample {
        let file = segment.as_fd().unwrap().try_clone_to_owned().unwrap();
        Sample::new(SegmentView::from_fd(file).unwrap(), TIMES)
    }

    #[test]
    fn rows_are_sorted_and_groups_have_one_for_each_counter() {
        let segment = Segment::anonymous().unwrap();
        segment.counter("z").unwrap().add(7);
        segment.counters::<2>("a").unwrap().add(1, 5);
        segment.budget("b", 10).unwrap();
        let mut sample = sample_of(&segment);
        sample.begin_tick();
        sample.read_rows(0..3);
        let row = |row| {
            let (series, counter, reading) = sample.row(row).unwrap();
            (series.counter_name(counter).into_owned(), reading.unwrap().bounds.low)
        };
        let expected = [("a[0]".to_owned(), 0), ("a[1]".to_owned(), 5), ("z".to_owned(), 7)];
        assert_eq!([0, 1, 2].map(row), expected);
        assert_eq!((sample.budgets.len(), sample.damaged, sample.unknown), (1, 0, 0));
    }

    #[test]
    fn values_are_read_only_where_asked() {
        let segment = Segment::anonymous().unwrap();
        for name in ["a", "b", "c"] {
            segment.counter(name).unwrap().inc();
        }
        let mut sample = sample_of(&segment);
        sample.begin_tick();
        sample.read_rows([1]);
        let is_read = [0, 1, 2].map(|row| sample.row(row).unwrap().2.is_some());
        assert_eq!(is_read, [false, true, false]);
        // Once in a tick.
        segment.counter("b").unwrap().inc();
        let value = |sample: &Sample| sample.row(1).unwrap().2.unwrap().bounds.low;
        sample.read_rows([1]);
        assert_eq!(value(&sample), 1);
        sample.begin_tick();
        sample.read_rows([1]);
        assert_eq!(value(&sample), 2);
    }

    #[test]
    fn look_that_takes_too_long_goes_on_in_the_next_tick() {
        let segment = Segment::anonymous().unwrap();
        for number in 0..5 {
            segment.counter(&format!("c{number}")).unwrap().inc();
            segment.budget(&format!("b{number}"), 10).unwrap();
        }
        let mut sample = sample_of(&segment);
        sample.times.patience = Duration::ZERO;
        for known in 1..=5 {
            sample.begin_tick();
            sample.read_rows_in_turn(&[0, 1, 2, 3, 4]);
            sample.read_budgets_in_turn(&[0, 1, 2, 3, 4]);
            assert_eq!((0..5).filter(|&row| sample.row(row).unwrap().2.is_some()).count(), known);
            assert_eq!(sample.budgets.iter().filter(|it| it.state.is_some()).count(), known);
        }
        // The first one again.
        segment.counter("c0").unwrap().inc();
        sample.begin_tick();
        sample.read_rows_in_turn(&[0, 1, 2, 3, 4]);
        assert_eq!(sample.row(0).unwrap().2.unwrap().bounds.low, 2);
    }

    #[test]
    fn object_that_is_published_late_is_listed() {
        let segment = Segment::anonymous().unwrap();
        let mut sample = sample_of(&segment);
        segment.counter("late").unwrap();
        // As if the bytes had been taken before a few lists.
        let list = |sample: &mut Sample| {
            std::thread::sleep(sample.scan.took * SCAN_SHARE);
            sample.begin_tick();
        };
        for _ in 0..3 {
            list(&mut sample);
        }
        let late = std::mem::take(&mut sample.series);
        sample.rows.clear();
        list(&mut sample);
        assert_eq!((late.len(), sample.series.len(), sample.rows.len()), (1, 1, 1));
    }

    #[test]
    fn new_objects_are_found_and_old_values_kept() {
        let segment = Segment::anonymous().unwrap();
        segment.counter("m").unwrap().add(3);
        let mut sample = sample_of(&segment);
        sample.begin_tick();
        sample.read_rows([0]);
        let generation = sample.generation;
        segment.counter("a").unwrap().add(4);
        segment.budget("limit", 10).unwrap();
        // Lists take a small share of the time only.
        std::thread::sleep(sample.scan.took * SCAN_SHARE);
        sample.begin_tick();
        assert!(sample.generation > generation);
        assert_eq!((sample.rows.len(), sample.budgets.len()), (2, 1));
        let (series, _, reading) = sample.row(1).unwrap();
        assert_eq!((&*series.name, reading.unwrap().bounds.low), ("m", 3));
        assert!(sample.row(0).unwrap().2.is_none());
    }
}
