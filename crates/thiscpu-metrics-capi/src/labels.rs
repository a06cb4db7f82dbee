//! Labels of series.

use std::ffi::c_char;

use crate::ffi::{array, text};
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
/// If `count` is not 0, `labels` is null, misaligned, or points to `count` labels, whose texts are
/// null or C strings. They outlive `'a`.
pub(crate) unsafe fn labels<'a>(
    labels: *const ThiscpuMetricsLabel,
    count: usize,
) -> Result<Vec<(&'a str, &'a str)>, Status> {
    // SAFETY: the caller guarantees that `labels` is null, misaligned, or points to `count` labels.
    let labels = unsafe { array(labels, count) }?;
    // SAFETY: the caller guarantees that the texts are null or C strings that outlive `'a`.
    labels.iter().map(|label| unsafe { Ok((text(label.name)?, text(label.value)?)) }).collect()
}
