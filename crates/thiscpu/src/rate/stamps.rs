//! The groups of a window that have ended: when their units return, oldest first.
//!
//! All is changed under the window's lock. A change is prepared before the exchange of the window's
//! words that commits it, and finished after. A child of `fork` finishes what its parent's thread
//! had prepared, if the version of the words shows that it was committed.

use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// The largest number of groups that have ended and whose units are out.
pub(super) const STAMPS: usize = 64;

/// Units that return at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// `u64::MAX` if there are none.
    pub(super) time: u64,
    pub(super) units: u64,
}

/// What refusals without the lock need to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    /// The version of the window to which all of this belongs, or an earlier one.
    pub(super) version: u64,
    /// The first stamp.
    pub(super) due: Due,
    /// The free units when the open group began, and those that have returned since.
    pub(super) opened: u64,
}

#[derive(Debug)]
struct Stamp {
    time: AtomicU64,
    units: AtomicU64,
}

/// Which stamps are in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u64,
    len: u64,
}

/// The stamps, in a ring with a place more than there can be.
///
/// So the new stamp of a change is in no place of the ring before the change is committed.
#[derive(Debug)]
pub(super) struct Stamps {
    /// The first stamp again, for refusals without the lock.
    due: AtomicU64,
    due_units: AtomicU64,
    opened: AtomicU64,
    first: AtomicU64,
    len: AtomicU64,
    /// The version of the window that the fields above belong to.
    version: AtomicU64,
    next: Next,
    ring: [Stamp; STAMPS + 1],
}

/// What a change makes of the fields, once it is committed.
#[derive(Debug)]
struct Next {
    version: AtomicU64,
    first: AtomicU64,
    len: AtomicU64,
    opened: AtomicU64,
}

impl Stamps {
    pub(super) const fn new(limit: u64) -> Stamps {
        Stamps {
            due: AtomicU64::new(u64::MAX),
            due_units: AtomicU64::new(0),
            opened: AtomicU64::new(limit),
            first: AtomicU64::new(0),
            len: AtomicU64::new(0),
            version: AtomicU64::new(0),
            next: Next {
                version: AtomicU64::new(0),
                first: AtomicU64::new(0),
                len: AtomicU64::new(0),
                opened: AtomicU64::new(limit),
            },
            ring: [const { Stamp { time: AtomicU64::new(0), units: AtomicU64::new(0) } };
                STAMPS + 1],
        }
    }

    /// Returns what returns first, without the lock. The caller then checks the version.
    pub(super) fn first(&self) -> First {
        // Acquire: pairs with the Release at the end of `finish_change`. The loads below find
        // that version, or a later one.
        let version = self.version.load(Acquire);
        // Relaxed, all: the fence below comes after.
        let due = Due { time: self.due.load(Relaxed), units: self.due_units.load(Relaxed) };
        let opened = self.opened.load(Relaxed);
        // Acquire: pairs with the Release fence in `finish_change`. If something is of a later
        // version, the caller's next load of the window's words shows a later version.
        fence(Acquire);
        First { version, due, opened }
    }

    /// Returns the free units when the open group began, and those that have returned since.
    pub(super) fn opened(&self) -> u64 {
        // Relaxed, here and below: the caller holds the lock.
        self.opened.load(Relaxed)
    }

    /// Returns the units that are due by `time`, and the stamps that are left then.
    pub(super) fn due_by(&self, time: u64) -> (u64, Range) {
        let mut left = Range { first: self.first.load(Relaxed), len: self.len.load(Relaxed) };
        let mut units = 0;
        while left.len > 0 && self.stamp(left.first).time.load(Relaxed) <= time {
            units += self.stamp(left.first).units.load(Relaxed);
            left = Range { first: left.first + 1, len: left.len - 1 };
        }
        (units, left)
    }

    /// Returns the time by which `units` return, or `None` if the open group has some of them.
    pub(super) fn time_of(&self, units: u64) -> Option<u64> {
        let (first, len) = (self.first.load(Relaxed), self.len.load(Relaxed));
        let mut sum = 0;
        (first..first + len).map(|at| self.stamp(at)).find_map(|stamp| {
            sum += stamp.units.load(Relaxed);
            (sum >= units).then(|| stamp.time.load(Relaxed))
        })
    }

    /// Prepares the change to `version`: the stamps `left` and `stamp` stay.
    pub(super) fn prepare_change(
        &self,
        version: u64,
        left: Range,
        stamp: Option<Due>,
        opened: u64,
    ) {
        let mut range = left;
        if let Some(stamp) = stamp {
            debug_assert!(left.len < STAMPS as u64, "groups begin more than a span apart");
            let place = self.stamp(left.first + left.len);
            place.time.store(stamp.time, Relaxed);
            place.units.store(stamp.units, Relaxed);
            range.len += 1;
        }
        self.next.first.store(range.first, Relaxed);
        self.next.len.store(range.len, Relaxed);
        self.next.opened.store(opened, Relaxed);
        // Release: a child of `fork` that sees this version sees what was prepared for it.
        self.next.version.store(version, Release);
    }

    /// Finishes the change that was prepared, if it led to `version`, that of the window's words.
    pub(super) fn finish_change(&self, version: u64) {
        // Relaxed, both: the caller holds the lock, and a fork copied the words.
        if self.version.load(Relaxed) == version || self.next.version.load(Relaxed) != version {
            return;
        }
        // Release: pairs with the Acquire fence in `first`. A thread that loaded one of the stores
        // below then sees the new version of the window's words.
        fence(Release);
        let (first, len) = (self.next.first.load(Relaxed), self.next.len.load(Relaxed));
        self.first.store(first, Relaxed);
        self.len.store(len, Relaxed);
        self.opened.store(self.next.opened.load(Relaxed), Relaxed);
        let due = (len > 0).then(|| self.stamp(first));
        self.due.store(due.map_or(u64::MAX, |due| due.time.load(Relaxed)), Relaxed);
        self.due_units.store(due.map_or(0, |due| due.units.load(Relaxed)), Relaxed);
        // Release: pairs with the first Acquire in `first`. A child of `fork` that sees this store
        // also sees those above.
        self.version.store(version, Release);
    }

    fn stamp(&self, at: u64) -> &Stamp {
        &self.ring[(at % self.ring.len() as u64) as usize]
    }
}
