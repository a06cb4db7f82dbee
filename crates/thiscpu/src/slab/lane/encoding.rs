//! Entries: what stands for an object in a sheaf, and in the object itself while it is free.
//!
//! An entry is the cache's key less the object's address. The key is a random odd number, and objects begin at even
//! addresses, so an entry is never 0; and what a program writes over one, or over the mark in a free object, is no entry but
//! by chance, one in 2^60. While an object is free its first word, its *mark*, holds its entry: to free it once more is
//! noticed, and so is a write to it. Objects that stay constructed have their mark behind them, and another while they are not: see
//! [`crate::slab::class::construct`]. The kernel encodes its freelists for the same reason
//! (`CONFIG_SLAB_FREELIST_HARDENED`).

use core::ptr;

use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};

/// A cache's key.
#[derive(Clone, Copy)]
pub(crate) struct Key(pub(crate) usize);

impl Key {
    /// A key that no other cache has, and that says nothing of others: who reads what is free comes to know one.
    pub(crate) fn random() -> Key {
        getrandom_bits().map_or_else(Key::derived, |bits| Key(bits as usize | 1))
    }

    /// The same where the kernel has nothing random yet, or may not be asked. What is random in it is the 16 bytes that it gives
    /// each program, so one can be found from another by who knows how they are made.
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

// A mark is no atomic, so that it can be compared where it is: an object's is accessed by whoever has the object, or the entry.
// Modelled memory is atomics, all of it.

fn modeled(mark: usize) -> &'static AtomicUsize {
    // SAFETY: as in `look`.
    unsafe { &*(mark as *const AtomicUsize) }
}

/// What is at the place of a mark.
#[inline(always)]
pub(crate) fn load_mark(mark: usize) -> usize {
    if cfg!(thiscpu_model) {
        return modeled(mark).load(Relaxed);
    }
    // SAFETY: the mark of an object of a slab, which stays accessible for ever. Nobody else uses it: the object is free,
    // or the caller's.
    unsafe { ptr::with_exposed_provenance::<usize>(mark).read() }
}

/// Marks the object of an entry, whose mark is at that address, as free; with another mark it is in use.
#[inline(always)]
pub(crate) fn set_mark(mark: usize, encoded: usize) {
    if cfg!(thiscpu_model) {
        return modeled(mark).store(encoded, Relaxed);
    }
    // SAFETY: as for `look`.
    unsafe { ptr::with_exposed_provenance_mut::<usize>(mark).write(encoded) }
}

/// Takes the mark of an object away that is to be handed out; false if it has another, or none.
#[inline(always)]
pub(crate) fn take_mark(mark: usize, encoded: usize) -> bool {
    let is_marked = load_mark(mark) == encoded;
    if is_marked {
        set_mark(mark, 0);
    }
    is_marked
}

/// The same by one subtraction in memory. If it is false [`add_to_mark`] is next, which puts back what is there instead of the mark: not here, because what
/// is left would be kept in a register. A pair of a cache takes 2.15 ns with it, and 2.24 with a comparison and a store (Zen 4).
#[inline(always)]
pub(crate) fn subtract_from_mark(mark: usize, encoded: usize) -> bool {
    let left = load_mark(mark).wrapping_sub(encoded);
    set_mark(mark, left);
    left == 0
}

/// Undoes that.
pub(crate) fn add_to_mark(mark: usize, encoded: usize) {
    set_mark(mark, load_mark(mark).wrapping_add(encoded));
}

/// The mark of a free object that has to be constructed first.
#[inline(always)]
pub(crate) fn unconstructed_mark(encoded: usize) -> usize {
    encoded & !1
}

/// What nobody else has, if the kernel has any. Never waits.
fn getrandom_bits() -> Option<u64> {
    if cfg!(thiscpu_model) {
        return None;
    }
    let mut bits = 0_u64;
    let (at, bytes) = (&raw mut bits, size_of::<u64>());
    // By its number: not every C library that programs have has a function for it.
    // SAFETY: so many bytes are written there.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, at, bytes, libc::GRND_NONBLOCK) };
    (written == bytes as libc::c_long).then_some(bits)
}

/// The same in each call, and not to be shown to anybody.
pub(crate) fn auxv_bits() -> u64 {
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

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// Keys of which each leads to the next do not come from the kernel.
    #[test]
    fn keys_say_nothing_of_each_other() {
        let undo = |bits: u64, shift: u32, inverse: u64| {
            let bits = bits.wrapping_mul(inverse);
            (0..64 / shift).fold(bits, |before, _| bits ^ before >> shift)
        };
        // How often what is derived was drawn, if that is what a key comes from.
        let drawn = |Key(key): Key| {
            let bits = undo(key as u64, 31, 1);
            let bits = undo(bits, 27, inverse(0x94d0_49bb_1331_11eb));
            let bits = undo(bits, 30, inverse(0xbf58_476d_1ce4_e5b9));
            (bits ^ auxv_bits()).wrapping_mul(inverse(0x9e37_79b9_7f4a_7c15))
        };
        // The lowest bit of a key is always set.
        let is_derived = |key: Key| drawn(key) < 1_000 || drawn(Key(key.0 ^ 1)) < 1_000;
        assert!((0..20).all(|_| is_derived(Key::derived())));
        assert!((0..20).all(|_| !is_derived(Key::random())));
    }

    /// What an odd number has to be multiplied by to come to 1.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)))
        })
    }
}
