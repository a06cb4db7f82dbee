//! Encoded pointers: how sheaves, and free objects themselves, hold an object's address.
//!
//! An encoded pointer is the cache's key minus the object's address. The key is a random odd number
//! and objects begin at even addresses, so an encoded pointer is odd and never 0. A value that a
//! program writes over one matches only by chance, one in 2^63.
//!
//! While an object is free, its first word is its *free mark* and holds its encoded pointer. The
//! mark reveals a double free and a write after free. An object that stays constructed has its mark
//! in the word behind it, whose lowest bit says whether the object is constructed: see
//! `class::construct`.
//!
//! The kernel encodes its free lists for the same reason (`CONFIG_SLAB_FREELIST_HARDENED`). The
//! encoding here is simpler: one encoded pointer and its address reveal the key.

use core::ptr;

use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};

/// The secret that a cache's pointers are encoded with.
#[derive(Clone, Copy)]
pub(crate) struct Key(pub(crate) usize);

impl Key {
    /// Draws a key.
    ///
    /// Each cache has its own. A program that reads a free object can compute the key of that
    /// object's cache, but no other key.
    pub(crate) fn random() -> Key {
        getrandom_bits().map_or_else(Key::derived, |bits| Key(bits as usize | 1))
    }

    /// Derives a key where the kernel has no random bytes, or may not be asked for them.
    ///
    /// Its randomness is the 16 bytes that the kernel gives each program, so a reader of one such
    /// key who knows this function can compute the others.
    fn derived() -> Key {
        static DRAWN: AtomicUsize = AtomicUsize::new(0);
        let drawn = DRAWN.fetch_add(1, Relaxed) as u64 + 1;
        let mut bits = auxv_bits() ^ drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Key((bits ^ bits >> 31) as usize | 1)
    }

    #[inline(always)]
    pub(crate) fn encode(self, object: usize) -> usize {
        self.0.wrapping_sub(object)
    }

    #[inline(always)]
    pub(crate) fn decode(self, encoded: usize) -> usize {
        self.0.wrapping_sub(encoded)
    }
}

// Marks are not atomics in real memory, so that the compiler can compare them in a memory operand.
// An object's mark is accessed only by the thread that holds the object or its encoded pointer.
// Modeled memory consists of atomics only.

fn modeled(mark: usize) -> &'static AtomicUsize {
    // SAFETY: `mark` is the address of a mark in modeled memory, which consists of `AtomicUsize`s
    // and stays mapped.
    unsafe { &*(mark as *const AtomicUsize) }
}

/// Loads the word at the place of a mark: of an object of a cache, or of any freed address.
#[inline(always)]
pub(crate) fn load_mark(mark: usize) -> usize {
    if cfg!(thiscpu_model) {
        return modeled(mark).load(Relaxed);
    }
    // SAFETY: `mark` is readable. It is in an object of a slab, and slabs stay mapped forever; or a
    // program freed an address that is no object, and the contract of freeing requires memory that
    // it may access. No other thread accesses an object's mark: the object is free and its encoded
    // pointer is the caller's, or the caller is about to free the object.
    unsafe { ptr::with_exposed_provenance::<usize>(mark).read() }
}

/// Stores a mark: an object's own encoded pointer says that it is free, 0 that it is in use.
#[inline(always)]
pub(crate) fn set_mark(mark: usize, encoded: usize) {
    if cfg!(thiscpu_model) {
        return modeled(mark).store(encoded, Relaxed);
    }
    // SAFETY: `mark` is writable, for the reasons that `load_mark` gives. No other thread accesses
    // an object's mark: only one thread holds the object or its encoded pointer.
    unsafe { ptr::with_exposed_provenance_mut::<usize>(mark).write(encoded) }
}

/// Clears the mark of an object about to be allocated; false if the mark is not `encoded`.
#[inline(always)]
pub(crate) fn take_mark(mark: usize, encoded: usize) -> bool {
    let is_marked = load_mark(mark) == encoded;
    if is_marked {
        set_mark(mark, 0);
    }
    is_marked
}

/// Clears the mark by one subtraction in memory; false if the mark was not `encoded`.
///
/// One subtraction from memory checks and clears the word, and keeps nothing in a register. So the
/// caller restores the word if this returns false, by [`add_to_mark`] on its cold path.
#[inline(always)]
pub(crate) fn subtract_from_mark(mark: usize, encoded: usize) -> bool {
    let left = load_mark(mark).wrapping_sub(encoded);
    set_mark(mark, left);
    left == 0
}

/// Undoes [`subtract_from_mark`].
pub(crate) fn add_to_mark(mark: usize, encoded: usize) {
    set_mark(mark, load_mark(mark).wrapping_add(encoded));
}

/// Returns the mark of a free object that must be constructed before its next use.
#[inline(always)]
pub(crate) fn unconstructed_mark(encoded: usize) -> usize {
    encoded & !1
}

/// Returns the address of the word that says that a large object is all zero otherwise.
///
/// It is the one behind the free mark.
#[inline(always)]
pub(crate) fn zero_word(object: usize) -> usize {
    object + size_of::<usize>()
}

/// Returns what the zero word of an object holds that was never handed out and is all zero.
///
/// It differs from the free mark, so that a program that copies words of a free object does not
/// make one by chance.
#[inline(always)]
pub(crate) fn zero_mark(encoded: usize) -> usize {
    encoded ^ 0x7a65_726f_7a65_726f_u64 as usize
}

/// Returns fresh random bits, if the kernel has any; never waits.
fn getrandom_bits() -> Option<u64> {
    if cfg!(thiscpu_model) {
        return None;
    }
    let mut bits = 0_u64;
    let (at, bytes) = (&raw mut bits, size_of::<u64>());
    // By its number, because not every C library has a function for it.
    //
    // SAFETY: the kernel writes at most `bytes` bytes, and `at` points to that many.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, at, bytes, libc::GRND_NONBLOCK) };
    (written == bytes as libc::c_long).then_some(bits)
}

/// Returns bits that are the same in each call and must not be shown to anyone.
pub(crate) fn auxv_bits() -> u64 {
    if cfg!(thiscpu_model) {
        return 0;
    }
    // SAFETY: `AT_RANDOM` is the address of 16 bytes, which stay for the life of the process, or 0.
    unsafe {
        match libc::getauxval(libc::AT_RANDOM) as *const [u64; 2] {
            at if at.is_null() => 0,
            at => at.read_unaligned().iter().fold(0, |bits, word| bits.rotate_left(32) ^ word),
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// Draws keys: those of the kernel do not lead to each other, derived ones do.
    #[test]
    fn random_keys_are_not_derived() {
        let undo = |bits: u64, shift: u32, inverse: u64| {
            let bits = bits.wrapping_mul(inverse);
            (0..64 / shift).fold(bits, |before, _| bits ^ before >> shift)
        };
        // Returns the number of the draw that a key comes from, if it is derived.
        let drawn = |Key(key): Key| {
            let bits = undo(key as u64, 31, 1);
            let bits = undo(bits, 27, inverse(0x94d0_49bb_1331_11eb));
            let bits = undo(bits, 30, inverse(0xbf58_476d_1ce4_e5b9));
            (bits ^ auxv_bits()).wrapping_mul(inverse(0x9e37_79b9_7f4a_7c15))
        };
        // Each key has its lowest bit set, whatever the derived bit was.
        let is_derived = |key: Key| drawn(key) < 1_000 || drawn(Key(key.0 ^ 1)) < 1_000;
        assert!((0..20).all(|_| is_derived(Key::derived())));
        assert!((0..20).all(|_| !is_derived(Key::random())));
    }

    /// Returns the inverse of an odd number modulo 2^64.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)))
        })
    }
}
