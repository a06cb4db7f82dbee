//! The operations that are driven. Each is compiled once, so a conflict executes the driven copies.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "c")]
use crate::inlined;
use thiscpu::__internal::capi::DynCounters;
use thiscpu::__internal::{Access, Handle};
use thiscpu::{
    __test_support, Account, Budget, Counter, Counters, Link, PairWord, PerCpu, PerCpuInt,
    PerCpuPair, PerCpuStack, PerCpuWord, RawCache, TryAcquireError,
};

/// Runs an operation of C, if C is driven, or of Rust.
macro_rules! or_in_c {
    ($in_c:expr, $op:expr) => {{
        #[cfg(feature = "c")]
        if inlined::is_enabled() {
            return $in_c;
        }
        $op
    }};
}

#[inline(never)]
pub(crate) fn add<T: PerCpuInt + Into<u64>>(word: &PerCpu<T>, n: T) {
    or_in_c!(inlined::add(word, n), word.add(n));
}

#[inline(never)]
pub(crate) fn add_return<T: PerCpuInt>(word: &PerCpu<T>, n: T) -> T {
    word.add_return(n)
}

#[inline(never)]
pub(crate) fn xchg<T: PerCpuWord>(word: &PerCpu<T>, new: T) -> T {
    word.xchg(new)
}

#[inline(never)]
pub(crate) fn cmpxchg<T: PerCpuWord>(word: &PerCpu<T>, old: T, new: T) -> Result<(), T> {
    word.cmpxchg(old, new)
}

#[inline(never)]
pub(crate) fn cmpxchg_double<W: PairWord>(
    pair: &PerCpuPair<W>,
    old: (W, W),
    new: (W, W),
) -> Result<(), (W, W)> {
    pair.cmpxchg_double(old, new)
}

/// # Safety
///
/// The node must be on no stack, and must stay valid until it is popped.
#[inline(never)]
pub(crate) unsafe fn push(stack: &PerCpuStack, node: NonNull<Link>) {
    // SAFETY: the caller guarantees that the node is on no stack and outlives this one.
    unsafe { stack.push(node) }
}

#[inline(never)]
pub(crate) fn pop(stack: &PerCpuStack) -> Option<NonNull<Link>> {
    stack.pop()
}

#[inline(never)]
pub(crate) fn take_all(stack: &PerCpuStack) -> Option<NonNull<Link>> {
    stack.take_all()
}

#[inline(never)]
pub(crate) fn count(counter: &Counter, n: i64) {
    or_in_c!(inlined::count(counter, n), counter.add(n));
}

#[inline(never)]
pub(crate) fn count_one_of<const N: usize>(counters: &Counters<N>, i: usize, n: i64) {
    counters.add(i, n);
}

#[inline(never)]
pub(crate) fn count_one_of_dyn(counters: &DynCounters, i: usize, n: i64) {
    or_in_c!(inlined::count_one_of(counters, i, n), counters.add(i, n));
}

#[inline(never)]
pub(crate) fn acquire(budget: &Budget, n: u64) -> Result<(), TryAcquireError> {
    or_in_c!(inlined::acquire(budget, n), budget.try_acquire(n))
}

#[inline(never)]
pub(crate) fn acquire_up_to(budget: &Budget, n: u64) -> u64 {
    budget.try_acquire_up_to(n)
}

#[inline(never)]
pub(crate) fn release(budget: &Budget, n: u64) {
    or_in_c!(inlined::release(budget, n), budget.release(n));
}

/// Charges the second counter, whose row differs from that of the keys.
#[inline(never)]
pub(crate) fn charge(account: &Account<2>, n: i64) {
    or_in_c!(inlined::charge(account, 1, n), account.charge(1, n));
}

#[inline(never)]
pub(crate) fn alloc(cache: &RawCache) -> Option<NonNull<u8>> {
    or_in_c!(inlined::alloc(cache), cache.alloc())
}

/// # Safety
///
/// The object must be from this cache, and must not be used any more.
#[inline(never)]
pub(crate) unsafe fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: the caller guarantees that the object is from this cache and is no longer used.
    unsafe { or_in_c!(inlined::free(cache, object), cache.free(object)) }
}

/// Allocates as `malloc` does.
#[inline(never)]
pub(crate) fn alloc_of<A: Access>(
    objects: Handle<'static, A>,
    slowly: Handle<'static>,
) -> Option<NonNull<u8>> {
    objects.alloc_or(|| slowly.alloc_slow())
}

/// Frees as `free` does.
///
/// # Safety
///
/// The object must be from this class, and must not be used any more.
#[inline(never)]
pub(crate) unsafe fn free_of<A: Access>(
    objects: Handle<'static, A>,
    slowly: Handle<'static>,
    object: NonNull<u8>,
) {
    // SAFETY: the caller guarantees that the object is from this class and is no longer used.
    unsafe { objects.free_or(object, || slowly.free_slow(object)) }
}

#[inline(never)]
pub(crate) fn spin(turns: u64) -> Option<bool> {
    __test_support::spin(turns, &AtomicU64::new(0)).unwrap_or(None)
}
