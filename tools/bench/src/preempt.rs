//! Preempts a thread at moments that it cannot choose.
//!
//! Errors in the middle of a sum are rare on a machine with few CPUs: the middle is nanoseconds
//! long, and the scheduler preempts some hundred times a second. A timer's signal interrupts as
//! often as one likes, and its handler yields, so that others run in the middle of the thread's
//! work.

use std::{
    io, ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst},
    },
    time::Duration,
};

use thiscpu_test_support::signals::{self, fire_once};

/// Nothing else in this program uses it, and a timer can send it to one thread.
const SIGNAL: i32 = libc::SIGALRM;

/// How long the thread runs undisturbed after it got its CPU back.
const PAUSE: Duration = Duration::from_micros(25);

/// Its holder has the only timer.
static ONLY_ONE: Mutex<()> = Mutex::new(());

/// The timer that the handler restarts while `IS_RUNNING`.
///
/// Only the preempted thread and its handler use both, so no other thread needs an order. `SeqCst`
/// keeps the compiler from reordering them.
static TIMER: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// A running timer that preempts the thread that made it, until it is dropped there.
pub(crate) struct Preemptions {
    timer: libc::timer_t,
    _only_one: MutexGuard<'static, ()>,
}

impl Preemptions {
    pub(crate) fn begin() -> io::Result<Self> {
        let only_one = ONLY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // It stays installed: a signal sent just before its timer was deleted still arrives.
        // SAFETY: the handler calls only sched_yield and timer_settime, and uses atomics.
        unsafe { signals::install(SIGNAL, yield_now as *const (), libc::SA_RESTART) }?;
        let timer = signals::timer_of_this_thread(SIGNAL)?;
        TIMER.store(timer, SeqCst);
        IS_RUNNING.store(true, SeqCst);
        // SAFETY: the timer was just made.
        unsafe { fire_once(timer, PAUSE) };
        Ok(Self { timer, _only_one: only_one })
    }
}

impl Drop for Preemptions {
    fn drop(&mut self) {
        // A signal sent before may still arrive; its handler must not restart a deleted timer.
        IS_RUNNING.store(false, SeqCst);
        // SAFETY: `begin` made the timer, and it is deleted only here.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Lets other threads of this CPU run, then restarts the timer.
///
/// A periodic timer would fire while the others run, and the thread would make no progress.
extern "C" fn yield_now(_signal: i32) {
    // SAFETY: sched_yield has no preconditions. It cannot fail on Linux, so the interrupted code's
    // errno stays.
    unsafe { libc::sched_yield() };
    if IS_RUNNING.load(SeqCst) {
        // SAFETY: `TIMER` exists while `IS_RUNNING`: `drop` clears the flag before it deletes the
        // timer, on the thread that this handler interrupts.
        unsafe { fire_once(TIMER.load(SeqCst), PAUSE) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn preempted_threads_make_progress() {
        let preemptions = Preemptions::begin().unwrap();
        let started = Instant::now();
        let turns = (0_u64..).take_while(|_| started.elapsed() < Duration::from_millis(10)).count();
        drop(preemptions);
        assert!(turns > 0);
    }
}
