//! A counter's mode: *shared*, one exact word behind a closed gate, or *per-CPU*, spread over
//! lanes.
//!
//! A counter starts in shared mode, without memory in lanes. After some adds it changes to per-CPU
//! mode. It returns to shared mode when a comparison needs the exact value: the value is near a
//! limit, and the next comparison will need it too. `set` and `take` also use shared mode, in which
//! they are one exchange. After many adds without a comparison the counter changes to per-CPU mode
//! again.
//!
//! In shared mode the active shared pair is the whole value, whatever the lanes and the other pair
//! hold. In per-CPU mode the value is the sum of both pairs and all lanes. Each change of mode is
//! one exchange of the active pair. So at any instant, that of a fork included, exactly one reading
//! holds.

use super::cell::{self, CounterCell};
use super::core::{Batch, Core, Inline, Storage};
use super::pair::{Pair, Sealed};
use crate::gate::ITEM_ALIGN;
use crate::lanes::region;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::lock::Guard;
use crate::sys::startup;

/// How often an adder, which must not wait, tries to leave shared mode under contention.
const PERCPU_ATTEMPTS: u32 = 8;

impl<S: Storage> Core<S> {
    /// Changes to per-CPU mode, after allocating lanes if there are none yet.
    ///
    /// Does nothing if another thread holds the lock, if others keep changing the pair, or if
    /// memory is unavailable. The counter then stays as it is, and exact.
    #[cold]
    pub(super) fn try_percpu_mode(&self) {
        if let Some(guard) = self.try_lock() {
            self.to_percpu_mode(&guard);
        }
    }

    pub(super) fn to_percpu_mode(&self, _guard: &Guard<'_>) {
        let gate = self.gate.load();
        if !gate.is_closed() || self.batch == Batch::Disabled {
            return;
        }
        let Some(item) = gate.item().or_else(|| self.alloc_lanes()) else { return };
        let is_percpu = (0..self.len()).all(|index| {
            let [active, other] = self.active_first(index, gate.bank());
            let lanes = CounterCell::of(item, index).published_state().total.load(Relaxed);
            // In shared mode the other pair does not count. Once the active pair leaves it, this
            // count and the lanes cancel out.
            if active.load().seal.is_shared() {
                other.update(|now| Sealed { count: lanes.wrapping_neg(), seal: now.seal.sealed() });
            }
            set_percpu(active)
        });
        if is_percpu {
            self.gate.set(gate.opened(item));
        }
    }

    /// Allocates memory in the lanes, unless another thread is changing the regions right now.
    fn alloc_lanes(&self) -> Option<usize> {
        let bytes = self.len() * cell::bytes(startup::tier_or_panic());
        region::try_lock()?.allocate_if_possible(bytes, ITEM_ALIGN)
    }
}

fn set_percpu(active: &Pair) -> bool {
    (0..PERCPU_ATTEMPTS).any(|_| {
        let now = active.load();
        !now.seal.is_shared() || active.exchange(now, Sealed { seal: now.seal.opened(), ..now })
    })
}

impl<S: Storage> Core<S> {
    /// Returns the value if the counter is in shared mode, which only a single counter ever is.
    pub(super) fn shared_value(&self) -> Option<Sealed> {
        self.shared()[0][self.gate.load().bank()].load_shared()
    }
}

impl Core<Inline<1>> {
    /// Changes to shared mode; returns the value at an instant of this call.
    pub(super) fn to_shared_mode(&self, guard: &Guard<'_>) -> i64 {
        if let Some(now) = self.shared_value() {
            return now.count;
        }
        let lanes = self.flip(guard, |gate| gate.closed());
        let gate = self.gate.load();
        let [active, other] = self.active_first(0, gate.bank());
        let frozen = lanes.wrapping_add(other.load().count);
        if let Some(cell) = self.cell(0) {
            cell.published_state().total.store(lanes, Relaxed);
        }
        let to_shared =
            |now: Sealed| Sealed { count: now.count.wrapping_add(frozen), seal: now.seal.shared() };
        to_shared(active.update(to_shared)).count
    }

    /// Sets the value at one instant, and returns the value it had at that instant.
    pub(super) fn swap(&self, value: i64) -> i64 {
        loop {
            if let Some(old) = self.try_swap(value) {
                return old;
            }
            let guard = self.lock();
            let was_open = !self.gate.load().is_closed();
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

    /// Sets the value and returns the old one, if the counter is in shared mode.
    fn try_swap(&self, value: i64) -> Option<i64> {
        let pair = &self.shared()[0][self.gate.load().bank()];
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

    /// Records that a counter in shared mode is still being compared.
    pub(super) fn note_compare(&self, now: Sealed) {
        if !now.seal.is_compared() {
            let pair = &self.shared()[0][self.gate.load().bank()];
            // If another thread changed the pair meanwhile, the next comparison records it.
            pair.exchange(now, Sealed { seal: now.seal.compared(), ..now });
        }
    }
}
