//! What barns of large objects may hold in all.
//!
//! A hundred classes of large objects have barns for the same lanes, so a limit for each class
//! would be no limit. The barns of one number, on one node, count their bytes in a word of their
//! own.

use crate::lanes::table;
use crate::slab::arena;
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of barns that each class has on a node.
pub(super) const BARNS_PER_NODE: usize = if cfg!(thiscpu_model) { 1 } else { 8 };
/// All barns of a node together hold this much, and this part of the memory in use.
const ALL_BYTES_MIN: usize = if cfg!(thiscpu_model) { 32 * 1024 } else { 16 * 1024 * 1024 };
const USED_DIVISOR: usize = 8;
/// Nodes with words of their own; further ones share these.
const NODES: usize = if cfg!(thiscpu_model) { 1 } else { 8 };

#[derive(Debug)]
#[repr(align(64))]
struct Bytes(AtomicUsize);

static BYTES: [Bytes; NODES * BARNS_PER_NODE] =
    [const { Bytes(AtomicUsize::new(0)) }; NODES * BARNS_PER_NODE];

/// Returns how many bytes the barns of one number may hold: an equal share of the whole.
///
/// With fewer lanes than barns, fewer barns are in use. If sheaves of other lanes fill the others
/// too, all of them together hold more.
fn limit() -> usize {
    let all = ALL_BYTES_MIN + arena::used_bytes() / USED_DIVISOR;
    all / table::in_use().clamp(1, BARNS_PER_NODE)
}

/// A barn's part of the bytes that barns of its number hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargeShare {
    bytes: &'static AtomicUsize,
    size: usize,
}

impl LargeShare {
    /// Returns the share of a barn of objects of `size` bytes.
    pub(super) fn new(node: usize, barn: usize, size: usize) -> LargeShare {
        LargeShare { bytes: &BYTES[node % NODES * BARNS_PER_NODE + barn].0, size }
    }

    // Relaxed, here and below: it counts, and orders nothing. A fork may leave it off by what
    // another thread was trading.

    /// Returns whether the barns of this number would hold too much with `bytes` more.
    pub(super) fn has_no_room(self, bytes: usize) -> bool {
        let held = (self.bytes.load(Relaxed) as isize).max(0) as usize;
        held + bytes > limit()
    }

    /// Counts objects that came, or left if the number is negative.
    pub(super) fn count(self, objects: isize) {
        self.bytes.fetch_add((objects * self.size as isize) as usize, Relaxed);
    }
}
