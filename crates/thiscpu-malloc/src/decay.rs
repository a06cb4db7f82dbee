//! The calls that drive decay: those that their lane cannot serve, and ticks.
//!
//! If all calls are served, none of them would return memory that is kept. So each lane counts its
//! allocations down. The call that finds the countdown at its end *ticks*: it runs the
//! [scavenger](crate::scavenge) if that is due, and restarts the countdown. Resizing in place
//! counts, too, as well as allocations by sections that count nothing.
//!
//! While nothing is pending, the countdown is long. Otherwise it is as many calls as take some
//! milliseconds, at the rate of the calls before. If calls then become rare, it may last long. So
//! it has an upper limit. A call that its lane cannot serve ends it, because such calls leave the
//! memory behind. So does a run after a pause, for all lanes.

use thiscpu::__internal::{self, Countdown, save_errno, vfork};

use crate::scavenge::{self, PENDING_CALLS_MAX};
use crate::{background, heap};

/// The calls before a tick while nothing is pending.
const IDLE_CALLS: u32 = 1024;
/// If a countdown took less, the next one is twice as long.
const SHORT_MS: u32 = 4;
/// If a countdown took more, the next one is a single call.
const LONG_MS: u32 = 2 * SHORT_MS;

/// The bits of a countdown's note that hold its length, as a power of two; the time is above.
const LOG_BITS: u32 = 4;

/// Returns unused memory if that is due, in a call that its lane cannot serve.
///
/// Such a call may leave memory behind, so the next allocation of this lane ticks. In a child of
/// fork it may start the background thread, so this is for allocations only: the C library frees
/// memory under a lock that it needs for starting a thread. The caller holds no lock. In a child of
/// vfork this does nothing: the memory is its parent's, and if the child were killed meanwhile, the
/// parent would find locks that nobody releases.
pub(crate) fn slow_alloc() {
    if !vfork::is_child() {
        let now_ns = __internal::coarse_time();
        background::start_if_missing(now_ns);
        drive(now_ns);
    }
}

/// Does what [`slow_alloc`] does, after a block of no class was freed or resized.
pub(crate) fn slow_call() {
    if !vfork::is_child() {
        drive(__internal::coarse_time());
    }
}

/// Does what [`slow_alloc`] does, after the lane of a class had no room for a freed block.
pub(crate) fn slow_free(class: usize) {
    if !vfork::is_child() {
        let now_ns = __internal::coarse_time();
        scavenge::note_freed(class, now_ns);
        drive(now_ns);
    }
}

fn drive(now_ns: u64) {
    background::wake_if_enabled();
    if let Some(countdown) = heap::countdown() {
        countdown.lower(0);
    }
    scavenge::note_pending();
    scavenge::run_if_due(now_ns);
}

/// Enables direct sections for this thread and this CPU, and ticks if the countdown is over.
///
/// A function of its own, because the gate would otherwise keep more registers for it.
#[inline(never)]
pub(crate) extern "C" fn prepare_direct() {
    heap::enable_direct();
    tick_if_due();
}

/// Ticks if the countdown of the calling thread's lane is over; returns whether it did.
///
/// The caller holds no lock. This lane's next section that allocates will not find the end of the
/// countdown then.
#[inline]
pub(crate) fn tick_if_due() -> bool {
    match heap::countdown() {
        Some(countdown) if countdown.left() == 0 => {
            tick(countdown);
            true
        }
        _ => false,
    }
}

/// Counts a call that does not enter a section, and ticks if the countdown is over.
#[inline]
pub(crate) fn count_call() {
    if let Some(countdown) = heap::countdown()
        && countdown.count()
    {
        tick(countdown);
    }
}

#[cold]
#[inline(never)]
fn tick(countdown: &Countdown) {
    if vfork::is_child() {
        return;
    }
    let _errno = save_errno();
    let now_ns = __internal::coarse_time();
    let (calls, note) = next(countdown.note(), now_ns / 1_000_000, scavenge::may_return());
    countdown.restart(calls, note);
    scavenge::run_if_due(now_ns);
}

/// Returns the length of the next countdown and its note, from the note of the one before.
fn next(note: u32, now_ms: u64, is_pending: bool) -> (u32, u32) {
    let before = note & ((1 << LOG_BITS) - 1);
    let now = (now_ms as u32) << LOG_BITS;
    let elapsed_ms = now.wrapping_sub(note - before) >> LOG_BITS;
    let log = if elapsed_ms > LONG_MS {
        0
    } else if elapsed_ms > SHORT_MS {
        before
    } else {
        (before + 1).min(PENDING_CALLS_MAX.ilog2())
    };
    (if is_pending { 1 << log } else { IDLE_CALLS }, now | log)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of countdowns at a rate, in milliseconds per call.
    fn lengths(ms_per_call: f64, is_pending: bool) -> Vec<u32> {
        let (mut now_ms, mut note, mut lengths) = (1e9, 0, Vec::new());
        for _ in 0..20 {
            let calls;
            (calls, note) = next(note, now_ms as u64, is_pending);
            now_ms += f64::from(calls) * ms_per_call;
            lengths.push(calls);
        }
        lengths
    }

    #[test]
    fn countdowns_take_some_milliseconds() {
        assert_eq!(lengths(0.0, true)[..9], [1, 2, 4, 8, 16, 32, 64, 128, 128]);
        assert!(lengths(1.0, true).iter().all(|&calls| calls <= 8));
        assert_eq!(lengths(100.0, true), [1; 20]);
        assert_eq!(lengths(0.0, false), [IDLE_CALLS; 20]);
    }
}
