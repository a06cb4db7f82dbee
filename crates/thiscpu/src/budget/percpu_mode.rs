//! What an acquire or a release does when its section did not commit.
//!
//! A unit is at any instant in exactly one place: in the pool, lent, or held. Units that are lent are in
//! lanes or nowhere yet: the pool counts them as lent before a lane gets them. A borrower that is stopped
//! in between, or finds a recall under way, leaves them so; the next recall takes what is lent and not taken
//! as free again. Nobody ever has to finish somebody else's transfer, nor wait for it.

use super::credit::{Credit, Window};
use super::pool::PoolState;
use super::{Budget, Exhausted, countable};
use crate::lanes::here;
use crate::lanes::table;
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::atomic::Ordering::Acquire;
use crate::sys::errno;
use crate::sys::startup;

/// The most that a lane borrows at once, unless a single call wants more.
pub(super) const BATCH_MAX: i64 = 1024;
/// Less than this is not worth a lane.
const BATCH_MIN: i64 = 8;
/// So much is lent between two recalls at most; a lane counts it times 64.
const LENT_MAX: i64 = 1 << 56;
/// A lane keeps at most so many batches.
const BATCHES_KEPT: i64 = 4;

impl Budget {
    #[cold]
    #[inline(never)]
    pub(super) fn try_acquire_percpu(&self, n: u64) -> Result<(), Exhausted> {
        startup::tier_or_panic();
        // More than there can be is refused as all that is too much.
        let wanted = n.min(Self::LIMIT_MAX + 1) as i64;
        let mut attempts = 0;
        loop {
            let now = self.pool.load();
            if !now.is_shared() {
                if self.retry_lane(&mut attempts, wanted) {
                    return Ok(());
                }
                if now.units() < wanted {
                    self.recall();
                } else if self.borrow(now, wanted) {
                    return Ok(());
                }
            } else if now.is_queued() && !self.is_recovered() {
                self.recover_after_fork();
            } else if now.available() < n {
                return Err(Exhausted { available: now.available() });
            } else if self.take(now, wanted) {
                return Ok(());
            }
        }
    }

    /// What there is, of which a refusal tells, is taken in one exchange.
    #[cold]
    pub(super) fn acquire_up_to(&self, n: u64) -> u64 {
        // More than can be counted would be refused without the budget becoming tight.
        let n = n.min(Self::LIMIT_MAX);
        loop {
            let now = self.pool.load();
            match now.is_shared() && (!now.is_queued() || self.is_recovered()) {
                false if self.try_acquire_shared(n).is_ok() => return n,
                false => {}
                true => {
                    let taken = now.available().min(n);
                    if taken == 0 || self.take(now, taken as i64) {
                        return taken;
                    }
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn release_percpu(&self, n: u64) {
        startup::tier_or_panic();
        // Acquire: pairs with the Release in `change_limit`.
        let limit = self.limit.load(Acquire);
        // So much may be held if the limit was higher before.
        let may_be_held = |n: &i64| *n <= limit || self.pool.load().units() + n <= limit;
        let Some(released) = countable(n).filter(may_be_held) else {
            return self.release_checked(n);
        };
        if !self.retry_lane(&mut 0, -released) {
            self.released(self.pool.add(released), n);
        }
    }

    /// Tries the section again, as often as is worth while. Whether it committed.
    fn retry_lane(&self, attempts: &mut u32, n: i64) -> bool {
        let _errno = errno::save();
        while *attempts < ATTEMPTS {
            *attempts += 1;
            match self.take_from_lane(n) {
                Outcome::Done => return true,
                Outcome::Aborted => {}
                Outcome::NoLane | Outcome::Shut if here::join() => {}
                _ => *attempts = ATTEMPTS,
            }
        }
        false
    }

    /// Takes `n` units from a loose pool, and some more for this thread's lane. False if the pool has
    /// changed meanwhile.
    fn borrow(&self, now: PoolState, n: i64) -> bool {
        // Acquire: before the look at the gate. Whoever finds this number unchanged in a section borrowed
        // in that epoch, after the recall that began it: until that is over the gate is closed, and what is
        // lent is taken back although the number is the new one.
        let recalls = self.recalls.load(Acquire);
        let is_closed = self.gate.look().is_closed();
        let has_lane = here::entry() != 0;
        let batch = if is_closed || !has_lane { 0 } else { batch(now.units() - n) };
        if is_closed {
            self.redo_lost_recall();
        }
        if self.pool.lent() > LENT_MAX {
            self.recall();
            return false;
        }
        if !self.pool.lend(now, n, batch) {
            return false;
        }
        if batch > 0 {
            self.add_credit(recalls, batch, n);
        }
        true
    }

    /// A closed gate and a loose pool are what a recall looks like that is under way, or one that ended too soon, by a
    /// fork or a panic. The latter is done again.
    #[cold]
    fn redo_lost_recall(&self) {
        let _errno = errno::save();
        if let Some(guard) = self.try_lock() {
            let is_lost = self.gate.look().is_closed() && !self.pool.load().is_shared();
            let excess = if is_lost { self.to_shared_mode(&guard) } else { 0 };
            self.unlock(guard);
            self.report_excess(excess);
        }
    }

    /// Gives what was borrowed to this thread's lane. If that cannot be done it stays lent to nobody
    /// until the next recall.
    fn add_credit(&self, recalls: u64, batch: i64, n: i64) {
        let _errno = errno::save();
        for _ in 0..ATTEMPTS {
            let (entry, item) = (here::entry(), self.gate.look().item());
            let Some(item) = item.filter(|_| entry != 0) else { return };
            let old = Credit::at_entry(item, entry).window();
            let capacity = (BATCHES_KEPT * batch).max(2 * (batch + n));
            let new = Window::new(old.lent() + batch, capacity);
            // SAFETY: this is a budget's gate.
            let outcome =
                unsafe { Processor::admit(self.gate.word(), &self.recalls, recalls, old.0, new.0) };
            match outcome {
                // Another thread of this lane borrowed at the same time, or this one has moved.
                Outcome::Differs if self.recalls.load(Acquire) == recalls => {}
                Outcome::Aborted => {}
                _ => return,
            }
        }
    }
}

/// How much a lane borrows from a pool that has so many units left: less and less as they become few.
fn batch(units: i64) -> i64 {
    let share = units / (4 * table::in_use().max(1) as i64);
    if share < BATCH_MIN { 0 } else { share.min(BATCH_MAX) }
}
