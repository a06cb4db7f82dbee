//! The CPUs on which threads run.

use std::ptr::null_mut;
use std::sync::OnceLock;

use super::{process, scale};
use thiscpu_test_support::cpus;
pub(crate) use thiscpu_test_support::cpus::{allowed, tid};

/// Returns the CPUs that this process was allowed on at the first call.
///
/// Scenarios that run at once begin with different CPUs, because most of them pin a thread to the
/// first one. On emulated machines all begin with the CPU that never goes offline.
pub(crate) fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        let mut cpus = allowed();
        if scale::factor() == 1 {
            let first = process::worker() % cpus.len();
            cpus.rotate_left(first);
        }
        cpus
    })
}

/// Checks that this process may use two CPUs.
pub(crate) fn two_cpus() -> Result<(), String> {
    if cpus().len() < 2 { Err("needs two CPUs".into()) } else { Ok(()) }
}

/// Returns two CPUs of one NUMA node, as numbers for [`pin`].
pub(crate) fn same_node_cpus() -> Option<[usize; 2]> {
    let node_of = |nth| {
        pin(nth);
        let mut node = 0;
        // SAFETY: `getcpu` writes the node to a live local; null pointers are allowed.
        let result =
            unsafe { libc::syscall(libc::SYS_getcpu, null_mut::<u32>(), &raw mut node, 0) };
        assert_eq!(result, 0);
        node
    };
    let nodes: Vec<u32> = (0..cpus().len()).map(node_of).collect();
    let other_of = |one: usize| (one + 1..nodes.len()).find(|&other| nodes[other] == nodes[one]);
    (0..nodes.len()).find_map(|one| Some([one, other_of(one)?]))
}

/// Checks that this process may use two CPUs of one NUMA node.
pub(crate) fn two_same_node_cpus() -> Result<(), String> {
    same_node_cpus().map(drop).ok_or("needs two CPUs of one NUMA node".into())
}

/// Pins the calling thread to CPU number `nth`, modulo the number of CPUs.
///
/// If that CPU has gone offline, the next one that is online takes its place.
pub(crate) fn pin(nth: usize) {
    let cpus = cpus();
    let pinned = (nth..nth + cpus.len()).any(|nth| set_affinity(0, &[cpus[nth % cpus.len()]]));
    assert!(pinned, "none of {cpus:?} is online");
}

/// Restricts thread `tid` to some CPUs; returns false if all of them are offline.
///
/// A `tid` of 0 means the calling thread.
pub(crate) fn set_affinity(tid: i32, to: &[usize]) -> bool {
    let is_done = cpus::confine(tid, to.iter().copied());
    let error = std::io::Error::last_os_error();
    let is_offline = error.raw_os_error() == Some(libc::EINVAL);
    assert!(is_done || is_offline, "cannot restrict thread {tid} to CPUs {to:?}: {error}");
    is_done
}
