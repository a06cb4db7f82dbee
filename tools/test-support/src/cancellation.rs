//! Whether calls are cancellation points.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::{mem, ptr};

use crate::child;

/// The function that the canceled thread calls.
static CALL: AtomicUsize = AtomicUsize::new(0);

extern "C" fn call_with_pending_cancel(_: *mut c_void) -> *mut c_void {
    // SAFETY: `is_survived` has stored a function of this type. A thread cancels itself with effect
    // at the next cancellation point.
    unsafe {
        let call: fn() = mem::transmute(CALL.load(SeqCst));
        libc::pthread_cancel(libc::pthread_self());
        call();
        // The process ends here, because the thread may not run into a cancellation point.
        libc::_exit(0)
    }
}

/// Makes a call on a thread with a pending cancel, and returns whether the thread goes on.
///
/// This is in a forked child, which runs `prepare` first, on its first thread.
///
/// # Panics
///
/// If the fork fails.
pub fn is_survived(prepare: impl FnOnce(), call: fn()) -> bool {
    let status = child::status_of(|| {
        prepare();
        CALL.store(call as usize, SeqCst);
        // SAFETY: the function takes any argument, and the thread is joined once.
        unsafe {
            let mut thread: libc::pthread_t = mem::zeroed();
            let (usual, none) = (ptr::null(), ptr::null_mut());
            let error = libc::pthread_create(&mut thread, usual, call_with_pending_cancel, none);
            assert_eq!(error, 0, "no thread");
            libc::pthread_join(thread, ptr::null_mut());
        }
        1
    });
    status == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }

    #[test]
    fn only_cancellation_points_end_the_thread() {
        assert!(is_survived(|| (), || ()));
        // SAFETY: the function has no preconditions.
        assert!(!is_survived(|| (), || unsafe { pthread_testcancel() }));
    }
}
