//! Notices that a run hangs. Nothing is said about how fast it is: a hang is when nobody gets
//! anywhere at all for a long time, or somebody does not end when all others have.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::world::World;
use crate::wrong::{Finder, Wrong};

/// Longer than a forked child is given.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Watches `world` until `done`; calls `on_hang`, once, if there was no progress for `patience`.
/// Who hung, and in what, is among the failures then.
pub(crate) fn watch(world: &World, done: &AtomicBool, patience: Duration, on_hang: impl FnOnce()) {
    let (mut seen, mut since) = (u64::MAX, Instant::now());
    while !done.load(SeqCst) {
        std::thread::park_timeout(patience / 10);
        let now = world.progress();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() >= patience && !done.load(SeqCst) {
            blame(world);
            return on_hang();
        }
    }
}

/// Calls `on_hang` if it is not `done` within `patience`.
pub(crate) fn wait(done: &AtomicBool, patience: Duration, on_hang: impl FnOnce()) {
    let since = Instant::now();
    while !done.load(SeqCst) {
        std::thread::park_timeout(patience / 10);
        if since.elapsed() >= patience && !done.load(SeqCst) {
            return on_hang();
        }
    }
}

/// What is wrong with a thread that hangs.
pub(crate) const HANGS: Wrong = Wrong { what: "gets no further", low: 0, high: 0, found: 1 };

fn blame(world: &World) {
    for slot in 0..world.slots.len() {
        if let Some(structure) = world.doing(slot) {
            world.fail(structure, Finder::Watchdog(slot), HANGS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disturb::signals::Target;
    use crate::plan::Plan;

    #[test]
    fn a_hang_is_noticed_and_names_who_hangs() {
        let world = World::new(&Plan { duration: Duration::ZERO, threads: 1, seed: 1 });
        let _target = Target::enter(&world, 0);
        let mut hung = false;
        watch(&world, &AtomicBool::new(false), Duration::from_millis(20), || hung = true);
        assert!(hung);
        let failures = world.failures.all();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].finder, Finder::Watchdog(0));
        watch(&world, &AtomicBool::new(true), Duration::ZERO, || panic!("it is done"));
    }
}
