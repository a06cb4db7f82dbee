//! Threads in a ring, each of which passes batches of blocks to the next.

use std::{
    collections::VecDeque,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::contenders::Padded;

/// A block of the contender; dangling where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(pub(super) *mut u8);

// SAFETY: a block is plain memory that is not bound to a thread.
unsafe impl Send for Block {}

/// The batches between one thread and the next.
const BATCHES: usize = 2;

/// A box of batches for each thread.
///
/// A thread takes a batch out of its box to fill or to free it, so that it holds no lock while a
/// contender works.
pub(super) struct Ring(Vec<Padded<Mutex<Inbox>>>);

/// Batches on the way to one thread.
struct Inbox {
    empty: Vec<Vec<Block>>,
    full: VecDeque<Vec<Block>>,
}

impl Ring {
    /// Makes a ring of `threads`, with room for batches of `count` blocks.
    pub(super) fn new(threads: usize, count: usize) -> Self {
        let inbox = |_| {
            let empty = vec![vec![Block(ptr::dangling_mut()); count]; BATCHES];
            Padded::new(Mutex::new(Inbox { empty, full: VecDeque::with_capacity(BATCHES) }))
        };
        Self((0..threads).map(inbox).collect())
    }

    fn inbox(&self, index: usize) -> MutexGuard<'_, Inbox> {
        self.0[index % self.0.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills a batch, passes it to the thread after `index`, and returns whether there was room.
    pub(super) fn pass(&self, index: usize, fill: impl FnOnce(&mut [Block])) -> bool {
        let Some(mut batch) = self.inbox(index + 1).empty.pop() else {
            return false;
        };
        fill(&mut batch);
        self.inbox(index + 1).full.push_back(batch);
        true
    }

    /// Calls `free` with a batch for thread `index`, if there is one, and returns its length.
    pub(super) fn receive(&self, index: usize, free: impl FnOnce(&[Block])) -> u64 {
        let Some(batch) = self.inbox(index).full.pop_front() else {
            return 0;
        };
        free(&batch);
        let count = batch.len() as u64;
        self.inbox(index).empty.push(batch);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_reach_the_next_thread_in_order_while_there_is_room() {
        let ring = Ring::new(3, 2);
        let fill = |number| {
            move |batch: &mut [Block]| batch.fill(Block(ptr::without_provenance_mut(number)))
        };
        assert!(ring.pass(2, fill(1)) && ring.pass(2, fill(2)) && !ring.pass(2, fill(3)));
        let received = |index| {
            let mut numbers = Vec::new();
            ring.receive(index, |batch| numbers.extend(batch.iter().map(|block| block.0.addr())));
            numbers
        };
        assert_eq!((received(2), received(1)), (vec![], vec![]));
        assert_eq!(received(0), [1, 1]);
        assert!(ring.pass(2, fill(3)));
        assert_eq!((received(0), received(0), received(0)), (vec![2, 2], vec![3, 3], vec![]));
    }
}
