//! Statuses and their sentences.

use thiscpu_metrics::Error;

use crate::last_error::note;

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
    /// A pointer is not aligned for its type.
    Misaligned,
    /// A name, label, help text, bucket or tier is invalid, or in conflict with another one.
    Rejected,
    /// The endpoint cannot listen on the address.
    CannotListen,
    /// An exact value needs a fence, which a sandbox denies since the start. Do not retry.
    FenceDenied,
    /// The system denied memory for a handle or for per-CPU data.
    NoMemory,
    /// A bug of this library. `thiscpu_metrics_last_error` has a message; please report it.
    Internal,
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        note(format_args!("{error}"));
        match error {
            Error::AddressInUse { .. }
            | Error::InvalidAddress { .. }
            | Error::PermissionDenied { .. }
            | Error::ThreadSpawn { .. } => Status::CannotListen,
            _ => Status::Rejected,
        }
    }
}
