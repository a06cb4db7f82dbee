//! The kernel's fence.
//!
//! Where it stops working under way (a seccomp filter installed after start), [`cpu_walk`] replaces it. If
//! that cannot be done either, there is no fence: nothing may go on that needs one.

use super::{cpu_walk, errno};

const CMD_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

fn membarrier(command: i32) -> Result<(), i32> {
    // SAFETY: membarrier takes no pointers and changes no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Registers this process for the fence. Repeating it is harmless.
pub(crate) fn register() -> Result<(), i32> {
    membarrier(CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)?;
    membarrier(CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// The bare call: a barrier on each CPU that runs this process, and a fence. Takes no lock.
pub(crate) fn barrier() -> Result<(), i32> {
    membarrier(CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// The kernel's fence; else the error number.
pub(crate) fn fence_alone() -> Result<(), i32> {
    let Err(error) = membarrier(CMD_PRIVATE_EXPEDITED_RSEQ) else { return Ok(()) };
    // A child may have lost the registration; a process that never had one is not here.
    if error == libc::EPERM { register().map_err(|_| error) } else { Err(error) }
}

/// Why there is no fence any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceError {
    /// The error number of membarrier.
    pub(crate) error: i32,
    /// What stands in the way of what would replace it.
    pub(crate) reason: &'static str,
}

/// Fences every section of this process.
pub(crate) fn fence() -> Result<(), FenceError> {
    fence_alone().or_else(|error| {
        cpu_walk::run_on_every_cpu().map_err(|reason| FenceError { error, reason })
    })
}
