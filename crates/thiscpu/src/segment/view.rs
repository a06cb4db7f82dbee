//! Segments that a process can only read.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::budget::Instant;
use super::counter::SharedCounters;
use super::file::budgets::BudgetAt;
use super::file::directory::find_existing;
use super::file::error::SegmentError;
use super::file::mapping::{Access, Mapping, open_path, system};
use super::file::objects::Objects;
use super::file::place::Place;
use super::file::slots::look;
use crate::counter::Bounds;
use crate::sys::shared_file::SharedFile;

/// A segment that this process can read, but not change.
///
/// An exact sum stops lanes, which is a write. So a view gives bounds of each counter, and the last
/// state of each budget.
///
/// For a monitoring tool that runs as another user, create the segment with a mode that lets that
/// user read, such as 0644. The owner of the file is not checked. For files that somebody shortens,
/// see [`Segment`](crate::Segment#trust).
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// # let path = std::env::temp_dir().join(format!("thiscpu-view-{}", std::process::id()));
/// let segment = thiscpu::Segment::create(&path)?;
/// segment.counter("requests")?.add(3);
///
/// let view = thiscpu::SegmentView::open(&path)?;
/// let bounds = view.counter("requests")?.bounds();
/// assert!(bounds.low <= 3 && 3 <= bounds.high);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SegmentView(Arc<Mapping>);

impl SegmentView {
    /// Attaches to the segment at a path, to read it.
    ///
    /// # Errors
    ///
    /// If there is none, if it is not a segment of this version or is damaged, or if the process
    /// may not read it.
    pub fn open(path: impl AsRef<Path>) -> Result<SegmentView, SegmentError> {
        let path = path.as_ref();
        let file = open_path(path, Access::Read)?;
        Mapping::attach(file, Some(path), Access::Read)
            .map(|mapping| SegmentView(Arc::new(mapping)))
    }

    /// Attaches to the segment of a descriptor, to read it.
    ///
    /// # Errors
    ///
    /// As [`open`](SegmentView::open).
    pub fn from_fd(fd: OwnedFd) -> Result<SegmentView, SegmentError> {
        let failed = |errno| SegmentError::new(None, system("open", errno));
        let file = SharedFile::from_fd(fd).map_err(failed)?;
        Mapping::attach(file, None, Access::Read).map(|mapping| SegmentView(Arc::new(mapping)))
    }

    /// Returns the counter of a name.
    ///
    /// # Errors
    ///
    /// If no object has the name, if it is another kind of object, or if the record is damaged.
    pub fn counter(&self, name: &str) -> Result<CounterView, SegmentError> {
        Place::find(&self.0, name, 1, find_existing).map(CounterView)
    }

    /// Returns the counters of a name that are read together.
    ///
    /// `N` is 1 to 4,096; other numbers do not compile.
    ///
    /// # Errors
    ///
    /// As [`counter`](SegmentView::counter); a group of another size is another kind of object.
    pub fn counters<const N: usize>(&self, name: &str) -> Result<CountersView<N>, SegmentError> {
        let () = SharedCounters::<N>::IS_COUNT;
        Place::find(&self.0, name, N as u32, find_existing).map(CountersView)
    }

    /// Returns the budget of a name.
    ///
    /// # Errors
    ///
    /// If no object has the name, if it is another kind of object, or if the record is damaged.
    pub fn budget(&self, name: &str) -> Result<BudgetView, SegmentError> {
        let at = BudgetAt::find(&self.0, name)?;
        Ok(BudgetView { at, mapping: Arc::clone(&self.0) })
    }

    /// Returns an iterator over the objects in the segment, as [`Segment::objects`] does.
    ///
    /// [`Segment::objects`]: crate::Segment::objects
    pub fn objects(&self) -> Objects<'_> {
        Objects::new(&self.0)
    }

    /// Returns whether a part of the file is gone, because somebody has shortened it.
    ///
    /// Then the bounds of each counter are the limits of `i64`. Costs a system call.
    pub fn is_lost(&self) -> bool {
        self.0.check_length().is_err()
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.0
    }
}

/// A counter of a [`SegmentView`].
#[derive(Clone)]
pub struct CounterView(Place);

impl CounterView {
    /// Returns bounds that the value was in at one instant of the call.
    ///
    /// The bounds of a counter that nobody changes meanwhile are equal, and are the exact value. Of
    /// a counter that is only added to, both bounds lie between the values at the beginning and at
    /// the end of the call. If the value cannot be bounded, the result has the limits of `i64`:
    /// adders kept saving large amounts, a sum of one sign exceeded `i64`, there was no room or
    /// memory at the first negative amount, or the segment [is lost](SegmentView::is_lost). Costs a
    /// few loads for each lane, and waits for nobody.
    pub fn bounds(&self) -> Bounds {
        self.0.bounds_since(self.0.look(0), 0)
    }
}

impl fmt::Debug for CounterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterView").field("bounds", &self.bounds()).finish()
    }
}

/// `N` counters of a [`SegmentView`] that are read together.
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::anonymous()?;
/// segment.counters::<2>("requests")?.add(1, 5);
///
/// let file = segment.as_fd()?.try_clone_to_owned().unwrap();
/// let view = thiscpu::SegmentView::from_fd(file)?;
/// let [started, ended] = view.counters::<2>("requests")?.bounds();
/// assert_eq!((started.low, ended.low), (0, 5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CountersView<const N: usize>(Place);

impl<const N: usize> CountersView<N> {
    /// Returns bounds of each counter, all of which hold at one instant of the call.
    ///
    /// Otherwise as [`CounterView::bounds`].
    pub fn bounds(&self) -> [Bounds; N] {
        // All first looks before all second ones: the instant is between them.
        let first: [_; N] = std::array::from_fn(|counter| self.0.look(counter));
        std::array::from_fn(|counter| self.0.bounds_since(first[counter], counter))
    }
}

impl<const N: usize> fmt::Debug for CountersView<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountersView").field("bounds", &self.bounds()).finish()
    }
}

/// A budget of a [`SegmentView`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = thiscpu::Segment::anonymous()?;
/// let connections = segment.budget("connections", 100)?;
/// connections.try_acquire(70)?;
///
/// let file = segment.as_fd()?.try_clone_to_owned()?;
/// let view = thiscpu::SegmentView::from_fd(file)?.budget("connections")?;
/// let state = view.state();
/// assert!(state.limit == 100 && state.free <= 30); // fewer than 30 if some are lent to CPUs
/// assert_eq!(connections.available(), 30); // brings all free units together
/// let state = view.state();
/// assert!(state.free == 30 && state.is_exact);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BudgetView {
    at: BudgetAt,
    mapping: Arc<Mapping>,
}

/// A budget as the last operation has left it; returned by [`BudgetView::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetState {
    /// The limit. While a process changes it, this is the old limit or the new one.
    pub limit: u64,
    /// The free units in the pool.
    ///
    /// The number is negative if more units are held than the limit allows.
    pub free: i64,
    /// Whether all free units were in the pool, so that `limit - free` were held.
    ///
    /// Otherwise more units may have been free, but lent to CPUs: at most `limit - free` were held.
    /// Units of processes that have ended count as held until another process takes them back.
    pub is_exact: bool,
    /// Whether the free units are promised to a waiter.
    pub is_queued: bool,
    /// Whether the budget is closed.
    pub is_closed: bool,
}

/// A process that uses budgets of a segment, and what it holds of one of them.
///
/// [`BudgetView::participants`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetParticipant {
    /// The number of its slot, below the segment's number of participants.
    pub slot: u32,
    /// Its process ID, in its own PID namespace.
    pub pid: u32,
    /// The units of the budget that it holds; 0 if it has released more than it held.
    ///
    /// Exact if the process has ended, unless others change the pool during each of 100 looks.
    /// Otherwise the units on each CPU are read one after the other. So units that it acquires or
    /// releases meanwhile may be counted, or not. The units of a release count until they are free,
    /// even if the process was killed in it.
    pub held: u64,
    /// Whether the process still exists, running or stopped.
    ///
    /// Found by the slot's lock and, in the same PID namespace, by the process ID. A process that
    /// has closed its descriptors counts as ended in other namespaces.
    ///
    /// Units of an ended process are on the way back: they return at the next call on the budget
    /// that would refuse, wait or read the available units.
    pub is_alive: bool,
}

impl BudgetView {
    /// Returns the processes that use budgets of the segment, in the order of their slots.
    ///
    /// Includes processes that hold nothing of this budget, and ended processes whose units no
    /// other process has taken back yet. The segment and its locks stay as they are. If the segment
    /// [is lost](SegmentView::is_lost), the result is empty.
    ///
    /// Costs an allocation, a few loads for each process and lane, and a few system calls for each
    /// process; more if it does not hold its lock. The loads for an ended process repeat while
    /// other processes change the budget's pool, at most 100 times. Waits for nobody. May be called
    /// after `fork`, but not from a signal handler.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let segment = thiscpu::Segment::anonymous()?;
    /// let connections = segment.budget("connections", 100)?;
    /// connections.try_acquire(70)?;
    ///
    /// let file = segment.as_fd()?.try_clone_to_owned()?;
    /// let view = thiscpu::SegmentView::from_fd(file)?.budget("connections")?;
    /// let [this_process] = view.participants()[..] else { panic!("one process") };
    /// assert_eq!((this_process.pid, this_process.held), (std::process::id(), 70));
    /// assert!(this_process.is_alive);
    /// # Ok(())
    /// # }
    /// ```
    pub fn participants(&self) -> Vec<BudgetParticipant> {
        let parts = self.at.parts(&self.mapping);
        let slots = 0..self.mapping.layout.participants as u32;
        let mut participants: Vec<_> = slots
            .filter_map(|slot| {
                let (pid, is_alive, held) =
                    look(&self.mapping, slot, |is_gone| parts.held_by(slot, is_gone))?;
                Some(BudgetParticipant { slot, pid, held, is_alive })
            })
            .collect();
        if self.mapping.check_length().is_err() {
            participants.clear();
        }
        participants
    }

    /// Returns the state that the last operation on the pool has left.
    ///
    /// A recall of all free units would be a write, so a view makes none. Therefore the state says
    /// whether it is [exact](BudgetState::is_exact). If the segment
    /// [is lost](SegmentView::is_lost), all numbers are 0, and the state is not exact. Costs a few
    /// loads and a system call. Waits for nobody. May be called from a signal handler and after
    /// `fork`.
    pub fn state(&self) -> BudgetState {
        let (state, is_exact) = self.at.parts(&self.mapping).committed();
        if self.mapping.check_length().is_err() {
            let (is_queued, is_closed) = (false, false);
            return BudgetState { limit: 0, free: 0, is_exact: false, is_queued, is_closed };
        }
        let Instant { limit, free, is_queued, is_closed } = state;
        BudgetState { limit, free, is_exact, is_queued, is_closed }
    }
}

impl fmt::Debug for BudgetView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetView").field("state", &self.state()).finish()
    }
}
