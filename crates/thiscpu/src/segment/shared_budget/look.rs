//! Whether a release looks at its pair before it adds to it.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether releases by a handle look first whether their pair is closed.
///
/// Any value is right. An addition to a closed pair costs a pull, and a look costs a wait for the
/// last locked instruction. So a release looks if the handle has last met a closed pair.
#[derive(Debug)]
pub(super) struct LookFirst(AtomicBool);

impl LookFirst {
    pub(super) fn new() -> LookFirst {
        LookFirst(AtomicBool::new(true))
    }

    #[inline(always)]
    pub(super) fn get(&self) -> bool {
        // Relaxed: any value is right, here and below.
        self.0.load(Relaxed)
    }

    /// Stores only a change, because threads on all CPUs load the handle.
    pub(super) fn set(&self, looks: bool) {
        if self.get() != looks {
            self.0.store(looks, Relaxed);
        }
    }
}

impl Clone for LookFirst {
    fn clone(&self) -> LookFirst {
        LookFirst(AtomicBool::new(self.get()))
    }
}
