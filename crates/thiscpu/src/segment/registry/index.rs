//! The protocol of the index: names are published by one exchange, and never removed.
//!
//! An entry is 0, or it leads to a record:
//!
//! ```text
//! bits 0 to 5      the kind of the record
//! bits 6 to 39     the record's offset in the file, a multiple of 64
//! bits 40 to 63    the tag: bits of the key's hash
//! ```
//!
//! A process that inserts a name reserves memory, writes the record there, and exchanges a free
//! entry. If another process was faster with this name, its record counts. The loser pushes its own
//! record to a list of free ones, from which the next insert of any process takes it. A process
//! that dies in between leaves at most what it had reserved.
//!
//! Nobody else may have the reserved memory. So a process that inserts must not fork between the
//! reservation and the end of the push: both processes would have it. Callers block signals, whose
//! handlers may fork. Another thread may fork: the child has no thread that inserts.

use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The bits of an offset in an entry.
const AT: u64 = (1 << TAG_AT) - 64;
/// Where a tag begins.
const TAG_AT: u32 = 40;

/// Returns the entry for a record.
pub(in crate::segment) fn entry_of(kind: u64, at: u64, hash: u64) -> u64 {
    hash >> TAG_AT << TAG_AT | at & AT | kind
}

/// Returns the offset of an entry's record.
pub(in crate::segment) fn at_of(entry: u64) -> u64 {
    entry & AT
}

/// Returns the kind of an entry's record.
pub(in crate::segment) fn kind_of(entry: u64) -> u64 {
    entry & 63
}

/// What a search has found, and what it has left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Outcome {
    /// The entry of the key, or `None` if there is none and nothing could be made.
    pub(in crate::segment) entry: Option<u64>,
    /// An own record that nobody uses, because another process was faster.
    pub(in crate::segment) unused: Option<u64>,
}

/// Finds the entry of a key, or publishes a record for it.
///
/// `is_key` tells whether an entry with the key's tag and kind has the key. `make` writes a record,
/// and returns its entry; it is called at most once.
pub(in crate::segment) fn find_or_publish<E>(
    index: &[AtomicU64],
    hash: u64,
    kind: u64,
    mut is_key: impl FnMut(u64) -> Result<bool, E>,
    mut make: impl FnMut() -> Result<Option<u64>, E>,
) -> Result<Outcome, E> {
    let mut own = None;
    for step in 0..index.len() as u64 {
        let number = hash.wrapping_add(step) & (index.len() as u64 - 1);
        let entry = &index[number as usize];
        // Acquire: pairs with the exchange below; a record whose offset is seen is written.
        let mut found = entry.load(Acquire);
        if found == 0 {
            if own.is_none() {
                own = make()?;
            }
            let Some(new) = own else { return Ok(Outcome { entry: None, unused: None }) };
            // AcqRel: releases the record, and acquires another's that came first.
            match entry.compare_exchange(0, new, AcqRel, Acquire) {
                Ok(_) => return Ok(Outcome { entry: Some(new), unused: None }),
                Err(other) => found = other,
            }
        }
        let may_be_key = kind_of(found) == kind && (found ^ hash) >> TAG_AT == 0;
        if may_be_key && is_key(found)? {
            // The own record is unused unless it is the one that was found.
            return Ok(Outcome { entry: Some(found), unused: own.filter(|&own| own != found) });
        }
    }
    Ok(Outcome { entry: None, unused: own })
}

/// Takes a number below `max` that nobody else gets.
///
/// `ensure` gives the first numbers memory; if it fails, nothing is taken.
pub(in crate::segment) fn take_number<E>(
    used: &AtomicU64,
    max: u64,
    ensure: impl Fn(u64) -> Result<(), E>,
) -> Result<Option<u64>, E> {
    // Relaxed, all: only the number counts. Nobody has written the memory behind it.
    let mut number = used.load(Relaxed);
    loop {
        if number >= max {
            return Ok(None);
        }
        ensure(number + 1)?;
        match used.compare_exchange(number, number + 1, Relaxed, Relaxed) {
            Ok(_) => return Ok(Some(number)),
            Err(now) => number = now,
        }
    }
}
