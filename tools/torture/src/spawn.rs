//! How threads of a run are started.

use std::io;
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// The stack that a worker needs, with signal handlers on top of each other.
const STACK_BYTES: usize = 512 << 10;

/// Starts a thread.
///
/// # Errors
///
/// If the kernel grants no further thread.
pub(crate) fn spawn<'scope>(
    threads: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, work)
}
