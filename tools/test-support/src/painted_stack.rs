//! How much stack a call uses: the bytes that change on a painted stack.

use std::arch::asm;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::{mem, ptr};

use crate::signals;

/// The size of the painted stack, in bytes.
const STACK_BYTES: usize = 1 << 20;
/// A word of a stack that nothing has changed; it is not the address of anything.
const PAINT: u64 = 0x5a17_c0de_5a17_c0de;

/// The function that the handler calls.
static CALL: AtomicUsize = AtomicUsize::new(0);
/// The stack pointer of the handler, before it calls the function.
static HANDLER_SP: AtomicUsize = AtomicUsize::new(0);

extern "C" fn call_on_painted_stack(_: i32) {
    // SAFETY: `bytes_used` has stored a function of this type.
    let call: fn() = unsafe { mem::transmute(CALL.load(SeqCst)) };
    HANDLER_SP.store(stack_pointer(), SeqCst);
    call();
}

#[inline(always)]
fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the stack pointer.
    unsafe {
        asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the stack pointer.
    unsafe {
        asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Calls a function in a signal handler, and returns how many bytes of stack it changes.
///
/// The handler runs on a signal stack of 1 MiB. The frames of the kernel and of the handler do not
/// count. No code is interrupted: this thread sends itself the signal, which is `SIGUSR2`. So the
/// function may make any call, not only one that is made for handlers. It must not panic.
///
/// # Panics
///
/// If the system gives no memory, or no signal stack.
pub fn bytes_used(call: fn()) -> usize {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _one = ONE_BY_ONE.lock();
    let mut stack = vec![PAINT; STACK_BYTES / size_of::<u64>()];
    let own = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
    CALL.store(call as usize, SeqCst);
    // SAFETY: the handler takes what the kernel passes without flags; no other code is interrupted.
    unsafe {
        signals::install(libc::SIGUSR2, call_on_painted_stack as *const (), libc::SA_ONSTACK)
    }
    .expect("a signal handler");
    // SAFETY: all zeros is a valid `stack_t`. The stack outlives its use, which ends with the
    // second call, and nothing else uses its memory meanwhile.
    unsafe {
        let mut before: libc::stack_t = mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const own, &raw mut before), 0, "no signal stack");
        assert_eq!(libc::raise(libc::SIGUSR2), 0, "no signal");
        assert_eq!(libc::sigaltstack(&raw const before, ptr::null_mut()), 0, "no signal stack");
    }
    // The handler has written to the memory behind the compiler's back.
    let stack = std::hint::black_box(stack);
    let lowest = stack.iter().position(|&word| word != PAINT).expect("a handler that ran");
    assert!(lowest > 0, "the call uses more than the whole stack");
    HANDLER_SP.load(SeqCst) - ptr::from_ref(&stack[lowest]) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_array<const N: usize>() {
        let array = [1_u8; N];
        std::hint::black_box(&array);
    }

    #[test]
    fn bytes_used_is_that_of_the_largest_frame() {
        let [none, small, large] =
            [(|| ()) as fn(), with_array::<2000>, with_array::<20_000>].map(bytes_used);
        assert!(none < 1000, "{none}");
        assert!((2000..4000).contains(&small), "{small}");
        assert!((20_000..22_000).contains(&large), "{large}");
    }
}
