//! Peaks: many blocks at once, freed in a random order by other threads too.

use std::sync::Mutex;

use fastrand::Rng;

use super::super::heap::Block;
use super::super::{sizes, stage::Stage};
use crate::violation::Checked;

const THREADS: usize = 4;
/// The bytes of blocks that each thread allocates.
const PEAK_BYTES_PER_THREAD: usize = 96 << 20;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    while !stage.is_over() {
        let parts = Mutex::new(Vec::new());
        stage.run_threads(THREADS, random, |_, random| {
            let part = climb(stage, random)?;
            parts.lock().expect("no thread panics with it").extend(part);
            Ok(())
        })?;
        let mut blocks = parts.into_inner().expect("no thread panicked with it");
        random.shuffle(&mut blocks);
        let blocks = Mutex::new(blocks);
        let take = || blocks.lock().expect("no thread panics with it").pop();
        stage
            .run_threads(THREADS, random, |_, _| stage.heap().free_all(std::iter::from_fn(take)))?;
        // If the kernel granted no thread.
        stage.heap().free_all(std::iter::from_fn(take))?;
        if random.bool() {
            thiscpu_malloc::trim(0);
        }
    }
    Ok(())
}

/// Allocates blocks up to a thread's part of the peak, or until the act is over.
fn climb(stage: &Stage<'_>, random: &mut Rng) -> Checked<Vec<Block>> {
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    while bytes < PEAK_BYTES_PER_THREAD && !stage.is_over() {
        let size = sizes::mixed(random);
        blocks.push(stage.heap().alloc(random, size)?);
        bytes += size;
    }
    Ok(blocks)
}
