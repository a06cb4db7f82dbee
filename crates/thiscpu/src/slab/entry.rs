//! Entries: what stands for an object in a sheaf, and in the object itself while it is free.
//!
//! An entry is the cache's key less the object's address. The key is a random odd number, and objects begin at even
//! addresses, so an entry is never 0; and what a program writes over one, or over the mark in a free object, is no entry but
//! by chance, one in 2^60. While an object is free its first word, its *mark*, holds its entry: to free it once more is
//! noticed, and so is a write to it. Objects that stay constructed have their mark behind them, and another while they are not: see
//! [`super::construct`]. The kernel encodes its freelists for the same reason
//! (`CONFIG_SLAB_FREELIST_HARDENED`).

use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};

/// A cache's key.
#[derive(Clone, Copy)]
pub(super) struct Key(pub(super) usize);

fn word(address: usize) -> &'static AtomicUsize {
    // SAFETY: the mark of an object of a slab, which stays accessible for ever. Nobody else uses
    // it: the object is free, or the caller's.
    unsafe { &*(address as *const AtomicUsize) }
}

impl Key {
    /// A key that no other cache has. What is random in it is the 16 bytes that the kernel gives each program.
    pub(super) fn random() -> Key {
        static DRAWN: AtomicUsize = AtomicUsize::new(0);
        let drawn = DRAWN.fetch_add(1, Relaxed) as u64 + 1;
        let mut bits = random_bits() ^ drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Key((bits ^ bits >> 31) as usize | 1)
    }

    #[inline(always)]
    pub(super) fn entry(self, object: usize) -> usize {
        self.0.wrapping_sub(object)
    }

    #[inline(always)]
    pub(super) fn object(self, entry: usize) -> usize {
        self.0.wrapping_sub(entry)
    }
}

/// What is at the place of a mark.
#[inline(always)]
pub(super) fn look(mark: usize) -> usize {
    word(mark).load(Relaxed)
}

/// Marks the object of an entry, whose mark is at that address, as free; with another mark it is in use.
pub(super) fn mark(mark: usize, entry: usize) {
    word(mark).store(entry, Relaxed);
}

/// Takes the mark of an object away that is to be handed out; false if it has another, or none.
#[inline(always)]
pub(super) fn unmark(mark: usize, entry: usize) -> bool {
    let word = word(mark);
    let is_marked = word.load(Relaxed) == entry;
    if is_marked {
        word.store(0, Relaxed);
    }
    is_marked
}

/// The mark of a free object that has to be constructed first.
#[inline(always)]
pub(super) fn unmade(entry: usize) -> usize {
    entry & !1
}

/// The same in each call, and not to be shown to anybody.
pub(super) fn random_bits() -> u64 {
    if cfg!(thiscpu_model) {
        return 0;
    }
    // SAFETY: the auxiliary vector leads to 16 bytes, or to nothing.
    unsafe {
        match libc::getauxval(libc::AT_RANDOM) as *const [u64; 2] {
            at if at.is_null() => 0,
            at => at.read_unaligned().iter().fold(0, |bits, word| bits.rotate_left(32) ^ word),
        }
    }
}
