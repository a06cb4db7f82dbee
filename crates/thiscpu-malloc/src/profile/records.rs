//! The records of sampled blocks in use: the stack and the weight of each.
//!
//! A record is known by its number, which the block holds, or the metadata of a large block. Free
//! records are in a list without a lock. Its head has a version, which changes with each exchange,
//! so that a thread that was delayed in between cannot mistake one list for another.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::memory::map;
use super::stacks::Entry;
use super::weight::Weight;

/// A record. Its number is its place in the pages.
#[derive(Default)]
pub(super) struct Record {
    /// The block's address, or 0 while the record has no block.
    block: AtomicUsize,
    entry: AtomicPtr<Entry>,
    objects: AtomicU64,
    bytes: AtomicU64,
    /// The next free record's number, or 0.
    next: AtomicU32,
}

const PAGE_BYTES: usize = 64 * 1024;
const RECORDS_PER_PAGE: usize = PAGE_BYTES / size_of::<Record>();
/// Enough for 20 million sampled blocks in use.
const PAGES: usize = 1 << 14;

static PAGE_TABLE: [AtomicPtr<Record>; PAGES] = [const { AtomicPtr::new(ptr::null_mut()) }; PAGES];
/// The number of the next record that was never used. Number 0 stands for none.
static FRESH: AtomicU32 = AtomicU32::new(1);
/// The list of free records: a version in the upper half, and a number.
static FREE: AtomicU64 = AtomicU64::new(0);

/// Returns the record with a number that `take` may have returned.
fn at(number: u32) -> Option<&'static Record> {
    let (page, place) = (number as usize / RECORDS_PER_PAGE, number as usize % RECORDS_PER_PAGE);
    // Acquire: pairs with the Release in `page_of`; the page is zeroed memory.
    let records = PAGE_TABLE.get(page)?.load(Acquire);
    // SAFETY: the table has null or a page of `RECORDS_PER_PAGE` records, which is never unmapped.
    (!records.is_null() && number != 0).then(|| unsafe { &*records.add(place) })
}

/// Takes a record for the block at `block`; `None` if there is no memory for one.
pub(super) fn take(block: usize, entry: &'static Entry, weight: Weight) -> Option<u32> {
    let number = pop().or_else(fresh)?;
    let record = at(number)?;
    // Relaxed: the thread that frees the block got it from this one, which orders these.
    record.entry.store(ptr::from_ref(entry).cast_mut(), Relaxed);
    record.objects.store(weight.objects, Relaxed);
    record.bytes.store(weight.bytes, Relaxed);
    record.block.store(block, Release);
    Some(number)
}

/// Gives up the record of the block at `block`; returns the stack and the weight.
///
/// Returns `None` if the block has no record of that number: it was freed before.
pub(super) fn release(number: u32, block: usize) -> Option<(&'static Entry, Weight)> {
    let record = at(number)?;
    // Acquire: pairs with the Release in `take`. Of two threads, one gives the record up.
    record.block.compare_exchange(block, 0, Acquire, Relaxed).ok()?;
    let weight =
        Weight { objects: record.objects.load(Relaxed), bytes: record.bytes.load(Relaxed) };
    // SAFETY: `take` has stored an entry, and entries are never freed.
    let entry = unsafe { &*record.entry.load(Relaxed) };
    push(number, record);
    Some((entry, weight))
}

fn pop() -> Option<u32> {
    // Acquire: pairs with the Release of `push`, so that `next` is the one that was stored.
    let mut head = FREE.load(Acquire);
    loop {
        let number = head as u32;
        // The record may be in use by now; then the exchange below fails.
        let next = at(number)?.next.load(Relaxed);
        match FREE.compare_exchange(head, with_version(head, next), AcqRel, Acquire) {
            Ok(_) => return Some(number),
            Err(now) => head = now,
        }
    }
}

fn push(number: u32, record: &Record) {
    let mut head = FREE.load(Acquire);
    loop {
        record.next.store(head as u32, Relaxed);
        // Release: pairs with the Acquire in `pop`.
        match FREE.compare_exchange(head, with_version(head, number), Release, Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Returns a head with `number`, of the version after that of `head`.
fn with_version(head: u64, number: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(number)
}

/// Returns a record that was never used, and maps its page if that is new.
fn fresh() -> Option<u32> {
    // Relaxed: the number is this thread's alone.
    let number = FRESH.fetch_add(1, Relaxed);
    let slot = PAGE_TABLE.get(number as usize / RECORDS_PER_PAGE);
    let Some(slot) = slot.filter(|slot| is_mapped(slot)) else {
        // The number is lost, or goes back where no other thread has taken one since.
        let _ = FRESH.compare_exchange(number + 1, number, Relaxed, Relaxed);
        return None;
    };
    let _ = slot;
    Some(number)
}

/// Returns whether a page is there, after mapping it if it was not.
fn is_mapped(slot: &AtomicPtr<Record>) -> bool {
    if !slot.load(Acquire).is_null() {
        return true;
    }
    let Some(page) = map(PAGE_BYTES, PAGE_BYTES) else { return false };
    // Release: pairs with the Acquire in `at`.
    let published = slot.compare_exchange(ptr::null_mut(), page.as_ptr().cast(), Release, Relaxed);
    if published.is_err() {
        // SAFETY: this thread has just mapped it, and no other knows of it.
        unsafe { libc::munmap(page.as_ptr().cast(), PAGE_BYTES) };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::stacks::find_or_add;
    use super::*;

    #[test]
    fn record_is_given_up_once() {
        let (entry, weight) = (find_or_add(&[4711]), Weight { objects: 5, bytes: 50 });
        let number = take(0x1000, entry, weight).unwrap();
        assert!(release(number, 0x2000).is_none(), "of another block");
        let (found, weighed) = release(number, 0x1000).unwrap();
        assert!(ptr::eq(found, entry) && weighed == weight);
        assert!(release(number, 0x1000).is_none(), "again");
        assert!(release(0, 0x1000).is_none() && release(u32::MAX, 0x1000).is_none());
    }

    #[test]
    fn threads_never_share_a_record() {
        let entry = find_or_add(&[4712]);
        std::thread::scope(|scope| {
            for thread in 1..=8_usize {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let block = thread << 40 | round << 4;
                        let weight = Weight { objects: thread as u64, bytes: round as u64 };
                        let numbers = [0, 1].map(|of| take(block | of, entry, weight).unwrap());
                        for (of, number) in numbers.into_iter().enumerate() {
                            assert_eq!(release(number, block | of).map(|it| it.1), Some(weight));
                        }
                    }
                });
            }
        });
    }
}
