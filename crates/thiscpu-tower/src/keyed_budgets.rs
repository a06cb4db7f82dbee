//! A budget for each key in use.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thiscpu::{Budget, Counter, OwnedLease, TryAcquireError};

/// The number of maps, each with a lock. Threads with different keys rarely share one.
const MAPS: usize = 32;

/// The number of keys of a map below which its idle keys are not looked for.
const SWEEP_MIN: usize = 64;

/// Budgets of one limit, one for each key, such as a tenant or a client's address.
///
/// A key is *idle* if no request holds units of its budget. Idle keys are removed when keys are
/// added, so that at most 2,048 keys exist, or twice as many as were in use at once. Memory is
/// about 0.2 KiB a key. The limit of a key holds across removals: a budget goes away only if none
/// of its units are held.
///
/// An acquire takes the read lock of one of 32 maps, and costs what [`Budget::try_acquire`] costs.
/// The first acquire of a key takes the write lock. At most one in 32 of those visits all keys of
/// its map. Requests give units back without a lock.
pub struct KeyedBudgets<K> {
    limit: u64,
    hasher: RandomState,
    maps: Box<[RwLock<Map<K>>]>,
    refused: Arc<Counter>,
}

struct Map<K> {
    /// New handles of a budget are made only while this map is locked.
    budgets: HashMap<K, Arc<Budget>>,
    /// The number of keys at which idle ones are looked for.
    sweep_at: usize,
}

impl<K: Hash + Eq> Map<K> {
    /// Removes idle keys, and returns how many they were.
    fn sweep(&mut self) -> usize {
        let before = self.budgets.len();
        // Each lease owns a reference to its budget. So a budget whose only reference is that of
        // the map has no lease, and gets none while `self` is borrowed.
        self.budgets.retain(|_, budget| Arc::get_mut(budget).is_none());
        self.sweep_at = SWEEP_MIN.max(2 * self.budgets.len());
        self.budgets.shrink_to(self.sweep_at);
        before - self.budgets.len()
    }
}

impl<K: Hash + Eq> KeyedBudgets<K> {
    /// Creates budgets of `limit` units for each key.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`Budget::LIMIT_MAX`].
    pub fn new(limit: u64) -> Self {
        assert!(limit <= Budget::LIMIT_MAX, "a budget's limit is at most 2^56");
        let map = || RwLock::new(Map { budgets: HashMap::new(), sweep_at: SWEEP_MIN });
        KeyedBudgets {
            limit,
            hasher: RandomState::new(),
            maps: (0..MAPS).map(|_| map()).collect(),
            refused: Arc::new(Counter::new()),
        }
    }

    /// Acquires a unit of the key's budget, or counts a refusal.
    pub(crate) fn try_acquire(&self, key: K) -> Result<OwnedLease, TryAcquireError> {
        let lease = self.acquire_one(key);
        if lease.is_err() {
            self.refused.inc();
        }
        lease
    }

    fn acquire_one(&self, key: K) -> Result<OwnedLease, TryAcquireError> {
        let map = &self.maps[self.hasher.hash_one(&key) as usize % MAPS];
        {
            // Held until the lease owns its reference, so that no sweep finds the budget idle.
            let map = read(map);
            if let Some(budget) = map.budgets.get(&key) {
                return budget.try_acquire_owned(1);
            }
        }
        let mut map = write(map);
        if map.budgets.len() >= map.sweep_at {
            map.sweep();
        }
        let budget = map.budgets.entry(key).or_insert_with(|| Arc::new(Budget::new(self.limit)));
        budget.try_acquire_owned(1)
    }

    /// Returns how many units of a key's budget are held, at one instant of this call.
    ///
    /// Costs what [`Budget::acquired`] costs, and may panic as it does.
    pub fn acquired(&self, key: &K) -> u64 {
        let map = read(&self.maps[self.hasher.hash_one(key) as usize % MAPS]);
        map.budgets.get(key).map_or(0, |budget| budget.acquired())
    }

    /// Removes all idle keys, and returns how many they were.
    ///
    /// Acquires remove idle keys as well, but only when keys are added. Call this now and then if
    /// few keys remain after many.
    pub fn remove_idle(&self) -> usize {
        self.maps.iter().map(|map| write(map).sweep()).sum()
    }
}

impl<K> KeyedBudgets<K> {
    /// Returns the limit of each key.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns how many keys have a budget, idle ones included. Waits for acquires of new keys.
    pub fn keys(&self) -> usize {
        self.maps.iter().map(|map| read(map).budgets.len()).sum()
    }

    /// Returns how many units of all budgets are held.
    ///
    /// The budgets are read one after the other, each for the cost of [`Budget::acquired`], and may
    /// panic as it does.
    pub fn acquired_by_all(&self) -> u64 {
        let of_map =
            |map| -> u64 { read(map).budgets.values().map(|budget| budget.acquired()).sum() };
        self.maps.iter().map(of_map).sum()
    }

    /// Returns the counter of requests that were refused.
    pub fn refused(&self) -> &Arc<Counter> {
        &self.refused
    }
}

// Only the key's own code can panic while a map is locked, and a map remains a map then.
fn read<K>(map: &RwLock<Map<K>>) -> RwLockReadGuard<'_, Map<K>> {
    map.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<K>(map: &RwLock<Map<K>>) -> RwLockWriteGuard<'_, Map<K>> {
    map.write().unwrap_or_else(PoisonError::into_inner)
}

impl<K> fmt::Debug for KeyedBudgets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBudgets").field("limit", &self.limit).finish_non_exhaustive()
    }
}
