//! Ledgers.

use std::ffi::c_void;
use std::mem::offset_of;

use thiscpu::inside::foreign::{AccountSlot, slot_of};
use thiscpu::{Account, Ledger};

use crate::ffi::{call, copy_out, end, make, place, there};
use crate::status::Status;

/// Accounts for any number of owners, each with the same counters, charged in a cache on each CPU, and exact on demand. Counters are 62 bits
/// wide, from -2^61 to 2^61 - 1, and wrap around beyond.
///
/// All its functions may be called by any number of threads at once, `thiscpu_ledger_destroy` by the last. A ledger lives on until its
/// last account is closed. None may be called from signal handlers.
pub struct ThiscpuLedger(AnyLedger);

/// One account of a ledger. All its functions may be called by any number of threads at once, `thiscpu_account_close` by the last.
// Inlined calls read the fields before the last. The header's generator is not to see that this has an order.
#[cfg_attr(all(), repr(C))]
pub struct ThiscpuAccount {
    slot: AccountSlot,
    counters: usize,
    account: AnyAccount,
}

// As `struct thiscpu_inline_account` has them.
const _: () = assert!(size_of::<AccountSlot>() == 32 && offset_of!(ThiscpuAccount, counters) == 32);

/// The largest number of counters that an account can have.
pub const THISCPU_LEDGER_COUNTERS_MAX: usize = 8;

/// Makes the two types, of ledgers and accounts with each number of counters, and what chooses among them.
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

        /// The same of a ledger of any number of counters.
        macro_rules! of_any_ledger {
            ($any:expr, |$it:ident| $do:expr) => {
                match &$any {
                    $(AnyLedger::$Name($it) => $do,)*
                }
            };
        }

        /// The same of an account, and of how many counters it has.
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

        fn transfer(from: &AnyAccount, to: &AnyAccount, index: usize, n: i64) -> Result<(), Status> {
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

/// Does something with an account and the index of one of its counters; that is an error if there is none.
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

/// Makes a ledger whose accounts have so many counters, from 1 to `THISCPU_LEDGER_COUNTERS_MAX`, and puts its handle into `*ledger`. If
/// counters are never negative, because whoever uncharges has charged before, `is_signed` is false, and then
/// `thiscpu_account_read` shows no negative values either.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if there cannot be so many counters; `THISCPU_STATUS_UNKNOWN_TIER`,
/// `THISCPU_STATUS_TIER_UNAVAILABLE`.
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
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(ledger, new) }
}

/// Ends a handle of a ledger; accounts stay open. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor
/// be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_destroy(ledger: *mut ThiscpuLedger) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(ledger) }
}

/// How many accounts are open, into `*len`. A load.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_len(ledger: *mut ThiscpuLedger, len: *mut usize) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks, and a caller's pointer is null or valid.
        let (ledger, place) = unsafe { (there(ledger)?, place(len)?) };
        place.put(of_any_ledger!(ledger.0, |ledger| ledger.len()));
        Ok(())
    })
}

/// Adds what CPUs hold to the accounts it belongs to, so that `thiscpu_account_read` misses only what is charged afterwards. A
/// fence for each account that a CPU holds something of. Waits for reports, and they for it.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible: some accounts may have got what is theirs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_sync(ledger: *mut ThiscpuLedger) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks.
        let ledger = unsafe { there(ledger) }?;
        of_any_ledger!(ledger.0, |ledger| ledger.sync());
        Ok(())
    })
}

/// Calls `each` for each open account with its number, its counters (as many as the ledger was created with), and `context`: all as they were at
/// one instant of the call, in no order that means anything. Takes about 0.15 us an account and 16 bytes a counter meanwhile; charges go on. `each`
/// may do anything, but it must return, and not by an exception (which ends the process) or `longjmp`. Where there is no memory for it the process
/// ends.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER` if the handle or `each` is; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_ledger_for_each(
    ledger: *mut ThiscpuLedger,
    each: Option<
        unsafe extern "C-unwind" fn(number: u64, counters: *const i64, context: *mut c_void),
    >,
    context: *mut c_void,
) -> Status {
    call(|| {
        let each = each.ok_or(Status::NullPointer)?;
        // SAFETY: a handle is null or live, as the header asks.
        let ledger = unsafe { there(ledger) }?;
        of_any_ledger!(ledger.0, |ledger| ledger.for_each(|id, counters| {
            // SAFETY: the caller's function, with what it was given to be called with.
            unsafe { each(id.get(), counters.as_ptr(), context) }
        }));
        Ok(())
    })
}

/// Opens an account whose counters are 0, and puts its handle into `*account`. The handle is valid until `thiscpu_account_close`. About
/// 0.1 us; but while `thiscpu_ledger_for_each` looks at all accounts it waits for the first half of that, some 60 ms where there are a million.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_NO_MEMORY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_open(
    ledger: *mut ThiscpuLedger,
    account: *mut *mut ThiscpuAccount,
) -> Status {
    // SAFETY: a handle is null or live, as the header asks, and a caller's pointer is null or valid.
    unsafe { make(account, || Ok(ThiscpuAccount::new(there(ledger)?.0.open()))) }
}

/// Closes an account; what is in its counters is gone. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be
/// using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_close(account: *mut ThiscpuAccount) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(account) }
}

/// Adds `n`, which may be negative, to counter `index`. One restartable sequence if this CPU has the account in its cache, else an atomic
/// addition. Waits only for exact answers about this account.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_OUT_OF_RANGE` if there is no counter `index`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_charge(
    account: *mut ThiscpuAccount,
    index: usize,
    n: i64,
) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks.
        let account = unsafe { there(account) }?;
        with_counter!(account.account, index, |account| account.charge(index, n));
        Ok(())
    })
}

/// The same for who charges somebody else's account: it does not get into this CPU's cache, in the place of accounts that belong there. One
/// atomic addition.
///
/// Errors: as for `thiscpu_account_charge`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_charge_uncached(
    account: *mut ThiscpuAccount,
    index: usize,
    n: i64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_account_charge`.
        let account = unsafe { there(account) }?;
        with_counter!(account.account, index, |account| account.charge_uncached(index, n));
        Ok(())
    })
}

/// Counter `index` without what CPUs hold of it, into `*value`: seldom more than 1,024 for each. A few loads; never waits.
///
/// Errors: as for `thiscpu_account_charge`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_read(
    account: *mut ThiscpuAccount,
    index: usize,
    value: *mut i64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_account_charge`, and a caller's pointer is null or valid.
        let (account, place) = unsafe { (there(account)?, place(value)?) };
        with_counter!(account.account, index, |account| place.put(account.read(index)));
        Ok(())
    })
}

/// Counter `index`, exactly, at one instant of the call, into `*sum`. One lock, and one fence if a CPU holds some of it.
///
/// Errors: as for `thiscpu_account_charge`; `THISCPU_STATUS_FENCE_DENIED` if fences have become impossible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_sum(
    account: *mut ThiscpuAccount,
    index: usize,
    sum: *mut i64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_account_read`.
        let (account, place) = unsafe { (there(account)?, place(sum)?) };
        with_counter!(account.account, index, |account| place.put(account.sum(index)));
        Ok(())
    })
}

/// All counters, exactly, at one instant of the call, into `counters`, where there has to be room for all.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if there is not room for all; `THISCPU_STATUS_FENCE_DENIED` as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_snapshot(
    account: *mut ThiscpuAccount,
    counters: *mut i64,
    capacity: usize,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_account_charge`.
        let account = unsafe { there(account) }?;
        // SAFETY: there is room for so many, as the header asks.
        let count = of_any_account!(account.account, |account, COUNT| unsafe {
            if capacity < COUNT {
                return Err(Status::InvalidSize);
            }
            copy_out(counters, capacity, account.snapshot().into_iter())
        });
        count.map(drop)
    })
}

/// Takes `n` from counter `index` of one account and adds it to that of another of the same ledger, at one instant: whoever looks at both
/// sees both or neither.
///
/// Errors: as for `thiscpu_account_charge`; `THISCPU_STATUS_WRONG_LEDGER` if they are not of one ledger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_transfer(
    from: *mut ThiscpuAccount,
    to: *mut ThiscpuAccount,
    index: usize,
    n: i64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_account_charge`.
        let (from, to) = unsafe { (there(from)?, there(to)?) };
        transfer(&from.account, &to.account, index, n)
    })
}

/// The account's number, into `*id`: no other account of its ledger ever had the same.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_account_id(account: *mut ThiscpuAccount, id: *mut u64) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_account_read`.
        let (account, place) = unsafe { (there(account)?, place(id)?) };
        place.put(of_any_account!(account.account, |account, COUNT| {
            const _: () = assert!(COUNT <= THISCPU_LEDGER_COUNTERS_MAX);
            account.id().get()
        }));
        Ok(())
    })
}
