//! Who called: the stack of this thread, taken in the middle of malloc or of a signal handler.
//!
//! There it may take no lock and allocate nothing. The C runtime's `_Unwind_Backtrace` does both: code that a program
//! generates is registered under a lock which is held while malloc is called, by whoever throws an exception. And it cannot begin
//! at a fault. So stacks are walked here, by the same tables, which [`gimli`] reads: [`walk`] goes from a frame to its caller,
//! [`object`] finds the tables, [`memory`] reads what may not be there. Where there are no tables (generated code, other C
//! libraries than glibc 2.35 or later) the chain of frame pointers is followed for as long as it looks like one.

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

/// How many frames of a stack are kept, those of the allocator itself included.
pub(super) const FRAMES_MAX: usize = 20;

/// How many of them, the innermost, say where a stack is from. Not all: a recursion would have a place of its own for each depth.
const ORIGIN_FRAMES: usize = FRAMES_MAX / 2;

/// Some thread's stack: for each frame the place of the call, the innermost first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stack {
    pub(super) thread: u32,
    /// Zeros behind the last.
    addresses: [usize; FRAMES_MAX],
}

impl Stack {
    /// This thread's, without the frame of this function. Changes `errno`.
    #[inline(never)]
    pub(super) fn capture() -> Stack {
        let (registers, pc) = arch::capture();
        Stack::walk(Frame { registers, pc, is_call: false }, 1)
    }

    /// That of what a signal has interrupted. Changes `errno`.
    ///
    /// # Safety
    ///
    /// The context is what the kernel gave to a signal handler of this thread, which has not returned.
    pub(super) unsafe fn from_context(context: *const c_void) -> Stack {
        // SAFETY: the caller's promise.
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

    /// The addresses, the innermost first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.addresses.iter().copied().take_while(|&address| address != 0)
    }
}

/// Whether the access that faulted was a write, where that is known.
///
/// # Safety
///
/// The context is what the kernel gave to a handler of a page fault.
pub(super) unsafe fn was_write(context: *const c_void) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe { arch::was_write(context) }
}

/// Calls `function(argument)` on the stack that ends at `top`.
///
/// # Safety
///
/// The stack is large enough and nobody uses it; `top` is a multiple of 16.
pub(super) unsafe fn call_on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller's promise.
    unsafe { arch::call_on_stack(top, function, argument) }
}

/// The number that the kernel knows this thread by.
pub(super) fn this_thread() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() as u32 }
}

/// A stack that is kept where a report may look at it while it changes.
#[derive(Default)]
pub(super) struct SavedStack {
    thread: AtomicU32,
    addresses: [AtomicUsize; FRAMES_MAX],
}

// Relaxed: who holds the pool's lock is ordered by that; who does not says that what is read may be torn.
impl SavedStack {
    pub(super) fn store(&self, stack: &Stack) {
        self.thread.store(stack.thread, Relaxed);
        for (kept, &address) in self.addresses.iter().zip(&stack.addresses) {
            kept.store(address, Relaxed);
        }
    }

    /// Whether it is from where another is from, on any thread.
    pub(super) fn has_same_origin(&self, stack: &Stack) -> bool {
        let both = self.addresses.iter().zip(&stack.addresses).take(ORIGIN_FRAMES);
        both.into_iter().all(|(kept, &address)| kept.load(Relaxed) == address)
    }

    pub(super) fn load(&self) -> Stack {
        let mut stack = Stack { thread: self.thread.load(Relaxed), addresses: [0; FRAMES_MAX] };
        for (address, kept) in stack.addresses.iter_mut().zip(&self.addresses) {
            *address = kept.load(Relaxed);
        }
        stack
    }
}
