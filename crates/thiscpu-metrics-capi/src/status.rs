//! Statuses and their sentences.

use std::ffi::c_char;

use thiscpu_metrics::Error;

use crate::ffi::{last, note};

/// The result of a call. `THISCPU_METRICS_STATUS_OK` is 0.
///
/// `thiscpu_metrics_last_error` has a sentence about the calling thread's last failed call. A
/// failed call changes and stores nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// A handle or another required pointer is NULL.
    NullPointer,
    /// A name, label, help text, bucket or tier is invalid, or in conflict with another one.
    Rejected,
    /// The endpoint cannot listen on the address.
    CannotListen,
    /// An exact value needs a fence, which a sandbox denies since the start. Do not retry.
    FenceDenied,
    /// A bug of this library, or memory is exhausted.
    Internal,
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        note(&error.to_string());
        match error {
            Error::AddressInUse { .. }
            | Error::InvalidAddress { .. }
            | Error::PermissionDenied { .. }
            | Error::ThreadSpawn { .. } => Status::CannotListen,
            _ => Status::Rejected,
        }
    }
}

/// Returns the sentence about the calling thread's last failed call.
///
/// It says what failed, why, and what to do. It is valid until the thread's next failed call, and
/// empty if none has failed.
///
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_metrics_last_error() -> *const c_char {
    last()
}
