//! Forked children, which report by their exit status.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::slowdown;

/// Returns the seconds after which SIGALRM ends a child that hangs.
pub fn alarm_s() -> u32 {
    60 * slowdown()
}

/// Forks, and returns the child's id, or 0 in the child.
///
/// The child must end with [`exit_with`].
///
/// # Errors
///
/// If the fork fails.
pub fn try_fork() -> io::Result<i32> {
    // Read before the fork, because another thread may hold the environment's lock.
    let seconds = alarm_s();
    // SAFETY: the child has a copy of the calling thread only. It uses the C library's allocator
    // and the libraries that are tested, which support that.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: `alarm` has no preconditions.
            unsafe { libc::alarm(seconds) };
            Ok(0)
        }
        -1 => Err(io::Error::last_os_error()),
        child => Ok(child),
    }
}

/// Forks as [`try_fork`] does.
///
/// # Panics
///
/// If the fork fails.
pub fn fork() -> i32 {
    try_fork().unwrap_or_else(|why| panic!("fork: {why}"))
}

/// Exits with the result of `body`, or with 101 if it panics.
pub fn exit_with(body: impl FnOnce() -> i32) -> ! {
    // A panic that unwound further would end a test's thread, and the child with success.
    let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
    // SAFETY: `_exit` has no preconditions; it skips exit handlers, which are the parent's.
    unsafe { libc::_exit(status) }
}

/// Waits until a child ends, or stops if it is traced, and returns its wait status.
///
/// # Panics
///
/// If there is no such child.
pub fn wait(child: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live local, valid for writes.
        match unsafe { libc::waitpid(child, &mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            waited => {
                assert_eq!(waited, child, "{}", io::Error::last_os_error());
                return status;
            }
        }
    }
}

/// Runs `body` in a forked child, which exits with its result, and returns the wait status.
///
/// If `body` panics, the child exits with 101. SIGALRM ends a child that hangs.
///
/// # Panics
///
/// If the fork fails.
pub fn status_of(body: impl FnOnce() -> i32) -> i32 {
    match fork() {
        0 => exit_with(body),
        child => wait(child),
    }
}

/// Starts a forked child that runs `body`, and returns its id.
///
/// It exits with 0, or with 101 if `body` panics.
///
/// For cases that are about a whole process, or that wait: all of a test can run at once.
///
/// # Panics
///
/// If the fork fails.
pub fn start(body: impl FnOnce()) -> i32 {
    match fork() {
        0 => exit_with(|| {
            body();
            0
        }),
        child => child,
    }
}

/// Runs `body` in a child that has this thread's memory, and a stack of its own.
///
/// This thread sleeps until the child has ended. Returns the child's wait status; it exits with 101
/// if `body` panics.
///
/// # Errors
///
/// If the kernel makes no process.
pub fn on_this_memory(mut body: impl FnMut()) -> io::Result<i32> {
    extern "C" fn call(body: *mut libc::c_void) -> i32 {
        // SAFETY: this is the address of a reference to a closure, which live until this child has
        // ended.
        let body = unsafe { &mut *body.cast::<&mut dyn FnMut()>() };
        catch_unwind(AssertUnwindSafe(body)).map_or(101, |()| 0)
    }
    let mut stack = vec![0_u128; 32 << 10];
    let mut body: &mut dyn FnMut() = &mut body;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child gets the end of a stack that it alone uses and that outlives it. It calls
    // only code that runs while this thread sleeps.
    let child = unsafe {
        let top = stack.as_mut_ptr_range().end.cast();
        libc::clone(call, top, flags, (&raw mut body).cast())
    };
    if child < 0 { Err(io::Error::last_os_error()) } else { Ok(wait(child)) }
}

/// Asserts that `body` returns true in a forked child.
#[track_caller]
pub fn assert_holds(body: impl FnOnce() -> bool) {
    assert_eq!(status_of(|| i32::from(!body())), 0, "the wait status of the child");
}

/// Asserts that `body` aborts a forked child, which writes `message` on standard error.
///
/// # Panics
///
/// If the child ends otherwise, or without the message, or if it cannot be started.
#[track_caller]
pub fn assert_aborts(message: &str, body: impl FnOnce()) {
    let mut pipe = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0, "no pipe");
    let [from, to] = pipe;
    let status = status_of(|| {
        // SAFETY: the descriptors are open, and this child writes nothing else to the second one.
        unsafe { libc::dup2(to, libc::STDERR_FILENO) };
        body();
        0
    });
    let mut text = [0_u8; 4096];
    // SAFETY: the buffer has that many bytes, and no one else uses the descriptors. The write end
    // is closed first, so the read does not wait.
    let bytes = unsafe {
        libc::close(to);
        let bytes = libc::read(from, text.as_mut_ptr().cast(), text.len());
        libc::close(from);
        bytes
    };
    let text = String::from_utf8_lossy(&text[..usize::try_from(bytes).unwrap_or(0)]);
    let is_aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(is_aborted && text.contains(message), "wait status {status:#x}, and: {text:?}");
}
