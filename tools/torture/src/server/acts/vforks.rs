//! Children of vfork, which allocate in their parent's memory while other threads do.

use fastrand::Rng;
use thiscpu::vfork_scope;
use thiscpu_test_support::{child, cpus};

use super::super::heap::Block;
use super::super::{sizes, stage::Stage};
use super::churn::{self, Exchange, LEFT_MAX};
use crate::violation::{Checked, equal};

const THREADS: usize = 3;
/// The threads that make children; the others only allocate.
const PARENTS: usize = 2;
/// The steps of a parent between two children, and the steps of a child.
const STEPS: usize = 200;
/// The number of blocks that a parent and its children share.
const SHARED: usize = 100;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let exchange = Exchange::new(LEFT_MAX);
    stage.run_threads(THREADS, random, |number, random| match number < PARENTS {
        true => make_children(stage, random, &exchange),
        false => churn::run(stage, random, &exchange, usize::MAX),
    })?;
    exchange.free_all(stage)
}

fn make_children(stage: &Stage<'_>, random: &mut Rng, exchange: &Exchange) -> Checked {
    let (heap, cpus) = (stage.heap(), cpus::allowed());
    let mut blocks = Vec::with_capacity(SHARED);
    while !stage.is_over() {
        let mut result = Ok(());
        let body = || {
            // Of the child alone: it has a thread id of its own.
            cpus::confine(cpus::tid(), [cpus[random.usize(..cpus.len())]]);
            result = replace_some(stage, random, &mut blocks)
                .and_then(|()| churn::run(stage, random, exchange, STEPS));
        };
        stage.count_child();
        let scope = vfork_scope();
        let status = child::on_this_memory(body);
        drop(scope);
        // If the kernel grants no process, there is no child.
        equal("the wait status of a child of vfork", 0, status.unwrap_or(0).into())?;
        result?;
        replace_some(stage, random, &mut blocks)?;
        churn::run(stage, random, exchange, STEPS)?;
    }
    heap.free_all(blocks)
}

/// Frees half of the blocks, of parent and child, and allocates others.
fn replace_some(stage: &Stage<'_>, random: &mut Rng, blocks: &mut Vec<Block>) -> Checked {
    let heap = stage.heap();
    random.shuffle(blocks);
    heap.free_all(blocks.drain(..blocks.len() / 2))?;
    while blocks.len() < SHARED {
        let bytes = sizes::mixed(random);
        blocks.push(heap.alloc(random, bytes)?);
    }
    heap.check(&*blocks)
}
