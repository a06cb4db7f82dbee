//! One look at a segment: all series, counters and budgets, and its health.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use thiscpu::__internal::capi::{DynCountersView, DynSharedCounters};
use thiscpu::__internal::inspect::{self, Usage};
use thiscpu::{
    Bounds, BudgetParticipant, BudgetState, BudgetView, CounterView, ObjectKind, Scrape, Segment,
    SegmentError, SegmentErrorKind, SegmentView, SharedCounter,
};
use thiscpu_program::find::{self, Identity};

/// The most values of counters and budgets, which bounds the memory for a hostile segment.
const VALUES_MAX: usize = 1 << 20;

/// A segment that is read, and the objects that were found in it.
pub(crate) struct Reader {
    view: SegmentView,
    /// To seal lanes, if values are to be exact.
    segment: Option<Segment>,
    /// Views or handles, by name. Objects are never removed.
    counters: BTreeMap<String, Counters>,
    budgets: BTreeMap<String, BudgetView>,
    /// How many values the opened objects have, and how many they may have.
    values: usize,
    values_max: usize,
}

/// The way to the values of counters that are read together.
enum Counters {
    View(CounterView),
    Views(DynCountersView),
    Handle(SharedCounter),
    Handles(DynSharedCounters),
}

/// What a look has read.
pub(crate) struct Look {
    pub(crate) usage: Usage,
    /// All series, if the segment has a registry.
    pub(crate) series: Option<Scrape>,
    /// Counters by name: one value for each that are read together.
    pub(crate) counters: Vec<(String, Vec<Bounds>)>,
    pub(crate) budgets: Vec<(String, BudgetState, Vec<BudgetParticipant>)>,
    /// Values of counters, and budgets, that were not read.
    ///
    /// There was no time or no room, or their names lead nowhere. At least 1 if there was no time
    /// to count them.
    pub(crate) unread: [u64; 2],
    /// Records that are damaged.
    pub(crate) damaged: u64,
    /// Objects of kinds that this version does not know.
    pub(crate) unknown: u64,
    pub(crate) took: Duration,
}

impl Reader {
    /// Opens the segment at a path, and returns the identity of its file too.
    pub(crate) fn open(path: &Path, is_exact: bool) -> Result<(Reader, Identity)> {
        let ((view, identity), segment) = match is_exact {
            false => (find::open(path)?, None),
            true => {
                let (segment, identity) = find::attach(path)?;
                // By its descriptor: another file may have taken the name.
                let view = SegmentView::from_fd(segment.as_fd()?.try_clone_to_owned()?)?;
                ((view, identity), Some(segment))
            }
        };
        let (counters, budgets) = (BTreeMap::new(), BTreeMap::new());
        let (values, values_max) = (0, VALUES_MAX);
        Ok((Reader { view, segment, counters, budgets, values, values_max }, identity))
    }

    /// Returns whether a part of the segment's file is gone.
    pub(crate) fn is_lost(&self) -> bool {
        // Each has a mapping of its own, and one may notice the loss before the other.
        self.view.is_lost() || self.segment.as_ref().is_some_and(Segment::is_lost)
    }

    /// Reads all values, or those for which there is time.
    ///
    /// All series are read at any rate. A hostile segment makes each search for a name read its
    /// whole index.
    ///
    /// # Errors
    ///
    /// If the segment is lost, or if the system has no memory for exact values.
    pub(crate) fn look(&mut self, deadline: Instant) -> Result<Look, SegmentError> {
        let begun = Instant::now();
        let usage = inspect::usage(&self.view);
        let series = self.series()?;
        let mut look = Look {
            usage,
            damaged: series.as_ref().map_or(0, |series| series.damaged().len() as u64),
            series,
            counters: Vec::new(),
            budgets: Vec::new(),
            unread: [0; 2],
            unknown: 0,
            took: Duration::ZERO,
        };
        self.open_objects(&mut look, deadline);
        self.read_counters(&mut look, deadline);
        self.read_budgets(&mut look, deadline);
        look.took = begun.elapsed();
        Ok(look)
    }

    fn series(&self) -> Result<Option<Scrape>, SegmentError> {
        let scrape = match &self.segment {
            Some(segment) => segment.registry().and_then(|registry| registry.scrape()),
            None => self.view.registry().and_then(|registry| registry.scrape()),
        };
        match scrape {
            Err(error) if *error.kind() == SegmentErrorKind::NoRegistry => Ok(None),
            scrape => scrape.map(Some),
        }
    }

    /// Opens the objects that are new.
    fn open_objects(&mut self, look: &mut Look, deadline: Instant) {
        let view = self.view.clone();
        for object in view.objects() {
            // Before anything else, because an index may also have any number of damaged entries.
            if Instant::now() >= deadline {
                look.unread[0] += 1;
                return;
            }
            let Ok(object) = object else {
                look.damaged += 1;
                continue;
            };
            let (name, kind) = (object.name(), object.kind());
            let (is_open, part, values) = match kind {
                ObjectKind::Counter => (self.counters.contains_key(name), 0, 1),
                ObjectKind::Counters(len) => (self.counters.contains_key(name), 0, len as usize),
                ObjectKind::Budget => (self.budgets.contains_key(name), 1, 1),
                _ => {
                    look.unknown += 1;
                    continue;
                }
            };
            if is_open {
                continue;
            }
            let has_room = values <= self.values_max - self.values;
            match has_room.then(|| self.open_object(name, kind)) {
                Some(Ok(())) => self.values += values,
                Some(Err(error)) if matches!(error.kind(), SegmentErrorKind::Damaged { .. }) => {
                    look.damaged += 1;
                }
                _ => look.unread[part] += values as u64,
            }
        }
    }

    fn open_object(&mut self, name: &str, kind: ObjectKind) -> Result<(), SegmentError> {
        if kind == ObjectKind::Budget {
            self.budgets.insert(name.to_owned(), self.view.budget(name)?);
            return Ok(());
        }
        // By the view first, also if there is a segment: that would make an object that its name
        // does not lead to.
        let view = match kind {
            ObjectKind::Counters(len) => {
                Counters::Views(DynCountersView::open(&self.view, name, len as usize)?)
            }
            _ => Counters::View(self.view.counter(name)?),
        };
        let counters = match (kind, &self.segment) {
            (_, None) => view,
            (ObjectKind::Counters(len), Some(segment)) => {
                Counters::Handles(DynSharedCounters::open(segment, name, len as usize)?)
            }
            (_, Some(segment)) => Counters::Handle(segment.counter(name)?),
        };
        self.counters.insert(name.to_owned(), counters);
        Ok(())
    }

    fn read_counters(&self, look: &mut Look, deadline: Instant) {
        for (name, counters) in &self.counters {
            match Instant::now() < deadline {
                true => look.counters.push((name.clone(), counters.bounds())),
                false => look.unread[0] += counters.len() as u64,
            }
        }
    }

    fn read_budgets(&self, look: &mut Look, deadline: Instant) {
        let mut values = 0;
        for (name, budget) in &self.budgets {
            if Instant::now() >= deadline || values >= self.values_max {
                look.unread[1] += 1;
                continue;
            }
            // The participants after the state, as `held` wants it.
            let state = budget.state();
            let participants = budget.participants();
            values += participants.len();
            look.budgets.push((name.clone(), state, participants));
        }
    }
}

impl Counters {
    /// Returns the number of counters.
    fn len(&self) -> usize {
        match self {
            Counters::View(_) | Counters::Handle(_) => 1,
            Counters::Views(views) => views.len(),
            Counters::Handles(handles) => handles.len(),
        }
    }

    /// Returns bounds of each counter, all of which hold at one instant.
    fn bounds(&self) -> Vec<Bounds> {
        let exact = |value| Bounds { low: value, estimate: value, high: value };
        match self {
            Counters::View(view) => vec![view.bounds()],
            Counters::Views(views) => views.bounds(),
            Counters::Handle(handle) => vec![exact(handle.sum())],
            Counters::Handles(handles) => {
                let mut sums = vec![0; handles.len()];
                handles.snapshot_into(&mut sums);
                sums.into_iter().map(exact).collect()
            }
        }
    }
}

/// Returns whether anything is known about a value.
pub(crate) fn is_known(bounds: &Bounds) -> bool {
    (bounds.low, bounds.high) != (i64::MIN, i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    /// Returns a reader of a segment with three counters, two of them together, and a budget.
    fn reader() -> (Segment, Reader) {
        let segment = Segment::anonymous().unwrap();
        segment.counter("a").unwrap().add(7);
        segment.counters::<2>("pair").unwrap().add(1, 5);
        segment.budget("connections", 100).unwrap();
        let path = format!("/proc/self/fd/{}", segment.as_fd().unwrap().as_raw_fd());
        let (reader, _) = Reader::open(Path::new(&path), false).unwrap();
        (segment, reader)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn look_without_time_opens_and_reads_nothing() {
        let (_segment, mut reader) = reader();
        let look = reader.look(Instant::now()).unwrap();
        assert!(look.counters.is_empty() && look.budgets.is_empty());
        assert_eq!((look.unread, reader.counters.len() + reader.budgets.len()), ([1, 0], 0));
        let look = reader.look(later()).unwrap();
        assert_eq!((look.counters.len(), look.budgets.len(), look.unread), (2, 1, [0, 0]));
        // Opened, but there is no time to read them.
        let look = reader.look(Instant::now()).unwrap();
        assert_eq!((look.counters.len(), look.budgets.len(), look.unread), (0, 0, [4, 1]));
    }

    #[test]
    fn opened_objects_have_a_bounded_number_of_values() {
        let (segment, mut reader) = reader();
        reader.values_max = 4;
        for n in 0..3 {
            let look = reader.look(later()).unwrap();
            assert_eq!((look.counters.len(), look.budgets.len()), (2, 1));
            assert_eq!((look.unread, reader.values), ([n, 0], 4));
            segment.counter(&format!("new {n}")).unwrap();
        }
    }
}
