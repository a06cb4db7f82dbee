//! Values of the program that a registry shows.

use std::ffi::{c_char, c_void};

use crate::ffi::{catch, deref, text, text_or_empty};
use crate::labels::{ThiscpuMetricsLabel, labels};
use crate::last_error::note;
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// A function of the program and its context.
struct Callback {
    value: unsafe extern "C" fn(value: *mut i64, context: *mut c_void) -> bool,
    context: *mut c_void,
}

// SAFETY: the header requires that the function may be called on any thread with its context.
unsafe impl Send for Callback {}
// SAFETY: the header requires that the function may be called on several threads at once.
unsafe impl Sync for Callback {}

impl Callback {
    fn call(&self) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the header requires that the function may be called with its context while the
        // series exists.
        unsafe { (self.value)(&raw mut value, self.context) }.then_some(value)
    }
}

/// Shows the values that a function stores as a series.
///
/// The series is a counter if the name ends in `_total`, else a gauge.
/// Each scrape calls `value` with `context`, on any thread and under the registry's lock. It stores
/// the value and returns true, or returns false, and the scrape leaves the series out. It must not
/// use the registry. `context` must be valid until the series is removed and no scrape runs.
/// `thiscpu_metrics_show_counter` and similar functions show handles of `thiscpu.h`.
///
/// - NULL: allowed for `help`, for `context`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `REJECTED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_show(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    value: Option<unsafe extern "C" fn(value: *mut i64, context: *mut c_void) -> bool>,
    context: *mut c_void,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and that texts and labels
        // are null or valid.
        let (registry, name, help, labels) = unsafe {
            (
                deref(registry)?,
                text(name)?,
                text_or_empty(help)?,
                self::labels(labels, label_count)?,
            )
        };
        let Some(value) = value else {
            note("null pointer: the function that returns the value is NULL");
            return Err(Status::NullPointer);
        };
        let callback = Callback { value, context };
        Ok(registry.0.register_value(name, help, &labels, move || callback.call())?)
    })
}
