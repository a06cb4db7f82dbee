//! Adds whose section did not commit.

use super::cell::CounterCell;
use super::core::{Batch, Core, Storage};
use super::pair::{Pair, Sealed};
use super::window::{AMOUNT_MAX, Window};
use crate::lanes::current;
use crate::lanes::table::lane_of;
use crate::section::{ATTEMPTS, Outcome, Processor, Sections as _};
use crate::sys::Host;
use crate::sys::errno;
use crate::sys::machine::{Machine as _, spins};
use crate::sys::startup;
use crate::tier::Tier;

/// How many spins an adder leaves a contended pair alone; at most a microsecond or two.
const CONTENDED_SPINS: u32 = spins(64);

impl<S: Storage> Core<S> {
    /// Adds `n` to counter `index`.
    ///
    /// Never waits for another thread. A signal handler may call it, whatever part of this library
    /// it interrupts.
    #[cold]
    #[inline(never)]
    pub(super) fn add_slow(&self, index: usize, n: i64) {
        // In shared mode each add comes here. So this function only jumps on, without a stack
        // frame: the locked exchange that follows would wait for the stores of one.
        match startup::chosen() {
            Some(_) if self.gate.load().is_closed() => self.add_shared(index, n),
            Some(Tier::Atomic) => self.add_atomic(index, n),
            Some(tier) => self.add_again(tier, index, n),
            None => self.start_and_add(index, n),
        }
    }

    /// Adds in the atomic tier.
    ///
    /// The first attempt takes the lane that a few loads find, and makes no call.
    #[inline(never)]
    fn add_atomic(&self, index: usize, n: i64) {
        let outcome = self.add_to_pair(current::any_entry(), index, n, Pair::add_small);
        if outcome != Outcome::Committed {
            self.add_again(Tier::Atomic, index, n);
        }
    }

    #[inline(never)]
    fn start_and_add(&self, index: usize, n: i64) {
        startup::tier_or_panic();
        self.add_slow(index, n);
    }

    #[inline(never)]
    fn add_again(&self, tier: Tier, index: usize, n: i64) {
        let _errno = errno::save();
        current::enable_direct();
        for _ in 0..ATTEMPTS {
            let again = match self.add_to_lane(tier, index, n) {
                Outcome::Committed => return,
                // The gate may have closed, or this thread's lane index may be new.
                Outcome::GateClosed | Outcome::NoLane => current::acquire_lane(),
                Outcome::OutsideWindow => self.move_window(index, n),
                Outcome::Mismatch | Outcome::Aborted => true,
            };
            if !again {
                break;
            }
        }
        self.add_shared(index, n);
    }

    fn add_to_lane(&self, tier: Tier, index: usize, n: i64) -> Outcome {
        match tier {
            Tier::Atomic => self.add_to_pair(current::entry(), index, n, Pair::add_saved),
            // SAFETY: this is a counter's gate. Its item has a cell of this size for each of the
            // counters, and only the drop frees it.
            _ => unsafe {
                Processor::add_windowed_at(self.gate.word(), index * super::cell::bytes(tier), n)
            },
        }
    }

    /// Adds to a lane's pair; this is what the atomic tier has instead of a section.
    ///
    /// `entry` is the table entry of the lane, or 0. `add` adds to the pair, if no other thread has
    /// changed it since it was loaded.
    #[inline(always)]
    fn add_to_pair(
        &self,
        entry: usize,
        index: usize,
        n: i64,
        add: impl FnOnce(&Pair, Sealed, i64) -> bool,
    ) -> Outcome {
        let gate = self.gate.load();
        let Some(item) = gate.item().filter(|_| !gate.is_closed()) else {
            return Outcome::GateClosed;
        };
        if entry == 0 {
            return Outcome::NoLane;
        }
        let (cell, lane) = (CounterCell::in_tier(Tier::Atomic, item, index), lane_of(entry));
        let pair = cell.pair(lane, gate.bank());
        let now = pair.load();
        let window = cell.window(lane, gate.bank());
        // The order matters: load the pair, load the gate, exchange. See `pair`.
        if self.gate.load() != gate || now.seal.is_sealed() {
            return Outcome::Mismatch;
        }
        if !now.seal.is_open() || !window.holds(now.total().wrapping_add(n)) {
            return Outcome::OutsideWindow;
        }
        if add(pair, now, n) { Outcome::Committed } else { Outcome::Mismatch }
    }

    /// Adds to the shared lane. Lock-free: it retries if another thread changed the pair.
    fn add_shared(&self, index: usize, n: i64) {
        loop {
            let gate = self.gate.load();
            let pair = &self.shared()[index][gate.bank()];
            let now = pair.load();
            if self.gate.load() != gate || now.seal.is_sealed() {
                Host::pause();
                continue;
            }
            let (seal, enough) = now.seal.added();
            let new = Sealed { count: now.count.wrapping_add(n), seal };
            if pair.exchange(now, new) {
                let stuck = gate.is_closed() && !now.seal.is_shared();
                if (enough || stuck) && self.batch != Batch::Disabled {
                    let _errno = errno::save();
                    self.try_percpu_mode();
                }
                return;
            }
            // Another CPU has the cache line. Leaving the line alone for a moment lets that CPU
            // finish several adds with it.
            (0..CONTENDED_SPINS).for_each(|_| Host::pause());
        }
    }

    /// Moves the window of this thread's lane to make room for `n`, and publishes the move.
    ///
    /// Returns whether another attempt may succeed; if not, the add goes to the shared lane.
    ///
    /// The published estimate covers the lane at every instant. First it is widened to cover the
    /// old and the new window, then the window moves, then it is narrowed. One thread at a time
    /// does this to a lane. So a thread that is stopped half way widens the bounds by one move.
    fn move_window(&self, index: usize, n: i64) -> bool {
        let gate = self.gate.load();
        let entry = current::entry();
        let Some(item) = gate.item().filter(|_| n.unsigned_abs() <= AMOUNT_MAX && entry != 0)
        else {
            return false;
        };
        if !self.is_recovered() && self.try_lock().is_none() {
            return false;
        }
        let (cell, lane) = (CounterCell::of(item, index), lane_of(entry));
        let Some(_claim) = WindowClaim::take(cell, lane) else { return false };
        let (old, count) = (cell.window(lane, gate.bank()), cell.count(lane, gate.bank()));
        if old.holds(count.wrapping_add(n)) {
            return true;
        }
        let half = self.batch.half().max(2 * n.unsigned_abs()).max(old.half() / 2);
        let new = Window::around(count, half);
        let (from, to) = (old.estimate(), new.estimate());
        let cover = from.cover(to);
        cell.published_state().publish(from.delta(cover));
        let moved = cell.move_window(lane, gate.bank(), new);
        cell.published_state().publish(cover.delta(if moved { to } else { from }));
        true
    }
}

/// The right to move a lane's windows.
struct WindowClaim {
    cell: CounterCell,
    bit: u64,
}

impl WindowClaim {
    fn take(cell: CounterCell, lane: usize) -> Option<WindowClaim> {
        use crate::sys::atomic::Ordering::Acquire;
        let bit = 1 << (lane % 64);
        // Acquire: pairs with the Release in the drop of the previous claim; its window is visible.
        let before = cell.published_state().claims.fetch_or(bit, Acquire);
        // Not `then_some`: it would create a claim in any case, and its drop would end the other
        // thread's.
        (before & bit == 0).then(|| WindowClaim { cell, bit })
    }
}

impl Drop for WindowClaim {
    fn drop(&mut self) {
        use crate::sys::atomic::Ordering::Release;
        // Release: pairs with the Acquire in `take`; the next claim sees this one's window.
        self.cell.published_state().claims.fetch_and(!self.bit, Release);
    }
}
