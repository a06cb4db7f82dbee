//! A table of values: any thread sets, appends to, cuts and deletes any of them.

use std::sync::{Mutex, PoisonError};

use fastrand::Rng;

use super::super::heap::Block;
use super::super::{sizes, stage::Stage};
use crate::violation::Checked;

const THREADS: usize = 4;
const KEYS: usize = 4096;
/// The size from which on a value does not grow.
const VALUE_BYTES_MAX: usize = 4 << 20;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let values: Vec<_> = (0..KEYS).map(|_| Mutex::new(None)).collect();
    stage.run_threads(THREADS, random, |_, random| {
        while !stage.is_over() {
            let value = &values[random.usize(..KEYS)];
            let mut value = value.lock().unwrap_or_else(PoisonError::into_inner);
            *value = step(stage, random, value.take())?;
        }
        Ok(())
    })?;
    let values = values.into_iter().map(|value| value.into_inner());
    stage.heap().free_all(values.filter_map(|value| value.unwrap_or_else(PoisonError::into_inner)))
}

/// Changes a value, and returns the new one.
fn step(stage: &Stage<'_>, random: &mut Rng, value: Option<Block>) -> Checked<Option<Block>> {
    let (heap, more) = (stage.heap(), sizes::mixed(random));
    let Some(value) = value else { return heap.alloc(random, more).map(Some) };
    let bytes = value.bytes();
    match random.u8(..4) {
        0 => heap.free(value).map(|()| None),
        // The new value exists before the old one is freed.
        1 => {
            let new = heap.alloc(random, more)?;
            heap.free(value).map(|()| Some(new))
        }
        2 if bytes + more < VALUE_BYTES_MAX => {
            heap.resize(random, value, (bytes + more).max(1)).map(Some)
        }
        _ => {
            let left = random.usize(..=bytes).max(1);
            heap.resize(random, value, left).map(Some)
        }
    }
}
