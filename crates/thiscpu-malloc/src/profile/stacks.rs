//! The table of stacks: the sums of all blocks that were allocated and freed at each.
//!
//! Entries are only ever added, by exchanges of the heads of two lists: one of all entries, and
//! then one of those with like hashes. So a signal handler, a forked child and any number of
//! threads may read the table at any time, and find whole entries. Writing a profile takes time
//! in proportion to the entries, because each child of a server may write one.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::memory::Bump;
use super::weight::Weight;

/// The most frames that are recorded of a stack.
pub(super) const FRAMES_MAX: usize = 64;
/// The most stacks that are told apart. Further ones share an entry without frames.
const STACKS_MAX: u32 = 65_536;
const LISTS: usize = 1 << 15;

/// A stack, and the sums of the blocks that were sampled there.
#[repr(C)]
pub(super) struct Entry {
    hash: u64,
    /// The next one in the list of all.
    older: *const Entry,
    /// The next one in the list of its hash.
    next: AtomicPtr<Entry>,
    depth: usize,
    allocated: Sums,
    freed: Sums,
    /// The blocks that were live at the peak.
    peak: Sums,
    // The frames follow.
}

/// Sums of weights.
#[derive(Default)]
#[repr(C)]
struct Sums {
    objects: AtomicU64,
    bytes: AtomicU64,
}

// SAFETY: fields without atomics are written before the entry is published and never changed.
unsafe impl Sync for Entry {}

static HEADS: [AtomicPtr<Entry>; LISTS] = [const { AtomicPtr::new(ptr::null_mut()) }; LISTS];
/// The entry that was added last.
static NEWEST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
static MEMORY: Bump = Bump::new();
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The entry of stacks for which there is no room or no memory.
static OTHERS: Entry = Entry {
    hash: 0,
    older: ptr::null(),
    next: AtomicPtr::new(ptr::null_mut()),
    depth: 0,
    allocated: Sums::new(),
    freed: Sums::new(),
    peak: Sums::new(),
};

impl Sums {
    const fn new() -> Sums {
        Sums { objects: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn add(&self, weight: Weight) {
        // Release: pairs with the Acquire in `load`. Whoever sees a free sees its allocation too.
        self.objects.fetch_add(weight.objects, Release);
        self.bytes.fetch_add(weight.bytes, Release);
    }

    fn load(&self) -> Weight {
        // Acquire: pairs with the Release in `add`.
        Weight { objects: self.objects.load(Acquire), bytes: self.bytes.load(Acquire) }
    }

    fn store(&self, weight: Weight) {
        // Relaxed: it is overwritten as a whole, by one thread at a time.
        self.objects.store(weight.objects, Relaxed);
        self.bytes.store(weight.bytes, Relaxed);
    }
}

impl Weight {
    fn minus(self, other: Weight) -> Weight {
        Weight {
            objects: self.objects.saturating_sub(other.objects),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Entry {
    pub(super) fn frames(&self) -> &[usize] {
        let frames = ptr::from_ref(self).wrapping_add(1).cast();
        // SAFETY: `create` has written that many addresses behind the entry, and `OTHERS` has none.
        unsafe { core::slice::from_raw_parts(frames, self.depth) }
    }

    pub(super) fn count_allocated(&self, weight: Weight) {
        self.allocated.add(weight);
    }

    pub(super) fn count_freed(&self, weight: Weight) {
        self.freed.add(weight);
    }

    /// Returns the live blocks, and all that were ever allocated.
    pub(super) fn live_and_allocated(&self) -> [Weight; 2] {
        // In this order, so that no block is seen as freed and not as allocated.
        let freed = self.freed.load();
        let allocated = self.allocated.load();
        [allocated.minus(freed), allocated]
    }

    /// Returns the blocks that were live at the peak.
    pub(super) fn peak(&self) -> Weight {
        self.peak.load()
    }

    /// Keeps the live blocks as those of the peak.
    pub(super) fn keep_peak(&self) {
        let [live, _] = self.live_and_allocated();
        self.peak.store(live);
    }
}

/// Returns the entry of a stack, which is added if it is new.
pub(super) fn find_or_add(frames: &[usize]) -> &'static Entry {
    let hash = hash(frames);
    let head = &HEADS[hash as usize % LISTS];
    // Acquire: pairs with the Release below, so that the entry is written.
    let mut first = head.load(Acquire);
    if let Some(found) = find(first, hash, frames) {
        return found;
    }
    // Relaxed: it counts, and orders nothing.
    let entry = match COUNT.fetch_add(1, Relaxed) {
        ..STACKS_MAX => create(hash, frames),
        _ => None,
    };
    let Some(entry) = entry else {
        COUNT.fetch_sub(1, Relaxed);
        return &OTHERS;
    };
    loop {
        // Relaxed: the exchange publishes it.
        entry.next.store(first, Relaxed);
        // Release: pairs with the Acquire of readers of the list.
        match head.compare_exchange(first, ptr::from_ref(entry).cast_mut(), Release, Acquire) {
            Ok(_) => return entry,
            Err(now) => first = now,
        }
        // Another thread has added an entry; if it is this one, the new one is left unused.
        if let Some(found) = find(first, hash, frames) {
            return found;
        }
    }
}

fn find(first: *const Entry, hash: u64, frames: &[usize]) -> Option<&'static Entry> {
    // Relaxed: the Acquire of the head is also for the older entries of the list.
    let next = |entry: &Entry| entry.next.load(Relaxed).cast_const();
    list(first, next).find(|entry| entry.hash == hash && entry.frames() == frames)
}

/// Returns the entries of a list.
fn list(
    first: *const Entry,
    next: impl Fn(&Entry) -> *const Entry,
) -> impl Iterator<Item = &'static Entry> {
    // SAFETY: heads and links are null or lead to complete entries, which are never freed.
    core::iter::successors(unsafe { first.as_ref() }, move |entry| unsafe { next(entry).as_ref() })
}

/// Adds an entry to the list of all.
///
/// It is not in the list of its hash yet. If this thread gets no further, or the process forks, the
/// entry has no blocks.
fn create(hash: u64, frames: &[usize]) -> Option<&'static Entry> {
    let bytes = size_of::<Entry>() + size_of_val(frames);
    let entry = MEMORY.alloc(bytes)?.cast::<Entry>();
    let mut newest = NEWEST.load(Relaxed);
    loop {
        let new = Entry {
            hash,
            older: newest,
            next: AtomicPtr::new(ptr::null_mut()),
            depth: frames.len(),
            allocated: Sums::new(),
            freed: Sums::new(),
            peak: Sums::new(),
        };
        // SAFETY: the memory is new, aligned to 8, and has room for the entry and the frames. No
        // other thread knows it yet.
        unsafe {
            entry.write(new);
            let to = entry.add(1).cast().as_ptr();
            ptr::copy_nonoverlapping(frames.as_ptr(), to, frames.len());
        }
        // Release: pairs with the Acquire in `all`. A link leads to an entry that was published
        // like this one, so one Acquire is for the whole list.
        match NEWEST.compare_exchange(newest, entry.as_ptr(), Release, Relaxed) {
            // SAFETY: entries are never freed, and this one is complete.
            Ok(_) => return Some(unsafe { entry.as_ref() }),
            Err(now) => newest = now,
        }
    }
}

fn hash(frames: &[usize]) -> u64 {
    frames.iter().fold(frames.len() as u64, |hash, &frame| {
        let mixed = (hash ^ frame as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

/// Returns all entries, that of other stacks included.
pub(super) fn all() -> impl Iterator<Item = &'static Entry> {
    // Acquire: pairs with the Release in `create`.
    let listed = list(NEWEST.load(Acquire), |entry| entry.older);
    listed.chain(core::iter::once(&OTHERS))
}

/// Returns the number of stacks.
pub(super) fn count() -> u32 {
    COUNT.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_found_again_and_told_apart() {
        let one = find_or_add(&[1, 2, 3]);
        assert!(ptr::eq(one, find_or_add(&[1, 2, 3])));
        assert!(!ptr::eq(one, find_or_add(&[1, 2])) && !ptr::eq(one, find_or_add(&[3, 2, 1])));
        assert_eq!(one.frames(), [1, 2, 3]);
        assert!(all().any(|entry| ptr::eq(entry, one)));
        one.count_allocated(Weight { objects: 3, bytes: 30 });
        one.count_freed(Weight { objects: 1, bytes: 10 });
        let live = Weight { objects: 2, bytes: 20 };
        assert_eq!(one.live_and_allocated(), [live, Weight { objects: 3, bytes: 30 }]);
        one.keep_peak();
        assert_eq!(one.peak(), live);
    }

    #[test]
    fn threads_that_add_the_same_stack_share_its_entry() {
        const THREADS: u64 = 8;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for number in 0..500 {
                        find_or_add(&[77, number]).count_allocated(Weight { objects: 1, bytes: 1 });
                    }
                });
            }
        });
        let added = all().filter(|entry| entry.frames().first() == Some(&77));
        let objects = added.map(|entry| entry.live_and_allocated()[0].objects);
        // Entries that lost a race stay unused.
        let used: Vec<_> = objects.filter(|&objects| objects > 0).collect();
        assert_eq!(used, [THREADS; 500]);
    }
}
