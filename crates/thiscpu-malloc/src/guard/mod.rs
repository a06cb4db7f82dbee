//! Hardening by sampling: some blocks get a page of their own, as with KFENCE and GWP-ASan.
//!
//! Behind the page (or before it) lies an inaccessible one, so an access past the block's end (or
//! before its start) faults. When the block is freed, its own page becomes inaccessible too, and is
//! not used again for long. So an access to a freed block faults. The report has the stacks of the
//! access, of the allocation and of the free.
//!
//! The allocator's fast path does not know of guarded blocks. Its slow path asks whether it
//! [`wants`] one, and `free` asks whether the pool [`owns`] a block that is in no slab.
//!
//! - [`pool`] allocates and frees the blocks; [`pages`] knows their addresses, [`quarantine`] the
//!   order in which they are used again, and [`slot`] what is known of each.
//! - [`sampler`] and [`throttle`] choose the calls that get one.
//! - [`error`], [`report`], [`stderr`] and [`signal`] detect errors and report them.
//!
//! Nothing in this module calls malloc, and no stack is walked while a lock is held.

mod error;
mod pages;
mod pool;
mod quarantine;
mod report;
mod sampler;
mod signal;
mod slot;
mod stderr;
mod throttle;

use core::ptr::NonNull;

use thiscpu::__internal::{Lock, save_errno};

use crate::stack::Stack;
use error::Error;
use throttle::Throttle;

pub use sampler::sample;
pub(crate) use sampler::sample_every;

static ENABLE_LOCK: Lock = Lock::new();
static THROTTLE: Throttle = Throttle::new();

/// Prepares the pool, the sampler and the fault handler, once. Returns whether all are there.
///
/// The pool takes 4 MiB of address space. The memory of a block returns to the system when it is
/// freed.
pub(crate) fn enable() -> bool {
    let _errno = save_errno();
    let _guard = ENABLE_LOCK.lock();
    sampler::init() && pool::init() && signal::init()
}

/// Returns whether an allocation that stands for `calls` should get a guarded block.
pub(crate) fn wants(size: usize, align: usize, calls: usize) -> bool {
    span(size, align).is_some_and(pages::fits_page) && sample(calls)
}

/// Returns the size of a block including its alignment padding.
///
/// A block that ends with its page takes the padding behind it, so that its start is aligned.
fn span(size: usize, align: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(align)
}

/// Allocates a zeroed block of exactly `size` bytes at a multiple of `align`, a power of two.
///
/// Half of the blocks, at random, end where their page ends, as far as the alignment allows. The
/// others begin where their page begins.
///
/// Returns `None` in any of these cases:
/// - The block would take more than a page.
/// - Guarding has taken its share of the time.
/// - All slots hold blocks in use.
/// - Three quarters of the slots do, and one of those blocks is from this call site.
pub fn allocate(size: usize, align: usize) -> Option<NonNull<u8>> {
    let span = span(size, align).filter(|&span| pages::fits_page(span))?;
    if !pool::has_room() {
        return None;
    }
    throttled(|| pool::allocate(size, span, &Stack::capture(), sampler::is_unthrottled()))
        .and_then(|start| NonNull::new(start as *mut u8))
}

/// Returns whether an address is in the pool. Costs two loads and a comparison.
#[inline(always)]
pub fn owns(address: usize) -> bool {
    pages::owns(address)
}

/// Frees a block. Reports and aborts if the free is invalid or the canary is overwritten.
///
/// # Safety
///
/// The pool owns the address. If a block begins there, nothing uses it any more.
pub(crate) unsafe fn free(block: NonNull<u8>) {
    let _errno = save_errno();
    let started = throttle::start();
    let stack = Stack::capture();
    if let Some(error) = pool::free(block.as_ptr() as usize, &stack) {
        abort_with(&error, &stack);
    }
    THROTTLE.charge(started);
}

/// Shrinks a block in place. Reports and aborts if its canary is overwritten.
pub(crate) fn shrink(block: NonNull<u8>, size: usize) {
    let _errno = save_errno();
    if let Some(error) = pool::shrink(block.as_ptr() as usize, size) {
        abort_with(&error, &Stack::capture());
    }
}

fn abort_with(error: &Error, stack: &Stack) -> ! {
    if report::begin() {
        report::write(error, stack);
    }
    report::abort();
}

/// Returns the numbers of guarded blocks in use and of those allocated so far.
pub(crate) fn counts() -> [usize; 2] {
    pool::counts()
}

/// Returns the size that was requested for a block.
pub(crate) fn usable_size(block: NonNull<u8>) -> usize {
    pool::size(block.as_ptr() as usize)
}

/// Does the work of guarding a block if the throttle has time for it. Keeps `errno`.
fn throttled<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    if !THROTTLE.allows(throttle::now_ns()) && !sampler::is_unthrottled() {
        return None;
    }
    let _errno = save_errno();
    let started = throttle::start();
    let done = work();
    THROTTLE.charge(started);
    done
}

/// Does further work for a guarded block, which cannot wait, and charges the throttle for it.
pub(crate) fn charge(work: impl FnOnce()) {
    let started = throttle::start();
    work();
    THROTTLE.charge(started);
}
