//! Notices a run that hangs.
//!
//! A run hangs if no thread makes progress for a long time, or if a thread does not end after all
//! others have. Slow progress is none of the watchdog's concern.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::shared::Shared;
use crate::violation::{Finder, Violation};

/// The time without progress after which a run hangs.
///
/// Longer than the alarm of a forked child.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Calls `on_hang` once if `progress` stays the same for `patience` before `done`.
pub(crate) fn watch(
    progress: impl Fn() -> u64,
    done: &AtomicBool,
    patience: Duration,
    on_hang: impl FnOnce(),
) {
    let (mut seen, mut since) = (progress(), Instant::now());
    while !done.load(SeqCst) {
        std::thread::park_timeout(patience / 10);
        let now = progress();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= patience && !done.load(SeqCst) {
            return on_hang();
        }
    }
}

/// Records which threads hang in which structures.
pub(crate) fn record_hang(shared: &Shared) {
    for slot in 0..shared.slots.len() {
        if let Some(structure) = shared.doing(slot) {
            shared.fail(structure, Finder::Watchdog(slot), Violation::HANG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::Target;
    use crate::plan::Plan;

    #[test]
    fn hang_is_noticed_and_names_its_thread() {
        let shared = Shared::new(&Plan { duration: Duration::ZERO, threads: 1, seed: 1 });
        let _target = Target::enter(&shared, 0);
        let (progress, patience) = (|| shared.progress(), Duration::from_millis(20));
        watch(progress, &AtomicBool::new(false), patience, || record_hang(&shared));
        let failures = shared.failures.all();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].finder, Finder::Watchdog(0));
        watch(progress, &AtomicBool::new(true), Duration::ZERO, || panic!("it is done"));
    }
}
