//! Runs steps on a thread that moves between CPUs, during scrapes.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use thiscpu_test_support::SetOnDrop;

/// The minimum number of scrapes, and of steps.
const SCRAPES: u64 = 1_000;
const STEPS: u64 = 10_000;

/// The number of steps before the thread moves to another CPU.
const STEPS_PER_CPU: u64 = 1_000;

/// Calls `step` on a thread with the numbers from 0 on, and `scrape` on this one.
pub(crate) fn during_steps(step: impl Fn(u64) + Sync, scrape: impl Fn()) {
    // Tests that run at the same time would mostly wait for each other's CPUs.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (steps, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Stops the thread if a scrape panics, because the scope joins it first.
        let _stop = SetOnDrop(&is_over);
        scope.spawn(|| {
            for number in 0.. {
                if is_over.load(SeqCst) {
                    break;
                }
                if number % STEPS_PER_CPU == 0 {
                    // Has no effect where the process may not use that CPU.
                    thiscpu::__test_support::run_on((number / STEPS_PER_CPU) as usize % 2);
                }
                step(number);
                steps.store(number, SeqCst);
            }
        });
        let divisor = if thiscpu_test_support::is_quick() { 10 } else { 1 };
        let mut scrapes = 0;
        while scrapes < SCRAPES / divisor || steps.load(SeqCst) < STEPS / divisor {
            scrape();
            scrapes += 1;
        }
    });
}

/// Returns the value of the line that begins with `series`.
pub(crate) fn value(text: &str, series: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value).unwrap_or_else(|| panic!("no {series} in {text}"))
}
