//! A thread that stays where it is.

/// Keeps this thread on the CPU that it is on: so it has one lane, and what others know of its counts is behind by what one lane may keep.
pub(crate) fn pin_to_current_cpu() {
    // SAFETY: plain numbers; the set is this function's.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0);
    }
}
