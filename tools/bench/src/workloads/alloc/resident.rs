//! `resident-64`: what stays resident when many threads have allocated once, and do nothing any more.

use std::{
    sync::{Condvar, Mutex, PoisonError, RwLock},
    thread,
};

use anyhow::{Context as _, Result, anyhow};

use super::touch::alloc_and_touch;
use crate::{contenders::allocators::Allocator, cpus::Cpus, rss, slice::STACK_BYTES};

/// How many threads there are.
pub(super) const THREADS: usize = 64;

/// From 16 bytes to 16 KiB, with three sizes for each power of two.
pub(super) const SIZES: [usize; 31] = sizes();

const fn sizes() -> [usize; 31] {
    let mut sizes = [16 << 10; 31];
    let mut index = 0;
    while index + 1 < sizes.len() {
        let power = 16 << (index / 3);
        sizes[index] = power + power / 4 * (index % 3);
        index += 1;
    }
    sizes
}

/// How much is resident while threads have an object of each of `sizes`, of which there are at most 31.
///
/// The threads themselves allocate nothing meanwhile: what they would take from the C library's allocator, which
/// is a contender, would be counted with it.
pub(super) fn resident_bytes<A: Allocator>(cpus: &Cpus, sizes: &[usize]) -> Result<u64> {
    let allocator = &A::new(16);
    let (settled, gate) = (&Settled::default(), &RwLock::new(()));
    let live = move |index| {
        let settles = settled.on_drop();
        cpus.pin(index)
            .with_context(|| format!("cannot pin a thread to CPU {}", cpus.id(index)))?;
        allocator.enter();
        let mut objects = [std::ptr::null_mut(); SIZES.len()];
        let objects = &mut objects[..sizes.len()];
        objects
            .iter_mut()
            .zip(sizes)
            .for_each(|(place, &size)| *place = alloc_and_touch(allocator, size));
        drop(settles);
        drop(gate.read());
        for (&object, &size) in objects.iter().zip(sizes) {
            // SAFETY: each was allocated above with that size, and nobody uses it.
            unsafe { allocator.free(object, size) };
        }
        Ok(())
    };
    thread::scope(|scope| {
        let closed_gate = gate.write();
        let spawned: Result<Vec<_>> = (0..THREADS)
            .map(|index| {
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || live(index))
                    .with_context(|| format!("cannot start thread {} of {THREADS}", index + 1))
            })
            .collect();
        let threads = spawned?;
        settled.wait_for(THREADS);
        let bytes = rss::bytes();
        drop(closed_gate);
        for thread in threads {
            let outcome: Result<()> = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
            outcome?;
        }
        bytes
    })
}

/// How many threads have done what they have to do, or will not.
#[derive(Default)]
struct Settled {
    count: Mutex<usize>,
    one_more: Condvar,
}

impl Settled {
    fn on_drop(&self) -> SettlesOnDrop<'_> {
        SettlesOnDrop(self)
    }

    fn wait_for(&self, threads: usize) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = self.one_more.wait_while(count, |count| *count < threads);
        drop(enough.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Counts its thread, also when that fails, so that nobody waits for ever.
struct SettlesOnDrop<'a>(&'a Settled);

impl Drop for SettlesOnDrop<'_> {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.one_more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_up_from_the_first_to_the_last() {
        assert_eq!(SIZES[..7], [16, 20, 24, 32, 40, 48, 64]);
        assert_eq!(SIZES[30], 16 << 10);
        assert!(SIZES.is_sorted());
    }
}
