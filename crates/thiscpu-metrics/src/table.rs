//! Hash tables of handles, in which look-ups find known ones without a lock.
//!
//! A table is an array of slots with linear probing. A slot without a hash ends each search. A slot
//! with a hash and without an entry is one from which an entry was removed. Look-ups only load.
//! Changes are made under a lock: by storing to a slot, or by publishing another array. Removed
//! entries and replaced arrays are freed when no look-up can use them any more, which [`Readers`]
//! decides.

use std::{
    collections::BTreeSet,
    ops::Deref,
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicPtr, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use crate::readers::{Reader, Readers};

/// A table of handles by keys whose hash the caller computes.
pub(crate) struct Table<K, H> {
    /// The current array, from a box.
    slots: AtomicPtr<Slots<K, H>>,
    readers: Arc<Readers>,
    writer: Mutex<Writer>,
}

/// What only changes of the table need.
#[derive(Default)]
struct Writer {
    /// The number and the hash of each entry of a series.
    ids: BTreeSet<(u64, u64)>,
    /// The number of entries of metrics that cannot be registered.
    rejected: usize,
    /// The number of slots with a hash.
    used: usize,
    /// How often the metrics that cannot be registered were forgotten.
    forgotten: u64,
}

/// A power of two of slots.
struct Slots<K, H>(Box<[Slot<K, H>]>);

struct Slot<K, H> {
    /// The hash of the entry, or of the last one; 0 if there was none.
    hash: AtomicU64,
    /// From a box, or null.
    entry: AtomicPtr<Entry<K, H>>,
}

/// A key with its handle.
pub(crate) struct Entry<K, H> {
    /// The number of the series; `None` for a metric that cannot be registered.
    pub(crate) id: Option<u64>,
    pub(crate) key: K,
    pub(crate) handle: H,
}

/// A handle in a table, which is not freed while this value exists. It stays on its thread.
pub(crate) struct Found<'a, H> {
    handle: NonNull<H>,
    _reader: Reader<'a>,
}

/// The number of slots of an empty table.
const SLOTS_MIN: usize = 8;

/// Makes a hash one of a slot in use.
fn in_use(hash: u64) -> u64 {
    hash | 1
}

impl<K, H> Slots<K, H> {
    fn new(count: usize) -> Slots<K, H> {
        let slot = || Slot { hash: AtomicU64::new(0), entry: AtomicPtr::new(ptr::null_mut()) };
        Slots((0..count).map(|_| slot()).collect())
    }

    /// Returns the slots in which an entry may be, in order.
    fn probe(&self, hash: u64) -> impl Iterator<Item = &Slot<K, H>> {
        let mask = self.0.len() - 1;
        // The facade's hashes are weak; the upper bits of this product depend on all of theirs.
        let first = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..self.0.len()).map(move |step| &self.0[(first + step) & mask])
    }

    /// Puts an entry into a slot without one; returns whether the slot had no hash.
    fn put(&self, hash: u64, entry: *mut Entry<K, H>) -> bool {
        // Relaxed: only holders of the lock store.
        let is_vacant = |slot: &&Slot<K, H>| slot.entry.load(Relaxed).is_null();
        let slot = self.probe(hash).find(is_vacant).expect("a quarter of the slots is free");
        let is_new = slot.hash.load(Relaxed) == 0;
        // Relaxed: a look-up that finds one of the two asks the registry, as for a new series.
        slot.hash.store(hash, Relaxed);
        // SeqCst: pairs with the load in `find`, after which the entry is read.
        slot.entry.store(entry, SeqCst);
        is_new
    }
}

impl<K, H> Table<K, H> {
    /// Returns an empty table.
    pub(crate) fn new(readers: Arc<Readers>) -> Table<K, H> {
        let slots = AtomicPtr::new(Box::into_raw(Box::new(Slots::new(SLOTS_MIN))));
        Table { slots, readers, writer: Mutex::default() }
    }

    /// Finds the handle of a key. Takes no lock, and never waits.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<Found<'_, H>> {
        let hash = in_use(hash);
        let reader = self.readers.enter();
        // SAFETY: the array is from a box. Once it is replaced, it is retired, so it stays while
        // `reader` exists. SeqCst: pairs with the swap in `rebuild`.
        let slots = unsafe { &*self.slots.load(SeqCst) };
        for slot in slots.probe(hash) {
            // Relaxed: the entry is what counts. An outdated hash makes this find nothing.
            match slot.hash.load(Relaxed) {
                0 => return None,
                other if other != hash => continue,
                _ => {}
            }
            // SAFETY: an entry is from a box, and complete when it is stored. Once it is removed
            // from its slot, it is retired, so it stays while `reader` exists. SeqCst: pairs with
            // the accesses in `put` and `remove`.
            let Some(entry) = (unsafe { slot.entry.load(SeqCst).as_ref() }) else { continue };
            if is_key(&entry.key) {
                return Some(Found { handle: NonNull::from(&entry.handle), _reader: reader });
            }
        }
        None
    }

    /// Returns how often the metrics that cannot be registered were forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.writer().forgotten
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current array, of which the caller has the writer's lock.
    fn current(&self, _: &MutexGuard<'_, Writer>) -> &Slots<K, H> {
        // SAFETY: the array is from a box. Only holders of the lock replace it, and only then is it
        // retired. Relaxed: the last store was under the lock, too.
        unsafe { &*self.slots.load(Relaxed) }
    }
}

impl<K: Send + 'static, H: Send + 'static> Table<K, H> {
    /// Adds an entry, unless its key has one.
    ///
    /// `forgotten` was read before the series was requested.
    pub(crate) fn insert(
        &self,
        hash: u64,
        entry: Entry<K, H>,
        is_key: impl Fn(&K) -> bool,
        forgotten: u64,
    ) {
        let hash = in_use(hash);
        let mut writer = self.writer();
        if entry.id.is_none() && writer.forgotten != forgotten {
            // The name may be free by now, so the next look-up tries again.
            return;
        }
        if self.find(hash, is_key).is_some() {
            return;
        }
        let is_full = 4 * (writer.used + 1) > 3 * self.current(&writer).0.len();
        if is_full {
            self.rebuild(&mut writer);
        }
        match entry.id {
            Some(id) => _ = writer.ids.insert((id, hash)),
            None => writer.rejected += 1,
        }
        let is_new = self.current(&writer).put(hash, Box::into_raw(Box::new(entry)));
        writer.used += usize::from(is_new);
        drop(writer);
        if is_full {
            // The array from before.
            self.readers.collect();
        }
    }

    /// Moves the entries to another array, with three times as many slots or more.
    fn rebuild(&self, writer: &mut MutexGuard<'_, Writer>) {
        let old = self.current(writer);
        let entries = writer.ids.len() + writer.rejected + 1;
        let new = Slots::new((3 * entries).next_power_of_two().max(SLOTS_MIN));
        let mut used = 0;
        for slot in &old.0 {
            // Relaxed: only holders of the lock store.
            let (hash, entry) = (slot.hash.load(Relaxed), slot.entry.load(Relaxed));
            if !entry.is_null() {
                used += usize::from(new.put(hash, entry));
            }
        }
        // SeqCst: pairs with the load in `find`.
        let old = self.slots.swap(Box::into_raw(Box::new(new)), SeqCst);
        writer.used = used;
        // SAFETY: the array is from a box, and no longer the current one. Readers that found it are
        // waited for.
        self.readers.retire(unsafe { Box::from_raw(old) });
    }

    /// Removes the entries of a series, or those of all metrics that cannot be registered.
    fn remove(&self, writer: &MutexGuard<'_, Writer>, hash: Option<u64>, id: Option<u64>) {
        let slots = self.current(writer);
        let all = || slots.0.iter();
        let probed = |hash| slots.probe(hash).take_while(|slot| slot.hash.load(Relaxed) != 0);
        let each = |slot: &Slot<K, H>| {
            // SAFETY: the entry is from a box, and only holders of the lock remove it. Relaxed:
            // only they store it.
            let entry = unsafe { slot.entry.load(Relaxed).as_ref() };
            if entry.is_some_and(|entry| entry.id == id) {
                // SeqCst: pairs with the load in `find`.
                let removed = slot.entry.swap(ptr::null_mut(), SeqCst);
                // SAFETY: the entry is from a box, and in no slot any more. Readers that found it
                // are waited for.
                self.readers.retire(unsafe { Box::from_raw(removed) });
            }
        };
        match hash {
            Some(hash) => probed(hash).for_each(each),
            None => all().for_each(each),
        }
    }
}

/// A table, whatever its keys and handles are.
pub(crate) trait Evict: Send + Sync {
    /// Forgets the handles of series.
    fn evict(&self, ids: &[u64]);

    /// Forgets the metrics that cannot be registered.
    fn forget_rejected(&self);
}

impl<K: Send + Sync + 'static, H: Send + Sync + 'static> Evict for Table<K, H> {
    fn evict(&self, ids: &[u64]) {
        let mut writer = self.writer();
        for &id in ids {
            while let Some(&(_, hash)) = writer.ids.range((id, 0)..=(id, u64::MAX)).next() {
                self.remove(&writer, Some(hash), Some(id));
                writer.ids.remove(&(id, hash));
            }
        }
        let (slots, entries) = (self.current(&writer).0.len(), writer.ids.len() + writer.rejected);
        if slots > 64 && entries < slots / 16 {
            self.rebuild(&mut writer);
        }
    }

    fn forget_rejected(&self) {
        let mut writer = self.writer();
        writer.forgotten += 1;
        if std::mem::take(&mut writer.rejected) > 0 {
            self.remove(&writer, None, None);
        }
    }
}

// SAFETY: a table owns keys and handles. Look-ups of several threads share them, and a thread may
// free what another one has put in.
unsafe impl<K: Send + Sync, H: Send + Sync> Send for Table<K, H> {}
// SAFETY: look-ups of several threads share keys and handles; changes are made under a lock.
unsafe impl<K: Send + Sync, H: Send + Sync> Sync for Table<K, H> {}

impl<K, H> Drop for Table<K, H> {
    fn drop(&mut self) {
        // SAFETY: the array is from a box, and nobody else has the table.
        let slots = unsafe { Box::from_raw(*self.slots.get_mut()) };
        for mut slot in slots.0 {
            let entry = *slot.entry.get_mut();
            if !entry.is_null() {
                // SAFETY: the entry is from a box, and in this slot only.
                drop(unsafe { Box::from_raw(entry) });
            }
        }
    }
}

impl<H> Deref for Found<'_, H> {
    type Target = H;

    #[inline]
    fn deref(&self) -> &H {
        // SAFETY: the entry with the handle stays while the reader exists, and nobody changes it.
        unsafe { self.handle.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicBool, AtomicUsize},
        },
        thread,
    };

    use super::*;

    type Numbers = Table<u64, Arc<u64>>;

    fn add(table: &Numbers, hash: u64, key: u64) -> Arc<u64> {
        let handle = Arc::new(key);
        let entry = Entry { id: Some(key), key, handle: Arc::clone(&handle) };
        table.insert(hash, entry, |&known| known == key, 0);
        handle
    }

    fn find(table: &Numbers, hash: u64, key: u64) -> Option<u64> {
        table.find(hash, |&known| known == key).map(|found| **found)
    }

    #[test]
    fn entries_are_found_until_they_are_evicted() {
        let table = Numbers::new(Arc::default());
        // Of the same hash, so that each search passes others.
        let handles: Vec<_> = (0..100).map(|key| add(&table, 7, key)).collect();
        assert!((0..100).all(|key| find(&table, 7, key) == Some(key)));
        let even: Vec<u64> = (0..100).filter(|key| key % 2 == 0).collect();
        table.evict(&even);
        assert!((0..100).all(|key| find(&table, 7, key) == (key % 2 == 1).then_some(key)));
        table.readers.collect();
        assert!((0..100).all(|key| Arc::strong_count(&handles[key]) == 1 + key % 2));
        drop(table);
        assert!(handles.iter().all(|handle| Arc::strong_count(handle) == 1));
    }

    #[test]
    fn slots_are_reused_and_returned() {
        let table = Numbers::new(Arc::default());
        let slots = || table.current(&table.writer()).0.len();
        for key in 0..10_000 {
            drop(add(&table, key << 8, key));
            table.evict(&[key]);
        }
        assert!(slots() <= 64, "{}", slots());
        (0..1_000).for_each(|key| drop(add(&table, key << 8, key)));
        assert!(slots() >= 1_024);
        assert!((0..1_000).all(|key| find(&table, key << 8, key) == Some(key)));
        table.evict(&(0..1_000).collect::<Vec<_>>());
        assert!(slots() <= 64, "{}", slots());
    }

    #[test]
    fn evicted_handle_stays_while_it_is_in_use() {
        let table = Numbers::new(Arc::default());
        let handle = add(&table, 1, 1);
        let found = table.find(1, |&key| key == 1).unwrap();
        table.evict(&[1]);
        table.readers.collect();
        assert_eq!((**found, Arc::strong_count(&handle)), (1, 2));
        drop(found);
        table.readers.collect();
        assert_eq!(Arc::strong_count(&handle), 1);
    }

    /// Forks while another thread is in the middle of a look-up.
    #[test]
    fn child_frees_entry_that_an_interrupted_look_up_has_found() {
        let (table, step) = (Numbers::new(Arc::default()), Barrier::new(2));
        let handle = add(&table, 1, 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                table.find(1, |_| {
                    step.wait();
                    step.wait();
                    true
                });
            });
            step.wait();
            let child = thiscpu_test_support::child::status_of(|| {
                table.evict(&[1]);
                table.readers.collect();
                i32::from(Arc::strong_count(&handle) != 1)
            });
            step.wait();
            assert_eq!(child, 0, "the wait status of the child");
        });
    }

    /// Adds, evicts and frees entries while other threads look them up.
    #[test]
    fn look_ups_find_whole_entries_while_others_go() {
        const KEYS: u64 = 64;
        let rounds = if thiscpu_test_support::is_full() { 400 } else { 20 };
        let table = Table::<u64, Arc<Vec<u64>>>::new(Arc::default());
        let (is_over, hits) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut key = 0;
                    while !is_over.load(SeqCst) {
                        if let Some(found) = table.find(key % 5, |&known| known == key) {
                            // Read from memory of its own, which is overwritten if it is freed.
                            assert!(found.iter().all(|&value| value == key));
                            hits.fetch_add(1, SeqCst);
                        }
                        key = (key + 1) % KEYS;
                    }
                });
            }
            for round in 0..rounds {
                for key in 0..KEYS {
                    let handle = Arc::new(vec![key; 8]);
                    let entry = Entry { id: Some(key), key, handle };
                    table.insert(key % 5, entry, |&known| known == key, 0);
                }
                // At least one of the entries is found before they go.
                let before = hits.load(SeqCst);
                while hits.load(SeqCst) == before {
                    thread::yield_now();
                }
                let gone: Vec<u64> = (0..KEYS).filter(|key| key % 3 == round % 3).collect();
                table.evict(&gone);
                table.readers.collect();
            }
            is_over.store(true, SeqCst);
        });
    }
}
