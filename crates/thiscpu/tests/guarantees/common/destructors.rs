//! Destructors of thread-specific data, which run in rounds when a thread exits.
//!
//! A destructor runs again while it sets its key again. The library's own destructor runs among
//! them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The number of rounds that POSIX guarantees.
pub(crate) const ROUNDS: u64 = 4;

/// The key, plus one.
static KEY: AtomicUsize = AtomicUsize::new(0);
static ROUNDS_RUN: AtomicU64 = AtomicU64::new(0);

/// Makes the key of this process, with its destructor.
pub(crate) fn make_key(destructor: extern "C" fn(*mut c_void)) {
    let mut key = 0;
    // SAFETY: `key` is valid for the write, and the destructor accepts any value.
    let result = unsafe { libc::pthread_key_create(&mut key, Some(destructor)) };
    assert_eq!(result, 0);
    KEY.store(key as usize + 1, SeqCst);
}

/// Makes the destructor run when the calling thread exits, first in the given round (from 1).
pub(crate) fn arm(round: u64) {
    let key = (KEY.load(SeqCst) - 1) as libc::pthread_key_t;
    let value = std::ptr::without_provenance(round as usize);
    // SAFETY: the key exists for the life of the process, and the value is only a number.
    let result = unsafe { libc::pthread_setspecific(key, value) };
    assert_eq!(result, 0);
}

/// Ends a round of the destructor: arms the next one, or returns true after the last.
pub(crate) fn end_round(round: *mut c_void) -> bool {
    ROUNDS_RUN.fetch_add(1, SeqCst);
    let round = round.addr() as u64;
    if round < ROUNDS {
        arm(round + 1);
    }
    round == ROUNDS
}

/// Returns how many rounds have run, on all threads.
pub(crate) fn rounds_run() -> u64 {
    ROUNDS_RUN.load(SeqCst)
}
