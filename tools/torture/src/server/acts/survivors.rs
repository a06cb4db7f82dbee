//! Survivors: one block in a hundred stays in use, in almost every slab.

use fastrand::Rng;

use super::super::{sizes, stage::Stage};
use crate::violation::Checked;

/// The number of blocks in a generation.
const BLOCKS: usize = 20_000;
/// One of this number of blocks survives its generation.
const ONE_IN: usize = 100;
/// The number of generations whose survivors are in use.
const GENERATIONS: usize = 20;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let heap = stage.heap();
    let mut survivors = Vec::new();
    while !stage.is_over() {
        let size = sizes::spread(random, 16..=2_000);
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            if stage.is_over() {
                break;
            }
            blocks.push(heap.alloc(random, size)?);
        }
        for (number, block) in blocks.into_iter().enumerate() {
            match number % ONE_IN {
                0 => survivors.push(block),
                _ => heap.free(block)?,
            }
        }
        thiscpu_malloc::trim(0);
        heap.check(&survivors)?;
        if survivors.len() > GENERATIONS * BLOCKS / ONE_IN {
            heap.free_all(survivors.drain(..BLOCKS / ONE_IN))?;
        }
    }
    heap.free_all(survivors)
}
