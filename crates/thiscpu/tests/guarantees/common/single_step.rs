//! An operation that is stopped between two instructions, while another thread does something that
//! conflicts.
//!
//! The stop is made by single steps, so it comes to every instruction in turn, and neither chance
//! nor the scheduler has a part in it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::{futex, signal};

pub(crate) fn can_single_step() -> Result<(), String> {
    match cfg!(target_arch = "x86_64") {
        true => Ok(()),
        false => Err("only x86-64 steps single instructions without a debugger".into()),
    }
}

/// How many steps are left until the stop.
static STEPS_LEFT: AtomicU64 = AtomicU64::new(0);
/// The number of stops begun, and of those that another thread has answered.
static STOPS: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// What the handler calls itself, in place of another thread: a `fn()`, or 0.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// How long a stop waits for the other thread, in looks: it may be waiting for the stopped one.
const PATIENCE: u32 = 2000;

/// The trap flag.
#[cfg(target_arch = "x86_64")]
const TRAP: u64 = 0x100;

extern "C" fn stepped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if STEPS_LEFT.fetch_sub(1, SeqCst) != 1 {
        return;
    }
    match CALLS.load(SeqCst) {
        0 => {
            let stop = STOPS.fetch_add(1, SeqCst) + 1;
            futex::wake(&STOPS);
            for _ in 0..PATIENCE {
                if ANSWERED.load(SeqCst) == stop {
                    break;
                }
                std::thread::yield_now();
            }
        }
        // SAFETY: only `in_handler` stores here, and what it stores is such a function.
        call => unsafe { std::mem::transmute::<usize, fn()>(call)() },
    }
    // SAFETY: the kernel passes a context to handlers of this kind.
    unsafe { end_steps(context.cast()) };
}

/// Lets what was interrupted run on without steps.
///
/// # Safety
///
/// The context is valid for writes.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "there are no steps"))]
unsafe fn end_steps(context: *mut libc::ucontext_t) {
    // SAFETY: by this function's own contract.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !(TRAP as i64)
    };
}

/// Runs `op` and stops it after `steps` instructions. Whether it was that long.
fn stopped_after<R>(steps: u64, op: impl FnOnce() -> R) -> (R, bool) {
    STEPS_LEFT.store(steps, SeqCst);
    // SAFETY: sets a flag that makes a SIGTRAP of the next instructions, whose handler is there.
    // The red zone is stepped over, because pushing may otherwise write into it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "or qword ptr [rsp], {trap}", "popf",
            "lea rsp, [rsp + 128]", trap = const TRAP);
    }
    let result = op();
    // SAFETY: as above; clears the flag.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "and qword ptr [rsp], ~{trap}", "popf",
            "lea rsp, [rsp + 128]", trap = const TRAP);
    }
    (result, STEPS_LEFT.load(SeqCst) as i64 <= 0)
}

/// Runs `op` again and again, stopped a little later each time: at each of its first instructions
/// and then at fewer and fewer. `conflict` runs on another thread during the stop, `prepare`
/// before each run.
pub(crate) fn at_sampled_steps<R>(
    prepare: impl Fn(),
    op: impl Fn() -> R,
    conflict: impl Fn(u32) + Sync,
    check: impl Fn(u64, bool, R),
) {
    at_steps(|steps| steps + 1 + steps / 40, prepare, op, conflict, check);
}

/// The same at each instruction to the last, for what goes wrong between two that are late.
pub(crate) fn at_every_step<R>(
    prepare: impl Fn(),
    op: impl Fn() -> R,
    conflict: impl Fn(u32) + Sync,
    check: impl Fn(u64, bool, R),
) {
    at_steps(|steps| steps + 1, prepare, op, conflict, check);
}

fn at_steps<R>(
    next: impl Fn(u64) -> u64,
    prepare: impl Fn(),
    op: impl Fn() -> R,
    conflict: impl Fn(u32) + Sync,
    check: impl Fn(u64, bool, R),
) {
    signal::handle_with_context(libc::SIGTRAP, stepped);
    const OVER: u32 = u32::MAX;
    STOPS.store(0, SeqCst);
    ANSWERED.store(0, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut answered = 0;
            loop {
                match STOPS.load(SeqCst) {
                    OVER => return,
                    stops if stops == answered => futex::wait(&STOPS, stops),
                    stops => {
                        conflict(stops);
                        answered = stops;
                        ANSWERED.store(stops, SeqCst);
                    }
                }
            }
        });
        let _over = Defer(|| {
            STOPS.store(OVER, SeqCst);
            futex::wake(&STOPS);
        });
        let mut steps = 1;
        loop {
            prepare();
            let (result, reached) = stopped_after(steps, &op);
            // The conflict may have had to wait for the operation.
            while CALLS.load(SeqCst) == 0 && ANSWERED.load(SeqCst) != STOPS.load(SeqCst) {
                std::thread::yield_now();
            }
            check(steps, reached, result);
            if !reached {
                break;
            }
            steps = next(steps);
        }
    });
}

/// From now on the handler itself calls `call`, which must be safe to call there, in place of `conflict`.
pub(crate) fn conflict_in_handler(call: fn()) {
    CALLS.store(call as usize, SeqCst);
}

struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
