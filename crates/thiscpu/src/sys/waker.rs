//! Wakers of tasks, which are code of the program and may panic.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Drops a waker. That may run a task's own code, so the caller holds no lock.
///
/// A panic ends here, because the caller has more to do.
pub(crate) fn drop_caught(waker: Option<Waker>) {
    if let Some(waker) = waker {
        // Forgotten, because a payload may panic when it is dropped.
        mem::forget(catch_unwind(AssertUnwindSafe(|| drop(waker))));
    }
}

/// Calls a waker. The caller holds no lock. A panic ends here.
pub(crate) fn wake_caught(waker: Waker) {
    // Forgotten, because a payload may panic when it is dropped.
    mem::forget(catch_unwind(AssertUnwindSafe(|| waker.wake())));
}

/// Calls wakers. The caller holds no lock.
///
/// A waker that panics keeps no other from being called.
#[cfg(not(thiscpu_model))]
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(wake_caught);
}
