//! Takes the CPU away from a thread at moments it cannot choose.
//!
//! What goes wrong in the middle of a sum seldom shows on a machine with few CPUs: the middle is
//! nanoseconds long, and the scheduler strikes some hundred times a second. A timer's signal strikes
//! as often as one likes, and its handler yields, so that others run in the middle of whatever the
//! thread was doing.

use std::{
    io, mem, ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst},
    },
    time::Duration,
};

/// Nothing else in this program uses it, and a timer can send it to one thread.
const SIGNAL: i32 = libc::SIGALRM;

/// How long the thread is left alone after it got its CPU back.
const PAUSE: Duration = Duration::from_micros(25);

/// Whoever holds it has the only timer.
static ONLY_ONE: Mutex<()> = Mutex::new(());

/// The timer that the handler is to start again, as long as `IS_RUNNING`. All accesses are by the
/// interrupted thread and its handler, which no ordering need part; `SeqCst` keeps the compiler from
/// moving them past each other.
static TIMER: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// A running timer that interrupts the thread that made it, until it is dropped there.
pub(crate) struct Preemptions {
    timer: libc::timer_t,
    _only_one: MutexGuard<'static, ()>,
}

impl Preemptions {
    /// Begins to interrupt the calling thread.
    pub(crate) fn begin() -> io::Result<Self> {
        let only_one = ONLY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        install_handler()?;
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: All zeroes is a valid sigevent.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        // SAFETY: gettid takes nothing and has no preconditions.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        // SAFETY: Both pointers are to locals, of the types the call wants.
        let status = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        TIMER.store(timer, SeqCst);
        IS_RUNNING.store(true, SeqCst);
        let preemptions = Self { timer, _only_one: only_one };
        match start(timer) {
            0 => Ok(preemptions),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Preemptions {
    fn drop(&mut self) {
        // The handler may still be called for a signal that was sent before; it must not start a
        // timer that is gone.
        IS_RUNNING.store(false, SeqCst);
        // SAFETY: The timer was made by `begin` and is deleted only here.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Installs the handler, for good: a signal sent just before its timer was deleted still comes.
fn install_handler() -> io::Result<()> {
    // SAFETY: All zeroes is a valid sigaction: the default action, and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = give_way as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: The handler makes only calls that any handler may make, and is never unloaded.
    match unsafe { libc::sigaction(SIGNAL, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets other threads of this CPU run, and has the timer strike again, once, after the respite. A
/// periodic timer would strike while the others run, and the thread would never get anywhere.
extern "C" fn give_way(_signal: i32) {
    // SAFETY: sched_yield takes nothing, has no preconditions, and cannot fail on Linux, so that
    // the interrupted code's errno stays.
    unsafe { libc::sched_yield() };
    if IS_RUNNING.load(SeqCst) {
        start(TIMER.load(SeqCst));
    }
}

/// Starts a timer that exists, which cannot fail and leaves errno alone.
fn start(timer: libc::timer_t) -> i32 {
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() },
    };
    // SAFETY: The pointer is to a local; a timer that does not exist would be an error, no harm.
    unsafe { libc::timer_settime(timer, 0, &once, ptr::null_mut()) }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_interrupted_thread_still_gets_on() {
        let preemptions = Preemptions::begin().unwrap();
        let started = Instant::now();
        let turns = (0_u64..).take_while(|_| started.elapsed() < Duration::from_millis(10)).count();
        drop(preemptions);
        assert!(turns > 0);
    }
}
