//! What is known of a slot and of the block in it, and the canary of that block.

use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::stack::{SavedStack, Stack};

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing yet.
    Unused,
    /// It is being changed, or was when this process was forked.
    Changing,
    /// A block in use.
    Live,
    /// A block that was freed.
    Freed,
}

/// All zeros is an unused one. Atomics, because reports look at them without a lock if they have to.
#[derive(Default)]
pub(super) struct Slot {
    state: AtomicU32,
    start: AtomicUsize,
    size: AtomicUsize,
    allocated: SavedStack,
    freed: SavedStack,
}

/// What a slot says of its block at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) state: State,
    pub(super) start: usize,
    pub(super) size: usize,
    pub(super) allocated: Stack,
    pub(super) freed: Stack,
}

// Relaxed: changed under the pool's lock, which orders it; who reads without says that what is read may be torn.
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

    /// Whether it holds a block in use that was allocated where a stack is from.
    pub(super) fn is_live_from(&self, stack: &Stack) -> bool {
        self.state() == State::Live && self.allocated.has_same_origin(stack)
    }

    /// Its block has less bytes now.
    pub(super) fn set_size(&self, size: usize) {
        self.size.store(size, Relaxed);
    }

    pub(super) fn set_allocated(&self, start: usize, size: usize, stack: &Stack) {
        self.start.store(start, Relaxed);
        self.size.store(size, Relaxed);
        self.allocated.store(stack);
    }

    pub(super) fn set_freed(&self, stack: &Stack) {
        self.freed.store(stack);
    }

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

/// How many bytes on each side of a block hold a pattern, as far as its page goes.
const CANARY_BYTES: usize = 64;

/// The bytes before a block and behind it, on the same page, that nobody may write to.
pub(super) struct Canary {
    before: Range<usize>,
    behind: Range<usize>,
}

impl Canary {
    pub(super) fn of(start: usize, size: usize, page: Range<usize>) -> Canary {
        let end = start + size;
        Canary {
            before: start.saturating_sub(CANARY_BYTES).max(page.start)..start,
            behind: end..(end + CANARY_BYTES).min(page.end),
        }
    }

    fn addresses(&self) -> impl Iterator<Item = usize> {
        // The nearest to the block first, behind it before those before it.
        self.behind.clone().chain(self.before.clone().rev())
    }

    /// Fills them.
    ///
    /// # Safety
    ///
    /// The page is accessible, and nobody may use what is outside of the block.
    pub(super) unsafe fn fill(&self) {
        // SAFETY: the caller's promise.
        self.addresses().for_each(|address| unsafe { fill(address) });
    }

    /// Fills the one behind the block.
    ///
    /// # Safety
    ///
    /// As for `fill`, of what is behind.
    pub(super) unsafe fn fill_behind(&self) {
        // SAFETY: the caller's promise.
        self.behind.clone().for_each(|address| unsafe { fill(address) });
    }

    /// The nearest byte that was written to.
    ///
    /// # Safety
    ///
    /// The page is accessible.
    pub(super) unsafe fn first_damaged(&self) -> Option<usize> {
        // SAFETY: on that page; volatile, because who writes there does so behind the compiler's back.
        self.addresses().find(|&address| unsafe {
            ptr::read_volatile(address as *const u8) != pattern(address)
        })
    }
}

/// # Safety
///
/// The byte is accessible, and nobody else's.
unsafe fn fill(address: usize) {
    // SAFETY: the caller's promise.
    unsafe { ptr::write(address as *mut u8, pattern(address)) };
}

/// What a byte of a fringe holds: never what programs write by mistake most, 0 and 255.
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
            // SAFETY: the array is this function's.
            unsafe { canary.fill() };
            for address in at..at + page.len() {
                // SAFETY: as above.
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
