//! Steps of a thread that allocates, frees, resizes, and exchanges blocks with other threads.

use std::sync::{Mutex, PoisonError};

use fastrand::Rng;

use super::super::heap::Block;
use super::super::{sizes, stage::Stage};
use crate::violation::Checked;

/// The most blocks that a thread holds.
const HELD_MAX: usize = 256;
/// The usual number of blocks that threads leave to others.
pub(super) const LEFT_MAX: usize = 4096;

/// Blocks that threads leave to others.
pub(super) struct Exchange {
    left: Mutex<Vec<Block>>,
    /// The most blocks that are left.
    left_max: usize,
}

impl Exchange {
    pub(super) fn new(left_max: usize) -> Exchange {
        Exchange { left: Mutex::default(), left_max }
    }

    /// Leaves a block, and takes a random one in half of the cases, or if there are too many.
    pub(super) fn swap(&self, random: &mut Rng, block: Block) -> Option<Block> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(block);
        let is_full = left.len() > self.left_max;
        (is_full || random.bool()).then(|| {
            let place = random.usize(..left.len());
            left.swap_remove(place)
        })
    }

    /// Frees all blocks that are left.
    pub(super) fn free_all(self, stage: &Stage<'_>) -> Checked {
        stage.heap().free_all(self.left.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes up to `steps` steps until the act is over; then leaves or frees the blocks.
pub(super) fn run(
    stage: &Stage<'_>,
    random: &mut Rng,
    exchange: &Exchange,
    steps: usize,
) -> Checked {
    let heap = stage.heap();
    let mut held = Vec::new();
    for _ in 0..steps {
        if stage.is_over() {
            break;
        }
        if held.is_empty() || (held.len() < HELD_MAX && random.u8(..8) < 5) {
            let bytes = sizes::mixed(random);
            held.push(heap.alloc(random, bytes)?);
            continue;
        }
        let block = held.swap_remove(random.usize(..held.len()));
        match random.u8(..8) {
            0 => {
                let bytes = sizes::mixed(random).max(1);
                held.push(heap.resize(random, block, bytes)?);
            }
            1..4 => held.extend(exchange.swap(random, block)),
            _ => heap.free(block)?,
        }
    }
    for block in held {
        if let Some(block) = exchange.swap(random, block) {
            heap.free(block)?;
        }
    }
    Ok(())
}
