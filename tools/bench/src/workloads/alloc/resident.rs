//! `resident-64`: the memory of many threads that have allocated once and then do nothing.

use std::{
    sync::{RwLock, mpsc},
    thread,
};

use anyhow::{Context as _, Result};

use super::touch::alloc_and_touch;
use crate::{
    contenders::allocators::Allocator,
    cpus::{self, Cpus},
    rss,
    slice::STACK_BYTES,
};

pub(super) const THREADS: usize = 64;

/// The sizes of objects: from 16 bytes to 16 KiB, three for each power of two.
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

/// Returns the resident bytes while threads have an object of each of `sizes`, at most 31.
///
/// The threads allocate nothing else. Memory from the C library's allocator, which is a contender,
/// would be counted as the contender's.
pub(super) fn resident_bytes<A: Allocator>(cpus: &Cpus, sizes: &[usize]) -> Result<f64> {
    let allocator = &A::new(16);
    // The channel has room for all threads, so that none allocates to send. One that fails drops
    // its sender without a message, so that the main thread never hangs.
    let (gate, (has_settled, settled)) = (&RwLock::new(()), mpsc::sync_channel(THREADS));
    let live = move |index, has_settled: mpsc::SyncSender<()>| {
        cpus.pin(index)?;
        allocator.enter();
        let mut objects = [std::ptr::null_mut(); SIZES.len()];
        let objects = &mut objects[..sizes.len()];
        for (place, &size) in objects.iter_mut().zip(sizes) {
            *place = alloc_and_touch(allocator, size);
        }
        has_settled.send(())?;
        drop(has_settled);
        drop(gate.read());
        for (&object, &size) in objects.iter().zip(sizes) {
            // SAFETY: `allocator` returned each object above for that size; this thread alone has
            // it.
            unsafe { allocator.free(object, size) };
        }
        Ok(())
    };
    thread::scope(|scope| {
        let closed_gate = gate.write();
        let spawned: Result<Vec<_>> = (0..THREADS)
            .map(|index| {
                let has_settled = has_settled.clone();
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || live(index, has_settled))
                    .with_context(|| format!("cannot start thread {} of {THREADS}", index + 1))
            })
            .collect();
        let threads = spawned?;
        drop(has_settled);
        settled.iter().take(THREADS).for_each(drop);
        let bytes = rss::bytes();
        drop(closed_gate);
        threads.into_iter().try_for_each(cpus::join)?;
        Ok(bytes? as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend() {
        assert_eq!(SIZES[..7], [16, 20, 24, 32, 40, 48, 64]);
        assert_eq!(SIZES[30], 16 << 10);
        assert!(SIZES.is_sorted());
    }
}
