//! Handles that the facade has looked up, so that no look-up of them waits for a scrape.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use metrics::Key;

use crate::{counter::Counter, gauge::Gauge, histogram::Histogram, state::State};

/// The handles that all recorders of a registry have looked up.
#[derive(Default)]
pub(crate) struct Handles {
    pub(crate) counters: HandleCache<Counter>,
    pub(crate) gauges: HandleCache<Gauge>,
    pub(crate) histograms: HandleCache<Histogram>,
}

/// Handles of one kind by key; `None` for a metric that cannot be registered.
///
/// The shards are too large for the stack of a thread that creates a registry.
pub(crate) struct HandleCache<H>(Box<[Shard<H>]>);

/// The number of shards. Look-ups of keys in different shards share no line.
const SHARDS: usize = 16;

/// The handles of a part of the keys, in cache lines of their own.
#[repr(align(128))]
struct Shard<H>(RwLock<Entries<H>>);

struct Entries<H> {
    by_key: HashMap<Key, Option<H>, BuildHasherDefault<KeyHasher>>,
    /// Whether a handle was added since the last [`HandleCache::evict_if_new`].
    has_new: bool,
    /// How often the metrics that cannot be registered were forgotten.
    forgotten: u64,
}

/// Passes on the hash that a key contains; keys write nothing else.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Only in case that another version of `metrics` writes something else.
        for &byte in bytes {
            self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<H> Default for Entries<H> {
    fn default() -> Self {
        let (by_key, has_new, forgotten) = Default::default();
        Entries { by_key, has_new, forgotten }
    }
}

impl<H> Default for HandleCache<H> {
    fn default() -> Self {
        HandleCache((0..SHARDS).map(|_| Shard(RwLock::default())).collect())
    }
}

impl<H> Shard<H> {
    fn read(&self) -> RwLockReadGuard<'_, Entries<H>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries<H>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Clone> HandleCache<H> {
    /// Returns the handle of a key; makes it if it is unknown.
    pub(crate) fn get_or(&self, key: &Key, make: impl FnOnce() -> Option<H>) -> Option<H> {
        // The maps use the highest and the lowest bits.
        let shard = &self.0[(key.get_hash() >> 32) as usize % SHARDS];
        let forgotten = {
            let all = shard.read();
            if let Some(known) = all.by_key.get(key) {
                return known.clone();
            }
            all.forgotten
        };
        // Not under the lock: this may wait for a scrape. Two threads that make the same handle get
        // the same series from the registry.
        let made = make();
        let mut all = shard.write();
        if made.is_none() && all.forgotten != forgotten {
            // The name may be free by now, so the next look-up tries again.
            return None;
        }
        all.has_new = true;
        all.by_key.entry(key.clone()).or_insert(made).clone()
    }

    fn evict(&self, is_evicted: impl Fn(&H) -> bool) {
        for shard in &self.0 {
            shard.write().retain(|handle| !handle.as_ref().is_some_and(&is_evicted));
        }
    }

    /// Does [`evict`](HandleCache::evict) if handles were added since the last call of this.
    fn evict_if_new(&self, is_evicted: impl Fn(&H) -> bool) {
        for shard in self.0.iter().filter(|shard| shard.read().has_new) {
            let mut all = shard.write();
            all.has_new = false;
            all.retain(|handle| !handle.as_ref().is_some_and(&is_evicted));
        }
    }

    /// Forgets the metrics that cannot be registered.
    fn forget_rejected(&self) {
        for shard in &self.0 {
            let mut all = shard.write();
            all.forgotten += 1;
            all.retain(Option::is_some);
        }
    }
}

impl<H> Entries<H> {
    fn retain(&mut self, is_kept: impl Fn(&Option<H>) -> bool) {
        let all = &mut self.by_key;
        all.retain(|_, handle| is_kept(handle));
        if all.capacity() > 64 && all.capacity() / 4 > all.len() {
            all.shrink_to(2 * all.len());
        }
    }
}

impl Handles {
    /// Forgets the handles of series.
    pub(crate) fn evict(&self, is_evicted: impl Fn(u64) -> bool) {
        self.counters.evict(|counter| is_evicted(counter.id()));
        self.gauges.evict(|gauge| is_evicted(gauge.0.id));
        self.histograms.evict(|histogram| is_evicted(histogram.0.id));
    }

    /// Forgets the handles of hidden series, of which none was hidden since the last call.
    ///
    /// Only look-ups that began before a series was hidden can have added its handle since.
    pub(crate) fn evict_if_new(&self, is_evicted: impl Fn(u64) -> bool) {
        self.counters.evict_if_new(|counter| is_evicted(counter.id()));
        self.gauges.evict_if_new(|gauge| is_evicted(gauge.0.id));
        self.histograms.evict_if_new(|histogram| is_evicted(histogram.0.id));
    }

    /// Lets metrics be registered whose names were taken by a family that was removed.
    pub(crate) fn retry_rejected(&self, state: &mut State) {
        if std::mem::take(&mut state.has_freed_names) {
            self.counters.forget_rejected();
            self.gauges.forget_rejected();
            self.histograms.forget_rejected();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn handles_are_visited_again_if_one_was_added() {
        let (cache, visited) = (HandleCache::<u64>::default(), Cell::new(0));
        let visits = || {
            visited.set(0);
            cache.evict_if_new(|_| {
                visited.set(visited.get() + 1);
                false
            });
            visited.get() > 0
        };
        let add = |name| cache.get_or(&Key::from_static_name(name), || Some(1));
        assert!(!visits());
        add("a");
        assert_eq!([visits(), visits()], [true, false]);
        add("a");
        assert!(!visits());
        add("b");
        assert_eq!([visits(), visits()], [true, false]);
    }

    /// Frees the name while a look-up is being rejected.
    #[test]
    fn rejection_is_forgotten_if_it_may_be_outdated() {
        let (cache, key) = (HandleCache::<u64>::default(), Key::from_static_name("a"));
        let rejected = cache.get_or(&key, || {
            cache.forget_rejected();
            None
        });
        assert_eq!([rejected, cache.get_or(&key, || Some(1))], [None, Some(1)]);
    }
}
