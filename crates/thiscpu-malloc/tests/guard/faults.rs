//! Faults outside of the pool, and other signal handlers.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{SIGABRT, SIGBUS, SIGSEGV};
use thiscpu_malloc::{__test_support, enable_hardening, free};
use thiscpu_test_support::signals;

use crate::errors::{guard_every_block, guarded};
use crate::process::{Test, tests};

pub(crate) const TESTS: &[Test] = tests! {
    foreign_fault_takes_default_action: SIGSEGV, fault_by_default => ["!thiscpu-malloc"];
    foreign_fault_calls_previous_sigaction: 0,
        || fault_with(sigaction_handler as SigactionFn as usize, libc::SA_SIGINFO) => [
        "handled with address", "!thiscpu-malloc",
    ];
    foreign_fault_calls_previous_handler: 0,
        || fault_with(plain_handler as extern "C" fn(c_int) as usize, 0) => [
        "handled", "!thiscpu-malloc",
    ];
    sent_signal_takes_default_action: SIGBUS, || sent(libc::SIG_DFL) => [
        "!thiscpu-malloc", "!ignored",
    ];
    sent_signal_stays_ignored: 0, || sent(libc::SIG_IGN) => ["ignored", "!thiscpu-malloc"];
    later_handler_replaces_ours: SIGABRT, handler_comes_later => [
        "double free of byte 0 of the freed block of 8 bytes",
    ];
    report_fits_small_signal_stack: SIGSEGV, small_stack => [
        "use after free", "by thread", "    #0 ", "allocated", "freed", "addr2line",
    ];
    simultaneous_faults_write_one_report: SIGSEGV, two_at_once => [
        "use after free", "by thread", "allocated", "freed", "addr2line",
    ];
};

type SigactionFn = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// An address that is never mapped.
const UNMAPPED: usize = 8;

fn install(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: the handlers are async-signal-safe, and the callers pass the flags that fit their
    // parameters.
    unsafe { signals::install(signal, handler as *const (), flags) }.unwrap();
}

fn touch(address: usize) {
    // SAFETY: this access must fault, which ends the process or calls a handler.
    unsafe { ptr::read_volatile(address as *const u8) };
}

fn say(text: &str) {
    // SAFETY: the bytes are readable.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

fn leave() {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(0) };
}

extern "C" fn sigaction_handler(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes valid signal information.
    if unsafe { (*info).si_addr() } as usize == UNMAPPED {
        say("handled with address\n");
        leave();
    }
}

extern "C" fn plain_handler(signal: c_int) {
    assert_eq!(signal, SIGSEGV);
    say("handled\n");
    leave();
}

fn fault_by_default() {
    install(SIGSEGV, libc::SIG_DFL, 0);
    guard_every_block();
    touch(UNMAPPED);
}

fn fault_with(handler: usize, flags: c_int) {
    install(SIGSEGV, handler, flags);
    guard_every_block();
    // Enabling it again must not make the handler its own previous one.
    assert!(enable_hardening());
    touch(UNMAPPED);
}

fn sent(action: usize) {
    install(SIGBUS, action, 0);
    guard_every_block();
    // SAFETY: kill has no preconditions.
    unsafe { libc::kill(libc::getpid(), SIGBUS) };
    say("ignored\n");
}

fn handler_comes_later() {
    guard_every_block();
    install(SIGSEGV, libc::SIG_DFL, 0);
    let block = guarded(8, 8);
    // SAFETY: the second free is invalid, which the allocator must detect.
    unsafe {
        free(block);
        free(block);
    }
}

fn small_stack() {
    const BYTES: usize = 8 << 10;
    guard_every_block();
    // An inaccessible page lies below the stack.
    // SAFETY: the mapping is new, and becomes this thread's signal stack.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(ptr::null_mut(), 65536 + BYTES, libc::PROT_NONE, flags, -1, 0);
        let stack = start.byte_add(65536);
        assert_eq!(libc::mprotect(stack, BYTES, libc::PROT_READ | libc::PROT_WRITE), 0);
        let stack = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: BYTES };
        assert_eq!(libc::sigaltstack(&raw const stack, ptr::null_mut()), 0);
    }
    let block = guarded(8, 8);
    // SAFETY: the block is allocated. Its only use afterwards is the tested access.
    unsafe { free(block) };
    touch(block.as_ptr() as usize);
}

fn two_at_once() {
    guard_every_block();
    let blocks = [guarded(8, 8), guarded(8, 8)].map(|block| {
        // SAFETY: the block is allocated. Its only use afterwards is the tested access.
        unsafe { free(block) };
        block.as_ptr() as usize
    });
    assert!(blocks.iter().all(|&block| __test_support::is_guarded(block)));
    let together = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for block in blocks {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                touch(block);
            });
        }
    });
}
