//! The kernel's fence.
//!
//! It can stop working while the process runs, if a seccomp filter is installed late. Then
//! [`cpu_walk`] replaces it. If that is impossible too there is no fence, and callers that need one
//! must give up.

use super::degradation::{self, DegradationKind};
use super::{cpu_walk, errno};

const CMD_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

fn membarrier(command: i32) -> Result<(), i32> {
    // SAFETY: membarrier takes no pointers and changes no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Registers this process for fences and tries one. Repeated calls are harmless.
pub(crate) fn register() -> Result<(), i32> {
    membarrier(CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)?;
    membarrier(CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// Makes each CPU that runs this process pass a full barrier. Takes no lock.
pub(crate) fn barrier() -> Result<(), i32> {
    membarrier(CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// Fences every section by membarrier, or returns its error number.
pub(crate) fn membarrier_fence() -> Result<(), i32> {
    let Err(error) = membarrier(CMD_PRIVATE_EXPEDITED_RSEQ) else { return Ok(()) };
    // A child may have lost the registration. A process that never had one does not come here.
    if error == libc::EPERM { register().map_err(|_| error) } else { Err(error) }
}

/// Why no fence is possible any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceError {
    pub(crate) error: i32,
    /// Why the walk over all CPUs cannot replace it.
    pub(crate) reason: &'static str,
}

/// Fences every section of this process, by membarrier or by a walk over all CPUs.
///
/// A child of `vfork` cannot walk, because it cannot list the threads of its parent.
pub(crate) fn fence(is_vfork_child: bool) -> Result<(), FenceError> {
    membarrier_fence().or_else(|error| {
        degradation::note(DegradationKind::Membarrier, error);
        let walked = match is_vfork_child {
            true => Err("a child of vfork cannot list the threads of its parent"),
            false => cpu_walk::run_on_every_cpu(),
        };
        walked.map_err(|reason| {
            degradation::note(DegradationKind::Fences, error);
            FenceError { error, reason }
        })
    })
}
