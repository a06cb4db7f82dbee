//! Large blocks: resized up and down, and freed by other threads.

use std::ops::RangeInclusive;

use fastrand::Rng;

use super::super::heap::Block;
use super::super::{sizes, stage::Stage};
use super::churn::Exchange;
use crate::violation::Checked;

const THREADS: usize = 3;
const SIZES: RangeInclusive<usize> = 33 << 10..=64 << 20;
/// The bytes of blocks from which on a thread allocates no further one.
const HELD_BYTES_MAX: usize = 64 << 20;
/// The most blocks that threads leave to others.
const LEFT_MAX: usize = 4;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let exchange = Exchange::new(LEFT_MAX);
    stage.run_threads(THREADS, random, |_, random| {
        let mut held = Vec::new();
        while !stage.is_over() {
            step(stage, random, &exchange, &mut held)?;
        }
        stage.heap().free_all(held)
    })?;
    exchange.free_all(stage)
}

fn step(
    stage: &Stage<'_>,
    random: &mut Rng,
    exchange: &Exchange,
    held: &mut Vec<Block>,
) -> Checked {
    let (heap, size) = (stage.heap(), sizes::spread(random, SIZES));
    let held_bytes: usize = held.iter().map(Block::bytes).sum();
    if held.is_empty() || (held_bytes < HELD_BYTES_MAX && random.bool()) {
        held.push(heap.alloc(random, size)?);
        return Ok(());
    }
    let block = held.swap_remove(random.usize(..held.len()));
    match random.u8(..4) {
        0 => held.push(heap.resize(random, block, size)?),
        // By up to an eighth, as buffers grow.
        1 => {
            let bytes = block.bytes() + random.usize(..block.bytes() / 8);
            held.push(heap.resize(random, block, bytes.min(*SIZES.end()))?);
        }
        2 => held.extend(exchange.swap(random, block)),
        _ => heap.free(block)?,
    }
    Ok(())
}
