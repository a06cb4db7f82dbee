//! Statuses and their messages.

use std::ffi::{CStr, c_char};

use thiscpu::__internal::capi::PanicReason;

/// The result of a call. `THISCPU_STATUS_OK` is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// Fewer units are available than requested, or other threads already wait for units.
    Exhausted,
    /// The budget or rate is closed. It will never hand out units again.
    Closed,
    /// The asynchronous acquire still waits.
    Pending,
    /// A compare-and-exchange found a value other than the expected one.
    Mismatch,
    /// This CPU's stack has no node, or the lease of this acquire was taken before.
    Empty,
    /// The cache cannot be closed: some of its objects are still allocated.
    InUse,
    /// The function that constructs a cache's objects has failed.
    ConstructFailed,
    /// A handle or another required pointer is NULL.
    NullPointer,
    /// A pointer is not aligned for its type. Library functions check this; inlined calls do not.
    Misaligned,
    /// A size, an alignment or a number of counters is not supported.
    InvalidSize,
    /// A number exceeds its maximum, or an index the number of counters.
    OutOfRange,
    /// The two accounts belong to different ledgers.
    WrongLedger,
    /// The two leases belong to different budgets, or are one lease.
    WrongBudget,
    /// `THISCPU_TIER` is not the name of a tier.
    UnknownTier,
    /// `THISCPU_TIER` names a tier that this system does not support.
    TierUnavailable,
    /// The system refused a call on a segment's file. `errno` has its error number.
    System,
    /// The file is no segment of this version and byte order, is damaged, or has a wrong length.
    ///
    /// A length is wrong if the header says another one.
    InvalidSegment,
    /// Another user owns the segment's file, or more users may write to it than allowed.
    UntrustedSegment,
    /// The segment has no room for another object.
    SegmentFull,
    /// This process cannot use budgets of the segment, because too many others do.
    ///
    /// A first call in a child of vfork has this result too, because the child acts for its parent.
    NoSlot,
    /// A name in a segment is empty, too long, not UTF-8, or has a control character.
    InvalidName,
    /// The object of this name is of another kind, or has another number of counters.
    WrongKind,
    /// No object in the segment has this name, and a view makes none.
    NoSuchObject,
    /// The system denied address space for per-CPU memory.
    NoAddressSpace,
    /// The system denied memory.
    NoMemory,
    /// An exact result needs a fence, which the system now denies. Do not retry.
    ///
    /// A sandbox that was installed after the start denies both `membarrier` and
    /// `sched_setaffinity`. `thiscpu_last_error` has the details.
    FenceDenied,
    /// A bug of this library. `thiscpu_last_error` has a message; please report it.
    Internal,
}

impl From<PanicReason> for Status {
    fn from(reason: PanicReason) -> Self {
        match reason {
            PanicReason::FenceDenied => Self::FenceDenied,
            PanicReason::NoMemory => Self::NoMemory,
            PanicReason::Other => Self::Internal,
        }
    }
}

/// Returns the message for a status, which a caller in C may not have got from this library.
pub(crate) fn message(status: i32) -> &'static CStr {
    let is = |one: Status| status == one as i32;
    match () {
        () if is(Status::Ok) => c"success",
        () if is(Status::Exhausted) => {
            c"budget or rate exhausted: fewer units are available than requested, or waiting \
               threads come first"
        }
        () if is(Status::Closed) => c"budget or rate closed: it hands out no more units",
        () if is(Status::Mismatch) => {
            c"compare-and-exchange failed: found another value than expected"
        }
        () if is(Status::Empty) => {
            c"empty: this CPU's stack has no node, or the lease was taken before"
        }
        () if is(Status::Pending) => c"pending: the acquire still waits; wait for its callback",
        () if is(Status::InUse) => {
            c"cache in use: some objects are still allocated; free them first, or destroy the \
               cache and leave them allocated"
        }
        () if is(Status::ConstructFailed) => {
            c"constructor failed: the cache's `construct` has not made a new object"
        }
        () if is(Status::NullPointer) => {
            c"null pointer: a handle or another required pointer is NULL"
        }
        () if is(Status::Misaligned) => {
            c"misaligned pointer: a pointer is not aligned for its type"
        }
        () if is(Status::InvalidSize) => {
            c"invalid size: this size, alignment or number of counters is not supported; thiscpu.h \
               lists those that are"
        }
        () if is(Status::OutOfRange) => {
            c"out of range: a number exceeds its maximum, or an index the number of counters"
        }
        () if is(Status::WrongLedger) => c"wrong ledger: the accounts belong to different ledgers",
        () if is(Status::WrongBudget) => {
            c"wrong budget: the leases belong to different budgets, or are one lease"
        }
        () if is(Status::UnknownTier) => {
            c"unknown tier in THISCPU_TIER: use rseq-cid, rseq-cpu or atomic, or unset it to use \
               the best"
        }
        () if is(Status::TierUnavailable) => {
            c"tier in THISCPU_TIER not available: unset it to use the best (`thiscpu doctor` lists \
               what each tier needs)"
        }
        () if is(Status::System) => {
            c"system call refused: errno has the error number, and thiscpu_last_error the reason"
        }
        () if is(Status::InvalidSegment) => {
            c"invalid segment: the file is not a segment of this version and byte order, is \
               damaged, or has a wrong length; check the path, or remove a segment after all its \
               processes have ended"
        }
        () if is(Status::UntrustedSegment) => {
            c"untrusted segment: another user owns the file, or may write to it; allow that in the \
               options, or remove the file"
        }
        () if is(Status::SegmentFull) => {
            c"segment full: it has no room for another object; create it with more max_bytes"
        }
        () if is(Status::NoSlot) => {
            c"no slot: too many processes use budgets of the segment; let one end, or create the \
               segment with more participants"
        }
        () if is(Status::InvalidName) => {
            c"invalid name: use 1 to 200 bytes of UTF-8 without control characters"
        }
        () if is(Status::WrongKind) => {
            c"wrong kind: the object of this name has another kind or number of counters; use \
               another name"
        }
        () if is(Status::NoSuchObject) => {
            c"no such object: no object in the segment has this name; wait until a process that \
               can write has made it"
        }
        () if is(Status::NoAddressSpace) => {
            c"no address space for per-CPU memory: raise the limit on it (`ulimit -v`) or on \
               mappings (`sysctl vm.max_map_count`)"
        }
        () if is(Status::NoMemory) => {
            c"no memory: raise the limit on address space (`ulimit -v`), that of the control \
               group, or the size of the segment's file system"
        }
        () if is(Status::FenceDenied) => {
            c"fence denied: a sandbox denies membarrier and sched_setaffinity; allow one of them, \
               or set THISCPU_TIER=atomic"
        }
        () if is(Status::Internal) => {
            c"internal error: a bug of this library; please report what thiscpu_last_error says"
        }
        () => c"not a status of this library",
    }
}

/// Returns the message for a status: what failed, why, and what to do.
///
/// The result is never NULL and stays valid forever. For a number that is not a status the message
/// says so. `thiscpu_last_error` knows more about the last failed call.
///
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_strerror(status: i32) -> *const c_char {
    message(status).as_ptr()
}

/// Returns the version of the loaded library; `THISCPU_VERSION` is that of the header.
///
/// The result is never NULL and stays valid forever.
///
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no nul in it"),
        };
    VERSION.as_ptr()
}
