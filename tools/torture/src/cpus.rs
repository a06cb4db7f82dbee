//! Where threads run. CPUs may go and come at any time, so nothing here fails: a wish that cannot be
//! granted is none.

/// Words of an affinity mask: enough for the 8,192 CPUs of the largest kernel configuration.
const MASK_WORDS: usize = 128;

/// The CPUs that the calling thread may run on now.
pub(crate) fn allowed() -> Vec<usize> {
    let mut mask = [0_u64; MASK_WORDS];
    // SAFETY: the mask is writable, aligned at least as `cpu_set_t` is, and as long as said.
    unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    (0..MASK_WORDS * 64).filter(|cpu| mask[cpu / 64] & (1 << (cpu % 64)) != 0).collect()
}

/// Confines a thread of this process to some CPUs. Whether that worked: the thread may have ended,
/// or the CPUs be offline.
pub(crate) fn confine(tid: i32, cpus: impl IntoIterator<Item = usize>) -> bool {
    let mut mask = [0_u64; MASK_WORDS];
    for cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask is readable, aligned at least as `cpu_set_t` is, and as long as said.
    unsafe { libc::sched_setaffinity(tid, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

/// The CPU that the calling thread is on right now; a negative number if nobody knows.
pub(crate) fn current() -> i32 {
    // SAFETY: sched_getcpu has no preconditions.
    unsafe { libc::sched_getcpu() }
}

/// The calling thread's number in the kernel.
pub(crate) fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_is_where_it_must_be() {
        for cpu in allowed() {
            if confine(tid(), [cpu]) {
                assert_eq!(allowed(), [cpu]);
                assert_eq!(current(), cpu as i32);
            }
        }
        assert!(!confine(tid(), []), "a thread needs a CPU");
    }
}
