//! Each kind of error, and its report.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use libc::{SIGABRT, SIGSEGV};
use thiscpu_malloc::{
    __test_support, allocate, allocate_aligned, enable_hardening, free, resize, usable_size,
};
use thiscpu_test_support::child;

use crate::helper::{Helper, Step};
use crate::process::{Test, object, tests};

pub(crate) const TESTS: &[Test] = tests! {
    use_after_free_by_read: SIGSEGV, || use_after_free(true, read) => [
        "thiscpu-malloc: use after free: ..0x..byte 5 of the freed block of 24 bytes at 0x",
        "by thread", "libguard_helper.so+0x.. helper_errs+",
        "allocated by thread", "libguard_helper.so+0x.. helper_allocates+",
        "freed by thread", "libguard_helper.so+0x.. helper_frees+", "addr2line",
    ];
    use_after_free_by_write: SIGSEGV, || use_after_free(true, write) => [
        "use after free: ..byte 5 of the freed block of 24 bytes",
    ];
    stack_without_unwind_tables: SIGSEGV, || use_after_free(false, read) => [
        "use after free", "libguard_helper_without_tables.so+0x.. helper_errs+",
        // The walk continues from there by tables.
        "__libc_start",
        "allocated by thread", "libguard_helper_without_tables.so+0x.. helper_allocates+",
        "freed by thread", "libguard_helper_without_tables.so+0x.. helper_frees+",
    ];
    stack_through_signal_handler: SIGSEGV, || use_after_free(true, read_in_handler) => [
        "use after free", "by thread", "helper_errs", "__libc_start", "allocated by thread",
    ];
    overflow_by_read: SIGSEGV, || overflow(read) => [
        "overflow: ..0x..1 byte after the end of the block of 32 bytes", "!freed by",
    ];
    overflow_by_write: SIGSEGV, || overflow(write) => [
        "overflow: ..1 byte after the end of the block of 32 bytes", "helper_errs",
    ];
    underflow: SIGSEGV, underflow => [
        "underflow: ..3 bytes before the start of the block of 40 bytes", "helper_errs",
    ];
    double_free: SIGABRT, double_free => [
        "thiscpu-malloc: double free of byte 0 of the freed block of 100 bytes at 0x",
        "by thread", "helper_errs",
        "allocated by thread", "helper_allocates", "freed by thread", "helper_frees",
    ];
    double_free_on_another_thread: SIGABRT, || thread::spawn(double_free).join().unwrap() => [
        "double free", "helper_errs", "helper_allocates", "helper_frees",
    ];
    interior_free: SIGABRT, interior_free => [
        "invalid free of 0x.., byte 16 of the block of 64 bytes", "helper_errs", "!freed by",
    ];
    invalid_free: SIGABRT, free_of_no_block => [
        "invalid free of 0x..: no block was there", "helper_errs", "!allocated by",
    ];
    canary_overflow: SIGABRT, || overwrite_canary(true, 11) => [
        "overflow, found at free or realloc: a write 1 byte after the end of the block of 11 bytes",
    ];
    canary_overflow_after_shrink: SIGABRT, overflow_after_a_shrink => [
        "overflow, found at free or realloc: a write 1 byte after the end of the block of 60 bytes",
    ];
    canary_underflow_before_shrink: SIGABRT, underflow_before_a_shrink => [
        "underflow, found at free or realloc: \
         a write 1 byte before the start of the block of 16 bytes",
    ];
    canary_underflow: SIGABRT, || overwrite_canary(false, 16) => [
        "underflow, found at free or realloc: \
         a write 1 byte before the start of the block of 16 bytes",
    ];
    interior_free_of_unguarded_block: SIGABRT, free_interiors => [
        "thiscpu: 0x..(1536 bytes): invalid free: pointer into the middle of an object",
    ];
    use_after_free_in_forked_child: 0, in_child => [
        "use after free", "helper_errs", "helper_allocates", "helper_frees",
    ];
};

/// Allocates a block and checks that it is guarded.
pub(crate) fn guarded(size: usize, align: usize) -> NonNull<u8> {
    let block = allocate_aligned(size, align).unwrap();
    assert!(__test_support::is_guarded(block.as_ptr() as usize));
    block
}

pub(crate) fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Guards every block from now on, until the pool is full.
pub(crate) fn guard_every_block() {
    assert!(enable_hardening());
    __test_support::sample_every(1);
}

/// Allocates a guarded block that touches the end of its page, or else the start.
fn allocate_at(at_end: bool, size: usize) -> usize {
    loop {
        let block = guarded(size, 16);
        let start = block.as_ptr() as usize;
        if start.is_multiple_of(page_bytes()) != at_end {
            return start;
        }
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(block) };
    }
}

extern "C" fn allocate_block(size: usize) -> usize {
    allocate(size).unwrap().as_ptr() as usize
}

extern "C" fn place_at_end(size: usize) -> usize {
    allocate_at(true, size)
}

extern "C" fn place_at_start(size: usize) -> usize {
    allocate_at(false, size)
}

extern "C" fn free_block(address: usize) -> usize {
    let block = NonNull::new(address as *mut u8).unwrap();
    // SAFETY: this may be an invalid free, which the allocator must detect.
    unsafe { free(block) };
    0
}

extern "C" fn read(address: usize) -> usize {
    // SAFETY: this may be an invalid access, which must fault and be reported.
    unsafe { usize::from(ptr::read_volatile(address as *const u8)) }
}

extern "C" fn read_in_handler(address: usize) -> usize {
    static ADDRESS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: i32) {
        read(ADDRESS.load(Relaxed));
    }
    ADDRESS.store(address, Relaxed);
    // SAFETY: apart from the tested access, the handler is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as extern "C" fn(i32) as usize);
        libc::raise(libc::SIGUSR1);
    }
    0
}

extern "C" fn write(address: usize) -> usize {
    // SAFETY: this may be an invalid access, which must fault or be reported later.
    unsafe { ptr::write_volatile(address as *mut u8, 0) };
    0
}

fn helper() -> Helper {
    guard_every_block();
    Helper::load(&object(true))
}

fn use_after_free(has_tables: bool, access: Step) {
    guard_every_block();
    let helper = Helper::load(&object(has_tables));
    let block = helper.allocates(allocate_block, 24);
    helper.frees(free_block, block);
    helper.errs(access, block + 5);
}

fn overflow(access: Step) {
    let helper = helper();
    let block = helper.allocates(place_at_end, 32);
    helper.errs(access, block + 32);
}

fn underflow() {
    let helper = helper();
    let block = helper.allocates(place_at_start, 40);
    helper.errs(write, block - 3);
}

fn double_free() {
    let helper = helper();
    let block = helper.allocates(allocate_block, 100);
    helper.frees(free_block, block);
    helper.errs(free_block, block);
}

fn interior_free() {
    let helper = helper();
    let block = helper.allocates(allocate_block, 64);
    helper.errs(free_block, block + 16);
}

fn free_of_no_block() {
    let helper = helper();
    let block = helper.allocates(allocate_block, 64);
    // Two pages further is a neighboring slot, which has not been used yet.
    let step = 2 * page_bytes();
    let behind = block + step;
    helper.errs(free_block, if __test_support::is_guarded(behind) { behind } else { block - step });
}

fn overwrite_canary(after: bool, size: usize) {
    let helper = helper();
    let block = helper.allocates(place_at_end, size);
    helper.errs(write, if after { block + size } else { block - 1 });
    helper.frees(free_block, block);
}

/// Frees interior addresses of more blocks than a lane has room for.
fn free_interiors() {
    assert!(enable_hardening());
    let blocks: Vec<_> = (0..200).map(|_| allocate(1500).unwrap().as_ptr() as usize).collect();
    for block in blocks.into_iter().filter(|&block| !__test_support::is_guarded(block)) {
        // Some blocks of the class begin at such an address, so its alignment tells nothing.
        free_block(block + 512);
    }
    panic!("no interior free was detected");
}

fn underflow_before_a_shrink() {
    let helper = helper();
    let block = helper.allocates(place_at_end, 16);
    helper.errs(write, block - 1);
    // SAFETY: the block is allocated, and not used afterwards.
    unsafe { resize(NonNull::new(block as *mut u8).unwrap(), 10) };
}

fn overflow_after_a_shrink() {
    let helper = helper();
    let block = helper.allocates(place_at_end, 100);
    // SAFETY: the block is allocated, and only the result is used afterwards.
    let shrunk = unsafe { resize(NonNull::new(block as *mut u8).unwrap(), 60) }.unwrap();
    assert_eq!(shrunk.as_ptr() as usize, block);
    // SAFETY: the block is allocated.
    assert_eq!(unsafe { usable_size(shrunk) }, 60);
    helper.errs(write, block + 60);
    helper.frees(free_block, block);
}

fn in_child() {
    let helper = helper();
    let block = helper.allocates(allocate_block, 24);
    let status = child::status_of(|| {
        helper.frees(free_block, block);
        helper.errs(read, block);
        0
    });
    assert_eq!(libc::WTERMSIG(status), SIGSEGV);
    // The parent's block is still allocated.
    helper.errs(write, block);
    helper.frees(free_block, block);
}
