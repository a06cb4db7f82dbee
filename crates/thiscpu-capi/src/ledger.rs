//! Ledgers and accounts.

use std::ffi::c_void;
use std::mem::offset_of;

use thiscpu::__internal::capi::{AccountSlot, slot_of};
use thiscpu::{Account, Ledger};

use crate::ffi::{catch, copy_out, create, deref, destroy, write};
use crate::status::Status;

/// A ledger: accounts for any number of owners, each with the same counters. Rust: `Ledger`.
///
/// Each CPU caches the accounts that it charges; exact values are available at any time. A counter
/// holds -2^61 to 2^61 - 1 and wraps around: the library uses two of its 64 bits.
///
/// - Threads: any number may call all functions at once, except `thiscpu_ledger_destroy`.
/// - Lifetime: the handle from `thiscpu_ledger_create` to `thiscpu_ledger_destroy`; the ledger
///   itself until its last account is closed.
/// - Signal handlers: none of the functions.
/// - After `fork`: the child has a ledger of its own, with the parent's accounts and values.
pub struct ThiscpuLedger(AnyLedger);

/// An account of a ledger: a set of counters. Rust: `Account`.
///
/// A charge takes about 1 ns if this CPU has the account in its cache.
///
/// - Threads: any number may call all functions at once, except `thiscpu_account_close`.
/// - Lifetime: from `thiscpu_account_open` to `thiscpu_account_close`, which may come after
///   `thiscpu_ledger_destroy`.
/// - Signal handlers: none of the functions.
/// - After `fork`: the child has an account of its own, with the parent's values.
/// - Memory order: what a thread did before a charge or transfer happens before the return of each
///   exact read whose result includes it: `_sum`, `_snapshot` and `thiscpu_ledger_for_each`.
// Inlined calls read the fields before the last one. `cfg_attr` hides from the header's generator
// that the layout is fixed; the type stays opaque in C.
#[cfg_attr(all(), repr(C))]
pub struct ThiscpuAccount {
    slot: AccountSlot,
    counters: usize,
    account: AnyAccount,
}

// `struct thiscpu_inline_account` has these offsets.
const _: () = assert!(size_of::<AccountSlot>() == 32 && offset_of!(ThiscpuAccount, counters) == 32);

/// The largest number of counters of an account.
pub const THISCPU_LEDGER_COUNTERS_MAX: usize = 8;

/// Defines ledgers and accounts with each number of counters, and how to select among them.
macro_rules! with_each_number {
    ($($Name:ident = $n:literal),*) => {
        enum AnyLedger {
            $($Name(Ledger<$n>),)*
        }

        enum AnyAccount {
            $($Name(Account<$n>),)*
        }

        impl AnyLedger {
            fn new(counters: usize, is_signed: bool) -> Option<AnyLedger> {
                match counters {
                    $($n if is_signed => Some(AnyLedger::$Name(Ledger::new_signed())),
                    $n => Some(AnyLedger::$Name(Ledger::new())),)*
                    _ => None,
                }
            }

            fn open(&self) -> AnyAccount {
                match self {
                    $(AnyLedger::$Name(ledger) => AnyAccount::$Name(ledger.open()),)*
                }
            }
        }

        /// Evaluates `$do` with the ledger as `$it`, for any number of counters.
        macro_rules! of_any_ledger {
            ($any:expr, |$it:ident| $do:expr) => {
                match &$any {
                    $(AnyLedger::$Name($it) => $do,)*
                }
            };
        }

        /// Evaluates `$do` with the account as `$it` and its number of counters as `$count`.
        macro_rules! of_any_account {
            ($any:expr, |$it:ident, $count:ident| $do:expr) => {
                match &$any {
                    $(AnyAccount::$Name($it) => {
                        const $count: usize = $n;
                        $do
                    })*
                }
            };
        }

        fn transfer(
            from: &AnyAccount,
            to: &AnyAccount,
            index: usize,
            n: i64,
        ) -> Result<(), Status> {
            match (from, to) {
                $((AnyAccount::$Name(from), AnyAccount::$Name(to)) => {
                    if index >= $n {
                        return Err(Status::OutOfRange);
                    }
                    if !from.is_same_ledger(to) {
                        return Err(Status::WrongLedger);
                    }
                    from.transfer_to(to, index, n);
                    Ok(())
                })*
                _ => Err(Status::WrongLedger),
            }
        }
    };
}

with_each_number!(One = 1, Two = 2, Three = 3, Four = 4, Five = 5, Six = 6, Seven = 7, Eight = 8);

impl ThiscpuAccount {
    fn new(account: AnyAccount) -> ThiscpuAccount {
        let (slot, counters) = of_any_account!(account, |account, COUNT| (slot_of(account), COUNT));
        ThiscpuAccount { slot, counters, account }
    }
}

/// Evaluates `$do` with the account as `$it`; returns an error if `$index` is too large.
macro_rules! with_counter {
    ($any:expr, $index:expr, |$it:ident| $do:expr) => {
        of_any_account!($any, |$it, COUNT| {
            if $index >= COUNT {
                return Err(Status::OutOfRange);
            }
            $do
        })
    };
}

/// Creates a ledger and stores its handle in `*ledger`. Accounts have `counters` counters.
///
/// Pass false for `is_signed` if each unit is charged before it is uncharged, so that no counter
/// becomes negative. Then `thiscpu_account_read` never stores a negative value.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `INVALID_SIZE`
///   if `counters` is not 1 to `THISCPU_LEDGER_COUNTERS_MAX`. `NO_MEMORY` means that no memory for
///   the handle was available. Without memory for the ledger itself the process aborts, as with any
///   allocation in Rust.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_create(
    counters: usize,
    is_signed: bool,
    ledger: *mut *mut ThiscpuLedger,
) -> Status {
    let new = || {
        let any = AnyLedger::new(counters, is_signed).ok_or(Status::InvalidSize)?;
        thiscpu::tier()?;
        Ok(ThiscpuLedger(any))
    };
    // SAFETY: the header requires that `ledger` is null or valid for writes.
    unsafe { create(ledger, new) }
}

/// Destroys a handle of a ledger; open accounts stay open and usable.
///
/// No thread may use the handle during or after this call. The ledger's memory is freed with its
/// last account.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_destroy(ledger: *mut ThiscpuLedger) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(ledger) }
}

/// Stores the number of open accounts in `*len`. Costs one load.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_len(ledger: *mut ThiscpuLedger, len: *mut usize) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `len` null or valid for
    // writes.
    unsafe { write(ledger, len, |ledger| Ok(of_any_ledger!(ledger.0, |ledger| ledger.len()))) }
}

/// Adds to each account the charges that CPUs cache for it.
///
/// After this call, `thiscpu_account_read` misses only charges that were made later. Costs one
/// fence for each account that any CPU caches. To read all accounts exactly, use
/// `thiscpu_ledger_for_each`, which costs one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `FENCE_DENIED` (some accounts may have been updated).
/// - Blocks: while another thread is in the first half of `thiscpu_ledger_for_each`. That function
///   waits for this one, too.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_sync(ledger: *mut ThiscpuLedger) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let ledger = unsafe { deref(ledger) }?;
        of_any_ledger!(ledger.0, |ledger| ledger.sync());
        Ok(())
    })
}

/// Calls `each` for every open account, with its values at one instant of the call.
///
/// All accounts are read at the same instant; then `each` is called, in no particular order, with
/// an account's id, an array of its counters (as many as the ledger was created with), and
/// `context`. The array is valid until `each` returns. `each` may call any function of this
/// library. It must return: an exception that leaves it ends the process, and `longjmp` out of it
/// is undefined.
///
/// Costs one fence, and about 0.15 µs for each account. Until it returns it needs memory: 24 bytes
/// for each account, and 16 for each counter of each account. Without that memory the process
/// aborts. Charges continue meanwhile, but more slowly.
///
/// - NULL: allowed for `context`, which is only passed on.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: while another thread is in this function or in `thiscpu_ledger_sync`.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_for_each(
    ledger: *mut ThiscpuLedger,
    each: Option<unsafe extern "C-unwind" fn(id: u64, counters: *const i64, context: *mut c_void)>,
    context: *mut c_void,
) -> Status {
    catch(|| {
        let each = each.ok_or(Status::NullPointer)?;
        // SAFETY: the header requires that the handle is null or live.
        let ledger = unsafe { deref(ledger) }?;
        of_any_ledger!(ledger.0, |ledger| ledger.for_each(|id, counters| {
            // SAFETY: the caller passed this function to be called with its context and with an
            // array of the ledger's number of counters.
            unsafe { each(id.get(), counters.as_ptr(), context) }
        }));
        Ok(())
    })
}

/// Opens an account whose counters are 0 and stores its handle in `*account`.
///
/// Costs about 0.1 µs.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`.
/// - Blocks: while another thread is in the first half of `thiscpu_ledger_for_each`, which takes
///   about 60 ms for a million accounts.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_open(
    ledger: *mut ThiscpuLedger,
    account: *mut *mut ThiscpuAccount,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `account` null or valid for
    // writes.
    unsafe { create(account, || Ok(ThiscpuAccount::new(deref(ledger)?.0.open()))) }
}

/// Closes an account; the values of its counters are discarded.
///
/// To keep them, read them first, or transfer them to another account. No thread may use the handle
/// during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread opens or closes an account of this ledger, or reads or transfers
///   exact values of this one.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_close(account: *mut ThiscpuAccount) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(account) }
}

/// Adds `n`, which may be negative, to counter `index`.
///
/// Costs one restartable sequence if this CPU has the account in its cache; otherwise one atomic
/// addition. Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: only while another thread reads or transfers exact values of this account.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_charge(
    account: *mut ThiscpuAccount,
    index: usize,
    n: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let account = unsafe { deref(account) }?;
        with_counter!(account.account, index, |account| account.charge(index, n));
        Ok(())
    })
}

/// Adds `n` to counter `index` without using this CPU's cache.
///
/// For a thread that charges many owners' accounts once each, such as one that frees their old
/// objects: its charges displace no account from this CPU's cache. Costs one atomic addition.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: only while another thread reads or transfers exact values of this account.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_charge_uncached(
    account: *mut ThiscpuAccount,
    index: usize,
    n: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let account = unsafe { deref(account) }?;
        with_counter!(account.account, index, |account| account.charge_uncached(index, n));
        Ok(())
    })
}

/// Stores counter `index` in `*value`, without the charges that CPUs cache.
///
/// A CPU caches charges of at most 1,024 for each counter, with rare exceptions. For an exact value
/// use `thiscpu_account_sum`. Costs a few loads.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_read(
    account: *mut ThiscpuAccount,
    index: usize,
    value: *mut i64,
) -> Status {
    let get = |account: &ThiscpuAccount| {
        with_counter!(account.account, index, |account| Ok(account.read(index)))
    };
    // SAFETY: the header requires that the handle is null or live, and `value` null or valid for
    // writes.
    unsafe { write(account, value, get) }
}

/// Stores the exact value of counter `index`, at one instant of the call, in `*sum`.
///
/// Costs one lock, and one fence if any CPU caches the account.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `OUT_OF_RANGE` if `index` is too large.
/// - Blocks: while another thread reads or transfers exact values of this account.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_sum(
    account: *mut ThiscpuAccount,
    index: usize,
    sum: *mut i64,
) -> Status {
    let get = |account: &ThiscpuAccount| {
        with_counter!(account.account, index, |account| Ok(account.sum(index)))
    };
    // SAFETY: the header requires that the handle is null or live, and `sum` null or valid for
    // writes.
    unsafe { write(account, sum, get) }
}

/// Stores the exact values of all counters, at one instant of the call, in `counters`.
///
/// `counters` is an array of `capacity` elements, at least as many as the account has counters.
/// Costs one lock, and one fence if any CPU caches the account.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `INVALID_SIZE` if `capacity` is too small.
/// - Blocks: while another thread reads or transfers exact values of this account.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_snapshot(
    account: *mut ThiscpuAccount,
    counters: *mut i64,
    capacity: usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        let account = unsafe { deref(account) }?;
        // SAFETY: the header requires that `counters` has room for `capacity` values.
        let count = of_any_account!(account.account, |account, COUNT| unsafe {
            if capacity < COUNT {
                return Err(Status::InvalidSize);
            }
            copy_out(counters, capacity, account.snapshot().into_iter())
        });
        count.map(drop)
    })
}

/// Moves `n` from counter `index` of `from` to the same counter of `to`.
///
/// Both accounts must belong to the same ledger. The transfer happens at one instant: an exact read
/// of both accounts sees all of it or nothing.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if `index` is too large; `WRONG_LEDGER`
///   if the accounts belong to different ledgers.
/// - Blocks: while another thread transfers in this ledger or reads either account exactly.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_transfer(
    from: *mut ThiscpuAccount,
    to: *mut ThiscpuAccount,
    index: usize,
    n: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that both handles are null or live.
        let (from, to) = unsafe { (deref(from)?, deref(to)?) };
        transfer(&from.account, &to.account, index, n)
    })
}

/// Stores the account's id in `*id`. No two accounts of a ledger ever have the same id.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_id(account: *mut ThiscpuAccount, id: *mut u64) -> Status {
    let get = |account: &ThiscpuAccount| {
        Ok(of_any_account!(account.account, |account, COUNT| {
            const _: () = assert!(COUNT <= THISCPU_LEDGER_COUNTERS_MAX);
            account.id().get()
        }))
    };
    // SAFETY: the header requires that the handle is null or live, and `id` null or valid for
    // writes.
    unsafe { write(account, id, get) }
}
