//! `thiscpu-calls`: the hot calls of the library, each compiled alone in a function.
//!
//! `cargo xtask aborts --only calls` compares their instructions with recorded ones. The program
//! does nothing when it is run.

use std::hint::black_box;
use std::ptr::NonNull;

use thiscpu::{Account, Budget, Counter, Counters, PerCpu, RawCache};

/// Keeps the functions in the program.
macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? $call:block)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) $(-> $result)? $call
        )*

        fn main() {
            $(black_box($name as *const ());)*
        }
    };
}

calls! {
    fn call_counter_inc(counter: &Counter) { counter.inc() }
    fn call_counter_add(counter: &Counter, n: i64) { counter.add(n) }
    fn call_counters_add(counters: &Counters<4>, index: usize, n: i64) { counters.add(index, n) }
    fn call_budget_try_acquire(budget: &Budget, n: u64) -> bool { budget.try_acquire(n).is_ok() }
    fn call_budget_release(budget: &Budget, n: u64) { budget.release(n) }
    fn call_account_charge(account: &Account<2>, n: i64) { account.charge(1, n) }
    fn call_per_cpu_add(word: &PerCpu<u64>, n: u64) { word.add(n) }
    fn call_cache_alloc(cache: &RawCache) -> Option<NonNull<u8>> { cache.alloc() }
    fn call_cache_free(cache: &RawCache, object: NonNull<u8>) {
        // SAFETY: this function is never executed; a caller would pass an object of this cache.
        unsafe { cache.free(object) }
    }
}
