//! Blocks that are so far into the space that the short ways do not look for them there. One test, because it is about the whole process.
#![cfg(target_arch = "x86_64")]

#[path = "common/signal.rs"]
mod signal;

use std::collections::HashSet;
use std::ptr::NonNull;

use signal::signal_of;
use thiscpu_malloc::{allocate, define_free};

define_free!(
    /// # Safety
    ///
    /// The block is null, or from `allocate`, and nobody uses it.
    fn free_at_hand(*mut u8), in ".text.free"
);

/// What the short ways look at.
const AT_HAND: usize = 64 << 30;
const COUNT: usize = 10_000;

fn address(block: &NonNull<u8>) -> usize {
    block.as_ptr().expose_provenance()
}

#[test]
fn what_is_far_in_is_used_again_and_what_is_none_is_found_out() {
    let first = allocate(64).unwrap();
    // Where there are tags before anything is, and where there are none yet.
    for far in [AT_HAND / 2, AT_HAND - (1 << 20), 2 * AT_HAND] {
        // SAFETY: it ends the process.
        let signal = signal_of(|| unsafe { free_at_hand(first.as_ptr().wrapping_byte_add(far)) });
        assert_eq!(signal, libc::SIGABRT, "{far} bytes behind a block");
    }
    let Some(large) = allocate(AT_HAND) else {
        return eprintln!("not tested: this machine does not promise 64 GiB");
    };
    let end = address(&large) + AT_HAND;
    let (mut far_in, mut rounds) = (HashSet::new(), 0);
    while rounds < 20 {
        let blocks: Vec<_> = (0..COUNT).map(|_| allocate(512).unwrap()).collect();
        let distinct: HashSet<_> = blocks.iter().map(address).collect();
        assert_eq!(distinct.len(), COUNT, "a block was handed out twice");
        far_in.extend(distinct.into_iter().filter(|&block| block > end));
        for (index, block) in blocks.into_iter().enumerate() {
            // SAFETY: it is nobody's.
            unsafe {
                match index % 2 {
                    0 => free_at_hand(block.as_ptr()),
                    _ => thiscpu_malloc::free(block),
                }
            }
        }
        rounds += 1;
    }
    assert!(far_in.len() > COUNT / 2, "blocks are not behind 64 GiB: {}", far_in.len());
    assert!(far_in.len() < 2 * COUNT, "{} blocks were used for {COUNT}", far_in.len());
    // SAFETY: it is nobody's.
    unsafe { thiscpu_malloc::free(large) };
}
