//! The operations of C, and the functions that they call if their section does not commit.
//!
//! Handles are those of the C library: a counter, budget or cache is its own handle, a word's
//! handle encodes its place, and an account's handle begins with what inlined calls read. The
//! functions run the operation of Rust.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use thiscpu::__internal::capi::{self, AccountSlot, DynCounters, InlineAbi};
use thiscpu::__internal::word::{AnyWord, handle_of, of_handle};
use thiscpu::{Account, Budget, Counter, PerCpu, PerCpuInt, RawCache, TryAcquireError};

static IN_C: AtomicBool = AtomicBool::new(false);

/// Makes all later operations those of C.
pub(crate) fn enable() {
    INLINE_ABI.publish();
    IN_C.store(true, Relaxed);
}

#[inline(always)]
pub(crate) fn is_enabled() -> bool {
    IN_C.load(Relaxed)
}

#[unsafe(export_name = "thiscpu_inline_abi_5")]
static INLINE_ABI: InlineAbi = InlineAbi::closed();

#[repr(C)]
struct AccountInC<'a> {
    slot: AccountSlot,
    counters: usize,
    account: &'a Account<2>,
}

unsafe extern "C" {
    fn inlined_counter_add(counter: *const c_void, n: i64);
    fn inlined_counters_add(counters: *const c_void, index: usize, n: i64);
    fn inlined_budget_try_acquire(budget: *const c_void, n: u64);
    fn inlined_budget_release(budget: *const c_void, n: u64);
    fn inlined_account_charge(account: *const c_void, index: usize, n: i64);
    fn inlined_cache_alloc(cache: *const c_void) -> *mut u8;
    fn inlined_cache_free(cache: *const c_void, object: *mut u8);
    fn inlined_word_add(word: *const c_void, n: u64);
}

/// Returns the handle of a structure that is its own handle.
fn handle<T>(of: &T) -> *const c_void {
    ptr::from_ref(of).cast()
}

thread_local! {
    /// The answer of the function, if the inlined call has called it.
    static ANSWER: Cell<Option<Result<(), TryAcquireError>>> = const { Cell::new(None) };
}

pub(crate) fn count(counter: &Counter, n: i64) {
    // SAFETY: a counter is its own handle, and it lives during the call.
    unsafe { inlined_counter_add(handle(counter), n) }
}

pub(crate) fn count_one_of(counters: &DynCounters, index: usize, n: i64) {
    // SAFETY: these counters are their own handle, and they live during the call.
    unsafe { inlined_counters_add(handle(counters), index, n) }
}

pub(crate) fn acquire(budget: &Budget, n: u64) -> Result<(), TryAcquireError> {
    ANSWER.set(None);
    // SAFETY: a budget is its own handle, and it lives during the call.
    unsafe { inlined_budget_try_acquire(handle(budget), n) };
    ANSWER.take().unwrap_or(Ok(()))
}

pub(crate) fn release(budget: &Budget, n: u64) {
    // SAFETY: a budget is its own handle, and it lives during the call.
    unsafe { inlined_budget_release(handle(budget), n) }
}

pub(crate) fn charge(account: &Account<2>, index: usize, n: i64) {
    let account = AccountInC { slot: capi::slot_of(account), counters: 2, account };
    // SAFETY: it begins with the fields that C reads, and the account stays open during the call.
    unsafe { inlined_account_charge(handle(&account), index, n) }
}

pub(crate) fn alloc(cache: &RawCache) -> Option<NonNull<u8>> {
    // SAFETY: a cache is its own handle, and it lives during the call.
    NonNull::new(unsafe { inlined_cache_alloc(handle(cache)) })
}

/// # Safety
///
/// The object must be from this cache, and must not be used any more.
pub(crate) unsafe fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: a cache is its own handle, and the caller guarantees that the object is from it and
    // no longer used.
    unsafe { inlined_cache_free(handle(cache), object.as_ptr()) }
}

pub(crate) fn add<T: PerCpuInt + Into<u64>>(word: &PerCpu<T>, n: T) {
    // SAFETY: `handle_of` returns C's handle of a word, and the word lives during the call.
    unsafe { inlined_word_add(ptr::without_provenance(handle_of(word)), n.into()) }
}

// The functions of the C library. Their return values are not used.

#[unsafe(no_mangle)]
extern "C" fn thiscpu_counter_add(counter: &Counter, n: i64) -> c_int {
    counter.add(n);
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_counters_add(counters: &DynCounters, index: usize, n: i64) -> c_int {
    counters.add(index, n);
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_budget_try_acquire(budget: &Budget, n: u64) -> c_int {
    ANSWER.set(Some(budget.try_acquire(n)));
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_budget_release(budget: &Budget, n: u64) -> c_int {
    budget.release(n);
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_account_charge(account: &AccountInC<'_>, index: usize, n: i64) -> c_int {
    account.account.charge(index, n);
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_cache_alloc(cache: &RawCache) -> *mut c_void {
    cache.alloc().map_or(null_mut(), |object| object.cast().as_ptr())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_cache_free(cache: &RawCache, object: NonNull<u8>) -> c_int {
    // SAFETY: the inlined call passes on the object of `free`, whose caller guarantees that it is
    // from this cache.
    unsafe { cache.free(object) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_word_add(word: *const c_void, n: u64) -> c_int {
    // SAFETY: `add` passes the handle of a word that lives during the call; `of_handle` never drops
    // it.
    match unsafe { of_handle(word.addr()) } {
        Some(AnyWord::One(word)) => word.add(n as u8),
        Some(AnyWord::Two(word)) => word.add(n as u16),
        Some(AnyWord::Four(word)) => word.add(n as u32),
        Some(AnyWord::Eight(word)) => word.add(n),
        None => unreachable!("not a word's handle"),
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_inline_abi_5_finish_alloc(cache: &RawCache, entry: usize) -> *mut c_void {
    capi::finish_alloc(cache, entry).map_or(null_mut(), |object| object.cast().as_ptr())
}
