//! The kernel's fence, and what replaces it.
//!
//! Where membarrier stops working under way (a seccomp filter installed after start), the calling
//! thread instead runs on every CPU that a thread of this process may be on: to run there it takes
//! the place of whatever ran there, and a thread that is taken off its CPU restarts its section. If
//! that cannot be done either, the fence panics: nothing may go on without it.

use super::{errno, topology};

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

/// Fences every section of this process.
///
/// # Panics
///
/// If neither membarrier nor running on every CPU is possible.
pub(crate) fn fence() {
    let Err(error) = membarrier(CMD_PRIVATE_EXPEDITED_RSEQ) else { return };
    // A child may have lost the registration; a process that never had one is not here.
    if error == libc::EPERM && register().is_ok() {
        return;
    }
    if let Err(reason) = run_on_every_cpu() {
        panic!(
            "thiscpu: membarrier has stopped working (error {error}) and {reason}: without a fence \
             no exact answer can be given. A sandbox that is installed after start must allow \
             membarrier or sched_setaffinity; THISCPU_TIER=atomic needs neither"
        );
    }
}

/// Runs the calling thread on each CPU that a thread of this process may be on, then goes back.
fn run_on_every_cpu() -> Result<(), &'static str> {
    let own = topology::affinity(0).ok_or("sched_getaffinity is denied")?;
    let reachable = topology::cpus_of_all_threads().ok_or("the threads cannot be listed")?;
    let mut result = Ok(());
    for cpu in reachable.iter() {
        // A CPU that went offline since has no thread on it: it was taken off, and restarts.
        if !topology::run_on(cpu) && topology::is_online(cpu) {
            result = Err("sched_setaffinity is denied");
            break;
        }
    }
    topology::set_affinity(&own);
    result
}
