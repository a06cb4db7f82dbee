//! The slow path, for calls that no section and no exchange settles; and loans to lanes.
//!
//! A lane is lent units under the lock, from the pool and by one exchange. Only the holder of the
//! lock changes a window, so a loan needs no section, and reaches its lane before a recall can
//! begin. A thread that does not get the lock takes its own units from the pool.
//!
//! # What a lane may be lent
//!
//! At a loan the lender loads what the lane has taken, and then reads the clock. Units that were
//! taken before the clock was read are *seen*. After the loan the lane has been lent at most
//! `loan_max` units that were not seen to be taken. With `lanes * loan_max <= share`, all lanes
//! have at most the share. In per-CPU mode the pool earns up to `burst - share`. So whenever the
//! pool earns, it has at most the burst together with all that lanes hold or took since they were
//! last seen. The design page shows that this keeps the rate.

use super::core::{Look, Rate};
use super::error::RateError;
use crate::budget::credit::{Credit, SCALE, Window};
use crate::budget::shared_mode::pause_contended;
use crate::lanes::{current, table};
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::atomic::Ordering::{Relaxed, Release};
use crate::sys::errno;
use crate::sys::lock::Guard;
use crate::sys::startup;

/// The fewest units worth lending.
pub(super) const LOAN_MIN: u64 = 8;
/// Once more units than this have been lent to a lane, a recall starts its count over.
///
/// A lane counts units times 64, which must not overflow.
const LENT_MAX: i64 = 1 << 54;
/// The capacity of a lane's window, in units: more than a lane's share of any burst.
const CAPACITY: i64 = 1 << 40;

impl Rate {
    /// Acquires `n` units by whatever the pool's mode asks for.
    #[cold]
    #[inline(never)]
    pub(super) fn try_acquire_slow(&self, n: u64) -> Result<(), RateError> {
        startup::tier_or_panic();
        let mut attempts = 0;
        loop {
            let look = self.look();
            if look.state.is_closed() {
                return Err(RateError::Closed);
            }
            look.check_request(n)?;
            if !look.state.is_shared() {
                if self.retry_lane(&mut attempts, n) {
                    return Ok(());
                }
                if look.level < look.terms.quanta(n) {
                    self.recall();
                } else if self.take_and_borrow(n) {
                    return Ok(());
                }
            } else if look.state.is_queued() {
                if self.is_recovered() {
                    return Err(self.promised(&look, n));
                }
                self.recover_after_fork();
            } else {
                look.check(n)?;
                if self.take(&look, n) {
                    return Ok(());
                }
                pause_contended();
            }
        }
    }

    /// Acquires as many units as are available, at most `n`, in one exchange.
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_up_to(&self, n: u64) -> u64 {
        startup::tier_or_panic();
        loop {
            let look = self.look();
            let available = look.terms.units(look.level).min(n);
            if !look.state.is_shared() {
                match available == n {
                    true if self.take_and_borrow(n) => return n,
                    true => {}
                    false => self.recall(),
                }
            } else if look.state.is_queued() && !self.is_recovered() {
                self.recover_after_fork();
            } else if !look.state.is_open() || available == 0 {
                return 0;
            } else if self.take(&look, available) {
                return available;
            }
        }
    }

    /// Returns the refusal of a call that comes while waiters are promised all units.
    fn promised(&self, look: &Look, n: u64) -> RateError {
        // Relaxed: a figure for the caller, which may be old.
        let units = n.saturating_add(self.loan.queued.load(Relaxed)).min(2 * Self::BURST_MAX);
        let missing = look.terms.quanta(units) - look.level;
        let retry_after = look.terms.time_to_earn(missing.max(1));
        RateError::Exceeded { available: 0, retry_after }
    }

    /// Retries the section as long as that may help; returns whether it committed.
    fn retry_lane(&self, attempts: &mut u32, n: u64) -> bool {
        let _errno = errno::save();
        current::enable_direct();
        while *attempts < ATTEMPTS {
            *attempts += 1;
            match self.try_lane(n) {
                Outcome::Committed => return true,
                Outcome::Aborted => {}
                // `GateClosed` may also mean that the lane index has no lane yet.
                Outcome::NoLane | Outcome::GateClosed if current::acquire_lane() => {}
                _ => *attempts = ATTEMPTS,
            }
        }
        false
    }

    /// Runs the section once.
    #[inline(never)]
    fn try_lane(&self, n: u64) -> Outcome {
        // SAFETY: if the gate is open, it leads to an item of 32 bytes in each lane, which only the
        // drop frees.
        unsafe { Processor::add_windowed(self.gate.word(), n as i64 * SCALE) }
    }

    /// Takes `n` units from a pool in per-CPU mode, and borrows more for this thread's lane.
    ///
    /// Returns `false` if the pool has too few, or has changed.
    fn take_and_borrow(&self, n: u64) -> bool {
        let _errno = errno::save();
        if let Some(guard) = self.try_lock() {
            let is_done = self.borrow(&guard, n);
            drop(guard);
            return is_done;
        }
        let look = self.look();
        !look.state.is_shared() && look.level >= look.terms.quanta(n) && self.take(&look, n)
    }

    /// Does what `take_and_borrow` does, under the lock.
    fn borrow(&self, guard: &Guard<'_>, n: u64) -> bool {
        let gate = self.gate.load();
        let Some(item) = gate.item().filter(|_| !gate.is_closed()) else {
            // A fork or a panic has ended a recall too soon, or the mode has changed.
            self.to_shared_mode(guard);
            return false;
        };
        // Relaxed, both: they change under the lock only.
        let (lanes, loan_max) = (self.lanes.load(Relaxed), self.loan_max.load(Relaxed));
        if table::in_use() > lanes {
            // Lanes that came into use have no part of the share yet.
            self.to_shared_mode(guard);
            self.to_percpu_mode(guard);
            return false;
        }
        let entry = current::entry();
        let credit = (entry != 0).then(|| Credit::at_entry(item, entry));
        // Before the clock is read: units that are seen here were taken by then.
        let lane = credit.map(|credit| (credit.window().lent(), credit.taken()));
        let look = self.look();
        let level = look.level - look.terms.quanta(n);
        if look.state.is_shared() || level < 0 {
            return false;
        }
        let Some((credit, (lent, taken))) = credit.zip(lane) else { return self.take(&look, n) };
        if lent > LENT_MAX {
            self.to_shared_mode(guard);
            return false;
        }
        let units = loan(level, &look, lanes, loan_max.saturating_sub((lent - taken) as u64));
        if units < LOAN_MIN {
            return self.take(&look, n);
        }
        self.lend(&look, n + units, entry, &credit, Window::new(lent + units as i64, CAPACITY))
    }

    /// Takes `units` from the pool, and gives the lane of `entry` the window `window`.
    ///
    /// The caller holds the lock.
    fn lend(&self, look: &Look, units: u64, entry: usize, lane: &Credit, window: Window) -> bool {
        let new = look.taken(look.terms.quanta(units)).with_loan();
        // Release, here and below: a child of `fork` that sees one of these stores, or the
        // exchange, also sees what precedes it. See `finish_loan`.
        self.loan.entry.store(entry, Release);
        self.loan.window.store(window.0, Release);
        if !self.shared.pool.exchange(look.state, new) {
            return false;
        }
        lane.set_window(window);
        self.loan.done.store(new.loan_bit().into(), Release);
        true
    }

    /// Finishes a loan that a fork has interrupted. The caller holds the lock.
    ///
    /// If the pool has the loan's bit, its units have left the pool. They may not be in the lane.
    pub(super) fn finish_loan(&self) {
        let state = self.shared.pool.load_mode();
        // Relaxed, all: this process has one thread that holds the lock, and a fork copied the
        // words.
        if u32::from(state.loan_bit()) == self.loan.done.load(Relaxed) {
            return;
        }
        if let Some(item) = self.gate.load().item().filter(|_| !state.is_shared()) {
            let window = Window(self.loan.window.load(Relaxed));
            Credit::at_entry(item, self.loan.entry.load(Relaxed)).set_window(window);
        }
        self.loan.done.store(state.loan_bit().into(), Relaxed);
    }
}

/// Returns how many units to lend to a lane with room for `room`.
///
/// A lane gets at most a quarter of an equal part of the `level` quanta in the pool.
fn loan(level: i128, look: &Look, lanes: usize, room: u64) -> u64 {
    let parts = 4 * lanes.max(1) as u64;
    match look.terms.quanta(room).saturating_mul(parts.into()) <= level {
        true => room,
        false => (look.terms.units(level) / parts).min(room),
    }
}
