//! Stops an operation between two instructions while another thread does something that conflicts.
//!
//! The trap flag counts instructions, so the stop comes to each in turn. The result does not depend
//! on chance or on the scheduler.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::replay::{self, Replay, Way};
use super::scale::{self, Level};
use super::{fork, futex, signal};

/// Checks that this machine can single-step.
pub(crate) fn can_single_step() -> Result<(), String> {
    match cfg!(target_arch = "x86_64") {
        true => Ok(()),
        false => Err("needs x86-64, which single-steps without a debugger".into()),
    }
}

/// The number of steps until the stop.
static STEPS_LEFT: AtomicU64 = AtomicU64::new(0);
/// The number of steps before the current stop.
static STEPS_DONE: AtomicU64 = AtomicU64::new(0);
/// The divisor that sets the distance between stops.
///
/// After `s` steps, the next stop comes `1 + s / DIVISOR` steps later. 0 means that there is only
/// one stop.
static DIVISOR: AtomicU64 = AtomicU64::new(0);
/// The number of stops so far.
static STOPS: AtomicU32 = AtomicU32::new(0);
/// The number of stops for which the other thread has run its conflict.
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// The address of the instruction after the last stop.
static STOPPED_AT: AtomicUsize = AtomicUsize::new(0);
/// A `fn()` that the handler calls instead of waiting for the other thread, or 0.
static HANDLER_CALL: AtomicUsize = AtomicUsize::new(0);

/// The number of yields for which a stop waits.
///
/// It is bounded, because the other thread may itself wait for the stopped one.
const YIELDS_MAX: u32 = 2000;

extern "C" fn stepped(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the handler is installed with SA_SIGINFO, so the kernel passes both.
    if !unsafe { replay::is_step(info, context.cast()) } {
        return;
    }
    if STEPS_LEFT.fetch_sub(1, SeqCst) != 1 {
        return;
    }
    // SAFETY: the handler is installed with SA_SIGINFO, so the kernel passes a valid context.
    STOPPED_AT.store(unsafe { *replay::counter_and_flags(context.cast()).0 } as usize, SeqCst);
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
    match DIVISOR.load(SeqCst) {
        // SAFETY: the handler is installed with SA_SIGINFO, so the kernel passes a valid context.
        0 => unsafe { *replay::counter_and_flags(context.cast()).1 &= !replay::TRAP_FLAG },
        divisor => {
            let gap = 1 + STEPS_DONE.load(SeqCst) / divisor;
            STEPS_DONE.fetch_add(gap, SeqCst);
            STEPS_LEFT.store(gap, SeqCst);
        }
    }
}

/// Runs `op` and stops it after `steps` instructions; returns whether it was that long.
///
/// More stops follow if `DIVISOR` is not 0.
fn stopped_after<R>(steps: u64, op: impl FnOnce() -> R) -> (R, bool) {
    STEPS_DONE.store(steps, SeqCst);
    STEPS_LEFT.store(steps, SeqCst);
    with_trap_flag(replay::TRAP_FLAG, op)
}

/// Runs `op` with this trap flag; returns whether the stop has come.
///
/// It is never inlined, so that walks and replays step through one copy of it.
#[inline(never)]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "there are no steps"))]
fn with_trap_flag<R>(flag: u64, op: impl FnOnce() -> R) -> (R, bool) {
    // SAFETY: the trap flag makes each instruction raise SIGTRAP, which `stepped` handles. The
    // push stays below the red zone, and the stack pointer is restored.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "or qword ptr [rsp], {flag}", "popf",
            "lea rsp, [rsp + 128]", flag = in(reg) flag);
    }
    let result = op();
    // SAFETY: clears the trap flag; the push stays below the red zone, and the stack pointer is
    // restored.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "and qword ptr [rsp], ~{flag}", "popf",
            "lea rsp, [rsp + 128]", flag = const replay::TRAP_FLAG);
    }
    replay::end_run();
    (result, STEPS_LEFT.load(SeqCst) as i64 <= 0)
}

/// The end of a run that is to be stopped after a number of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stopped,
    /// The operation was shorter.
    Short,
    /// The operation took another way than in the run before, and was not stopped.
    Missed,
}

/// Runs `op` along a way, and stops it at the end of the way.
fn on_way<R>(way: &Way, op: impl FnOnce() -> R) -> (R, End) {
    STEPS_LEFT.store(way.steps, SeqCst);
    way.prepare();
    let (result, is_stopped) = with_trap_flag(way.trap_flag(), op);
    let end = match (is_stopped, way.has_led_there()) {
        (true, _) => End::Stopped,
        (false, true) => End::Short,
        (false, false) => End::Missed,
    };
    (result, end)
}

/// Calls `run` for stops after 1 instruction, after `distance` more, and so on.
///
/// Ends when the operation is shorter, and returns the number of stops. After a miss, the next run
/// steps from its beginning.
fn at_stops(distance: impl Fn(u64) -> u64, mut run: impl FnMut(u64, &Way) -> End) -> u64 {
    let (mut steps, mut stops, mut replay) = (1, 0, Replay::new());
    loop {
        match run(steps, &replay.way_to(steps)) {
            End::Stopped => {
                steps += distance(steps);
                stops += 1;
            }
            End::Missed => replay.truncate(0),
            End::Short => return stops,
        }
    }
}

/// Returns how many of the first instructions [`at_sampled_steps`] stops at without a gap.
///
/// After `s` instructions, the next stop comes `1 + s / sampled_divisor()` instructions later.
fn sampled_divisor() -> u64 {
    match scale::level() {
        Level::Quick => 4,
        Level::Usual => 20,
        Level::Full => 40,
    }
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
    with_conflict(conflict, || {
        at_stops(
            |steps| 1 + steps / sampled_divisor(),
            |steps, way| {
                prepare();
                let (result, end) = on_way(way, &op);
                await_conflict();
                check(steps, end == End::Stopped, result);
                end
            },
        );
    });
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
/// A child does not disturb `op`, so one run has many stops. In a full run, `Steps::Sampled` makes
/// several runs with different stops. `prepare` runs before each run, and `check` gets its result.
///
/// # Panics
///
/// If a child fails.
pub(crate) fn fork_at_steps<R>(
    steps: Steps,
    prepare: impl Fn(),
    op: impl Fn() -> R,
    child: impl Fn() + Sync,
    check: impl Fn(R),
) {
    let divisors: &[u64] = match steps {
        Steps::Every => &[u64::MAX],
        Steps::Sampled => match scale::level() {
            Level::Quick => &[4],
            Level::Usual => &[25],
            Level::Full => &[20, 25, 31],
        },
    };
    // A panic on the other thread would leave this one waiting for it, so this thread panics.
    let failed_after = AtomicU64::new(0);
    let conflict = |_| {
        let steps = STEPS_DONE.load(SeqCst);
        if fork::run(&child).is_err() {
            failed_after.store(steps, SeqCst);
        }
    };
    with_conflict(conflict, || {
        for &divisor in divisors {
            prepare();
            DIVISOR.store(divisor, SeqCst);
            let (result, _) = stopped_after(1, &op);
            DIVISOR.store(0, SeqCst);
            await_conflict();
            let failed = failed_after.load(SeqCst);
            assert_eq!(failed, 0, "the child that was forked after {failed} steps failed");
            check(result);
        }
    });
}

/// Runs `op` once, and calls `look` in the signal handler after each of its instructions.
///
/// `look` must be async-signal-safe.
pub(crate) fn step_through<R>(op: impl FnOnce() -> R, look: fn()) -> R {
    signal::handle_with_context(libc::SIGTRAP, stepped);
    conflict_in_handler(look);
    DIVISOR.store(u64::MAX, SeqCst);
    let (result, _) = stopped_after(1, op);
    DIVISOR.store(0, SeqCst);
    result
}

/// Returns the address of the instruction after the last stop; async-signal-safe.
pub(crate) fn stopped_at() -> usize {
    STOPPED_AT.load(SeqCst)
}

/// Runs `op` many times; `call` interrupts it after 1 instruction, after 2, and so on.
///
/// `call` runs in a signal handler and must be async-signal-safe. `check` runs after each run, with
/// the number of steps, whether `op` was that long, and its result. Returns the number of stops.
pub(crate) fn at_each_step<R>(op: impl Fn() -> R, call: fn(), check: impl Fn(u64, bool, R)) -> u64 {
    at_every_nth_step(1, op, call, check)
}

/// Does as [`at_each_step`], but only after 1 instruction, 1 + `distance`, and so on.
pub(crate) fn at_every_nth_step<R>(
    distance: u64,
    op: impl Fn() -> R,
    call: fn(),
    check: impl Fn(u64, bool, R),
) -> u64 {
    signal::handle_with_context(libc::SIGTRAP, stepped);
    conflict_in_handler(call);
    at_stops(
        |_| distance,
        |steps, way| {
            let (result, end) = on_way(way, &op);
            check(steps, end == End::Stopped, result);
            end
        },
    )
}

/// Kills forked children in `op`, after 1 instruction, 1 + `distance`, and so on.
///
/// `check` runs after each child, with the number of steps. Returns the number of deaths.
///
/// # Panics
///
/// If a child fails.
pub(crate) fn at_kills(distance: u64, op: impl Fn(), check: impl Fn(u64)) -> u64 {
    /// The status of a child that was not stopped.
    const MISSED: i32 = 100;
    fn die() {
        // SAFETY: `kill` has no preconditions; it ends this process, which is a child.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    if can_single_step().is_err() {
        let killed = (0..).take_while(|number| {
            let steps = 1 + number * distance;
            let is_killed = fork::kill_before_instruction(steps, &op);
            check(steps);
            is_killed
        });
        return killed.count() as u64;
    }
    signal::handle_with_context(libc::SIGTRAP, stepped);
    at_stops(
        |_| distance,
        |steps, way| {
            let status = fork::status_of(|| {
                conflict_in_handler(die);
                if on_way(way, &op).1 == End::Missed { MISSED } else { 0 }
            });
            let end = match status {
                libc::SIGKILL => End::Stopped,
                _ if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == MISSED => End::Missed,
                _ => {
                    fork::check_status(status).unwrap_or_else(|error| panic!("{steps}: {error}"));
                    End::Short
                }
            };
            check(steps);
            end
        },
    )
}

/// Forks a child that stops after some steps of `op`, as by SIGSTOP, and returns its id.
///
/// The caller lets it go on with SIGCONT, and waits for its end.
///
/// # Panics
///
/// If `op` is shorter.
pub(crate) fn stopped_child(steps: u64, op: impl Fn()) -> i32 {
    fn stop() {
        // SAFETY: `raise` has no preconditions.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
    signal::handle_with_context(libc::SIGTRAP, stepped);
    let child = fork::start(|| {
        // A stopped child would stay if the test is killed.
        // SAFETY: the call has no preconditions.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        conflict_in_handler(stop);
        stopped_after(steps, op);
    });
    let mut status = 0;
    // SAFETY: the status is valid for writes.
    let waited = unsafe { libc::waitpid(child, &raw mut status, libc::WUNTRACED) };
    assert!(waited == child && libc::WIFSTOPPED(status), "it ended within {steps} steps");
    child
}

/// Runs `body` on this thread, and `conflict` on another thread at each stop.
///
/// `conflict` receives the stop's number.
fn with_conflict(conflict: impl Fn(u32) + Sync, body: impl FnOnce()) {
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
        body();
    });
}

/// Waits for the conflict of the last stop, which may have waited for the operation.
fn await_conflict() {
    while HANDLER_CALL.load(SeqCst) == 0 && ANSWERED.load(SeqCst) != STOPS.load(SeqCst) {
        std::thread::yield_now();
    }
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
