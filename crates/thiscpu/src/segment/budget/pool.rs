//! The pool of a shared budget: its free units, and the operation that was committed last.
//!
//! ```text
//! first    units (31 bits, signed) | amount (30 bits) | mode (3 bits)
//! second   version (32 bits) | kind (3 bits) | batch (4 bits) | slot (10 bits) | lane (15 bits)
//! ```
//!
//! Each exchange commits one operation, and counts the version up. So the second word is different
//! after each operation. If it is unchanged, the first word is unchanged too.

use crate::sys::double::Double;

const IS_MODEL: bool = cfg!(thiscpu_model);

const MODE_BITS: u32 = 3;
const AMOUNT_BITS: u32 = if IS_MODEL { 11 } else { 30 };
const UNITS_AT: u32 = MODE_BITS + AMOUNT_BITS;

const LANE_BITS: u32 = if IS_MODEL { 4 } else { 15 };
const SLOT_BITS: u32 = if IS_MODEL { 4 } else { 10 };
const PLACE_BITS: u32 = SLOT_BITS + LANE_BITS;
const BATCH_BITS: u32 = 4;
const KIND_AT: u32 = PLACE_BITS + BATCH_BITS;
const VERSION_AT: u32 = KIND_AT + 3;
/// The bits of a version, in the pool and in pairs. A model has words of 32 bits.
pub(super) const VERSION_BITS: u32 = if IS_MODEL { 16 } else { 32 };

/// The most units that a budget can have: 2^30 - 1.
pub(crate) const UNITS_MAX: u64 = (1 << AMOUNT_BITS) - 1;
/// The most slots whose pairs the pool can name.
pub(crate) const SLOTS_MAX: u32 = 1 << SLOT_BITS;
/// The most lanes whose pairs the pool can name.
pub(crate) const LANES_MAX: u32 = 1 << LANE_BITS;

/// The largest batch.
const BATCH_MAX: i64 = 1024;

/// Returns the low `bits` of a word from bit `at` on.
fn bits(word: u64, at: u32, bits: u32) -> u64 {
    word >> at & ((1 << bits) - 1)
}

/// What the units in the pool say about all free units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Pairs may be open, and have credit.
    PerCpu,
    /// No operation opens a pair. Some may still be open.
    Recall,
    /// All pairs are closed and empty, so all free units are in the pool.
    Shared,
    /// All pairs are closed and empty; the units of the pool are promised to the first waiter.
    Queued,
    /// All pairs are closed and empty, and no acquire succeeds any more.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    Take,
    Give,
    Pull,
    Reclaim,
    Grant,
    Cancel,
    Limit,
}

/// What an exchange of the pool commits, and what it names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) amount: u64,
    /// The binary logarithm of the batch, plus 1; or 0 for none.
    batch: u64,
    /// A slot and a lane, or the number of a waiter.
    place: u64,
}

impl Operation {
    pub(super) const NONE: Operation =
        Operation { kind: Kind::None, amount: 0, batch: 0, place: 0 };

    /// Describes an operation on the pair of a slot and a lane.
    pub(super) fn on_pair(kind: Kind, amount: u64, (slot, lane): (u32, u32)) -> Operation {
        let place = u64::from(slot) << LANE_BITS | u64::from(lane);
        Operation { kind, amount, batch: 0, place }
    }

    /// Describes an operation on a waiter.
    pub(super) fn on_waiter(kind: Kind, amount: u64, waiter: u32) -> Operation {
        Operation { kind, amount, batch: 0, place: u64::from(waiter) }
    }

    /// Describes a new limit.
    pub(super) fn limit(limit: u64) -> Operation {
        Operation { kind: Kind::Limit, amount: limit, batch: 0, place: 0 }
    }
}

/// Both words of the pool, as one exchange left them, or will leave them.
///
/// If two loads got them, they may be of two states. Then an exchange from this one fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct State([u64; 2]);

impl State {
    /// Returns the state of a new budget, in which all units are free.
    pub(super) const fn new(limit: u64) -> State {
        State([limit << UNITS_AT, 0])
    }

    /// Returns the free units in the pool; fewer than 0 if the limit is below the units held.
    pub(super) fn units(self) -> i64 {
        self.0[0] as i64 >> UNITS_AT
    }

    /// Returns the units that somebody can get.
    pub(super) fn available(self) -> u64 {
        self.units().max(0) as u64
    }

    /// Returns whether the pool has `n` units; then they fit its amount.
    pub(super) fn has(self, n: u64) -> bool {
        n <= self.available()
    }

    pub(super) fn mode(self) -> Mode {
        match bits(self.0[0], 0, MODE_BITS) {
            0 => Mode::PerCpu,
            1 => Mode::Recall,
            2 => Mode::Shared,
            3 => Mode::Queued,
            // Nobody writes other values than 4; a damaged budget hands out nothing.
            _ => Mode::Closed,
        }
    }

    pub(super) fn amount(self) -> u64 {
        bits(self.0[0], MODE_BITS, AMOUNT_BITS)
    }

    pub(super) fn version(self) -> u64 {
        bits(self.0[1], VERSION_AT, VERSION_BITS)
    }

    pub(super) fn kind(self) -> Kind {
        match bits(self.0[1], KIND_AT, 3) {
            0 => Kind::None,
            1 => Kind::Take,
            2 => Kind::Give,
            3 => Kind::Pull,
            4 => Kind::Reclaim,
            5 => Kind::Grant,
            6 => Kind::Cancel,
            _ => Kind::Limit,
        }
    }

    /// Returns the batch that the operation adds to the pair's credit.
    pub(super) fn batch(self) -> u64 {
        match bits(self.0[1], PLACE_BITS, BATCH_BITS) {
            0 => 0,
            log => 1 << (log - 1),
        }
    }

    /// Returns the slot and the lane of the pair that the operation names.
    pub(super) fn pair(self) -> (u32, u32) {
        let [slot, lane] =
            [(LANE_BITS, SLOT_BITS), (0, LANE_BITS)].map(|(at, len)| bits(self.0[1], at, len));
        (slot as u32, lane as u32)
    }

    /// Returns the number of the waiter that the operation names.
    pub(super) fn waiter(self) -> u32 {
        bits(self.0[1], 0, PLACE_BITS) as u32
    }

    /// Returns the state after one more operation, with so many units in the pool.
    ///
    /// Units that no correct program can have are cut off, so that they change no other field.
    pub(super) fn next(self, units: i64, mode: Mode, operation: Operation) -> State {
        let units = units.clamp(-(UNITS_MAX as i64), UNITS_MAX as i64);
        let version = self.version().wrapping_add(1) & ((1 << VERSION_BITS) - 1);
        let Operation { kind, amount, batch, place } = operation;
        State([
            (units << UNITS_AT) as u64 | amount << MODE_BITS | mode as u64,
            version << VERSION_AT | (kind as u64) << KIND_AT | batch << PLACE_BITS | place,
        ])
    }

    /// Returns the state after an exchange that names nothing.
    pub(super) fn with_mode(self, mode: Mode) -> State {
        self.next(self.units(), mode, Operation::NONE)
    }

    /// Returns the state in which the pair of a take gets a batch as well.
    ///
    /// The batch is at most an eighth of a lane's share of the units that are left.
    pub(super) fn with_batch(mut self, lanes: u32) -> State {
        let share = (self.units() / (8 * i64::from(lanes.max(1)))).min(BATCH_MAX);
        if share > 0 {
            let log = u64::from(share.ilog2());
            self.0[0] = self.0[0].wrapping_sub((1 << log) << UNITS_AT);
            self.0[1] |= (log + 1) << PLACE_BITS;
        }
        self
    }
}

/// The 16 bytes of the pool.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Pool(Double);

impl Pool {
    pub(super) const fn new(limit: u64) -> Pool {
        Pool(Double::new(State::new(limit).0))
    }

    #[cfg(all(test, not(thiscpu_model)))]
    pub(super) fn new_before_version_0(limit: u64) -> Pool {
        let version = (1 << VERSION_BITS) - 1;
        Pool(Double::new([State::new(limit).0[0], version << VERSION_AT]))
    }

    /// Loads the second word, then the first.
    pub(super) fn load(&self) -> State {
        State(self.0.load())
    }

    /// Returns whether no operation was committed since `state` was loaded.
    pub(super) fn is_still(&self, state: State) -> bool {
        // Acquire: pairs with the exchange that commits. The load is after those of the caller,
        // which are acquires too.
        self.0.second() == state.0[1]
    }

    /// Commits the operation of `to`, if `from` is the state.
    ///
    /// Orders as an acquire and a release: who loads the new state sees what preceded it.
    pub(super) fn exchange(&self, from: State, to: State) -> bool {
        self.0.exchange(from.0, to.0)
    }
}
