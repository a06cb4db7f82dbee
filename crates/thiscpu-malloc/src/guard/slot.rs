//! A slot of the pool, what it knows of its block, and the canary around the block.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::stack::{SavedStack, Stack};

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It never held a block.
    Unused,
    /// It is being changed, or was while this process was forked.
    Changing,
    /// It holds a block in use.
    Live,
    /// It holds a freed block.
    Freed,
}

/// A slot. All zeros is an unused one.
///
/// The fields are atomic because a report reads them without the lock, if it cannot get that.
#[derive(Default)]
pub(super) struct Slot {
    state: AtomicU32,
    start: AtomicUsize,
    size: AtomicUsize,
    allocated: SavedStack,
    freed: SavedStack,
}

/// A copy of what a slot knows of its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) state: State,
    pub(super) start: usize,
    pub(super) size: usize,
    pub(super) allocated: Stack,
    pub(super) freed: Stack,
}

// Relaxed: the pool's lock orders changes. A report that reads without the lock says that the data
// may be torn.
impl Slot {
    pub(super) fn state(&self) -> State {
        const STATES: [State; 4] = [State::Unused, State::Changing, State::Live, State::Freed];
        STATES[self.state.load(Relaxed) as usize]
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u32, Relaxed);
    }

    pub(super) fn start(&self) -> usize {
        self.start.load(Relaxed)
    }

    pub(super) fn size(&self) -> usize {
        self.size.load(Relaxed)
    }

    /// Returns whether it holds a block in use that was allocated at the call site of `stack`.
    pub(super) fn is_live_from(&self, stack: &Stack) -> bool {
        self.state() == State::Live && self.allocated.has_same_origin(stack)
    }

    /// Records that the block has shrunk.
    pub(super) fn set_size(&self, size: usize) {
        self.size.store(size, Relaxed);
    }

    /// Records a new block and the stack that allocated it.
    pub(super) fn set_allocated(&self, start: usize, size: usize, stack: &Stack) {
        self.start.store(start, Relaxed);
        self.size.store(size, Relaxed);
        self.allocated.store(stack);
    }

    /// Records the stack that freed the block.
    pub(super) fn set_freed(&self, stack: &Stack) {
        self.freed.store(stack);
    }

    /// Returns a copy of the block's data.
    pub(super) fn block(&self) -> Block {
        Block {
            state: self.state(),
            start: self.start(),
            size: self.size(),
            allocated: self.allocated.load(),
            freed: self.freed.load(),
        }
    }
}

/// The number of canary bytes on each side of a block, as far as its page goes.
const CANARY_BYTES: usize = 64;

/// The bytes before and after a block, on its page, that hold a pattern.
pub(super) struct Canary {
    before: Range<usize>,
    after: Range<usize>,
}

impl Canary {
    /// Returns the canary of a block.
    pub(super) fn of(start: usize, size: usize, page: Range<usize>) -> Canary {
        let end = start + size;
        Canary {
            before: start.saturating_sub(CANARY_BYTES).max(page.start)..start,
            after: end..(end + CANARY_BYTES).min(page.end),
        }
    }

    /// Returns the addresses of all bytes, nearest to the block first, those after it first.
    fn addresses(&self) -> impl Iterator<Item = usize> {
        self.after.clone().chain(self.before.clone().rev())
    }

    /// Writes the pattern.
    ///
    /// # Safety
    ///
    /// The page is accessible, and its bytes outside of the block are not in use.
    pub(super) unsafe fn fill(&self) {
        // SAFETY: the caller guarantees that the bytes outside of the block are accessible and not
        // in use.
        self.addresses().for_each(|address| unsafe { fill(address) });
    }

    /// Writes the pattern after the block only.
    ///
    /// # Safety
    ///
    /// The page is accessible, and its bytes after the block are not in use.
    pub(super) unsafe fn fill_after(&self) {
        // SAFETY: the caller guarantees that the bytes after the block are accessible and not in
        // use.
        self.after.clone().for_each(|address| unsafe { fill(address) });
    }

    /// Returns the overwritten byte that is nearest to the block, if any is.
    ///
    /// # Safety
    ///
    /// The page is accessible.
    pub(super) unsafe fn first_damaged(&self) -> Option<usize> {
        // SAFETY: the address is on the page, which the caller guarantees to be accessible. The
        // read is volatile because the program may write there without the compiler's knowledge.
        self.addresses().find(|&address| unsafe {
            ptr::read_volatile(address as *const u8) != pattern(address)
        })
    }
}

/// Writes the pattern to one byte.
///
/// # Safety
///
/// The byte is accessible and not in use.
unsafe fn fill(address: usize) {
    // SAFETY: the caller guarantees that the byte is accessible and not in use.
    unsafe { ptr::write(address as *mut u8, pattern(address)) };
}

/// Returns the pattern of a byte. It is never 0 or 255, which programs write by mistake most.
fn pattern(address: usize) -> u8 {
    0xa0 | (address as u8 & 0x0f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canary_covers_each_byte_on_either_side() {
        let mut page = [0_u8; 512];
        let at = page.as_mut_ptr() as usize;
        for (offset, size) in [(0, 512), (0, 100), (412, 100), (200, 1), (496, 0)] {
            let block = at + offset..at + offset + size;
            let canary = Canary::of(block.start, size, at..at + page.len());
            // SAFETY: the bytes are those of `page`, which nothing else uses.
            unsafe { canary.fill() };
            for address in at..at + page.len() {
                // SAFETY: the bytes are those of `page`, which nothing else uses.
                let found = unsafe {
                    let byte = address as *mut u8;
                    let before = byte.read();
                    byte.write(0);
                    let found = canary.first_damaged();
                    byte.write(before);
                    found
                };
                let is_near =
                    address + CANARY_BYTES >= block.start && address < block.end + CANARY_BYTES;
                let is_watched = is_near && !block.contains(&address);
                assert_eq!(found, is_watched.then_some(address), "{offset} {size}");
            }
        }
    }
}
