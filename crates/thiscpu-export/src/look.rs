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

/// The most time that a look takes for counters, and then for budgets.
///
/// A hostile segment makes each search for a name read its whole index.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most values of counters, which bounds the memory for a hostile segment.
const VALUES_MAX: usize = 1 << 22;

/// A segment that is read, and the objects that were found in it.
pub(crate) struct Reader {
    view: SegmentView,
    /// To seal lanes, if values are to be exact.
    segment: Option<Segment>,
    /// Views or handles, by name. Objects are never removed.
    counters: BTreeMap<String, Counters>,
    budgets: BTreeMap<String, BudgetView>,
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
    /// Counters and budgets that were not read, because there was no time or no room.
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
        Ok((Reader { view, segment, counters, budgets }, identity))
    }

    /// Returns whether a part of the segment's file is gone.
    pub(crate) fn is_lost(&self) -> bool {
        // Each has a mapping of its own, which notices the loss by itself.
        self.view.is_lost() || self.segment.as_ref().is_some_and(Segment::is_lost)
    }

    /// Reads all values.
    ///
    /// # Errors
    ///
    /// If the segment is lost, or if the system has no memory for exact values.
    pub(crate) fn look(&mut self) -> Result<Look, SegmentError> {
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
        self.open_objects(&mut look);
        self.read_counters(&mut look);
        self.read_budgets(&mut look);
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
    fn open_objects(&mut self, look: &mut Look) {
        let begun = Instant::now();
        for object in self.view.objects() {
            let Ok(object) = object else {
                look.damaged += 1;
                continue;
            };
            let name = object.name();
            let part = match object.kind() {
                ObjectKind::Counter | ObjectKind::Counters(_)
                    if self.counters.contains_key(name) =>
                {
                    continue;
                }
                ObjectKind::Budget if self.budgets.contains_key(name) => continue,
                ObjectKind::Counter | ObjectKind::Counters(_) => 0,
                ObjectKind::Budget => 1,
                _ => {
                    look.unknown += 1;
                    continue;
                }
            };
            if begun.elapsed() >= PATIENCE {
                look.unread[part] += 1;
                continue;
            }
            let opened = match object.kind() {
                ObjectKind::Budget => self.view.budget(name).map(|budget| {
                    self.budgets.insert(name.to_owned(), budget);
                }),
                kind => self.open_counters(name, kind).map(|counters| {
                    self.counters.insert(name.to_owned(), counters);
                }),
            };
            look.damaged += u64::from(opened.is_err());
        }
    }

    fn open_counters(&self, name: &str, kind: ObjectKind) -> Result<Counters, SegmentError> {
        match (kind, &self.segment) {
            (ObjectKind::Counters(len), Some(segment)) => {
                DynSharedCounters::open(segment, name, len as usize).map(Counters::Handles)
            }
            (ObjectKind::Counters(len), None) => {
                DynCountersView::open(&self.view, name, len as usize).map(Counters::Views)
            }
            (_, Some(segment)) => segment.counter(name).map(Counters::Handle),
            (_, None) => self.view.counter(name).map(Counters::View),
        }
    }

    fn read_counters(&self, look: &mut Look) {
        let (begun, mut values) = (Instant::now(), 0);
        for (name, counters) in &self.counters {
            if values >= VALUES_MAX || begun.elapsed() >= PATIENCE {
                look.unread[0] += 1;
                continue;
            }
            let bounds = counters.bounds();
            values += bounds.len();
            look.counters.push((name.clone(), bounds));
        }
    }

    fn read_budgets(&self, look: &mut Look) {
        let begun = Instant::now();
        for (name, budget) in &self.budgets {
            if begun.elapsed() >= PATIENCE {
                look.unread[1] += 1;
                continue;
            }
            // The participants after the state, as `held` wants it.
            let state = budget.state();
            look.budgets.push((name.clone(), state, budget.participants()));
        }
    }
}

impl Counters {
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
