//! Blocks of malloc under a heap profile that samples all of them, so that its sums are exact.
//!
//! Handlers write profiles, each of which may interrupt a sample or another profile. They use no
//! block: an allocation may wait for a lock that the interrupted thread holds.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiscpu_malloc::{allocate, allocate_aligned, free, profile, trim};

use super::{Actor, Structure};
use crate::violation::{Checked, Violation, equal, holds, within};

/// Sizes of blocks: with an interval of 1, each of these is sampled with a weight of 1.
const SIZES: std::ops::Range<usize> = 64..2_000;
/// The sizes of larger blocks, of which there are fewer.
const LARGE_SIZES: std::ops::Range<usize> = 2_000..200_000;
const LARGE_ONE_IN: u32 = 32;
const SHARED_PER_SLOT: usize = 16;
const HELD_MAX: usize = 32;
/// Writing a profile takes a millisecond, and a signal may come every 25 microseconds.
const HANDLERS_PER_PROFILE: u32 = 256;

const NO_BLOCK: Violation = Violation { what: "an allocated block", low: 1, high: 1, found: 0 };
const NO_PROFILE: Violation = Violation { what: "a written profile", low: 1, high: 1, found: 0 };

/// The sums of a profile: live blocks and bytes, and those that were allocated.
type Sums = [i64; 4];

/// A block, whose first word is its size, and whose last bytes repeat that.
struct Block(NonNull<u8>);

pub(super) struct HeapProfile {
    /// SeqCst: the thread that takes a block sees what was written to it.
    shared: Box<[AtomicPtr<u8>]>,
    // Relaxed: read after all workers have ended.
    live: AtomicI64,
    live_bytes: AtomicI64,
    allocated: AtomicI64,
    allocated_bytes: AtomicI64,
    /// The sums before.
    before: Sums,
    /// There is one profile in a process.
    _is_only: MutexGuard<'static, ()>,
}

impl HeapProfile {
    pub(super) fn new(slots: usize) -> Self {
        static ONLY: Mutex<()> = Mutex::new(());
        let is_only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        profile::start(1);
        HeapProfile {
            shared: (0..slots * SHARED_PER_SLOT).map(|_| AtomicPtr::default()).collect(),
            live: AtomicI64::new(0),
            live_bytes: AtomicI64::new(0),
            allocated: AtomicI64::new(0),
            allocated_bytes: AtomicI64::new(0),
            before: sums().expect("a profile can be written"),
            _is_only: is_only,
        }
    }

    fn take(&self, actor: &mut Actor) -> Checked<Block> {
        let is_large = actor.random.u32(..LARGE_ONE_IN) == 0;
        let size = actor.random.usize(if is_large { LARGE_SIZES } else { SIZES });
        actor.ops += 1;
        let block = match actor.random.u8(..8) {
            0 => allocate_aligned(size, 1 << actor.random.u8(4..14)),
            _ => allocate(size),
        };
        let block = block.ok_or(NO_BLOCK)?;
        self.live.fetch_add(1, Relaxed);
        self.live_bytes.fetch_add(size as i64, Relaxed);
        self.allocated.fetch_add(1, Relaxed);
        self.allocated_bytes.fetch_add(size as i64, Relaxed);
        // SAFETY: the block is new and has `size` bytes, at least 64, aligned to 16.
        unsafe {
            block.cast::<usize>().write(size);
            block.add(size - 8).cast::<usize>().write_unaligned(size);
        }
        Ok(Block(block))
    }

    fn give(&self, actor: &mut Actor, Block(block): Block) -> Checked {
        // SAFETY: the caller owns the block, which `take` has filled.
        let size = unsafe { block.cast::<usize>().read() };
        holds("a block has its size", (SIZES.start..LARGE_SIZES.end).contains(&size))?;
        // SAFETY: the block has `size` bytes, as the check of its size has confirmed.
        let last = unsafe { block.add(size - 8).cast::<usize>().read_unaligned() };
        equal("the last word of a block", size as i64, last as i64)?;
        actor.ops += 1;
        // SAFETY: the caller is the only owner of the block.
        unsafe { free(block) };
        self.live.fetch_sub(1, Relaxed);
        self.live_bytes.fetch_sub(size as i64, Relaxed);
        Ok(())
    }

    /// Puts a block in a random shared place, and returns the block that was there.
    fn exchange(&self, actor: &mut Actor, block: Block) -> Option<Block> {
        let place = &self.shared[actor.random.usize(..self.shared.len())];
        NonNull::new(place.swap(block.0.as_ptr(), SeqCst)).map(Block)
    }

    fn use_some(&self, actor: &mut Actor) -> Checked {
        let mut held = [const { None }; HELD_MAX];
        let count = 1 + actor.random.usize(..HELD_MAX);
        for place in &mut held[..count] {
            *place = Some(self.take(actor)?);
        }
        for place in &mut held[..count] {
            if let Some(block) = place.take_if(|_| actor.random.bool()) {
                *place = self.exchange(actor, block);
            }
        }
        held.into_iter().flatten().try_for_each(|block| self.give(actor, block))
    }

    fn give_shared(&self, actor: &mut Actor) -> Checked {
        self.shared.iter().try_for_each(|place| {
            match NonNull::new(place.swap(ptr::null_mut(), SeqCst)) {
                Some(block) => self.give(actor, Block(block)),
                None => Ok(()),
            }
        })
    }
}

/// Writes a profile and returns the sums at its beginning. Allocates nothing.
fn sums() -> Option<Sums> {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"profile".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new, and nothing else closes it.
    let file = (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })?;
    profile::write(&file).ok()?;
    let mut text = [0_u8; 160];
    // SAFETY: the buffer has that many writable bytes.
    let read = unsafe { libc::pread(file.as_raw_fd(), text.as_mut_ptr().cast(), text.len(), 0) };
    let line = text.get(..usize::try_from(read).ok()?)?.split(|&byte| byte == b'@').next()?;
    let mut sums = [0; 4];
    let words = line.split(|byte| !byte.is_ascii_digit()).filter(|word| !word.is_empty());
    let mut count = 0;
    for word in words {
        let digits = std::str::from_utf8(word).ok()?;
        *sums.get_mut(count)? = digits.parse().ok()?;
        count += 1;
    }
    (count == sums.len()).then_some(sums)
}

/// Checks that nothing is live that was not allocated.
fn check_sums(sums: Sums) -> Checked {
    within("live blocks of a heap profile", (0, sums[2]), sums[0])?;
    within("live bytes of a heap profile", (0, sums[3]), sums[1])
}

impl Structure for HeapProfile {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u16(..) {
            0..64 => {
                let checked = sums().ok_or(NO_PROFILE).and_then(check_sums);
                actor.counted(checked)
            }
            64..128 => {
                actor.counted(trim(0));
                Ok(())
            }
            _ => self.use_some(actor),
        }
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        actor.ops += 1;
        match actor.random.u32(..HANDLERS_PER_PROFILE) {
            0 => sums().ok_or(NO_PROFILE).and_then(check_sums),
            _ => Ok(()),
        }
    }

    /// Checks that the sums of a child grow by exactly its own blocks.
    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let before = sums().ok_or(NO_PROFILE)?;
        check_sums(before)?;
        let block = self.take(actor)?;
        let during = sums().ok_or(NO_PROFILE)?;
        equal("blocks that a child has allocated", before[2] + 1, during[2])?;
        equal("live blocks of a child", before[0] + 1, during[0])?;
        self.give(actor, block)?;
        let after = sums().ok_or(NO_PROFILE)?;
        equal("live blocks of a child in the end", before[0], after[0])?;
        equal("live bytes of a child in the end", before[1], after[1])?;
        self.use_some(actor)
    }

    fn verify(&mut self) -> Checked {
        let after = sums().ok_or(NO_PROFILE)?;
        let own = [&self.live, &self.live_bytes, &self.allocated, &self.allocated_bytes];
        let what = [
            "live blocks of the heap profile",
            "live bytes of the heap profile",
            "allocated blocks of the heap profile",
            "allocated bytes of the heap profile",
        ];
        for at in 0..4 {
            equal(what[at], self.before[at] + own[at].load(Relaxed), after[at])?;
        }
        self.give_shared(&mut Actor::new(0, 0))?;
        let after = sums().ok_or(NO_PROFILE)?;
        equal("blocks that are live in the end", self.before[0], after[0])?;
        equal("bytes that are live in the end", self.before[1], after[1])
    }
}
