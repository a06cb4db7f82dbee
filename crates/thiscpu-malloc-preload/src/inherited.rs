//! Changes the environment that children inherit, so that each process tree warns about a wrong
//! setting once.
//!
//! `setenv` allocates, and the program may have replaced its list of variables. So the value is
//! changed where the kernel has put it: on the initial stack, which `environ` points into, and
//! which every `exec` copies from. Bytes are changed by Relaxed stores: each is a value of its own.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::errno::keep_errno;

/// Calls `edit` with the bytes of a variable's value.
///
/// The first zero byte that `edit` writes is the new end of the value. Does nothing if the variable
/// is not set, or not where the kernel has put it.
pub(crate) fn edit(name: &CStr, edit: impl FnOnce(&[AtomicU8])) {
    // SAFETY: the name ends with a zero byte. As for every reader of the environment, the program
    // must not change its list of variables meanwhile.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if !keep_errno(|| is_on_initial_stack(value)) {
        return;
    }
    // SAFETY: values end with a zero byte. The kernel maps the initial stack writable and for good,
    // and the range that was checked holds nothing but arguments and environment. If a constructor
    // has started a thread that reads this value now, it may see a part of the change, and then
    // still finds a zero byte at the old end.
    let value = unsafe { core::slice::from_raw_parts(value.cast(), libc::strlen(value)) };
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
    let is_between = |above| (below..above).contains(&(string.addr() as u64));
    // A loader that is started as a program replaces the name by one of its own arguments.
    below != 0 && !string.is_null() && (is_between(above) || is_between(kernels_name()))
}

/// Returns the address at which the kernel has put the program's name, or 0 if it is unknown.
fn kernels_name() -> u64 {
    let mut entries = [[0_u64; 2]; 64];
    // The calls are bare: the C library's functions are cancellation points.
    //
    // SAFETY: the path is a C string, and the kernel writes at most the size of `entries` to them.
    // If there is no such file, the other calls fail, and change nothing.
    let read = unsafe {
        let (path, flags) = (c"/proc/self/auxv".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
        let (to, bytes) = (entries.as_mut_ptr(), size_of_val(&entries));
        let read = libc::syscall(libc::SYS_read, file as i32, to, bytes);
        libc::syscall(libc::SYS_close, file as i32);
        read
    };
    let count = usize::try_from(read).unwrap_or(0) / size_of_val(&entries[0]);
    let name = entries[..count].iter().find(|[kind, _]| *kind == libc::AT_EXECFN);
    name.map_or(0, |[_, value]| *value)
}

/// Removes words from a list with commas in between. The numbers of words begin at 0.
pub(crate) fn retain_words(list: &[AtomicU8], is_kept: impl Fn(usize) -> bool) {
    let load = |at: usize| list[at].load(Relaxed);
    let (mut start, mut kept) = (0, 0);
    let mut push = |byte| {
        list[kept].store(byte, Relaxed);
        kept += 1;
    };
    let mut is_first = true;
    for number in 0.. {
        if start >= list.len() {
            break;
        }
        let end = (start..list.len()).find(|&at| load(at) == b',').unwrap_or(list.len());
        if is_kept(number) {
            if !is_first {
                push(b',');
            }
            is_first = false;
            (start..end).for_each(|at| push(load(at)));
        }
        start = end + 1;
    }
    list[kept..].iter().for_each(|byte| byte.store(0, Relaxed));
}
