//! A token that threads pass round: every other thread adds an amount, the next takes it away, so
//! that the true value is always 0 or that amount, whatever a careless sum makes of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::{pin, scale};

/// A thread that passes the token on.
#[derive(Clone, Copy)]
pub(crate) enum Adder {
    /// Pinned to the CPU of that number.
    On(usize),
    /// Anywhere.
    Anywhere,
    /// Without a lane.
    Laneless,
}

/// Two threads with lanes, on different CPUs.
pub(crate) const PINNED: [Adder; 2] = [Adder::On(0), Adder::On(1)];
/// Some with lanes, some without.
pub(crate) const MIXED: [Adder; 4] =
    [Adder::On(0), Adder::Laneless, Adder::Anywhere, Adder::Laneless];

/// How far the token has come.
pub(crate) struct Token {
    turn: AtomicU64,
    over: AtomicBool,
}

impl Token {
    /// How often the token was passed.
    pub(crate) fn passes(&self) -> u64 {
        self.turn.load(SeqCst)
    }

    /// Whether to ask once more, of `asks` and at least until the token was passed `passes` times;
    /// fewer of both where all is slow.
    /// Lets others run now and then: on few CPUs the next thread may be waiting for this one's.
    pub(crate) fn keep_asking(&self, asked: &mut u64, asks: u64, passes: u64) -> bool {
        *asked += 1;
        if asked.is_multiple_of(4) {
            std::thread::yield_now();
        }
        *asked <= scale::rounds(asks) || self.passes() < scale::rounds(passes)
    }
}

/// Has the token passed round while `meanwhile` runs. Each turn calls `add` with the thread's
/// number and 1 or -1.
pub(crate) fn pass(
    adders: &[Adder],
    add: impl Fn(usize, i64) + Sync,
    meanwhile: impl FnOnce(&Token) + Send,
) {
    assert!(adders.len().is_multiple_of(2));
    let token = &Token { turn: AtomicU64::new(0), over: AtomicBool::new(false) };
    let add = &add;
    std::thread::scope(|scope| {
        // SetOnDrop even if `meanwhile` panics, or its panic would never be seen.
        let _over = SetOnDrop(&token.over);
        for (number, &adder) in adders.iter().enumerate() {
            scope.spawn(move || {
                match adder {
                    Adder::On(cpu) => pin::pin(cpu),
                    Adder::Anywhere => {}
                    Adder::Laneless => thiscpu::__test_support::leave_lanes(),
                }
                let (threads, number) = (adders.len() as u64, number as u64);
                let sign = if number.is_multiple_of(2) { 1 } else { -1 };
                while !token.over.load(SeqCst) {
                    let turn = token.passes();
                    if turn % threads == number {
                        add(number as usize, sign);
                        token.turn.store(turn + 1, SeqCst);
                    } else {
                        wait(token, turn);
                    }
                }
            });
        }
        meanwhile(token);
    });
}

fn wait(token: &Token, turn: u64) {
    for _ in 0..30 {
        if token.passes() != turn {
            return;
        }
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

/// Sets a flag when dropped, by a panic too.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
