//! Stack walks that may start inside malloc or in a signal handler.
//!
//! There, a walk must not take locks or allocate. The C runtime's `_Unwind_Backtrace` does both: it
//! looks up generated code under a lock, and a thread that throws an exception holds that lock
//! while it calls malloc. Also, it cannot start at a fault.
//!
//! So stacks are walked here, by the same tables, which [`gimli`] reads. [`walk`] goes from a frame
//! to its caller, [`object`] finds the tables, and [`memory`] reads words that may be invalid.
//! Generated code has no tables, and glibc before 2.35 and other C libraries do not help to find
//! them. Then the chain of frame pointers is followed for as long as it looks like one.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
mod frame;
mod memory;
mod object;
mod rules;
mod walk;

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

pub use rules::forget as forget_rules;

use frame::Frame;
use memory::Memory;
use walk::Step;

/// The number of frames that are recorded, including those of the allocator itself.
pub(crate) const FRAMES_MAX: usize = 20;

/// The number of innermost frames that identify a call site.
///
/// With all frames, each depth of a recursion would be a call site of its own.
const ORIGIN_FRAMES: usize = FRAMES_MAX / 2;

/// A thread's stack: the address of the call in each frame, innermost first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stack {
    pub(crate) thread: u32,
    /// Zeros follow the last address.
    addresses: [usize; FRAMES_MAX],
}

impl Stack {
    /// Returns this thread's stack, without the frame of this function. Changes `errno`.
    #[inline(never)]
    pub(crate) fn capture() -> Stack {
        let (registers, pc) = arch::capture();
        Stack::walk(Frame { registers, pc, is_call: false, is_partial: false }, 1)
    }

    /// Returns the stack of the code that a signal has interrupted. Changes `errno`.
    ///
    /// # Safety
    ///
    /// The kernel has passed the context to a signal handler of this thread, which has not
    /// returned.
    pub(crate) unsafe fn from_context(context: *const c_void) -> Stack {
        // SAFETY: the caller guarantees that the context is the kernel's.
        let (registers, pc) = unsafe { arch::from_context(context) };
        Stack::walk(Frame { registers, pc, is_call: false, is_partial: false }, 0)
    }

    fn walk(first: Frame, skipped: usize) -> Stack {
        let mut stack = Stack { thread: this_thread(), addresses: [0; FRAMES_MAX] };
        walk_into(first, skipped, &mut stack.addresses);
        stack
    }

    /// Returns the addresses, innermost first.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().copied().take_while(|&address| address != 0)
    }
}

/// Stores the addresses of this thread's stack, without the frame of this function.
///
/// Returns how many there are. Changes `errno`.
#[inline(never)]
pub(crate) fn capture_into(addresses: &mut [usize]) -> usize {
    let (registers, pc) = arch::capture();
    let first = Frame { registers, pc, is_call: false, is_partial: false };
    walk_by_rules(&first, addresses).unwrap_or_else(|| walk_into(first, 1, addresses))
}

/// Walks by kept rules, without the first frame.
///
/// Returns `None` if the tables ask for a register that rules do not restore.
fn walk_by_rules(first: &Frame, addresses: &mut [usize]) -> Option<usize> {
    let mut memory = Memory::new();
    let mut step = walk::caller_by_rules(first, &mut memory);
    for (stored, address) in addresses.iter_mut().enumerate() {
        let current = match step {
            Step::Caller(current) => current,
            Step::End => return Some(stored),
            Step::Restart => return None,
        };
        *address = current.call_site();
        step = walk::caller_by_rules(&current, &mut memory);
    }
    Some(addresses.len())
}

/// Stores the addresses of the frames from `first` on, without the first `skipped` ones.
fn walk_into(first: Frame, skipped: usize, addresses: &mut [usize]) -> usize {
    let mut memory = Memory::new();
    let mut frame = Some(first);
    for _ in 0..skipped {
        frame = frame.and_then(|current| walk::caller(&current, &mut memory));
    }
    for (stored, address) in addresses.iter_mut().enumerate() {
        let Some(current) = frame else { return stored };
        *address = current.call_site();
        frame = walk::caller(&current, &mut memory);
    }
    addresses.len()
}

/// Returns whether the access that faulted was a write, if that is known.
///
/// # Safety
///
/// The kernel has passed the context to a handler of a page fault.
pub(crate) unsafe fn was_write(context: *const c_void) -> Option<bool> {
    // SAFETY: the caller guarantees that the context is the kernel's, of a page fault.
    unsafe { arch::was_write(context) }
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and not in use; `top` is a multiple of 16.
pub(crate) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller guarantees that the stack is large enough, not in use, and aligned.
    unsafe { arch::call_on_stack(top, function, argument) }
}

/// Returns the kernel's ID of this thread.
pub(crate) fn this_thread() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// A stack in memory that a report may read while it changes.
#[derive(Default)]
pub(crate) struct SavedStack {
    thread: AtomicU32,
    addresses: [AtomicUsize; FRAMES_MAX],
}

// Relaxed: the pool's lock orders changes. A report that reads without the lock says that the data
// may be torn.
impl SavedStack {
    /// Replaces the stack.
    pub(crate) fn store(&self, stack: &Stack) {
        self.thread.store(stack.thread, Relaxed);
        for (kept, &address) in self.addresses.iter().zip(&stack.addresses) {
            kept.store(address, Relaxed);
        }
    }

    /// Returns whether it is from the same call site as `stack`, on any thread.
    pub(crate) fn has_same_origin(&self, stack: &Stack) -> bool {
        let both = self.addresses.iter().zip(&stack.addresses).take(ORIGIN_FRAMES);
        both.into_iter().all(|(kept, &address)| kept.load(Relaxed) == address)
    }

    /// Returns a copy.
    pub(crate) fn load(&self) -> Stack {
        let mut stack = Stack { thread: self.thread.load(Relaxed), addresses: [0; FRAMES_MAX] };
        for (address, kept) in stack.addresses.iter_mut().zip(&self.addresses) {
            *address = kept.load(Relaxed);
        }
        stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the callers of this function, by tables alone, and twice by rules.
    #[inline(never)]
    fn walks(depth: usize) -> [Vec<usize>; 3] {
        if depth > 0 {
            return core::hint::black_box(walks(depth - 1));
        }
        let (registers, pc) = arch::capture();
        let first = || Frame { registers, pc, is_call: false, is_partial: false };
        let by = |walk: &dyn Fn(&mut [usize]) -> usize| {
            let mut addresses = [0; 60];
            let stored = walk(&mut addresses);
            addresses[..stored].to_vec()
        };
        let by_rules = |addresses: &mut [usize]| walk_by_rules(&first(), addresses).unwrap_or(0);
        [by(&|addresses| walk_into(first(), 1, addresses)), by(&by_rules), by(&by_rules)]
    }

    #[test]
    fn walks_by_rules_find_the_callers_that_tables_find() {
        for depth in [0, 1, 9] {
            let [by_tables, first, second] = walks(depth);
            assert!(by_tables.len() > depth + 3, "{by_tables:x?}");
            // The first walk keeps rules, and the second finds them.
            assert_eq!(first, by_tables, "{depth}");
            assert_eq!(second, by_tables, "{depth}");
            // Walks of other tests may replace some of them.
            let kept = by_tables.iter().filter(|&&site| rules::find(site).is_some()).count();
            assert!(2 * kept > by_tables.len(), "{kept} of {by_tables:x?}");
        }
    }
}
