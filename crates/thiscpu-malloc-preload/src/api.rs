//! The functions of `thiscpu_malloc.h`, which no other allocator has.

use core::ffi::{CStr, c_char, c_int};

use thiscpu::__internal::save_errno;
use thiscpu_malloc::SettingError;
use thiscpu_malloc::export::Assignment;

use crate::settings::update_exit;

/// Changes a setting, and returns 0 or an error number.
///
/// # Safety
///
/// Name and value are null, or strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_malloc_set(name: *const c_char, value: *const c_char) -> c_int {
    let _errno = save_errno();
    // SAFETY: the caller guarantees that a pointer that is not null is a string.
    let [name, value] = [name, value]
        .map(|text| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes()));
    let changed = name
        .ok_or(SettingError::UnknownName)
        .and_then(|name| Assignment::new(name, value)?.apply());
    update_exit();
    match changed {
        Ok(()) => 0,
        Err(SettingError::UnknownName) => libc::ENOENT,
        Err(SettingError::NotApplied(_)) => libc::EAGAIN,
        Err(_) => libc::EINVAL,
    }
}
