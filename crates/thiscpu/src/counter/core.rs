//! The words that a `Counter` and `Counters` are made of: a gate, a lock, and shared pairs.

use core::borrow::Borrow;

use super::cell::CounterCell;
use super::pair::{Pair, Seal};
use super::window::{Estimate, HALF_MIN};
use crate::gate::Gate;
use crate::lanes::{region, table};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicBool, AtomicI64, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::{Machine as _, spins};
use crate::sys::startup;

/// Counters that share a gate, so that one flip is one instant for all of them.
#[repr(C)]
pub(crate) struct Core<S: Storage> {
    pub(super) gate: Gate,
    /// Held by the thread that changes the gate.
    pub(super) lock: Lock,
    /// The number of flips that have begun.
    pub(super) flips: AtomicU32,
    /// The generation of the process that has released its parent's claims.
    recovered: AtomicU32,
    pub(super) batch: Batch,
    /// Whether the last flip did not end, because of a fork or a panic for lack of a fence.
    ///
    /// Then `last` is of no use.
    pub(super) flip_incomplete: AtomicBool,
    /// The value of each counter at the last flip. Only holders of the lock access it.
    last: S::Last,
    /// The shared lane: a pair for each counter in each bank.
    shared: S::Shared,
}

/// Where a core keeps the words of its counters.
pub(crate) trait Storage {
    type Last: Borrow<[AtomicI64]>;
    type Shared: Borrow<[[Pair; 2]]>;
}

/// `N` counters in the core itself.
pub(crate) struct Inline<const N: usize>;

impl<const N: usize> Storage for Inline<N> {
    type Last = [AtomicI64; N];
    type Shared = [[Pair; 2]; N];
}

/// Counters in memory of the Rust allocator, as many as a caller asks for.
pub(crate) struct Allocated;

impl Storage for Allocated {
    type Last = Box<[AtomicI64]>;
    type Shared = Box<[[Pair; 2]]>;
}

/// How far a lane may drift from its published count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// [`DEFAULT_BATCH`] for each lane in use, rounded up.
    ///
    /// The more CPUs publish, the less often each does, so the published word does not become a
    /// bottleneck.
    PerLane,
    /// 2 to this power.
    Fixed(u8),
    /// The counter stays in shared mode.
    Disabled,
}

pub(crate) const DEFAULT_BATCH: u64 = 1024;

/// How often changing shared pairs are read again.
///
/// A flip takes some 50 ns from opening one pair to freezing the other, unless it is interrupted.
const MAX_READS: u32 = 1 + spins(63);

impl Batch {
    pub(crate) const fn of(batch: u64) -> Batch {
        match batch {
            0 | 1 => Batch::Disabled,
            _ if batch > 1 << 40 => Batch::Fixed(40),
            _ => Batch::Fixed(batch.next_power_of_two().trailing_zeros() as u8),
        }
    }

    pub(super) fn half(self) -> u64 {
        match self {
            Batch::PerLane => DEFAULT_BATCH * table::in_use().next_power_of_two() as u64,
            Batch::Fixed(power) => (1 << power).max(HALF_MIN),
            Batch::Disabled => HALF_MIN,
        }
    }
}

impl<const N: usize> Core<Inline<N>> {
    /// Creates counters with value 0.
    pub(crate) const fn new(batch: Batch) -> Self {
        let last = [const { AtomicI64::new(0) }; N];
        Core::of(batch, last, [const { new_pairs(N) }; N])
    }
}

impl Core<Allocated> {
    /// Creates `len` counters with value 0; `None` without memory.
    pub(super) fn try_new(batch: Batch, len: usize) -> Option<Self> {
        let last = try_boxed(len, || AtomicI64::new(0))?;
        Some(Core::of(batch, last, try_boxed(len, || new_pairs(len))?))
    }
}

/// Returns the pairs of a new counter, one of `len` that share a gate.
///
/// A single counter starts in shared mode. Several start in per-CPU mode, without memory in the
/// lanes: one exchange cannot read all of them, so they have no shared mode.
const fn new_pairs(len: usize) -> [Pair; 2] {
    let active = if len == 1 { Seal::SHARED } else { Seal::OPEN };
    [Pair::new(active), Pair::new(Seal::SEALED)]
}

fn try_boxed<T>(len: usize, new: impl FnMut() -> T) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).ok()?;
    values.resize_with(len, new);
    Some(values.into_boxed_slice())
}

impl<S: Storage> Core<S> {
    const fn of(batch: Batch, last: S::Last, shared: S::Shared) -> Self {
        Core {
            gate: Gate::new(),
            lock: Lock::new(),
            flips: AtomicU32::new(0),
            recovered: AtomicU32::new(0),
            batch,
            flip_incomplete: AtomicBool::new(false),
            last,
            shared,
        }
    }

    /// Returns the number of counters.
    pub(super) fn len(&self) -> usize {
        self.last().len()
    }

    /// Returns the value of each counter at the last flip.
    pub(super) fn last(&self) -> &[AtomicI64] {
        self.last.borrow()
    }

    /// Returns the shared lane: a pair for each counter in each bank.
    pub(super) fn shared(&self) -> &[[Pair; 2]] {
        self.shared.borrow()
    }

    /// Acquires the right to change the gate. Waits for its holder.
    pub(super) fn lock(&self) -> Guard<'_> {
        startup::tier_or_panic();
        let guard = self.lock.lock();
        self.recover_after_fork(&guard);
        guard
    }

    /// Acquires the lock if nobody holds it. Never waits, so adders may call it.
    pub(super) fn try_lock(&self) -> Option<Guard<'_>> {
        let guard = self.lock.try_lock()?;
        self.recover_after_fork(&guard);
        Some(guard)
    }

    /// Releases the claims of threads that a fork did not copy; the first lock holder does it.
    ///
    /// Sums need no recovery: each step of a flip leaves every add in exactly one place. The slack
    /// that a thread was publishing stays too wide, which keeps the bounds true.
    fn recover_after_fork(&self, _guard: &Guard<'_>) {
        if self.is_recovered() {
            return;
        }
        let gate = self.gate.load();
        if let Some(item) = gate.item() {
            self.release_claims(item);
        }
        // An interrupted flip may have left the inactive pairs open, and `try_estimate` needs them
        // frozen.
        self.freeze_shared(gate.flipped().bank());
        // Release: pairs with the Acquire in `is_recovered`. A thread that sees this generation
        // claims lanes after their claims were released.
        self.recovered.store(Host::generation(), Release);
    }

    /// Returns whether all claims on lanes are of this process, so that one may be taken.
    pub(super) fn is_recovered(&self) -> bool {
        self.recovered.load(Acquire) == Host::generation()
    }

    fn release_claims(&self, item: usize) {
        for index in 0..self.len() {
            let cell = CounterCell::of(item, index);
            for lane in 1..=table::in_use() {
                cell.end_window_move(lane, 0);
                cell.end_window_move(lane, 1);
            }
            // Relaxed: `recovered` publishes it, and nobody claims before that.
            cell.published_state().claims.store(0, Relaxed);
        }
    }

    /// Returns the estimate and slack of counter `index`, at one instant of this call.
    ///
    /// Never waits. Flips, and adds to the shared lane, make it read again. After `MAX_READS`
    /// attempts it returns an estimate with unlimited slack.
    pub(super) fn estimate(&self, index: usize) -> Estimate {
        let mut estimate = 0;
        for _ in 0..MAX_READS {
            match self.try_estimate(index) {
                Ok(extent) => return extent,
                Err(value) => estimate = value,
            }
            Host::pause();
        }
        Estimate { value: estimate, slack: u64::MAX }
    }

    /// Reads the estimate once; `Err` is a mere value, because shared pairs changed meanwhile.
    fn try_estimate(&self, index: usize) -> Result<Estimate, i64> {
        let [active, other] = self.active_first(index, self.gate.load().bank());
        // The gate may have been flipped since it was loaded. So a shared-mode pair may be the one
        // that seemed inactive.
        if let Some(now) = active.load_shared().or_else(|| other.load_shared()) {
            return Ok(Estimate { value: now.count, slack: 0 });
        }
        let (first, second) = (active.load(), other.load());
        if let Some(shared) = [first, second].iter().find(|pair| pair.seal.is_shared()) {
            return Err(shared.count);
        }
        let lanes = self.published(index);
        let value = lanes.value.wrapping_add(first.count).wrapping_add(second.count);
        // The inactive pair is frozen, except in the middle of a flip: then an add may still commit
        // to it that takes effect before the flip, and this result would not share an instant with
        // the sum. Both pairs are unchanged, versions included. So they had these values when
        // `lanes` was loaded, and the three belong together.
        match second.seal.is_sealed() && active.load() == first && other.load() == second {
            true => Ok(Estimate { value, ..lanes }),
            false => Err(value),
        }
    }

    fn published(&self, index: usize) -> Estimate {
        self.cell(index)
            .map_or(Estimate { value: 0, slack: 0 }, |cell| cell.published_state().estimate())
    }

    pub(super) fn active_first(&self, index: usize, bank: usize) -> [&Pair; 2] {
        let pairs = &self.shared()[index];
        [&pairs[bank], &pairs[1 - bank]]
    }

    pub(super) fn cell(&self, index: usize) -> Option<CounterCell> {
        self.gate.load().item().map(|item| CounterCell::of(item, index))
    }
}

impl<S: Storage> Drop for Core<S> {
    fn drop(&mut self) {
        if let (Some(item), Some(tier)) = (self.gate.load().item(), startup::chosen()) {
            region::free(item, self.len() * super::cell::bytes(tier));
        }
    }
}
