//! What replaces membarrier: the calling thread runs on every CPU that a thread of this process may
//! be on.
//!
//! To run there it takes the place of whatever ran there, and a thread that is taken off its CPU
//! restarts its section. Why that reaches every section, whatever threads and CPUs do meanwhile:
//!
//! Let F be the moment behind the full barrier that the walk begins with. Whoever loads the gate
//! after F sees what the caller stored before. So the sections to be reached are those of threads
//! that run at F; who is switched in later loads the gate later. Such a thread T runs at F on some
//! CPU. If it leaves that CPU after F, for whatever reason, its section restarts and nothing is left
//! to do. If it stays, then, until the walk is there,
//!
//! - T is listed. A list of threads may lack one when another exits meanwhile, hence [`listed`].
//! - The CPU is among those that T may use. The kernel shows only the active ones of them. A CPU
//!   becomes inactive on its way offline, and from then on no thread runs user code there (since Linux
//!   5.11): what makes it inactive is a kernel thread on that very CPU, for which T has to leave. So if
//!   the CPU was inactive at F, T was not there; if it became so since, T has left it. A CPU that comes
//!   online after F has only threads that were switched in after F. In either case there is nothing to
//!   do, and it does not matter what the list shows.
//! - The walk comes to that CPU, or is refused there. It is refused on a CPU that is inactive, where
//!   there is nothing to do; but also on one that the caller, by its own cpuset, may not use. That is
//!   told by listing anew: only in the second case does the CPU stay in the list.
//!
//! What T did before it left is visible to the caller in the end: T left through the kernel, whose
//! switches are full barriers, and the caller comes to the same CPU, or finds it or T gone, after that.

use core::sync::atomic::{Ordering::SeqCst, fence};

use super::errno;
use super::topology::{self, CpuSet};

/// How often something is tried that can fail by chance only.
const TRIES: usize = 1000;

/// The same of going somewhere. Who is sent on before its turn has come has not been there; where the CPU is another program's, its turn
/// takes some milliseconds to come, and each try some microseconds.
const TRIES_TO_GO: usize = 100_000;

/// What a walk needs; tests have another.
trait Ground {
    /// The CPUs that are active and that some thread of this process may use, `None` if the kernel
    /// does not say; and a number that depends on which threads were seen.
    fn list(&self) -> Option<(CpuSet, u64)>;

    /// Goes to a CPU.
    fn go(&self, cpu: usize) -> Went;
}

/// How an attempt to go to a CPU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    There,
    /// The kernel would have let the caller go there, but it is elsewhere: another thread may have
    /// sent it on before it had run there.
    Elsewhere,
    /// The CPU is not active, or not among those of the caller's cpuset.
    NotUsable,
    Denied,
}

struct Linux;

impl Ground for Linux {
    fn list(&self) -> Option<(CpuSet, u64)> {
        topology::cpus_of_all_threads()
    }

    fn go(&self, cpu: usize) -> Went {
        if !topology::run_on(cpu) {
            return if errno::last() == libc::EINVAL { Went::NotUsable } else { Went::Denied };
        }
        // SAFETY: sched_getcpu has no preconditions.
        match usize::try_from(unsafe { libc::sched_getcpu() }) {
            Ok(here) if here != cpu => Went::Elsewhere,
            // Where nobody says where the caller is, it was sent there at least.
            _ => Went::There,
        }
    }
}

/// Runs the calling thread on each CPU that a thread of this process may be on, then lets it go
/// where it may go otherwise. An error says what stands in the way.
pub(super) fn run_on_every_cpu() -> Result<(), &'static str> {
    let own = topology::own_affinity().ok_or("sched_getaffinity is denied")?;
    // Pairs with the kernel's barrier at each switch: this is F.
    fence(SeqCst);
    let result = walk(&Linux);
    // Linux before 6.2 forgets those of them that are offline now; there is no way to tell it again
    // later. If all of its CPUs have gone offline, the kernel lets a thread run anywhere. So does this: it
    // must not stay where the walk has ended.
    if !topology::set_affinity(&own) {
        topology::set_affinity(&CpuSet::full());
    }
    // Pairs with the kernel's barrier at each switch: what threads did before they left is seen.
    fence(SeqCst);
    result
}

fn walk(ground: &impl Ground) -> Result<(), &'static str> {
    let cpus = listed(ground)?;
    cpus.iter().try_for_each(|cpu| visit(ground, cpu))
}

/// The CPUs of all threads. A thread that exits while the kernel lists can make it leave out another;
/// so the threads are listed until two lists in a row show the same. A thread that was seen in the
/// first and has exited in its course is not in the second; if there is none, none was left out.
fn listed(ground: &impl Ground) -> Result<CpuSet, &'static str> {
    const UNKNOWN: &str = "the threads cannot be listed";
    let mut before = None;
    for _ in 0..TRIES {
        let (cpus, seen) = ground.list().ok_or(UNKNOWN)?;
        if before == Some(seen) {
            return Ok(cpus);
        }
        before = Some(seen);
    }
    Err(UNKNOWN)
}

fn visit(ground: &impl Ground, cpu: usize) -> Result<(), &'static str> {
    let mut refused = 0;
    for _ in 0..TRIES_TO_GO {
        match ground.go(cpu) {
            Went::There => return Ok(()),
            Went::Elsewhere => {}
            Went::NotUsable if !listed(ground)?.contains(cpu) => return Ok(()),
            // It may have come back in between.
            Went::NotUsable if refused < TRIES => refused += 1,
            Went::NotUsable => {
                return Err("a thread may use a CPU that the calling thread may not use");
            }
            Went::Denied => return Err("sched_setaffinity is denied"),
        }
    }
    Err("another thread keeps the calling thread from going to a CPU")
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use super::*;

    /// Attempts to go somewhere end as planned, the rest successfully; each removes a CPU from the
    /// list if planned so.
    #[derive(Default)]
    struct Planned {
        cpus: RefCell<Vec<usize>>,
        attempts: RefCell<Vec<(usize, Went)>>,
        offline: Cell<Option<usize>>,
        visited: RefCell<Vec<usize>>,
        /// What the lists show, in turn; the last one for ever.
        threads: RefCell<Vec<u64>>,
    }

    impl Planned {
        fn new(cpus: impl Into<Vec<usize>>) -> Planned {
            Planned { cpus: RefCell::new(cpus.into()), ..Planned::default() }
        }
    }

    impl Ground for Planned {
        fn list(&self) -> Option<(CpuSet, u64)> {
            let mut set = CpuSet::empty();
            self.cpus.borrow().iter().for_each(|&cpu| set.insert(cpu));
            let mut threads = self.threads.borrow_mut();
            let seen = if threads.len() > 1 { threads.remove(0) } else { 0 };
            Some((set, seen))
        }

        fn go(&self, cpu: usize) -> Went {
            let mut attempts = self.attempts.borrow_mut();
            let went = match attempts.iter().position(|attempt| attempt.0 == cpu) {
                Some(position) => attempts.remove(position).1,
                None if self.cpus.borrow().contains(&cpu) => Went::There,
                None => Went::NotUsable,
            };
            if let Some(offline) = self.offline.take() {
                self.cpus.borrow_mut().retain(|&cpu| cpu != offline);
            }
            if went == Went::There {
                self.visited.borrow_mut().push(cpu);
            }
            went
        }
    }

    #[test]
    fn a_cpu_that_goes_offline_is_left_out() {
        let ground = Planned::new([0, 1, 2]);
        ground.offline.set(Some(2));
        assert_eq!(walk(&ground), Ok(()));
        assert_eq!(*ground.visited.borrow(), [0, 1]);
    }

    #[test]
    fn a_cpu_that_comes_back_is_gone_to() {
        let ground = Planned::new([0, 1, 2]);
        ground.attempts.borrow_mut().push((1, Went::NotUsable));
        assert_eq!(walk(&ground), Ok(()));
        assert_eq!(*ground.visited.borrow(), [0, 1, 2]);
    }

    #[test]
    fn a_caller_who_is_sent_on_goes_again() {
        let ground = Planned::new([0, 1]);
        *ground.attempts.borrow_mut() = vec![(1, Went::Elsewhere); 2 * TRIES];
        assert_eq!(walk(&ground), Ok(()));
        assert_eq!(*ground.visited.borrow(), [0, 1]);
    }

    #[test]
    fn a_cpu_of_another_cpuset_is_an_error() {
        let ground = Planned::new([0, 1]);
        *ground.attempts.borrow_mut() = vec![(1, Went::NotUsable); TRIES + 1];
        assert!(walk(&ground).is_err());
        let ground = Planned::new([0, 1]);
        ground.attempts.borrow_mut().push((0, Went::Denied));
        assert_eq!(walk(&ground), Err("sched_setaffinity is denied"));
    }

    #[test]
    fn threads_are_listed_until_none_exits_meanwhile() {
        let ground = Planned::new([0]);
        *ground.threads.borrow_mut() = vec![1, 2, 3, 3, 0];
        assert_eq!(walk(&ground), Ok(()));
        assert_eq!(*ground.threads.borrow(), [0]);
        *ground.threads.borrow_mut() = (0..2 * TRIES as u64).collect();
        assert!(walk(&ground).is_err());
    }

    #[test]
    fn the_caller_may_go_where_it_could_before() {
        let before = topology::own_affinity();
        assert_eq!(run_on_every_cpu(), Ok(()));
        assert_eq!(topology::own_affinity(), before);
    }
}
