//! Hardening by sampling: some blocks get a page of their own.
//!
//! Behind the page (or before it) is one that nobody may touch, so an access past the block's end (or before its start) faults. When the
//! block is freed its page becomes inaccessible too and is not used again for long, so an access to a freed block faults. The
//! report has the stacks of the access, of the allocation and of the free. The allocator's fast path does not know of it: its slow
//! path asks whether it [`wants`] a block, and whoever frees what is in no slab asks [`owns`].
//!
//! - [`pages`]: where they are; [`pool`]: allocating and freeing them; [`quarantine`]: which is used next; [`slot`]: what is known of each;
//! - [`sampler`], [`throttle`], [`random`]: which blocks;
//! - [`stack`]: who called;
//! - [`error`], [`report`], [`stderr`], [`signal`]: saying what is wrong.
//!
//! Nothing in here calls malloc, and no stack is walked under a lock.

mod error;
mod pages;
mod pool;
mod quarantine;
mod random;
mod report;
mod sampler;
mod signal;
mod slot;
mod stack;
mod stderr;
mod throttle;

use core::ptr::NonNull;

use thiscpu::probe::{Lock, save_errno};

use error::Error;
use stack::Stack;
use throttle::Throttle;

pub(crate) use random::below;
pub use sampler::sample;
pub(crate) use sampler::sample_every;

static ENABLE_LOCK: Lock = Lock::new();
static THROTTLE: Throttle = Throttle::new();

/// Reserves the pool, installs the handler of faults, and prepares the sampler; once. Whether blocks can be guarded.
///
/// Takes 4 MiB of address space; the memory of a block goes back to the system when it is freed.
pub(crate) fn enable() -> bool {
    let _errno = save_errno();
    let _one_at_a_time = ENABLE_LOCK.lock();
    random::init();
    sampler::init() && pool::init() && signal::init()
}

/// Whether a block is to be a guarded one that an allocation asks for which stands for `calls`.
pub(crate) fn wants(size: usize, align: usize, calls: usize) -> bool {
    span(size, align).is_some_and(pages::fits_page) && sample(calls)
}

/// The bytes that a block takes with what its alignment adds: what ends with the page must not be where the next one begins.
fn span(size: usize, align: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(align)
}

/// A block of exactly `size` bytes, all zero, at a multiple of `align`, a power of two; none if it would take more than a page, if
/// guarding has taken its share of the time, or if all slots hold blocks in use; also if fewer than a quarter of them do not, and one of those that do
/// is from where this one is asked for.
///
/// Every other block ends where its page does, as far as the alignment allows; the others begin where it begins.
pub fn allocate(size: usize, align: usize) -> Option<NonNull<u8>> {
    let span = span(size, align).filter(|&span| pages::fits_page(span))?;
    if !pool::has_room() {
        return None;
    }
    throttled(|| pool::allocate(size, span, &Stack::capture(), sampler::is_unthrottled()))
        .and_then(|start| NonNull::new(start as *mut u8))
}

/// Whether an address is in the pool: two loads and a comparison.
#[inline(always)]
pub fn owns(address: usize) -> bool {
    pages::owns(address)
}

/// Ends a block. If it is none, or somebody has written beside it, reports that and aborts.
///
/// # Safety
///
/// The pool owns the address. If it is a block's, nobody uses that any more.
pub(crate) unsafe fn free(block: NonNull<u8>) {
    let _errno = save_errno();
    let started = throttle::start();
    let stack = Stack::capture();
    if let Some(error) = pool::free(block.as_ptr() as usize, &stack) {
        abort_with(&error, &stack);
    }
    THROTTLE.charge(started);
}

/// Makes a block end sooner, where it is. If somebody has written beside it, reports that and aborts.
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

/// How many blocks are guarded, and how many ever were.
pub(crate) fn counts() -> [usize; 2] {
    pool::counts()
}

/// How many bytes were asked for.
pub(crate) fn usable_size(block: NonNull<u8>) -> usize {
    pool::size(block.as_ptr() as usize)
}

/// Does the work of guarding a block if there is time for it. Keeps `errno`.
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

/// Does more of it, which has to be done now.
pub(crate) fn charge(work: impl FnOnce()) {
    let started = throttle::start();
    work();
    THROTTLE.charge(started);
}
