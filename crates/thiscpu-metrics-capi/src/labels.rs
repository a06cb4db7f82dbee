//! Labels of series.

use std::ffi::c_char;

use crate::ffi::{deref, text};
use crate::status::Status;

/// A label of a series. Both are C strings in UTF-8.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuMetricsLabel {
    /// The name.
    pub name: *const c_char,
    /// The value. A label with an empty value does not exist.
    pub value: *const c_char,
}

/// Returns the labels of the caller.
///
/// # Safety
///
/// `labels` points to `count` labels, whose texts outlive `'a`; or `count` is 0.
pub(crate) unsafe fn labels<'a>(
    labels: *const ThiscpuMetricsLabel,
    count: usize,
) -> Result<Vec<(&'a str, &'a str)>, Status> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller guarantees that the array has `count` labels, if it is not null.
    let labels = unsafe {
        deref(labels)?;
        std::slice::from_raw_parts(labels, count)
    };
    // SAFETY: the caller guarantees that the texts are C strings.
    labels.iter().map(|label| unsafe { Ok((text(label.name)?, text(label.value)?)) }).collect()
}
