//! Forms of values: a word, or a placeholder such as `FILE` that stands for many.

/// Returns whether a value has a form.
///
/// A form is a word, which is its only value, or it ends with `FILE`, which stands for a path.
pub(super) fn fits(form: &str, value: &[u8]) -> bool {
    match form.strip_suffix("FILE") {
        Some(prefix) => value.strip_prefix(prefix.as_bytes()).is_some_and(is_path),
        None => value == form.as_bytes(),
    }
}

/// Returns whether Linux accepts this as a path.
fn is_path(value: &[u8]) -> bool {
    !value.is_empty() && value.len() < libc::PATH_MAX as usize && !value.contains(&0)
}
