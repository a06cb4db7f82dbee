//! The CPUs that threads run on.
//!
//! CPUs may go and come at any time, so a refusal by the kernel is no error.

/// The words of an affinity mask, for the 8,192 CPUs of the largest kernel configuration.
const MASK_WORDS: usize = 128;

/// Returns the CPUs on which the calling thread may run now.
pub fn allowed() -> Vec<usize> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the mask is writable, has the given size, and is aligned as `cpu_set_t` is.
    unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    (0..MASK_WORDS * 64).filter(|cpu| mask[cpu / 64] & (1 << (cpu % 64)) != 0).collect()
}

/// Confines a thread of this process to some CPUs.
///
/// Returns `false` if the thread has ended or the CPUs are offline.
pub fn confine(tid: i32, cpus: impl IntoIterator<Item = usize>) -> bool {
    let mut mask = [0_u64; MASK_WORDS];
    for cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask is readable, has the given size, and is aligned as `cpu_set_t` is.
    unsafe { libc::sched_setaffinity(tid, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

/// Returns the CPU that the calling thread is on, or a negative number on failure.
pub fn current() -> i32 {
    // SAFETY: sched_getcpu has no preconditions.
    unsafe { libc::sched_getcpu() }
}

/// Returns the calling thread's id in the kernel.
pub fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confined_thread_runs_on_its_cpu() {
        for cpu in allowed() {
            if confine(tid(), [cpu]) {
                assert_eq!(allowed(), [cpu]);
                assert_eq!(current(), cpu as i32);
            }
        }
        assert!(!confine(tid(), []), "a thread needs a CPU");
    }
}
