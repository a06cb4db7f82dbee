//! Stops an operation between two instructions while another thread does something that conflicts.
//!
//! The trap flag counts instructions, so the stop comes to each in turn. The result does not depend
//! on chance or on the scheduler.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::{fork, futex, scale, signal};

/// Checks that this machine can single-step.
pub(crate) fn can_single_step() -> Result<(), String> {
    match cfg!(target_arch = "x86_64") {
        true => Ok(()),
        false => Err("needs x86-64, which single-steps without a debugger".into()),
    }
}

/// The number of steps until the stop.
static STEPS_LEFT: AtomicU64 = AtomicU64::new(0);
/// The number of stops so far.
static STOPS: AtomicU32 = AtomicU32::new(0);
/// The number of stops for which the other thread has run its conflict.
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// A `fn()` that the handler calls instead of waiting for the other thread, or 0.
static HANDLER_CALL: AtomicUsize = AtomicUsize::new(0);

/// The number of yields for which a stop waits.
///
/// It is bounded, because the other thread may itself wait for the stopped one.
const YIELDS_MAX: u32 = 2000;

/// The trap flag.
#[cfg(target_arch = "x86_64")]
const TRAP: u64 = 0x100;

extern "C" fn stepped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if STEPS_LEFT.fetch_sub(1, SeqCst) != 1 {
        return;
    }
    match HANDLER_CALL.load(SeqCst) {
        0 => {
            let stop = STOPS.fetch_add(1, SeqCst) + 1;
            futex::wake(&STOPS);
            for _ in 0..YIELDS_MAX {
                if ANSWERED.load(SeqCst) == stop {
                    break;
                }
                std::thread::yield_now();
            }
        }
        // SAFETY: only `conflict_in_handler` stores here, and it stores a `fn()`.
        call => unsafe { std::mem::transmute::<usize, fn()>(call)() },
    }
    // SAFETY: the handler is installed with SA_SIGINFO, so the kernel passes a valid context.
    unsafe { end_steps(context.cast()) };
}

/// Lets the interrupted code continue without single steps.
///
/// # Safety
///
/// The context must be valid for writes.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "there are no steps"))]
unsafe fn end_steps(context: *mut libc::ucontext_t) {
    // SAFETY: the caller guarantees that the context is valid for writes.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !(TRAP as i64)
    };
}

/// Runs `op` and stops it after `steps` instructions; returns whether it was that long.
fn stopped_after<R>(steps: u64, op: impl FnOnce() -> R) -> (R, bool) {
    STEPS_LEFT.store(steps, SeqCst);
    // SAFETY: the trap flag makes each instruction raise SIGTRAP, which `at_steps` handles. The
    // push stays below the red zone, and the stack pointer is restored.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "or qword ptr [rsp], {trap}", "popf",
            "lea rsp, [rsp + 128]", trap = const TRAP);
    }
    let result = op();
    // SAFETY: clears the trap flag; the push stays below the red zone, and the stack pointer is
    // restored.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "and qword ptr [rsp], ~{trap}", "popf",
            "lea rsp, [rsp + 128]", trap = const TRAP);
    }
    (result, STEPS_LEFT.load(SeqCst) as i64 <= 0)
}

/// Runs `op` many times, each time stopped at another instruction.
///
/// The stops come at each of the first instructions, and then at fewer and fewer.
///
/// `prepare` runs before each run of `op`, `conflict` on another thread during the stop, and
/// `check` after the run, with the number of steps, whether `op` was that long, and its result.
pub(crate) fn at_sampled_steps<R>(
    prepare: impl Fn(),
    op: impl Fn() -> R,
    conflict: impl Fn(u32) + Sync,
    check: impl Fn(u64, bool, R),
) {
    at_steps(Steps::Sampled, prepare, op, conflict, check);
}

/// The instructions at which an operation is stopped.
#[derive(Clone, Copy)]
pub(crate) enum Steps {
    /// Each of the first instructions, and then fewer and fewer.
    Sampled,
    /// Every instruction, for operations that can go wrong between two late ones.
    Every,
}

/// Runs `op` stopped at those instructions; at each stop `child` runs in a forked child.
///
/// `prepare` runs before each run of `op`. After a child that succeeded, `check` gets the number of
/// steps and the result of `op`.
///
/// # Panics
///
/// If a child fails.
pub(crate) fn fork_at_steps<R>(
    steps: Steps,
    prepare: impl Fn(),
    op: impl Fn() -> R,
    child: impl Fn() + Sync,
    check: impl Fn(u64, R),
) {
    // A panic on the other thread would leave this one waiting for it, so this thread panics.
    let has_failed = AtomicBool::new(false);
    let conflict = |_| has_failed.store(fork::run(&child).is_err(), SeqCst);
    at_steps(steps, prepare, op, conflict, |steps, _, result| {
        assert!(!has_failed.load(SeqCst), "the child that was forked after {steps} steps failed");
        check(steps, result);
    });
}

fn at_steps<R>(
    steps: Steps,
    prepare: impl Fn(),
    op: impl Fn() -> R,
    conflict: impl Fn(u32) + Sync,
    check: impl Fn(u64, bool, R),
) {
    signal::handle_with_context(libc::SIGTRAP, stepped);
    const DONE: u32 = u32::MAX;
    STOPS.store(0, SeqCst);
    ANSWERED.store(0, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut answered = 0;
            loop {
                match STOPS.load(SeqCst) {
                    DONE => return,
                    stops if stops == answered => futex::wait(&STOPS, stops),
                    stops => {
                        conflict(stops);
                        answered = stops;
                        ANSWERED.store(stops, SeqCst);
                    }
                }
            }
        });
        let _done = Defer(|| {
            STOPS.store(DONE, SeqCst);
            futex::wake(&STOPS);
        });
        let mut count = 1;
        loop {
            prepare();
            let (result, reached) = stopped_after(count, &op);
            // The conflict may have waited for the operation.
            while HANDLER_CALL.load(SeqCst) == 0 && ANSWERED.load(SeqCst) != STOPS.load(SeqCst) {
                std::thread::yield_now();
            }
            check(count, reached, result);
            if !reached {
                break;
            }
            count += 1 + match steps {
                Steps::Sampled if scale::is_quick() => count / 4,
                Steps::Sampled => count / 40,
                Steps::Every => 0,
            };
        }
    });
}

/// Makes the handler itself call `call` at each stop, instead of another thread.
///
/// `call` must be async-signal-safe.
pub(crate) fn conflict_in_handler(call: fn()) {
    HANDLER_CALL.store(call as usize, SeqCst);
}

/// Calls a function when dropped.
struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
