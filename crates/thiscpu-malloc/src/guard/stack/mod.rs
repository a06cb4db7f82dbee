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
mod memory;
mod object;
mod walk;

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use memory::Memory;
use walk::Frame;

/// The number of frames that are recorded, including those of the allocator itself.
pub(super) const FRAMES_MAX: usize = 20;

/// The number of innermost frames that identify a call site.
///
/// With all frames, each depth of a recursion would be a call site of its own.
const ORIGIN_FRAMES: usize = FRAMES_MAX / 2;

/// A thread's stack: the address of the call in each frame, innermost first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stack {
    pub(super) thread: u32,
    /// Zeros follow the last address.
    addresses: [usize; FRAMES_MAX],
}

impl Stack {
    /// Returns this thread's stack, without the frame of this function. Changes `errno`.
    #[inline(never)]
    pub(super) fn capture() -> Stack {
        let (registers, pc) = arch::capture();
        Stack::walk(Frame { registers, pc, is_call: false }, 1)
    }

    /// Returns the stack of the code that a signal has interrupted. Changes `errno`.
    ///
    /// # Safety
    ///
    /// The kernel has passed the context to a signal handler of this thread, which has not
    /// returned.
    pub(super) unsafe fn from_context(context: *const c_void) -> Stack {
        // SAFETY: the caller guarantees that the context is the kernel's.
        let (registers, pc) = unsafe { arch::from_context(context) };
        Stack::walk(Frame { registers, pc, is_call: false }, 0)
    }

    fn walk(first: Frame, skipped: usize) -> Stack {
        let mut stack = Stack { thread: this_thread(), addresses: [0; FRAMES_MAX] };
        let mut memory = Memory::new();
        let mut frame = Some(first);
        for index in 0..FRAMES_MAX + skipped {
            let Some(current) = frame else { break };
            if index >= skipped {
                stack.addresses[index - skipped] = current.call_site();
            }
            frame = walk::caller(&current, &mut memory);
        }
        stack
    }

    /// Returns the addresses, innermost first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().copied().take_while(|&address| address != 0)
    }
}

/// Returns whether the access that faulted was a write, if that is known.
///
/// # Safety
///
/// The kernel has passed the context to a handler of a page fault.
pub(super) unsafe fn was_write(context: *const c_void) -> Option<bool> {
    // SAFETY: the caller guarantees that the context is the kernel's, of a page fault.
    unsafe { arch::was_write(context) }
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and not in use; `top` is a multiple of 16.
pub(super) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller guarantees that the stack is large enough, not in use, and aligned.
    unsafe { arch::call_on_stack(top, function, argument) }
}

/// Returns the kernel's ID of this thread.
pub(super) fn this_thread() -> u32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// A stack in memory that a report may read while it changes.
#[derive(Default)]
pub(super) struct SavedStack {
    thread: AtomicU32,
    addresses: [AtomicUsize; FRAMES_MAX],
}

// Relaxed: the pool's lock orders changes. A report that reads without the lock says that the data
// may be torn.
impl SavedStack {
    /// Replaces the stack.
    pub(super) fn store(&self, stack: &Stack) {
        self.thread.store(stack.thread, Relaxed);
        for (kept, &address) in self.addresses.iter().zip(&stack.addresses) {
            kept.store(address, Relaxed);
        }
    }

    /// Returns whether it is from the same call site as `stack`, on any thread.
    pub(super) fn has_same_origin(&self, stack: &Stack) -> bool {
        let both = self.addresses.iter().zip(&stack.addresses).take(ORIGIN_FRAMES);
        both.into_iter().all(|(kept, &address)| kept.load(Relaxed) == address)
    }

    /// Returns a copy.
    pub(super) fn load(&self) -> Stack {
        let mut stack = Stack { thread: self.thread.load(Relaxed), addresses: [0; FRAMES_MAX] };
        for (address, kept) in stack.addresses.iter_mut().zip(&self.addresses) {
            *address = kept.load(Relaxed);
        }
        stack
    }
}
