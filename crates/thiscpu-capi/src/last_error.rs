//! The sentence that says why the calling thread's last failed call failed.
//!
//! A failed call notes a status, and sometimes a number or a text. The sentence is formatted only
//! when a program asks for it, so a refusal costs no more than before.

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::fmt::{self, Write as _};
use std::io;
use std::panic::PanicHookInfo;
use std::time::Duration;

use thiscpu::__internal::capi::PanicReason;
use thiscpu::{Error, RateError, SegmentError, SegmentErrorKind};

use crate::status::{Status, message};

/// The size of a sentence in bytes, with its nul; longer ones are cut off.
const BYTES: usize = 512;

thread_local! {
    static LAST: LastError = const { LastError {
        status: Cell::new(Status::Ok),
        detail: Cell::new(Detail::None),
        noted: Cell::new(Detail::None),
    } };
    /// The text of the last error, allocated at its first use.
    ///
    /// It is not part of the thread-local block, which must fit into the few hundred bytes that the
    /// loader reserves for libraries that are loaded late.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The last error of a thread. It has no destructor, so destructors of a thread may use it.
struct LastError {
    status: Cell<Status>,
    detail: Cell<Detail>,
    /// What the running call has noted; its status is not known yet.
    noted: Cell<Detail>,
}

/// A detail of an error, besides its status.
#[derive(Clone, Copy, Default)]
enum Detail {
    #[default]
    None,
    /// The units that were available.
    Available(u64),
    /// The units that a rate had, and the nanoseconds after which to try again.
    Rate(u64, u64),
    /// The number that a constructor of the program returned.
    Constructor(i32),
    /// The sentence is in the buffer.
    Text,
}

/// Replaces the calling thread's text, and returns it as a C string.
///
/// Returns `None` without memory, and in destructors of a thread that has dropped its text.
fn set_text(text: fmt::Arguments<'_>) -> Option<*const c_char> {
    TEXT.try_with(|buffer| {
        let mut buffer = buffer.try_borrow_mut().ok()?;
        buffer.clear();
        buffer.try_reserve_exact(BYTES).ok()?;
        // An error means that the text was cut off.
        let _ = Line(&mut buffer).write_fmt(text);
        buffer.push(0);
        Some(buffer.as_ptr().cast())
    })
    .ok()
    .flatten()
}

/// Returns the calling thread's text as a C string.
fn text() -> Option<*const c_char> {
    TEXT.try_with(|buffer| buffer.borrow().as_ptr().cast()).ok()
}

/// A writer that never allocates: it cuts off what exceeds [`BYTES`], with room for a nul.
struct Line<'a>(&'a mut Vec<u8>);

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let taken = part.len().min(BYTES - 1 - self.0.len());
        self.0.extend_from_slice(&part.as_bytes()[..taken]);
        if taken == part.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Notes what a rate had that is about to refuse units, and after what time to try again.
pub(crate) fn note_rate(available: u64, retry_after: Duration) {
    let retry_ns = u64::try_from(retry_after.as_nanos()).unwrap_or(u64::MAX);
    LAST.with(|last| last.noted.set(Detail::Rate(available, retry_ns)));
}

/// Notes how many units were available to the refused call that is about to return.
pub(crate) fn note_available(units: u64) {
    LAST.with(|last| last.noted.set(Detail::Available(units)));
}

/// Notes the number that a constructor of the program returned.
pub(crate) fn note_constructor(code: i32) {
    LAST.with(|last| last.noted.set(Detail::Constructor(code)));
}

/// Takes back the number that `note_constructor` has noted, if nothing else was noted since.
pub(crate) fn take_constructor() -> Option<i32> {
    match LAST.with(|last| last.noted.take()) {
        Detail::Constructor(code) => Some(code),
        _ => None,
    }
}

/// Notes why the call that is about to return fails.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    let detail = if set_text(text).is_some() { Detail::Text } else { Detail::None };
    LAST.with(|last| last.noted.set(detail));
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        note(format_args!("{error}"));
        match error {
            Error::UnknownTier { .. } => Status::UnknownTier,
            Error::TierUnavailable { .. } => Status::TierUnavailable,
            Error::NoAddressSpace { .. } => Status::NoAddressSpace,
            Error::NoMemory { .. } => Status::NoMemory,
            Error::ItemTooLarge { .. } => Status::InvalidSize,
            _ => Status::Internal,
        }
    }
}

impl From<SegmentError> for Status {
    fn from(error: SegmentError) -> Self {
        use SegmentErrorKind as Kind;
        note(format_args!("{error}"));
        match *error.kind() {
            Kind::System { errno, .. } | Kind::CannotReopen { errno } => of_errno(errno),
            Kind::NotASegment
            | Kind::ForeignByteOrder
            | Kind::OtherFormat { .. }
            | Kind::UnknownFeatures { .. }
            | Kind::Damaged { .. }
            | Kind::WrongLength { .. }
            | Kind::Lost => Status::InvalidSegment,
            Kind::ForeignOwner { .. } | Kind::WritableByOthers { .. } => Status::UntrustedSegment,
            Kind::OptionOutOfRange { .. } => Status::OutOfRange,
            Kind::InvalidName => Status::InvalidName,
            Kind::OtherKind => Status::WrongKind,
            Kind::Full => Status::SegmentFull,
            Kind::TooManyParticipants { .. } | Kind::InVforkScope => Status::NoSlot,
            Kind::NoSuchObject => Status::NoSuchObject,
            _ => Status::Internal,
        }
    }
}

/// Notes that the system refused an action, and returns the status for that.
pub(crate) fn refused(action: &str, errno: i32) -> Status {
    note(format_args!("cannot {action}: {}", io::Error::from_raw_os_error(errno)));
    of_errno(errno)
}

/// Sets `errno`, and returns the status for that number.
fn of_errno(errno: i32) -> Status {
    // SAFETY: the C library returns the address of this thread's number.
    unsafe { *libc::__errno_location() = errno };
    match errno {
        libc::ENOMEM | libc::ENOSPC | libc::EDQUOT => Status::NoMemory,
        _ => Status::System,
    }
}

/// Records that a call returns `status`, which is an error.
pub(crate) fn record(status: Status) {
    LAST.with(|last| {
        last.status.set(status);
        last.detail.set(last.noted.take());
    });
}

/// Makes panics silent: their message becomes the thread's last error.
///
/// This copy of the standard library runs no code but this library's, and each panic ends in
/// [`catch`](crate::ffi::catch).
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(note_panic));
}

fn note_panic(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    match (PanicReason::noted(), info.location()) {
        (PanicReason::Other, Some(at)) => {
            note(format_args!(
                "internal error: a bug of this library, please report it: {text}, {at}"
            ));
        }
        _ => note(format_args!("{}", text.strip_prefix("thiscpu: ").unwrap_or(text))),
    }
}

/// Returns a sentence about the calling thread's last failed call.
///
/// It says what failed, why, and what to do. A call fails if it returns a status other than `OK`;
/// calls that succeed change nothing here. The sentence may have more details than
/// `thiscpu_strerror`, such as the number of units that were available. It is valid until the
/// thread's next call of this function, or next failed call.
///
/// The result is never NULL. If no call of this thread has failed, the sentence says so.
///
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_last_error() -> *const c_char {
    let (status, detail) = LAST.with(|last| (last.status.get(), last.detail.get()));
    let sentence = match (status, detail) {
        (Status::Ok, _) => return c"no call of this thread has failed".as_ptr(),
        (_, Detail::Text) => text(),
        (Status::Exhausted, Detail::Available(units)) => set_text(format_args!(
            "budget exhausted: only {units} units are available; try again after a release"
        )),
        (Status::Exhausted, Detail::Rate(available, retry_ns)) => {
            let retry_after = Duration::from_nanos(retry_ns);
            set_text(format_args!("{}", RateError::Exceeded { available, retry_after }))
        }
        (Status::ConstructFailed, Detail::Constructor(code)) => set_text(format_args!(
            "constructor failed: the cache's `construct` returned {code} for a new object"
        )),
        _ => None,
    };
    sentence.unwrap_or_else(|| message(status as i32).as_ptr())
}
