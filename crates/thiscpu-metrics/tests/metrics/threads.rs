//! Threads that do one thing after the other, each on a CPU of its own, while somebody scrapes.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

/// How often to scrape at least, and how many turns are to be taken meanwhile.
const SCRAPES: u64 = 1_000;
const TURNS: u64 = 1_000;

/// Two threads take turns, of which each calls `step` with the turn's number, while `scrape` is called.
pub(crate) fn alternate(step: impl Fn(u64) + Sync, scrape: impl Fn()) {
    // Several tests at once would mostly wait for each other's CPUs.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (turn, is_over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let step = &step;
    std::thread::scope(|scope| {
        // Also when a scrape finds something wrong: the threads are joined before the panic is seen.
        let _over = Over(is_over);
        for number in 0..2 {
            scope.spawn(move || {
                pin(number as usize);
                while !is_over.load(SeqCst) {
                    let now = turn.load(SeqCst);
                    if now % 2 == number {
                        step(now);
                        turn.store(now + 1, SeqCst);
                    } else {
                        wait(turn, now);
                    }
                }
            });
        }
        let mut scrapes = 0;
        while scrapes < SCRAPES || turn.load(SeqCst) < TURNS {
            scrape();
            scrapes += 1;
            if scrapes % 4 == 0 {
                std::thread::yield_now();
            }
        }
    });
}

/// Spins for a while, then lets others run: on few CPUs it may be the scraping thread that is in the way.
fn wait(turn: &AtomicU64, now: u64) {
    for _ in 0..100 {
        if turn.load(SeqCst) != now {
            return;
        }
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Confines this thread to one CPU, if that is one it may use; else it stays where it is.
pub(crate) fn pin(cpu: usize) {
    thiscpu::probe::run_on(cpu);
}

/// The value of the line that begins with `series`.
pub(crate) fn value(text: &str, series: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(value).unwrap_or_else(|| panic!("no {series} in {text}"))
}
