//! What an add does when its section did not commit.

use super::cell::CounterCell;
use super::core::{Batch, Core};
use super::pair::Sealed;
use super::window::{AMOUNT_MAX, Window};
use crate::lanes::here;
use crate::lanes::table::lane_of;
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::Host;
use crate::sys::errno;
use crate::sys::machine::{Machine as _, looks};
use crate::sys::startup;
use crate::tier::Tier;

/// How many turns an adder leaves a contended pair alone; below a microsecond or two.
const CONTENDED_SPINS: u32 = looks(64);

impl<const N: usize> Core<N> {
    /// Adds `n` to counter `index`. Never waits for another thread, and may interrupt any part of
    /// this library in a signal handler.
    #[cold]
    #[inline(never)]
    pub(super) fn add_slow(&self, index: usize, n: i64) {
        let tier = match startup::chosen() {
            Some(tier) => tier,
            None => startup::tier_or_panic(),
        };
        if self.gate.look().is_closed() {
            return self.add_shared(index, n);
        }
        let _errno = errno::save();
        for _ in 0..ATTEMPTS {
            let again = match self.add_to_lane(tier, index, n) {
                Outcome::Done => return,
                // The gate may have closed, or this thread's index may be new.
                Outcome::Shut | Outcome::NoLane => here::join(),
                Outcome::Window => self.move_window(index, n),
                Outcome::Differs | Outcome::Aborted => true,
            };
            if !again {
                break;
            }
        }
        self.add_shared(index, n);
    }

    fn add_to_lane(&self, tier: Tier, index: usize, n: i64) -> Outcome {
        match tier {
            Tier::Atomic => self.add_to_pair(index, n),
            // SAFETY: this is a counter's gate; its item has a cell of that size for each counter.
            _ => unsafe {
                Processor::add_windowed_at(self.gate.word(), index * super::cell::bytes(tier), n)
            },
        }
    }

    /// The atomic tier's section.
    fn add_to_pair(&self, index: usize, n: i64) -> Outcome {
        let entry = here::entry();
        let seen = self.gate.look();
        let Some(item) = seen.item().filter(|_| !seen.is_closed()) else { return Outcome::Shut };
        if entry == 0 {
            return Outcome::NoLane;
        }
        let (cell, lane) = (CounterCell::of(item, index), lane_of(entry));
        let pair = cell.pair(lane, seen.bank());
        let now = pair.load();
        let count = now.count.wrapping_add(n);
        let window = cell.window(lane, seen.bank());
        // In this order: the pair, the gate, the exchange. See `pair`.
        if self.gate.look() != seen || now.seal.is_sealed() {
            return Outcome::Differs;
        }
        if now.seal.is_moving() || !window.holds(count) {
            return Outcome::Window;
        }
        // The version stays: an epoch ends with its seal, and within one only counts matter.
        match pair.exchange(now, Sealed { count, ..now }) {
            true => Outcome::Done,
            false => Outcome::Differs,
        }
    }

    /// Adds to the slow lane. Lock-free: another thread's add to it makes this one try again.
    fn add_shared(&self, index: usize, n: i64) {
        loop {
            let seen = self.gate.look();
            let pair = &self.shared[index][seen.bank()];
            let now = pair.load();
            if self.gate.look() != seen || now.seal.is_sealed() {
                Host::pause();
                continue;
            }
            let (seal, enough) = now.seal.added();
            let new = Sealed { count: now.count.wrapping_add(n), seal };
            if pair.exchange(now, new) {
                let stuck = seen.is_closed() && !now.seal.is_shared();
                if (enough || stuck) && self.batch != Batch::Disabled {
                    let _errno = errno::save();
                    self.try_percpu_mode();
                }
                return;
            }
            // Another CPU has the cache line. Leaving it alone for a moment lets that CPU finish
            // several adds with it: two threads that add, compare and subtract took 63 ns without
            // this line and 31 ns with it.
            (0..CONTENDED_SPINS).for_each(|_| Host::pause());
        }
    }

    /// Moves the window of this thread's lane so that `n` more fits, and publishes the move.
    /// Whether trying again is worth while; if not, the add goes to the slow lane.
    ///
    /// At every instant the published extent covers the lane: it is widened to cover the old window
    /// and the new one, then the window moves, then it is narrowed. One thread at a time does this
    /// to a lane, so that threads which are stopped half way widen the bounds by one move a lane.
    fn move_window(&self, index: usize, n: i64) -> bool {
        let seen = self.gate.look();
        let entry = here::entry();
        let Some(item) = seen.item().filter(|_| n.unsigned_abs() <= AMOUNT_MAX && entry != 0)
        else {
            return false;
        };
        if !self.is_recovered() && self.try_lock().is_none() {
            return false;
        }
        let (cell, lane) = (CounterCell::of(item, index), lane_of(entry));
        let Some(_claim) = WindowClaim::take(cell, lane) else { return false };
        let (old, count) = (cell.window(lane, seen.bank()), cell.count(lane, seen.bank()));
        if old.holds(count.wrapping_add(n)) {
            return true;
        }
        let half = self.batch.half().max(2 * n.unsigned_abs()).max(old.half() / 2);
        let new = Window::around(count, half);
        let (from, to) = (old.estimate(), new.estimate());
        let cover = from.cover(to);
        cell.published_state().publish(from.delta(cover));
        let moved = cell.move_window(lane, seen.bank(), new);
        cell.published_state().publish(cover.delta(if moved { to } else { from }));
        true
    }
}

/// The right to change a lane's windows.
struct WindowClaim {
    cell: CounterCell,
    bit: u64,
}

impl WindowClaim {
    fn take(cell: CounterCell, lane: usize) -> Option<WindowClaim> {
        use crate::sys::atomic::Ordering::Acquire;
        let bit = 1 << (lane % 64);
        // Acquire: pairs with the Release of the claim before; its window is visible.
        let before = cell.published_state().claims.fetch_or(bit, Acquire);
        // Not `then_some`: a claim that is made and dropped would end the other thread's.
        (before & bit == 0).then(|| WindowClaim { cell, bit })
    }
}

impl Drop for WindowClaim {
    fn drop(&mut self) {
        use crate::sys::atomic::Ordering::Release;
        self.cell.published_state().claims.fetch_and(!self.bit, Release);
    }
}
