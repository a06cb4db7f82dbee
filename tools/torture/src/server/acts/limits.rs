//! Children that reach a limit of their memory, and leave it by frees and by a higher limit.
//!
//! Such a child cannot extend the record of all blocks, so it has one of its own.

use std::io;

use fastrand::Rng;
use thiscpu_malloc::{allocate, free, trim};
use thiscpu_test_support::memory;

use super::super::content::{Content, check_disjoint};
use super::super::stage::Stage;
use crate::violation::{Checked, Violation, holds, within};

/// The memory that a limit leaves to a child, beside the memory it has inherited.
const ROOM_BYTES: u64 = 64 << 20;
/// The sizes of blocks that a child allocates, each until it is refused.
///
/// Large ones first: they use up the address space that is mapped already, and few of its pages.
const SIZES: [usize; 5] = [5 << 20, 300_000, 33_000, 1_000, 100];
/// The most blocks of a child. Their records have room before the limit is set.
const BLOCKS_MAX: usize = 1 << 20;
/// The size of a block that there is room for without a limit.
const LARGEST_BYTES: usize = 256 << 20;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    while !stage.is_over() {
        let (limit, used) = match random.bool() {
            true => (libc::RLIMIT_AS, "VmSize"),
            false => (libc::RLIMIT_DATA, "VmData"),
        };
        let mut random = random.fork();
        stage.join(stage.fork(|| {
            let mut blocks = Blocks(Vec::with_capacity(BLOCKS_MAX));
            let used = memory::status_bytes("self", used).map_err(no_limits)?;
            let before = memory::set_limit(limit, used + ROOM_BYTES).map_err(no_limits)?;
            blocks.reach_limit(&mut random)?;
            memory::set_limit(limit, before).map_err(no_limits)?;
            blocks.leave_limit(&mut random)?;
            stage.heap().live.sweep()
        }))?;
    }
    Ok(())
}

/// Returns the violation that stands for a system without limits.
fn no_limits(_why: io::Error) -> Violation {
    Violation { what: "limits of memory", low: 1, high: 1, found: 0 }
}

/// The blocks of a child. Their number never exceeds the capacity, so records need no memory.
struct Blocks(Vec<Content>);

impl Blocks {
    /// Reaches the limit three times: first, after half of the blocks were freed, after all.
    fn reach_limit(&mut self, random: &mut Rng) -> Checked {
        let first = self.fill_up(random)?;
        random.shuffle(&mut self.0);
        let freed = self.free(self.0.len() / 2)?;
        let second = self.fill_up(random)?;
        // Some of the freed memory serves no other size, or has a hole that is too small.
        within("bytes that can be allocated again", (freed / 2, i64::MAX), second)?;
        random.shuffle(&mut self.0);
        self.free(0)?;
        trim(0);
        let third = self.fill_up(random)?;
        within("bytes that can be allocated after all were freed", (first / 2, i64::MAX), third)
    }

    /// Allocates without the limit, and frees all.
    fn leave_limit(&mut self, random: &mut Rng) -> Checked {
        let largest = self.alloc(random, LARGEST_BYTES);
        holds("a block that a lower limit refused", largest)?;
        self.check()?;
        self.free(0).map(drop)
    }

    /// Allocates blocks until each size is refused, checks all, and returns the new bytes.
    fn fill_up(&mut self, random: &mut Rng) -> Checked<i64> {
        let mut bytes = 0;
        for size in SIZES {
            while self.alloc(random, size) {
                bytes += size as i64;
            }
        }
        holds("a limit is reached", self.0.len() < BLOCKS_MAX)?;
        self.check()?;
        Ok(bytes)
    }

    /// Allocates and fills a block; returns whether there was memory for it, and for its record.
    fn alloc(&mut self, random: &mut Rng, bytes: usize) -> bool {
        if self.0.len() == BLOCKS_MAX {
            return false;
        }
        let Some(at) = allocate(bytes) else { return false };
        let content = Content { at, bytes, number: random.u64(..) };
        // SAFETY: the block is allocated, and this is its only owner.
        unsafe { content.fill() };
        self.0.push(content);
        true
    }

    /// Checks that all blocks are unchanged and that none overlaps another one.
    fn check(&mut self) -> Checked {
        // SAFETY: the blocks are in use, and have no other owner.
        self.0.iter().try_for_each(|content| unsafe { content.check() })?;
        check_disjoint(&mut self.0)
    }

    /// Frees the last blocks until `left` are left, and returns their bytes.
    fn free(&mut self, left: usize) -> Checked<i64> {
        let mut bytes = 0;
        for content in self.0.drain(left..) {
            bytes += content.bytes as i64;
            // SAFETY: the block is in use, and its record is gone.
            unsafe {
                content.check()?;
                free(content.at);
            }
        }
        Ok(bytes)
    }
}
