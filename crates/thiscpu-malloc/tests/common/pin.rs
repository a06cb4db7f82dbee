//! Pins a thread to its current CPU.

/// Pins this thread to the CPU that it is on.
///
/// So it uses one lane, and its counts are behind by what one lane may hold back.
pub(crate) fn pin_to_current_cpu() {
    // SAFETY: zeros are an empty set, and the set is valid for the calls.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus), 0);
    }
}
