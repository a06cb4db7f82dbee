//! The replacement for membarrier: the calling thread runs on every CPU that a thread of this
//! process may be on.
//!
//! To run on a CPU, it displaces the thread that runs there, and a thread that is taken off its CPU
//! restarts its section. This reaches every section, whatever threads and CPUs do meanwhile:
//!
//! Let F be the moment after the full barrier with which the walk begins. A thread that loads the
//! gate after F sees the caller's earlier stores. So the sections to reach are those of threads
//! that run at F; a thread that is switched in later also loads the gate later. Let T be such a
//! thread, on some CPU at F. If T leaves that CPU after F, for whatever reason, its section
//! restarts, and nothing is left to do. If T stays until the walk reaches the CPU, then:
//!
//! - T is listed. A list of threads may lack one if another exits meanwhile; [`stable_list`]
//!   handles that.
//! - The CPU is among those that T may use. The kernel lists only the active ones of them. On its
//!   way offline a CPU becomes inactive, and from then on no thread runs user code there (since
//!   Linux 5.11): a kernel thread on that very CPU makes it inactive, and T has to leave for it. So
//!   if the CPU was inactive at F, T was not there; if it became inactive since, T has left. A CPU
//!   that comes online after F only has threads that were switched in after F. In each of these
//!   cases nothing is to do, and the list may show the CPU or not.
//! - The walk reaches that CPU, or is refused there. It is refused on an inactive CPU, where
//!   nothing is to do, and on a CPU that the caller's own cpuset excludes. Listing again tells the
//!   two apart: only in the second case does the CPU stay in the list.
//!
//! At the end the caller sees what T did before it left. T left through the kernel, whose context
//! switches are full barriers. The caller reached the same CPU, or found it or T gone, after that.

use core::sync::atomic::{Ordering::SeqCst, fence};

use super::cpu_set::CpuSet;
use super::errno;
use super::topology;

/// How often to try what can fail only by chance.
const TRIES: usize = 1000;

/// How often to try to go to a CPU.
///
/// Another thread may send the caller away before it has run there. If the CPU is busy with other
/// programs, the caller's turn comes after some milliseconds; each try takes microseconds.
const TRIES_TO_GO: usize = 100_000;

/// What a walk needs of the system; tests replace it.
trait CpuAccess {
    /// Replaces `cpus` by the active CPUs that some thread of this process may use.
    ///
    /// Returns a number that depends on which threads were seen. `None` if the kernel does not say.
    fn list(&self, cpus: &mut CpuSet) -> Option<u64>;

    fn go(&self, cpu: usize) -> Visit;
}

/// How an attempt to go to a CPU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    Arrived,
    /// The move was accepted, but the caller is elsewhere: another thread may have moved it on.
    Moved,
    /// The CPU is inactive, or the caller's cpuset excludes it.
    Unusable,
    Denied,
}

struct Linux;

impl CpuAccess for Linux {
    fn list(&self, cpus: &mut CpuSet) -> Option<u64> {
        topology::cpus_of_all_threads(cpus)
    }

    fn go(&self, cpu: usize) -> Visit {
        if !topology::run_on(cpu) {
            return if errno::last() == libc::EINVAL { Visit::Unusable } else { Visit::Denied };
        }
        match this_cpu() {
            Some(here) if here != cpu => Visit::Moved,
            // If the system does not say where the caller is, it was at least moved there.
            _ => Visit::Arrived,
        }
    }
}

/// Returns the CPU that the calling thread is on, if the system says so.
///
/// The C library's function would load the rseq area, which is stale in a child of `vfork`.
fn this_cpu() -> Option<usize> {
    let mut cpu = 0_u32;
    let (at, none) = (&raw mut cpu, core::ptr::null_mut::<u32>());
    // SAFETY: the kernel writes one number to `at`, and nothing to null pointers.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, at, none, none) };
    (result == 0).then_some(cpu as usize)
}

/// Runs the calling thread on each CPU that a thread of this process may be on.
///
/// Restores the thread's affinity afterwards. An error says why the walk is impossible.
pub(super) fn run_on_every_cpu() -> Result<(), &'static str> {
    let mut own = CpuSet::empty();
    if !topology::own_affinity(&mut own) {
        return Err("sched_getaffinity is denied");
    }
    // SeqCst: pairs with the kernel's full barrier at each context switch. This is F.
    fence(SeqCst);
    let result = walk(&Linux);
    // Linux before 6.2 drops CPUs from the mask that are offline now, and nothing can be done about
    // that. If all CPUs of a thread have gone offline, the kernel lets it run anywhere; this does
    // the same, because the thread must not stay where the walk has ended.
    if !topology::set_affinity(&own) {
        const EVERY_CPU: &CpuSet = &CpuSet::full();
        topology::set_affinity(EVERY_CPU);
    }
    // SeqCst: pairs with the kernel's full barrier at each context switch, so that this thread sees
    // what others did before they left.
    fence(SeqCst);
    result
}

fn walk(system: &impl CpuAccess) -> Result<(), &'static str> {
    let mut cpus = CpuSet::empty();
    stable_list(system, &mut cpus)?;
    cpus.iter().try_for_each(|cpu| visit(system, cpu))
}

/// Replaces `cpus` by the CPUs of all threads.
///
/// A thread that exits during a listing can make the kernel leave out another one. So this lists
/// the threads until two lists in a row agree. A thread that exited during the first would be
/// missing from the second; if none is, none was left out.
fn stable_list(system: &impl CpuAccess, cpus: &mut CpuSet) -> Result<(), &'static str> {
    const UNKNOWN: &str = "the threads cannot be listed";
    let mut before = None;
    for _ in 0..TRIES {
        let seen = system.list(cpus).ok_or(UNKNOWN)?;
        if before == Some(seen) {
            return Ok(());
        }
        before = Some(seen);
    }
    Err(UNKNOWN)
}

/// Returns whether some thread may use `cpu` now.
///
/// A function of its own, because a set is large, and the caller already has two.
#[inline(never)]
fn is_listed(system: &impl CpuAccess, cpu: usize) -> Result<bool, &'static str> {
    let mut cpus = CpuSet::empty();
    stable_list(system, &mut cpus)?;
    Ok(cpus.contains(cpu))
}

fn visit(system: &impl CpuAccess, cpu: usize) -> Result<(), &'static str> {
    let mut refused = 0;
    for _ in 0..TRIES_TO_GO {
        match system.go(cpu) {
            Visit::Arrived => return Ok(()),
            Visit::Moved => {}
            Visit::Unusable if !is_listed(system, cpu)? => return Ok(()),
            // The CPU may have become active again in between.
            Visit::Unusable if refused < TRIES => refused += 1,
            Visit::Unusable => {
                return Err("a thread may use a CPU that the calling thread may not use");
            }
            Visit::Denied => return Err("sched_setaffinity is denied"),
        }
    }
    Err("another thread keeps the calling thread from going to a CPU")
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use super::*;

    /// A system on which some visits end as planned; the first may take a CPU offline.
    #[derive(Default)]
    struct Planned {
        cpus: RefCell<Vec<usize>>,
        attempts: RefCell<Vec<(usize, Visit)>>,
        offline: Cell<Option<usize>>,
        visited: RefCell<Vec<usize>>,
        /// The threads that each list shows, in turn; the last one from then on.
        threads: RefCell<Vec<u64>>,
    }

    impl Planned {
        fn new(cpus: impl Into<Vec<usize>>) -> Planned {
            Planned { cpus: RefCell::new(cpus.into()), ..Planned::default() }
        }
    }

    impl CpuAccess for Planned {
        fn list(&self, cpus: &mut CpuSet) -> Option<u64> {
            *cpus = CpuSet::empty();
            self.cpus.borrow().iter().for_each(|&cpu| cpus.insert(cpu));
            let mut threads = self.threads.borrow_mut();
            let seen = if threads.len() > 1 { threads.remove(0) } else { 0 };
            Some(seen)
        }

        fn go(&self, cpu: usize) -> Visit {
            let mut attempts = self.attempts.borrow_mut();
            let visit = match attempts.iter().position(|attempt| attempt.0 == cpu) {
                Some(position) => attempts.remove(position).1,
                None if self.cpus.borrow().contains(&cpu) => Visit::Arrived,
                None => Visit::Unusable,
            };
            if let Some(offline) = self.offline.take() {
                self.cpus.borrow_mut().retain(|&cpu| cpu != offline);
            }
            if visit == Visit::Arrived {
                self.visited.borrow_mut().push(cpu);
            }
            visit
        }
    }

    #[test]
    fn walk_skips_a_cpu_that_goes_offline() {
        let system = Planned::new([0, 1, 2]);
        system.offline.set(Some(2));
        assert_eq!(walk(&system), Ok(()));
        assert_eq!(*system.visited.borrow(), [0, 1]);
    }

    #[test]
    fn walk_visits_a_cpu_that_comes_back() {
        let system = Planned::new([0, 1, 2]);
        system.attempts.borrow_mut().push((1, Visit::Unusable));
        assert_eq!(walk(&system), Ok(()));
        assert_eq!(*system.visited.borrow(), [0, 1, 2]);
    }

    #[test]
    fn walk_retries_when_the_caller_is_moved_on() {
        let system = Planned::new([0, 1]);
        *system.attempts.borrow_mut() = vec![(1, Visit::Moved); 2 * TRIES];
        assert_eq!(walk(&system), Ok(()));
        assert_eq!(*system.visited.borrow(), [0, 1]);
    }

    #[test]
    fn walk_fails_when_a_cpu_is_in_another_cpuset() {
        let system = Planned::new([0, 1]);
        *system.attempts.borrow_mut() = vec![(1, Visit::Unusable); TRIES + 1];
        assert!(walk(&system).is_err());
        let system = Planned::new([0, 1]);
        system.attempts.borrow_mut().push((0, Visit::Denied));
        assert_eq!(walk(&system), Err("sched_setaffinity is denied"));
    }

    #[test]
    fn walk_lists_threads_until_none_exits_meanwhile() {
        let system = Planned::new([0]);
        *system.threads.borrow_mut() = vec![1, 2, 3, 3, 0];
        assert_eq!(walk(&system), Ok(()));
        assert_eq!(*system.threads.borrow(), [0]);
        *system.threads.borrow_mut() = (0..2 * TRIES as u64).collect();
        assert!(walk(&system).is_err());
    }

    #[test]
    fn walk_restores_the_callers_affinity() {
        let own_affinity = || {
            let mut own = CpuSet::empty();
            assert!(topology::own_affinity(&mut own));
            own
        };
        let before = own_affinity();
        assert_eq!(run_on_every_cpu(), Ok(()));
        assert_eq!(own_affinity(), before);
    }
}
