//! Forms of values: a word, or a placeholder that stands for many.
//!
//! The placeholders are `FILE`, a path, perhaps after a fixed prefix such as `json:`; `BYTES`, a
//! number of bytes; and `PID`, the ID of a process, or 0.

use core::str;

/// The largest number that `BYTES` stands for.
const BYTES_MAX: u64 = 1 << 40;

/// Returns whether a value has a form.
pub(super) fn fits(form: &str, value: &[u8]) -> bool {
    let is_number_up_to = |max| number(value).is_some_and(|number| number <= max);
    match form {
        "BYTES" => is_number_up_to(BYTES_MAX) && number(value) != Some(0),
        "PID" => is_number_up_to(i32::MAX as u64),
        _ => match form.strip_suffix("FILE") {
            Some(prefix) => value.strip_prefix(prefix.as_bytes()).is_some_and(is_path),
            None => value == form.as_bytes(),
        },
    }
}

/// Returns a form's only value, if it has no placeholder.
pub(super) fn word(form: &'static str) -> Option<&'static [u8]> {
    let is_word = !matches!(form, "BYTES" | "PID") && !form.ends_with("FILE");
    is_word.then_some(form.as_bytes())
}

/// Parses a decimal number.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok()?.parse().ok()
}

/// Returns whether Linux accepts this as a path.
fn is_path(value: &[u8]) -> bool {
    !value.is_empty() && value.len() < libc::PATH_MAX as usize && !value.contains(&0)
}
