//! The degradations of this process.

use std::ffi::{c_char, c_int};
use std::time::UNIX_EPOCH;

use thiscpu::__internal::capi::degradation_texts;
use thiscpu::Degradation;

use crate::ffi::{OutParam, catch, copy_out};
use crate::status::Status;

/// A thing that is slower than it could be in this process, since when, and why.
///
/// The strings stay valid forever. Rust: `Degradation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThiscpuDegradation {
    /// A short name, such as `membarrier`; the page on guarantees lists all of them.
    pub name: *const c_char,
    /// The loss and its cause, in one sentence without a full stop.
    pub reason: *const c_char,
    /// The time of the first occurrence, in nanoseconds since 1970, by the system's clock.
    pub since_unix_ns: u64,
    /// How often it occurred.
    pub occurrences: u64,
    /// The error number (`errno`) of the first occurrence, or 0.
    pub error: c_int,
}

impl From<Degradation> for ThiscpuDegradation {
    fn from(degradation: Degradation) -> Self {
        let (name, reason) = degradation_texts(degradation.kind);
        let since = degradation.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        ThiscpuDegradation {
            name: name.as_ptr(),
            reason: reason.as_ptr(),
            since_unix_ns: since.as_nanos() as u64,
            occurrences: degradation.occurrences,
            error: degradation.errno.unwrap_or(0),
        }
    }
}

/// Stores the degradations of this process, and their number in `*count`.
///
/// `degradations` is an array of `capacity` elements; if there are more degradations, the first
/// `capacity` are stored. There are at most 16. On a healthy system there are none. The list has
/// all that calls have met so far, also if they have passed. A child of `fork` inherits the list of
/// its parent.
///
/// - NULL: allowed for `degradations` if `capacity` is 0; not for `count`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_degradations(
    degradations: *mut ThiscpuDegradation,
    capacity: usize,
    count: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that `count` is null or valid for writes.
        let out = unsafe { OutParam::new(count) }?;
        let all = thiscpu::degradations().map(ThiscpuDegradation::from);
        // SAFETY: the header requires that `degradations` has room for `capacity` elements.
        out.write(unsafe { copy_out(degradations, capacity, all) }?);
        Ok(())
    })
}

/// Returns how many calls have used the shared lane because their thread had no lane.
///
/// On a healthy system few do: calls of a thread whose new CPU gets its lane while another thread
/// changes the lanes, and calls in destructors of an exiting thread or in children of `vfork`. A
/// number that grows quickly means that threads have no lane; `thiscpu_degradations` says why.
///
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_shared_lane_calls() -> u64 {
    thiscpu::shared_lane_calls()
}
