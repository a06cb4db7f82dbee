//! The ops of C, and what they turn to where a section of theirs does not commit: the same op in Rust.
//!
//! Handles are what the library for C has: counters, budgets and caches are themselves, words say where they are, and accounts have
//! in front of them what inlined calls read.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use thiscpu::__internal::capi::{self, AccountSlot, InlineAbi};
use thiscpu::__internal::word::{AnyWord, handle_of, of_handle};
use thiscpu::{Account, Budget, Counter, Exhausted, PerCpu, PerCpuInt, RawCache};

/// Whether ops are C's.
static IN_C: AtomicBool = AtomicBool::new(false);

/// Has ops done in C from now on.
pub(crate) fn begin() {
    INLINE_ABI.publish();
    IN_C.store(true, Relaxed);
}

#[inline(always)]
pub(crate) fn is_on() -> bool {
    IN_C.load(Relaxed)
}

#[unsafe(export_name = "thiscpu_inline_abi_3")]
static INLINE_ABI: InlineAbi = InlineAbi::closed();

#[repr(C)]
struct AccountInC<'a> {
    slot: AccountSlot,
    counters: usize,
    account: &'a Account<2>,
}

unsafe extern "C" {
    fn inlined_counter_add(counter: *const c_void, n: i64);
    fn inlined_budget_try_acquire(budget: *const c_void, n: u64);
    fn inlined_budget_release(budget: *const c_void, n: u64);
    fn inlined_account_charge(account: *const c_void, index: usize, n: i64);
    fn inlined_cache_alloc(cache: *const c_void) -> *mut u8;
    fn inlined_cache_free(cache: *const c_void, object: *mut u8);
    fn inlined_word_add(word: *const c_void, n: u64);
}

/// A handle, as C has it.
fn handle<T>(of: &T) -> *const c_void {
    ptr::from_ref(of).cast()
}

thread_local! {
    /// What the function said, if the inlined call came to it.
    static SAID: Cell<Option<Result<(), Exhausted>>> = const { Cell::new(None) };
}

pub(crate) fn count(counter: &Counter, n: i64) {
    // SAFETY: a counter is what C has as one.
    unsafe { inlined_counter_add(handle(counter), n) }
}

pub(crate) fn acquire(budget: &Budget, n: u64) -> Result<(), Exhausted> {
    SAID.set(None);
    // SAFETY: a budget is what C has as one.
    unsafe { inlined_budget_try_acquire(handle(budget), n) };
    SAID.take().unwrap_or(Ok(()))
}

pub(crate) fn release(budget: &Budget, n: u64) {
    // SAFETY: as above.
    unsafe { inlined_budget_release(handle(budget), n) }
}

pub(crate) fn charge(account: &Account<2>, index: usize, n: i64) {
    let account = AccountInC { slot: capi::slot_of(account), counters: 2, account };
    // SAFETY: it begins with what C reads of an account, and the account is open.
    unsafe { inlined_account_charge(handle(&account), index, n) }
}

pub(crate) fn alloc(cache: &RawCache) -> Option<NonNull<u8>> {
    // SAFETY: a cache is what C has as one.
    NonNull::new(unsafe { inlined_cache_alloc(handle(cache)) })
}

/// # Safety
///
/// As for `RawCache::free`.
pub(crate) unsafe fn free(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: as above, and the caller's promise.
    unsafe { inlined_cache_free(handle(cache), object.as_ptr()) }
}

pub(crate) fn add<T: PerCpuInt + Into<u64>>(word: &PerCpu<T>, n: T) {
    // SAFETY: the handle is what C has for a word, and the word lives.
    unsafe { inlined_word_add(ptr::without_provenance(handle_of(word)), n.into()) }
}

// What the library for C has in their place. Nobody reads what they return.

#[unsafe(no_mangle)]
extern "C" fn thiscpu_counter_add(counter: &Counter, n: i64) -> c_int {
    counter.add(n);
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_budget_try_acquire(budget: &Budget, n: u64) -> c_int {
    SAID.set(Some(budget.try_acquire(n)));
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
    // SAFETY: what `free` was given.
    unsafe { cache.free(object) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_word_add(word: *const c_void, n: u64) -> c_int {
    // SAFETY: it is the handle of a word that lives; what is returned is kept from being dropped.
    match unsafe { of_handle(word.addr()) } {
        Some(AnyWord::One(word)) => word.add(n as u8),
        Some(AnyWord::Two(word)) => word.add(n as u16),
        Some(AnyWord::Four(word)) => word.add(n as u32),
        Some(AnyWord::Eight(word)) => word.add(n),
        None => unreachable!("it is a word's handle"),
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn thiscpu_inline_abi_3_finish_alloc(cache: &RawCache, entry: usize) -> *mut c_void {
    capi::finish_alloc(cache, entry).map_or(null_mut(), |object| object.cast().as_ptr())
}
