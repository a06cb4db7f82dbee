//! Children that are forked while other threads allocate. They check and free inherited blocks.

use fastrand::Rng;

use super::super::heap::Block;
use super::super::live::SHARDS;
use super::super::{sizes, stage::Stage};
use super::churn::{self, Exchange, LEFT_MAX};
use crate::violation::Checked;

/// The number of threads that allocate meanwhile.
const OTHERS: usize = 2;
/// The number of children at a time.
const CHILDREN: usize = 16;
/// The number of blocks that the forking thread has.
const INHERITED: usize = 500;
/// The number of blocks that a child allocates.
const ALLOCATED: usize = 500;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let exchange = Exchange::new(LEFT_MAX);
    stage.run_threads(1 + OTHERS, random, |number, random| match number {
        0 => fork_children(stage, random),
        _ => churn::run(stage, random, &exchange, usize::MAX),
    })?;
    exchange.free_all(stage)
}

/// Forks generations of children that inherit other blocks each.
fn fork_children(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let heap = stage.heap();
    let mut blocks: Vec<Block> = Vec::new();
    while !stage.is_over() {
        let mut children = Vec::new();
        for _ in 0..CHILDREN {
            heap.free_all(blocks.drain(..blocks.len() / 2))?;
            while blocks.len() < INHERITED {
                let bytes = sizes::mixed(random);
                blocks.push(heap.alloc(random, bytes)?);
            }
            let mut random = random.fork();
            children.extend(stage.fork(|| in_child(stage, &mut random, &mut blocks)));
        }
        stage.join(children)?;
        heap.check(&blocks)?;
    }
    heap.free_all(blocks)
}

/// Checks inherited blocks, replaces half of them by new ones, and frees all.
fn in_child(stage: &Stage<'_>, random: &mut Rng, blocks: &mut Vec<Block>) -> Checked {
    let heap = stage.heap();
    heap.live.sweep_shard(random.usize(..SHARDS))?;
    random.shuffle(blocks);
    heap.free_all(blocks.drain(..INHERITED / 2))?;
    for _ in 0..ALLOCATED {
        let bytes = sizes::mixed(random);
        blocks.push(heap.alloc(random, bytes)?);
    }
    heap.check(&*blocks)?;
    heap.free_all(blocks.drain(..))
}
