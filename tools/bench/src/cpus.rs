//! The CPUs of a run, and how threads are pinned to them.

use std::{io, ops::Range, thread};

use anyhow::{Context as _, Result, anyhow};
use thiscpu_test_support::cpus;

/// One more than the largest CPU number that any kernel has.
const CPU_IDS_MAX: usize = 8192;

/// The CPUs that this process was allowed to run on when it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    ids: Vec<usize>,
}

impl Cpus {
    /// Asks the kernel which CPUs the calling thread may run on.
    pub(crate) fn allowed() -> Result<Self> {
        match cpus::allowed() {
            ids if ids.is_empty() => {
                Err(io::Error::last_os_error()).context("cannot learn which CPUs are allowed")
            }
            ids => Ok(Self { ids }),
        }
    }

    /// Returns how many there are: at least one, since the caller runs on it.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the CPU of thread `index`; threads get CPUs round robin.
    pub(crate) fn id(&self, index: usize) -> usize {
        self.ids[index % self.ids.len()]
    }

    /// Pins the calling thread to the CPU of thread `index`.
    pub(crate) fn pin(&self, index: usize) -> Result<()> {
        confine(&[self.id(index)])
    }

    pub(crate) fn unpin(&self) -> Result<()> {
        confine(&self.ids)
    }

    /// Runs `work` confined to the CPUs of threads `indexes`, then unpins the thread.
    pub(crate) fn confined<T>(
        &self,
        indexes: Range<usize>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        confine(&indexes.map(|index| self.id(index)).collect::<Vec<_>>())?;
        let outcome = work();
        self.unpin()?;
        outcome
    }

    /// Runs `work` with the index of each of `threads` pinned threads.
    pub(crate) fn on_each(&self, threads: usize, work: impl Fn(usize) + Sync) -> Result<()> {
        let work = |index| self.pin(index).map(|()| work(index));
        thread::scope(|scope| {
            let spawn = |index| {
                scope.spawn({
                    let work = &work;
                    move || work(index)
                })
            };
            let threads: Vec<_> = (0..threads).map(spawn).collect();
            threads.into_iter().try_for_each(join)
        })
    }
}

/// Waits for a thread and returns its outcome.
pub(crate) fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
}

fn confine(ids: &[usize]) -> Result<()> {
    match cpus::confine(0, ids.iter().copied()) {
        true => Ok(()),
        false => Err(io::Error::last_os_error())
            .with_context(|| format!("cannot confine a thread to the CPUs {ids:?}")),
    }
}

/// Returns one more than the largest CPU number that this machine can ever have.
///
/// Without /sys it is the most that any kernel has. Lanes are zero on demand, so unused ones cost
/// only address space and a longer sum.
pub(crate) fn possible() -> usize {
    std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .ok()
        .and_then(|list| largest_of(&list))
        .map_or(CPU_IDS_MAX, |id| id + 1)
}

/// Returns the largest number in a list such as `0-3,8-11`.
fn largest_of(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Returns how many CPUs are online: the kernel sizes its counters' batches by that.
pub(crate) fn online() -> usize {
    // SAFETY: sysconf takes any name and has no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_number_of_a_list_is_its_last() {
        assert_eq!(largest_of("0\n"), Some(0));
        assert_eq!(largest_of("0-1\n"), Some(1));
        assert_eq!(largest_of("0-3,8-11\n"), Some(11));
        assert_eq!(largest_of(""), None);
    }

    #[test]
    fn confinement_ends_with_the_work() {
        let cpus = Cpus::allowed().unwrap();
        let inside = cpus.confined(0..1, || Ok(Cpus::allowed()?.ids));
        assert_eq!(inside.unwrap(), vec![cpus.id(0)]);
        assert_eq!(Cpus::allowed().unwrap().ids, cpus.ids);
    }
}
