//! What calls return, and what that means in words.

use std::ffi::{CStr, c_char};

use thiscpu::Error;
use thiscpu::inside::foreign::PanicReason;

/// What became of a call. `THISCPU_STATUS_OK` is 0; after anything else nothing was changed, unless the function says so. `thiscpu_strerror` says it in words.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Refused: there are not as many units as were asked for, or they are promised to somebody who waits.
    Exhausted,
    /// Refused: the value is not what the caller took it for.
    Mismatch,
    /// There is nothing to take.
    Empty,
    /// Objects of the cache are still out.
    InUse,
    /// A handle, or another pointer that is needed, is null.
    NullPointer,
    /// A pointer is not a multiple of the alignment of what it points to. Every function that is given one looks at it; inlined calls do not.
    Misaligned,
    /// A size, an alignment or a number of counters that there cannot be.
    InvalidSize,
    /// A number is above the largest there is, or there is no counter of that index.
    OutOfRange,
    /// An account of another ledger.
    WrongLedger,
    /// `THISCPU_TIER` names no tier.
    UnknownTier,
    /// `THISCPU_TIER` names a tier that this process cannot have.
    TierUnavailable,
    /// The system gave no address space for lanes.
    NoAddressSpace,
    /// The system gave no memory.
    NoMemory,
    /// A fence is no longer possible, which exact answers need: a sandbox that was installed after the
    /// start denies `membarrier` and `sched_setaffinity`. It stays so; do not retry.
    FenceDenied,
    /// More units were released to a budget than were held, by this call or an earlier one. The excess is
    /// discarded, and the budget is consistent again.
    OverReleased,
    /// A bug of this library. Standard error has the details; please report them.
    Internal,
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::UnknownTier { .. } => Self::UnknownTier,
            Error::TierUnavailable { .. } => Self::TierUnavailable,
            Error::NoAddressSpace { .. } => Self::NoAddressSpace,
            Error::NoMemory { .. } => Self::NoMemory,
            Error::ItemTooLarge { .. } => Self::InvalidSize,
            _ => Self::Internal,
        }
    }
}

impl From<PanicReason> for Status {
    fn from(reason: PanicReason) -> Self {
        match reason {
            PanicReason::FenceDenied => Self::FenceDenied,
            PanicReason::OverReleased => Self::OverReleased,
            PanicReason::NoMemory => Self::NoMemory,
            PanicReason::Other => Self::Internal,
        }
    }
}

fn words(status: i32) -> &'static CStr {
    let is = |one: Status| status == one as i32;
    match () {
        () if is(Status::Ok) => c"done",
        () if is(Status::Exhausted) => c"not as many units are free, or they are promised to somebody who waits",
        () if is(Status::Mismatch) => c"the value is another one than was expected; it is in the last argument",
        () if is(Status::Empty) => c"there is nothing to take on this CPU",
        () if is(Status::InUse) => c"objects of the cache are still out: free them first, or destroy the cache to leave them where they are",
        () if is(Status::NullPointer) => c"a handle or another pointer that is needed is null",
        () if is(Status::Misaligned) => c"a pointer is not aligned as what it points to has to be",
        () if is(Status::InvalidSize) => c"a size, an alignment or a number of counters that there cannot be; the function's documentation says which there are",
        () if is(Status::OutOfRange) => c"a number is above the largest there is, or there is no counter of that index",
        () if is(Status::WrongLedger) => c"the account is one of another ledger",
        () if is(Status::UnknownTier) => c"THISCPU_TIER names no tier: rseq-cid, rseq-cpu and atomic are there; unset it to get the best",
        () if is(Status::TierUnavailable) => c"THISCPU_TIER names a tier that this process cannot have; unset it to get the best (`thiscpu doctor` says what each needs)",
        () if is(Status::NoAddressSpace) => c"no address space for per-CPU memory; raise the limit on it (`ulimit -v`) or on mappings (`sysctl vm.max_map_count`)",
        () if is(Status::NoMemory) => c"no memory; raise the limit on address space (`ulimit -v`), or that of the control group",
        () if is(Status::FenceDenied) => c"no fence is possible: a sandbox denies membarrier and sched_setaffinity; allow one of them, or set THISCPU_TIER=atomic",
        () if is(Status::OverReleased) => c"more units were released to the budget than were held; the excess is discarded",
        () if is(Status::Internal) => c"a bug of this library; standard error has the details, please report them",
        () => c"no status of this library",
    }
}

/// A status in words, for a person: what is wrong, and what to do. Never null, and valid for ever; a number that is no status
/// is said to be none. May be called from anywhere.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_strerror(status: i32) -> *const c_char {
    words(status).as_ptr()
}

/// The version of the library that is running, as `THISCPU_VERSION` is that of the header. Never null, and valid for ever. May be
/// called from anywhere.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no nul in it"),
        };
    VERSION.as_ptr()
}
