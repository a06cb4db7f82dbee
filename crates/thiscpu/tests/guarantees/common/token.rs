//! A token that circulates between threads.
//!
//! One thread adds an amount and the next subtracts it. So the true value is always 0 or that
//! amount, even where a naive sum finds something else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use thiscpu::Counter;
use thiscpu_test_support::SetOnDrop;

use super::threads::{to_percpu_mode, together};
use super::{pin, scale};

/// The kind of a thread that passes the token on.
#[derive(Clone, Copy)]
pub(crate) enum Adder {
    /// The thread is pinned to the CPU of that number.
    On(usize),
    /// The thread may run on any CPU.
    Anywhere,
    /// The thread has no lane.
    Laneless,
}

/// Two threads with lanes on different CPUs.
pub(crate) const PINNED: [Adder; 2] = [Adder::On(0), Adder::On(1)];
/// Two threads with lanes, and two without.
pub(crate) const MIXED: [Adder; 4] =
    [Adder::On(0), Adder::Laneless, Adder::Anywhere, Adder::Laneless];

/// The state of the token.
pub(crate) struct Token {
    passes: AtomicU64,
    done: AtomicBool,
}

impl Token {
    /// Returns how often the token was passed on.
    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(SeqCst)
    }

    /// Counts a question, and returns whether to ask it.
    ///
    /// That holds for `asks` questions, and until the token was passed on `passes` times; slow
    /// machines do with fewer. Sometimes yields, because the next thread may need this CPU.
    pub(crate) fn keep_asking(&self, asked: &mut u64, asks: u64, passes: u64) -> bool {
        *asked += 1;
        if asked.is_multiple_of(4) {
            std::thread::yield_now();
        }
        *asked <= scale::rounds(asks) || self.passes() < scale::rounds(passes)
    }
}

/// Passes a token between `adders` while `meanwhile` runs.
///
/// Each pass calls `add` with the thread's number and 1 or -1.
pub(crate) fn pass(
    adders: &[Adder],
    add: impl Fn(usize, i64) + Sync,
    meanwhile: impl FnOnce(&Token) + Send,
) {
    assert!(adders.len().is_multiple_of(2));
    let token = &Token { passes: AtomicU64::new(0), done: AtomicBool::new(false) };
    let add = &add;
    std::thread::scope(|scope| {
        // The adders must stop even if `meanwhile` panics, or its panic would never be reported.
        let _done = SetOnDrop(&token.done);
        for (number, &adder) in adders.iter().enumerate() {
            scope.spawn(move || {
                match adder {
                    Adder::On(cpu) => pin::pin(cpu),
                    Adder::Anywhere => {}
                    Adder::Laneless => thiscpu::__test_support::leave_lanes(),
                }
                let (threads, number) = (adders.len() as u64, number as u64);
                let sign = if number.is_multiple_of(2) { 1 } else { -1 };
                while !token.done.load(SeqCst) {
                    let passes = token.passes();
                    if passes % threads == number {
                        add(number as usize, sign);
                        token.passes.store(passes + 1, SeqCst);
                    } else {
                        wait(token, passes);
                    }
                }
            });
        }
        meanwhile(token);
    });
}

/// Passes a token of `amount` on a counter in per-CPU mode while two threads run `ask`.
///
/// `ask` gets the token and the number of its thread.
pub(crate) fn pass_while_asking(
    counter: &Counter,
    adders: &[Adder],
    amount: i64,
    ask: impl Fn(&Token, usize) + Sync,
) {
    to_percpu_mode(counter);
    let add = |_, sign| counter.add(sign * amount);
    pass(adders, add, |token| {
        together(2, |asker| ask(token, asker));
    });
}

/// Waits a while for the next pass: first in a loop, then by a yield.
fn wait(token: &Token, passes: u64) {
    for _ in 0..30 {
        if token.passes() != passes {
            return;
        }
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}
