//! Changes the environment that children inherit, so that each process tree warns about a wrong
//! setting once.
//!
//! `setenv` allocates, and the program may have replaced its list of variables. So the value is
//! changed where the kernel has put it: on the initial stack, which `environ` points into, and
//! which every `exec` copies from.

use core::ffi::{CStr, c_char};

use crate::errno::keep_errno;

/// Calls `edit` with the value of a variable.
///
/// The first zero byte that `edit` writes is the new end of the value. Does nothing if the variable
/// is not set, or not where the kernel has put it.
pub(crate) fn edit(name: &CStr, edit: impl FnOnce(&mut [u8])) {
    // SAFETY: the name ends with a zero byte. As for every reader of the environment, the program
    // must not change it meanwhile. Its own code does not run before `main`.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if !keep_errno(|| is_on_initial_stack(value)) {
        return;
    }
    // SAFETY: values end with a zero byte. The kernel maps the initial stack writable, and the
    // range that was checked holds nothing but arguments and environment. No other reference to
    // the value exists: `getenv` returns pointers.
    let value = unsafe { core::slice::from_raw_parts_mut(value.cast(), libc::strlen(value)) };
    edit(value);
}

/// Returns whether the kernel has put this string onto the stack.
///
/// If not, the program has made it a variable, by `putenv`, and it may be read-only.
fn is_on_initial_stack(string: *const c_char) -> bool {
    // SAFETY: getauxval has no preconditions.
    let [below, above] =
        [libc::AT_RANDOM, libc::AT_EXECFN].map(|kind| unsafe { libc::getauxval(kind) });
    // The kernel writes the program's name first, downwards from the end of the stack. Then come
    // the variables, the arguments, and the random bytes.
    (below..above).contains(&(string.addr() as u64)) && below != 0
}

/// Removes the words that are not to be kept from a list with commas in between.
pub(crate) fn retain_words(list: &mut [u8], mut keep: impl FnMut(&[u8]) -> bool) {
    let (mut start, mut kept) = (0, 0);
    while start < list.len() {
        let comma = list[start..].iter().position(|&byte| byte == b',');
        let end = comma.map_or(list.len(), |length| start + length);
        if keep(list[start..end].trim_ascii()) {
            if kept > 0 {
                list[kept] = b',';
                kept += 1;
            }
            list.copy_within(start..end, kept);
            kept += end - start;
        }
        start = end + 1;
    }
    list[kept..].fill(0);
}
