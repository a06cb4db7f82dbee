//! A counter is *spread* over lanes, or it is *tight*: one word, exact, and its gate is closed.
//!
//! It begins tight, and costs no memory but its own. After some adds it is spread. It becomes tight
//! again when a comparison needs its exact value (the value is near a limit, and the next
//! comparison will need it too), and for `set` and `take`, which then are one exchange. It is spread
//! again when many adds have passed without a comparison.
//!
//! While it is tight the active shared pair is the whole value, whatever lanes and the other pair
//! hold; while it is spread, the value is the sum of both pairs and all lanes. Each way the change is one
//! exchange of the active pair, so that at any instant, a fork's included, exactly one reading holds.

use super::cell::{self, CounterCell};
use super::core::{Batch, Core};
use super::pair::{Pair, Sealed};
use crate::lanes::region;
use crate::quiesce::ITEM_ALIGN;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::lock::Guard;
use crate::sys::startup;

/// How often an adder tries to end tight mode while others change the pair; it must not wait.
const PERCPU_ATTEMPTS: u32 = 8;

impl<const N: usize> Core<N> {
    /// Opens the gate, taking memory in the lanes if there is none yet. Does nothing if somebody
    /// else holds the lock, if others keep changing the pair, or if no memory can be had: the
    /// counter then stays as it is, and right.
    #[cold]
    pub(super) fn try_percpu_mode(&self) {
        if let Some(guard) = self.try_lock() {
            self.to_percpu_mode(&guard);
        }
    }

    pub(super) fn to_percpu_mode(&self, _guard: &Guard<'_>) {
        let seen = self.gate.look();
        if !seen.is_closed() || self.batch == Batch::Disabled {
            return;
        }
        let Some(item) = seen.item().or_else(|| self.alloc_lanes()) else { return };
        let is_percpu = (0..N).all(|index| {
            let [active, other] = self.active_first(index, seen.bank());
            let lanes = CounterCell::of(item, index).published_state().total.load(Relaxed);
            // While the active pair is tight this does not count; once it is spread, the other pair
            // and the lanes cancel out.
            if active.load().seal.is_shared() {
                other.update(|now| Sealed { count: lanes.wrapping_neg(), seal: now.seal.sealed() });
            }
            set_percpu(active)
        });
        if is_percpu {
            self.gate.turn(seen.opened(item));
        }
    }

    /// Takes memory in the lanes, unless somebody is changing the regions right now.
    fn alloc_lanes(&self) -> Option<usize> {
        region::try_lock()?.allocate(N * cell::bytes(startup::tier_or_panic()), ITEM_ALIGN).ok()
    }
}

fn set_percpu(active: &Pair) -> bool {
    (0..PERCPU_ATTEMPTS).any(|_| {
        let now = active.load();
        !now.seal.is_shared() || active.exchange(now, Sealed { seal: now.seal.opened(), ..now })
    })
}

impl<const N: usize> Core<N> {
    /// The value, if the counter is tight; only a counter that is alone ever is.
    pub(super) fn shared_value(&self) -> Option<Sealed> {
        self.shared[0][self.gate.look().bank()].load_shared()
    }
}

impl Core<1> {
    /// Makes the counter tight and returns its value at an instant within this call.
    pub(super) fn to_shared_mode(&self, guard: &Guard<'_>) -> i64 {
        if let Some(now) = self.shared_value() {
            return now.count;
        }
        let [lanes] = self.flip(guard, |gate| gate.closed()).lanes;
        let seen = self.gate.look();
        let [active, other] = self.active_first(0, seen.bank());
        let frozen = lanes.wrapping_add(other.load().count);
        if let Some(cell) = self.cell(0) {
            cell.published_state().total.store(lanes, Relaxed);
        }
        let tight =
            |now: Sealed| Sealed { count: now.count.wrapping_add(frozen), seal: now.seal.shared() };
        tight(active.update(tight)).count
    }

    /// Sets the value to `value` at one instant, and returns what it was at that instant.
    pub(super) fn swap(&self, value: i64) -> i64 {
        loop {
            if let Some(old) = self.try_swap(value) {
                return old;
            }
            let guard = self.lock();
            let was_open = !self.gate.look().is_closed();
            self.to_shared_mode(&guard);
            let old = self.try_swap(value);
            if was_open {
                self.to_percpu_mode(&guard);
            }
            if let Some(old) = old {
                return old;
            }
        }
    }

    /// As `replace`, if the counter is tight.
    fn try_swap(&self, value: i64) -> Option<i64> {
        let pair = &self.shared[0][self.gate.look().bank()];
        loop {
            let now = pair.load();
            if !now.seal.is_shared() {
                return None;
            }
            if pair.exchange(now, Sealed { count: value, ..now }) {
                return Some(now.count);
            }
        }
    }

    /// Notes that a tight counter is still being compared.
    pub(super) fn note_compare(&self, seen: Sealed) {
        if !seen.seal.is_compared() {
            let pair = &self.shared[0][self.gate.look().bank()];
            // If somebody changed the pair meanwhile, the next comparison notes it.
            pair.exchange(seen, Sealed { seal: seen.seal.compared(), ..seen });
        }
    }
}
