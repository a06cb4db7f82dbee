//! Degradations: things that this process does more slowly than it could, since when, and why.
//!
//! No call fails because of a degradation, so it would go unnoticed without these notes. The slow
//! paths that find one note it here. They take no lock and allocate nothing, so a signal handler
//! may note one too. A fork copies the notes: a child inherits those of its parent.

use core::ffi::CStr;
use core::fmt;
// Not the modelled atomics: no protocol depends on the notes, so they are no steps of a model.
use core::sync::atomic::{
    AtomicI32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, SystemTime};

/// A part of the library that is slower than it could be, in this process.
///
/// Every guarantee still holds, except that of [`Fences`](DegradationKind::Fences).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DegradationKind {
    /// The process runs on the atomic tier: calls use atomics instead of sections.
    AtomicTier,
    /// The kernel refused to register threads with rseq; they use the shared lane.
    Registration,
    /// Nothing could end registrations of threads at their exit; they use the shared lane.
    ThreadExit,
    /// There was no memory for the lane of a CPU, so the threads there use the shared lane.
    Lanes,
    /// There was no memory in the lanes for a counter, budget, ledger or cache.
    ///
    /// It uses memory that all CPUs share, until there is memory again. Accounts of a ledger that
    /// were opened meanwhile may do so for the rest of their lives.
    Items,
    /// There was no memory for the arrays of free objects that caches have on each CPU.
    Sheaves,
    /// `membarrier` fails, so a thread that needs a fence runs on each CPU in turn.
    Membarrier,
    /// Fences are impossible, so exact sums panic.
    Fences,
    /// A child of a bare `clone` does not know that it is one; children of `fork` do.
    ForkDetection,
}

impl DegradationKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [DegradationKind; 9] = [
        DegradationKind::AtomicTier,
        DegradationKind::Registration,
        DegradationKind::ThreadExit,
        DegradationKind::Lanes,
        DegradationKind::Items,
        DegradationKind::Sheaves,
        DegradationKind::Membarrier,
        DegradationKind::Fences,
        DegradationKind::ForkDetection,
    ];

    /// Returns a short name, such as `membarrier`, for programs to compare.
    pub fn name(self) -> &'static str {
        self.texts().0.to_str().unwrap_or_default()
    }

    /// Returns what is slower and why, in one sentence without a full stop.
    pub fn reason(self) -> &'static str {
        self.texts().1.to_str().unwrap_or_default()
    }

    /// Returns the name and the reason, as C has them.
    pub(crate) fn texts(self) -> (&'static CStr, &'static CStr) {
        match self {
            Self::AtomicTier => {
                (c"atomic-tier", c"calls use atomics, because this process has no sections")
            }
            Self::Registration => (
                c"registration",
                c"threads use the shared lane, because the kernel refused to register them",
            ),
            Self::ThreadExit => (
                c"thread-exit",
                c"threads use the shared lane, because the C library has no key or no memory to \
                 end their registration at exit",
            ),
            Self::Lanes => {
                (c"lanes", c"threads use the shared lane, because there was no memory for another")
            }
            Self::Items => (
                c"items",
                c"some structures use memory that all CPUs share, because there was none in the \
                 lanes",
            ),
            Self::Sheaves => (
                c"sheaves",
                c"caches allocate and free in their slabs, because there was no memory for arrays \
                 of free objects",
            ),
            Self::Membarrier => {
                (c"membarrier", c"a fence runs on each CPU in turn, because membarrier fails")
            }
            Self::Fences => (
                c"fences",
                c"exact sums panic, because membarrier fails and a thread cannot run on every CPU",
            ),
            Self::ForkDetection => (
                c"fork-detection",
                c"children of a bare clone are not detected, because the kernel wipes no page for \
                 them",
            ),
        }
    }
}

impl fmt::Display for DegradationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A thing that is slower than it could be in this process, since when, and why.
///
/// A degradation that has passed stays listed: `since` is the time of the first occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Degradation {
    /// The kind, which says what is slower and why.
    pub kind: DegradationKind,
    /// The time of the first occurrence in this process or its ancestors, by the system's clock.
    pub since: SystemTime,
    /// How often it occurred; more may follow. For the atomic tier that is once.
    pub occurrences: u64,
    /// The error number of the first occurrence, if there was one.
    pub errno: Option<i32>,
}

impl fmt::Display for Degradation {
    /// Writes the reason, and the error number if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.reason())?;
        match self.errno {
            Some(errno) => write!(f, " (error {errno})"),
            None => Ok(()),
        }
    }
}

/// The notes on one kind.
struct Note {
    /// In nanoseconds since 1970; 0 until the first occurrence.
    since_ns: AtomicU64,
    occurrences: AtomicU64,
    /// Of the first occurrence; 0 if there was none.
    errno: AtomicI32,
}

static NOTES: [Note; DegradationKind::ALL.len()] = [const {
    Note { since_ns: AtomicU64::new(0), occurrences: AtomicU64::new(0), errno: AtomicI32::new(0) }
}; DegradationKind::ALL.len()];

/// How many calls have used the shared lane because their thread had no lane.
static SHARED_LANE_CALLS: AtomicU64 = AtomicU64::new(0);

/// Notes that something of this kind has just happened; `errno` is 0 if no call failed.
///
/// Async-signal-safe. It keeps `errno`.
#[cold]
#[inline(never)]
pub(crate) fn note(kind: DegradationKind, errno: i32) {
    let note = &NOTES[kind as usize];
    // Relaxed: a statistic.
    note.occurrences.fetch_add(1, Relaxed);
    if note.since_ns.load(Relaxed) != 0 {
        return;
    }
    // A signal handler or another thread may note the kind at this moment. Then the error is that
    // of the one, and the time that of the other, which is as good. Relaxed: published below.
    let _ = note.errno.compare_exchange(0, errno, Relaxed, Relaxed);
    // Release: pairs with the Acquire in `all`, which then sees the error. If another thread has
    // stored its time first, its own error was there before.
    let _ = note.since_ns.compare_exchange(0, now_ns().max(1), Release, Relaxed);
}

/// Counts a call that uses the shared lane because its thread has no lane.
#[cold]
pub(crate) fn count_shared_lane_call() {
    // Relaxed: a statistic.
    SHARED_LANE_CALLS.fetch_add(1, Relaxed);
}

/// Returns the nanoseconds since 1970, by the system's clock.
fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to `now`. With a known clock and a valid address the call
    // cannot fail, so it leaves `errno` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Returns what is slower than it could be in this process, since when, and why.
///
/// The result is empty on a healthy system. It holds what calls have met so far: whether a sandbox
/// now denies `membarrier` shows at the next fence. A child of `fork` inherits the degradations of
/// its parent, with their times.
///
/// Never waits, and allocates nothing; async-signal-safe. [`SystemInfo`](crate::SystemInfo) has
/// the same list.
///
/// ```
/// for degradation in thiscpu::degradations() {
///     eprintln!("since {:?}: {degradation}", degradation.since);
/// }
/// ```
pub fn degradations() -> impl Iterator<Item = Degradation> {
    DegradationKind::ALL.into_iter().filter_map(|kind| {
        let note = &NOTES[kind as usize];
        // Acquire: pairs with the Release in `note`.
        let since_ns = note.since_ns.load(Acquire);
        (since_ns != 0).then(|| Degradation {
            kind,
            since: SystemTime::UNIX_EPOCH + Duration::from_nanos(since_ns),
            occurrences: note.occurrences.load(Relaxed),
            errno: Some(note.errno.load(Relaxed)).filter(|&errno| errno != 0),
        })
    })
}

/// Returns how many calls have used the shared lane because their thread had no lane.
///
/// On a healthy system few do: calls of a thread whose new CPU gets its lane while another thread
/// changes the lanes, and calls in destructors of an exiting thread or in children of `vfork`. A
/// number that grows quickly means that threads have no lane; [`degradations`] says why. A child of
/// `fork` counts on from the number of its parent.
///
/// Calls of a structure in shared mode do not count. Neither do direct charges of ledgers in the
/// atomic tier.
///
/// Never waits; async-signal-safe.
///
/// ```
/// let before = thiscpu::shared_lane_calls();
/// // ... work ...
/// println!("{} calls used the shared lane", thiscpu::shared_lane_calls() - before);
/// ```
pub fn shared_lane_calls() -> u64 {
    // Relaxed: a statistic.
    SHARED_LANE_CALLS.load(Relaxed)
}
