//! Where threads run.

use std::ptr::null_mut;
use std::sync::OnceLock;

/// The CPUs that this process could run on when it was first asked.
pub(crate) fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(allowed)
}

/// The CPUs that the calling thread may run on.
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: a zeroed set is a valid, empty one, and is valid for writes of its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        set
    };
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number is below the set's size.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// For scenarios that mean nothing on one CPU.
pub(crate) fn two_cpus() -> Result<(), String> {
    if cpus().len() < 2 { Err("needs two CPUs".into()) } else { Ok(()) }
}

/// Two CPUs of one NUMA node, as numbers for [`pin`].
pub(crate) fn same_node_cpus() -> Option<[usize; 2]> {
    let node_of = |nth| {
        pin(nth);
        let mut node = 0;
        // SAFETY: it writes one number.
        let result =
            unsafe { libc::syscall(libc::SYS_getcpu, null_mut::<u32>(), &raw mut node, 0) };
        assert_eq!(result, 0);
        node
    };
    let nodes: Vec<u32> = (0..cpus().len()).map(node_of).collect();
    let other_of = |one: usize| (one + 1..nodes.len()).find(|&other| nodes[other] == nodes[one]);
    (0..nodes.len()).find_map(|one| Some([one, other_of(one)?]))
}

/// For scenarios about two CPUs that have more in common than others.
pub(crate) fn two_same_node_cpus() -> Result<(), String> {
    same_node_cpus().map(drop).ok_or("needs two CPUs of one NUMA node".into())
}

/// Pins the calling thread to the CPU number `nth`, modulo their number; to one behind it if that has
/// gone offline.
pub(crate) fn pin(nth: usize) {
    let cpus = cpus();
    let there = (nth..nth + cpus.len()).any(|nth| set_affinity(0, &[cpus[nth % cpus.len()]]));
    assert!(there, "none of {cpus:?} is there");
}

/// Confines thread `tid` (0: the calling one) to some CPUs; not if all of them are offline.
pub(crate) fn set_affinity(tid: i32, to: &[usize]) -> bool {
    // SAFETY: as in `cpus`; the numbers are below the set's size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        to.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(tid, size_of_val(&set), &set)
    };
    let error = std::io::Error::last_os_error();
    let offline = result != 0 && error.raw_os_error() == Some(libc::EINVAL);
    assert!(result == 0 || offline, "confining {tid} to {to:?}: {error}");
    !offline
}

/// The calling thread's number in the kernel.
pub(crate) fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}
