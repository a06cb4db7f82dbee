//! Idle times after peaks: most blocks are freed, and a few calls are made while memory decays.

use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use thiscpu_malloc::set;

use super::super::{sizes, stage::Stage};
use crate::violation::Checked;

const THREADS: usize = 3;
/// The number of blocks of a thread at its peak.
const BLOCKS: usize = 10_000;
/// One of this number of blocks stays in use.
const SURVIVORS: usize = 100;
/// The number of calls in an idle time.
const CALLS: usize = 300;
/// The longest pause between two calls, in microseconds.
const PAUSE_MAX_MICROS: u64 = 5_000;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    // If the kernel grants no thread, calls do its work.
    let _ = set("background_thread", if random.bool() { "on" } else { "off" });
    stage.run_threads(THREADS, random, |_, random| {
        while !stage.is_over() {
            peak_and_idle(stage, random)?;
        }
        Ok(())
    })
}

fn peak_and_idle(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let (heap, mut blocks) = (stage.heap(), Vec::with_capacity(BLOCKS));
    for _ in 0..BLOCKS {
        let bytes = sizes::spread(random, 1..=4096);
        blocks.push(heap.alloc(random, bytes)?);
    }
    let mut number = 0;
    let freed = blocks.extract_if(.., |_| {
        number += 1;
        number % SURVIVORS != 0
    });
    heap.free_all(freed)?;
    for _ in 0..CALLS {
        if stage.is_over() {
            break;
        }
        let block = heap.alloc(random, 64)?;
        heap.free(block)?;
        sleep(Duration::from_micros(random.u64(..PAUSE_MAX_MICROS)));
    }
    heap.check(&blocks)?;
    heap.free_all(blocks)
}
