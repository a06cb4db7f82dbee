//! Shared budgets: tasks when the system makes no thread, and wakers that misbehave.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use thiscpu_test_support::seccomp::install;

use super::budget::poll;
use super::segment_budget_tasks::poll_pending;
use super::segment_participants::{Holder, LIMIT, budget, until};
use crate::common::seccomp::can_filter;
use crate::common::segment::small_segment;
use crate::common::{DEFAULT_ONLY, Scenario, scenario, signal};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_budget_wakers::waker_takes_signals_of_sandboxes, DEFAULT_ONLY)
        .needs(can_filter),
    scenario!(segment_budget_wakers::tasks_get_units_without_a_thread, DEFAULT_ONLY)
        .needs(can_filter),
    scenario!(
        segment_budget_wakers::tasks_get_units_of_killed_holder_without_a_thread,
        DEFAULT_ONLY
    )
    .needs(can_filter),
    scenario!(segment_budget_wakers::all_tasks_are_woken_when_no_thread_starts, DEFAULT_ONLY)
        .needs(can_filter),
    scenario!(segment_budget_wakers::wakers_that_panic_in_clone_lose_nothing, DEFAULT_ONLY),
    scenario!(segment_budget_wakers::wakers_that_panic_in_drop_lose_nothing, DEFAULT_ONLY),
];

static TRAPS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_trap(_: i32) {
    TRAPS.fetch_add(1, SeqCst);
}

// If the signal is blocked, the kernel ends the process.
fn waker_takes_signals_of_sandboxes() {
    struct Calls;
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            // SAFETY: the call takes integers.
            unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
        }
    }
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    signal::handle(libc::SIGSYS, count_trap);
    let trap = [(libc::SYS_getpriority, libc::SECCOMP_RET_TRAP)];
    install(trap, libc::SECCOMP_RET_ALLOW).expect("a filter");
    let mut future = pin!(budget.acquire_async(70));
    let waker = Waker::from(Arc::new(Calls));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    budget.release(LIMIT);
    until(|| TRAPS.load(SeqCst) == 1);
    assert!(poll(future).is_ready());
}

/// Makes the system refuse threads, and processes.
fn refuse_threads() {
    let no_threads = [libc::SYS_clone, libc::SYS_clone3]
        .map(|call| (call, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32));
    install(no_threads, libc::SECCOMP_RET_ALLOW).expect("a filter");
}

fn tasks_get_units_without_a_thread() {
    refuse_threads();
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    let mut future = pin!(budget.acquire_async(70));
    let wakes = poll_pending(future.as_mut());
    assert_eq!(wakes.0.load(SeqCst), 1, "the task polls again");
    budget.release(LIMIT);
    assert!(poll(future).is_ready());
}

fn tasks_get_units_of_killed_holder_without_a_thread() {
    let segment = small_segment();
    let budget = budget(&segment);
    let hold = || std::mem::forget(budget.lease(LIMIT).expect("units are available"));
    let holder = Holder::start(hold, || ());
    refuse_threads();
    let mut future = pin!(budget.acquire_async(70));
    let _wakes = poll_pending(future.as_mut());
    holder.kill();
    while poll(future.as_mut()).is_pending() {
        std::thread::yield_now();
    }
}

/// Whether the thread of the second task runs.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Whether the first task asks for a thread.
static STARTS: AtomicBool = AtomicBool::new(false);
/// Whether the second task was polled after that.
static IS_POLLED: AtomicBool = AtomicBool::new(false);

/// Refuses memory, at first only after the second task was polled.
///
/// The first request is for the stack of a new thread.
extern "C" fn refuse_memory(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let is_later = STARTS.swap(true, SeqCst);
    while !is_later && !IS_POLLED.load(SeqCst) {
        std::hint::spin_loop();
    }
    // SAFETY: the kernel has passed the context of the interrupted call, whose result this is.
    unsafe {
        let registers = &raw mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        {
            (*registers).gregs[libc::REG_RAX as usize] = i64::from(-libc::ENOMEM);
        }
        #[cfg(target_arch = "aarch64")]
        {
            (*registers).regs[0] = i64::from(-libc::ENOMEM) as u64;
        }
    }
}

// The second task finds that the first is about to start the thread, which then does not start.
fn all_tasks_are_woken_when_no_thread_starts() {
    let segment = small_segment();
    let budget = &budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    signal::handle_with_context(libc::SIGSYS, refuse_memory);
    let second = || {
        RUNS.store(true, SeqCst);
        until(|| STARTS.load(SeqCst));
        let mut future = pin!(budget.acquire_async(10));
        let wakes = poll_pending(future.as_mut());
        IS_POLLED.store(true, SeqCst);
        until(|| wakes.0.load(SeqCst) > 0);
    };
    std::thread::scope(|threads| {
        threads.spawn(second);
        until(|| RUNS.load(SeqCst));
        // Not `clone`, during which the C library blocks the signal.
        let trap = [(libc::SYS_mmap, libc::SECCOMP_RET_TRAP)];
        install(trap, libc::SECCOMP_RET_ALLOW).expect("a filter");
        let mut future = pin!(budget.acquire_async(10));
        let wakes = poll_pending(future.as_mut());
        assert_eq!(wakes.0.load(SeqCst), 1);
    });
}

/// A waker that may panic when it is cloned or dropped.
#[derive(Default)]
struct Faulty {
    clone: AtomicBool,
    drop: AtomicBool,
    wakes: AtomicUsize,
}

impl Faulty {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(Faulty::clone, Faulty::wake, Faulty::wake, Faulty::drop);

    fn new() -> &'static Faulty {
        Box::leak(Box::default())
    }

    fn of(data: *const ()) -> &'static Faulty {
        // SAFETY: the data is that of `waker`: a value that is never dropped.
        unsafe { &*data.cast() }
    }

    /// Returns a waker that the caller does not drop.
    fn waker(&'static self) -> ManuallyDrop<Waker> {
        let data = std::ptr::from_ref(self).cast();
        // SAFETY: the functions may be called from any thread, and the data is never dropped.
        ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(data, &Faulty::TABLE)) })
    }

    fn poll<F: Future>(&'static self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker()))
    }

    unsafe fn clone(data: *const ()) -> RawWaker {
        assert!(!Faulty::of(data).clone.load(SeqCst), "the clone panics");
        RawWaker::new(data, &Faulty::TABLE)
    }

    unsafe fn wake(data: *const ()) {
        Faulty::of(data).wakes.fetch_add(1, SeqCst);
    }

    unsafe fn drop(data: *const ()) {
        assert!(!Faulty::of(data).drop.load(SeqCst), "the drop panics");
    }
}

// At its first poll, while it waits, and when it was granted.
fn wakers_that_panic_in_clone_lose_nothing() {
    let segment = small_segment();
    let budget = budget(&segment);
    let faulty = Faulty::new();
    for step in 0..6 {
        budget.try_acquire(LIMIT).expect("units are available");
        let mut future = Box::pin(budget.acquire_owned(70));
        if step % 3 > 0 {
            assert!(poll(future.as_mut()).is_pending());
        }
        if step % 3 > 1 {
            budget.release(LIMIT);
        }
        faulty.clone.store(true, SeqCst);
        catch_unwind(AssertUnwindSafe(|| faulty.poll(future.as_mut()).is_ready()))
            .expect_err("a panic of its waker");
        assert_eq!(budget.waiters(), usize::from(step % 3 == 1), "step {step}");
        if step < 3 {
            drop(future);
            if step < 2 {
                budget.release(LIMIT);
            }
        } else {
            faulty.clone.store(false, SeqCst);
            if step < 5 {
                assert!(faulty.poll(future.as_mut()).is_pending());
                budget.release(LIMIT);
            }
            assert!(faulty.poll(future.as_mut()).is_ready());
        }
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0), "step {step}");
    }
}

// When another waker replaces it, when its future is dropped, and when its future resolves.
fn wakers_that_panic_in_drop_lose_nothing() {
    let segment = small_segment();
    let budget = budget(&segment);
    let faulty = Faulty::new();
    faulty.drop.store(true, SeqCst);
    for step in 0..4 {
        budget.try_acquire(LIMIT).expect("units are available");
        let mut future = Box::pin(budget.acquire_owned(70));
        let mut next = Box::pin(budget.acquire_owned(10));
        assert!(faulty.poll(future.as_mut()).is_pending());
        let wakes = poll_pending(next.as_mut());
        match step {
            0 => assert!(poll(future.as_mut()).is_pending()),
            1 => assert!(faulty.poll(future.as_mut()).is_pending()),
            _ => {}
        }
        if step == 2 {
            drop(future);
            budget.release(LIMIT);
        } else {
            budget.release(LIMIT);
            let Poll::Ready(Ok(lease)) = faulty.poll(future.as_mut()) else { panic!("granted") };
            assert_eq!(lease.units(), 70);
        }
        until(|| wakes.0.load(SeqCst) > 0);
        assert!(poll(next.as_mut()).is_ready());
        drop(next);
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0), "step {step}");
    }
}
