//! The CPUs a run may use, how threads are pinned to them, and how many lanes that takes.

use std::io;

/// Words of an affinity mask: enough for the 8,192 CPUs of the largest kernel configuration.
const MASK_WORDS: usize = 128;

/// A CPU number no kernel reaches, for machines that do not say which numbers are possible.
const CPU_IDS_MAX: usize = MASK_WORDS * 64;

/// The CPUs this process was allowed to run on when it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Cpus {
    ids: Vec<usize>,
}

impl Cpus {
    /// Asks the kernel which CPUs the calling thread may run on.
    pub(crate) fn allowed() -> io::Result<Self> {
        let mut mask = [0_u64; MASK_WORDS];
        // SAFETY: The mask is writable, aligned at least as `cpu_set_t` is, and as long as said.
        let status =
            unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        let is_allowed = |id: &usize| mask[id / 64] & (1 << (id % 64)) != 0;
        Ok(Self { ids: (0..CPU_IDS_MAX).filter(is_allowed).collect() })
    }

    /// How many there are; at least one, since the caller runs on it.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The CPU of thread `index`, dealt out round robin.
    pub(crate) fn id(&self, index: usize) -> usize {
        self.ids[index % self.ids.len()]
    }

    /// Pins the calling thread to the CPU of thread `index`.
    pub(crate) fn pin(&self, index: usize) -> io::Result<()> {
        set_affinity(&[self.id(index)])
    }

    /// Lets the calling thread run on all of them.
    pub(crate) fn roam(&self) -> io::Result<()> {
        set_affinity(&self.ids)
    }

    /// Runs `work` confined to the CPUs of threads `indexes`, then lets the thread roam again.
    pub(crate) fn confined<T>(
        &self,
        indexes: std::ops::Range<usize>,
        work: impl FnOnce() -> T,
    ) -> io::Result<T> {
        let ids: Vec<usize> = indexes.map(|index| self.id(index)).collect();
        set_affinity(&ids)?;
        let outcome = work();
        self.roam()?;
        Ok(outcome)
    }
}

fn set_affinity(ids: &[usize]) -> io::Result<()> {
    let mut mask = [0_u64; MASK_WORDS];
    for id in ids {
        mask[id / 64] |= 1 << (id % 64);
    }
    // SAFETY: The mask is readable, aligned at least as `cpu_set_t` is, and as long as said.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// One more than the largest CPU number this machine can ever have.
///
/// Where /sys is not mounted this is the most any kernel has: lanes are zero on demand, so the
/// unused ones cost address space and a longer sum.
pub(crate) fn possible() -> usize {
    std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .ok()
        .and_then(|list| largest_of(&list))
        .map_or(CPU_IDS_MAX, |id| id + 1)
}

/// The largest number in a list such as `0-3,8-11`.
fn largest_of(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// How many CPUs are online, which is what the kernel sizes its counters' batches by.
pub(crate) fn online() -> usize {
    // SAFETY: sysconf takes any name and has no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_a_list_is_its_last_number() {
        assert_eq!(largest_of("0\n"), Some(0));
        assert_eq!(largest_of("0-1\n"), Some(1));
        assert_eq!(largest_of("0-3,8-11\n"), Some(11));
        assert_eq!(largest_of(""), None);
    }

    #[test]
    fn confinement_ends_with_the_work() {
        let cpus = Cpus::allowed().unwrap();
        let inside = cpus.confined(0..1, || Cpus::allowed().unwrap().ids);
        assert_eq!(inside.unwrap(), vec![cpus.id(0)]);
        assert_eq!(Cpus::allowed().unwrap().ids, cpus.ids);
    }
}
