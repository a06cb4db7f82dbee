//! A thread that does one thing after the other, now on one CPU and then on another, while somebody scrapes.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

/// How often to scrape at least, and how many steps are to be taken meanwhile.
const SCRAPES: u64 = 1_000;
const STEPS: u64 = 10_000;

/// After so many steps the thread goes to another CPU.
const STAY: u64 = 1_000;

/// A thread calls `step` with the numbers from 0 on, while `scrape` is called.
pub(crate) fn amid_steps(step: impl Fn(u64) + Sync, scrape: impl Fn()) {
    // Several tests at once would mostly wait for each other's CPUs.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (steps, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Also when a scrape finds something wrong: the thread is joined before the panic is seen.
        let _over = Over(&is_over);
        scope.spawn(|| {
            for number in 0.. {
                if is_over.load(SeqCst) {
                    break;
                }
                if number % STAY == 0 {
                    // Where there is one CPU, or another is not this process's, it stays.
                    thiscpu::__test_support::run_on((number / STAY) as usize % 2);
                }
                step(number);
                steps.store(number, SeqCst);
            }
        });
        let mut scrapes = 0;
        while scrapes < SCRAPES || steps.load(SeqCst) < STEPS {
            scrape();
            scrapes += 1;
        }
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The value of the line that begins with `series`.
pub(crate) fn value(text: &str, series: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value).unwrap_or_else(|| panic!("no {series} in {text}"))
}
