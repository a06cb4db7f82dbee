//! `RateWindow`: never more than a limit in any window of a length.
//!
//! Units that calls take are gathered in *groups*. A group is open for a span of a 64th of the
//! window, rounded up; its units return together, one window after that span. So a unit comes back
//! a window after it was taken, or up to a 64th later. Groups begin at least a span apart, so at
//! most 64 that have ended and one that is open have units out.
//!
//! | word | meaning |
//! |---|---|
//! | first, bits 0 to 40 | *free*: the units that nobody has |
//! | first, bits 41 to 63 | the version: the number of changes under the lock |
//! | second | the time at which the open group began |
//!
//! While the group is open and units are free, a call takes them by one exchange of both words. The
//! lock is for all else: to end a group, to begin the next, and to take back what is due. That is
//! at most some hundred times a window, and once for each refusal that cannot tell when to retry.
//!
//! Free units fall within a version, and rise only with a new one. So an exchange never takes one
//! state for another, unless a thread sleeps over exactly 2^23 versions.

use std::fmt;
use std::panic::RefUnwindSafe;
use std::time::Duration;

use super::error::{RateConfigError, RateError};
use super::stamps::{Due, First, STAMPS, Stamps};
use super::terms::BURST_MAX;
use crate::budget::shared_mode::pause_contended;
use crate::sys::Host;
use crate::sys::double::Double;
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;
use crate::sys::startup;

const FREE_BITS: u32 = 41;
const FREE: u64 = (1 << FREE_BITS) - 1;

/// A limit on the units in any window of time: never more than so many in a second. Strict.
///
/// In every window of the given length, calls take at most `limit` units. A
/// [`Rate`](crate::Rate) of 100 a second may hand out 199 units within a second, and is faster: it
/// has lanes. A window always costs a clock read and a shared line.
///
/// # Guarantees
///
/// Each call that succeeds takes its units at one instant within the call.
///
/// - **Never exceeded:** in every window of the length, calls take at most `limit` units.
/// - **Never refused wrongly:** if `n` units are refused, then in some window that ends within the
///   call, and is longer than the length by a 64th, calls took more than `limit - n`.
///
/// The clock is `CLOCK_MONOTONIC`. While the system is suspended, or if the clock stands still, no
/// units come back.
///
/// # Cost
///
/// A call costs a clock read and a compare-exchange: about 60 ns. A refusal costs a clock read. A
/// lock is taken about 64 times in each window while units are taken, for a few loads and stores.
/// A window is 1,216 bytes, and allocates nothing.
///
/// # Where it may be used
///
/// In statics: [`new`](RateWindow::new) is `const`. A child of `fork` has a window of its own, with
/// the parent's units. Not in signal handlers.
///
/// # Panics
///
/// All methods panic if `THISCPU_TIER` is wrong.
///
/// ```
/// use std::time::Duration;
/// use thiscpu::RateWindow;
///
/// static MAILS: RateWindow = RateWindow::new(100, Duration::from_secs(60));
///
/// MAILS.try_acquire(100)?;
/// let refused = MAILS.try_acquire(1).unwrap_err();
/// assert!(refused.retry_after().unwrap() > Duration::from_secs(59));
/// # Ok::<(), thiscpu::RateError>(())
/// ```
#[repr(C, align(64))]
pub struct RateWindow {
    words: Double,
    limit: u64,
    period_ns: u64,
    /// How long a group is open.
    span_ns: u64,
    lock: Lock,
    stamps: Stamps,
}

const _: () = assert!(size_of::<RateWindow>() == 1216, "the documentation promises this size");

// A panic leaves a window usable: no code under its lock panics.
impl RefUnwindSafe for RateWindow {}

impl fmt::Debug for RateWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateWindow")
            .field("limit", &self.limit)
            .field("period", &self.period())
            .finish_non_exhaustive()
    }
}

/// A window's words, as loaded.
#[derive(Clone, Copy)]
struct State([u64; 2]);

impl State {
    fn free(self) -> u64 {
        self.0[0] & FREE
    }

    fn version(self) -> u64 {
        self.0[0] >> FREE_BITS
    }

    fn start(self) -> u64 {
        self.0[1]
    }

    fn with_free(self, free: u64) -> State {
        State([self.0[0] & !FREE | free, self.0[1]])
    }

    /// Returns a state of the next version.
    fn next(self, free: u64, start: u64) -> State {
        State([self.0[0].wrapping_add(1 << FREE_BITS) & !FREE | free, start])
    }
}

/// What a call wants, at least and at most.
#[derive(Clone, Copy)]
struct Want {
    least: u64,
    most: u64,
}

impl RateWindow {
    /// The largest possible limit, 2^40.
    pub const LIMIT_MAX: u64 = BURST_MAX;

    /// Creates a window of the length `period` in which at most `limit` units are taken.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](RateWindow::try_new) returns an error. In a constant this is a compile
    /// error.
    pub const fn new(limit: u64, period: Duration) -> RateWindow {
        match RateWindow::check(limit, period) {
            Ok(period_ns) => RateWindow::of(limit, period_ns),
            Err(error) => panic!("{}", error.message()),
        }
    }

    /// Creates a window as [`new`](RateWindow::new) does, for numbers that may be wrong.
    ///
    /// # Errors
    ///
    /// [`RateConfigError`] if `limit` is 0 or above [`LIMIT_MAX`](RateWindow::LIMIT_MAX), or if
    /// `period` is shorter than 64 ns, or 2^63 ns (292 years) or longer.
    pub const fn try_new(limit: u64, period: Duration) -> Result<RateWindow, RateConfigError> {
        match RateWindow::check(limit, period) {
            Ok(period_ns) => Ok(RateWindow::of(limit, period_ns)),
            Err(error) => Err(error),
        }
    }

    const fn check(limit: u64, period: Duration) -> Result<u64, RateConfigError> {
        let period_ns = period.as_nanos();
        match () {
            () if limit == 0 => Err(RateConfigError::ZeroBurst),
            () if limit > Self::LIMIT_MAX => Err(RateConfigError::BurstTooLarge),
            () if period_ns == 0 => Err(RateConfigError::ZeroPeriod),
            () if period_ns < 64 => Err(RateConfigError::PeriodTooShort),
            () if period_ns >> 63 != 0 => Err(RateConfigError::PeriodTooLong),
            () => Ok(period_ns as u64),
        }
    }

    const fn of(limit: u64, period_ns: u64) -> RateWindow {
        RateWindow {
            words: Double::new([limit, 0]),
            limit,
            period_ns,
            span_ns: period_ns.div_ceil(STAMPS as u64),
            lock: Lock::new(),
            stamps: Stamps::new(limit),
        }
    }

    /// Acquires `n` units, or none. Never waits for units.
    ///
    /// May wait for another thread that ends a group, which takes a few loads and stores. May be
    /// called after `fork`. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// - [`Exceeded`](RateError::Exceeded) if fewer than `n` units were available; it says how
    ///   many, and after what time to try again.
    /// - [`AboveBurst`](RateError::AboveBurst) if `n` is above the limit.
    /// - [`ZeroUnits`](RateError::ZeroUnits) if `n` is 0.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong.
    pub fn try_acquire(&self, n: u64) -> Result<(), RateError> {
        match () {
            () if n == 0 => Err(RateError::ZeroUnits),
            () if n > self.limit => Err(RateError::AboveBurst { burst: self.limit }),
            () => self.take(Want { least: n, most: n }).map(|_| ()),
        }
    }

    /// Acquires as many units as are available, at most `n`, and returns how many.
    ///
    /// Returns 0 if no unit is available, or if `n` is 0.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong.
    pub fn try_acquire_up_to(&self, n: u64) -> u64 {
        match n {
            0 => 0,
            n => self.take(Want { least: 1, most: n }).unwrap_or(0),
        }
    }

    /// Returns how many units are available, at one instant of this call. Waits for a lock.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong.
    pub fn available(&self) -> u64 {
        match self.take_locked(Want { least: u64::MAX, most: 0 }) {
            Err(RateError::Exceeded { available, .. }) => available,
            _ => unreachable!("no window has so many units"),
        }
    }

    /// Returns the limit.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the length of the window.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// Takes what a call wants, and returns how much that is.
    #[inline]
    fn take(&self, want: Want) -> Result<u64, RateError> {
        loop {
            let state = self.load();
            let first = self.stamps.first();
            let time = self.time_after(state);
            let free = state.free();
            if free < want.least {
                let refusal = self.refusal(state, first, time, want.least);
                return refusal.map_or_else(|| self.take_locked(want), Err);
            }
            // Before the first use no tier is chosen; the slow path chooses it.
            if time >= self.group_end(state) || startup::chosen().is_none() {
                return self.take_locked(want);
            }
            let taken = free.min(want.most);
            if self.words.exchange(state.0, state.with_free(free - taken).0) {
                return Ok(taken);
            }
            pause_contended();
        }
    }

    /// Returns the refusal of a call for `n` units, if these loads suffice to know it.
    ///
    /// The next units that return must be more than enough, and not be due.
    fn refusal(&self, state: State, first: First, time: u64, n: u64) -> Option<RateError> {
        // A change under the lock may be half seen: before the state was loaded, or since.
        let versions = [first.version, self.load().version()];
        let due = match first.due.time {
            u64::MAX => {
                Due { time: self.group_due(state), units: first.opened.wrapping_sub(state.free()) }
            }
            _ => first.due,
        };
        let retry_ns = due.time.checked_sub(time).filter(|&ns| ns > 0)?;
        let is_known = versions == [state.version(); 2] && state.free() + due.units >= n;
        is_known.then(|| RateError::Exceeded {
            available: state.free(),
            retry_after: Duration::from_nanos(retry_ns),
        })
    }

    /// Does what `take` does, under the lock.
    #[cold]
    #[inline(never)]
    fn take_locked(&self, want: Want) -> Result<u64, RateError> {
        startup::tier_or_panic();
        let guard = self.lock.lock();
        self.stamps.finish_change(self.load().version());
        loop {
            let state = self.load();
            let time = self.time_after(state);
            let group = self.stamps.opened() - state.free();
            let (returned, stamps) = self.stamps.due_by(time);
            let is_over = time >= self.group_end(state);
            // The group, too, may have been due for long.
            let is_group_due = is_over && time >= self.group_due(state);
            let free = state.free() + returned + if is_group_due { group } else { 0 };
            let taken = if free >= want.least { free.min(want.most) } else { 0 };
            let start = if is_over { time } else { state.start() };
            let new = state.next(free - taken, start);
            // The units that are in groups other than the open one are out before it begins.
            let opened = if is_over { free } else { free + group };
            let stamp = (is_over && !is_group_due && group > 0)
                .then_some(Due { time: self.group_due(state), units: group });
            self.stamps.prepare_change(new.version(), stamps, stamp, opened);
            if !self.words.exchange(state.0, new.0) {
                continue;
            }
            self.stamps.finish_change(new.version());
            return match taken >= want.least {
                true => Ok(taken),
                false => Err(self.refusal_locked(&guard, new, time, want.least)),
            };
        }
    }

    /// Returns the refusal of a call for `n` units: when as many will have returned.
    fn refusal_locked(&self, _guard: &Guard<'_>, state: State, time: u64, n: u64) -> RateError {
        let missing = n.saturating_sub(state.free());
        let due = self.stamps.time_of(missing).unwrap_or(self.group_due(state));
        RateError::Exceeded {
            available: state.free(),
            retry_after: Duration::from_nanos(due.saturating_sub(time).max(1)),
        }
    }

    /// Loads the words. They may never have been there together; then an exchange fails.
    #[inline]
    fn load(&self) -> State {
        State(self.words.load())
    }

    /// Reads the clock, after `state` was loaded. So its group has begun by then.
    #[inline]
    fn time_after(&self, state: State) -> u64 {
        Host::time().max(state.start())
    }

    /// Returns the time at which the open group ends.
    fn group_end(&self, state: State) -> u64 {
        // A new window is in a group that began at the time 0 with no units taken.
        state.start().saturating_add(self.span_ns)
    }

    /// Returns the time at which the units of the open group return.
    fn group_due(&self, state: State) -> u64 {
        self.group_end(state).saturating_add(self.period_ns)
    }
}
