//! CPUs and NUMA nodes: possible, online, allowed; with or without `/sys`.
//!
//! Nothing here allocates or takes a lock.

use core::ffi::CStr;
use core::sync::atomic::AtomicU64;

use super::cpu_set::{CPUS_MAX, CpuSet, ListParser, WORDS};
use super::errno;
use super::file::{self, File};

/// Calls `visit` with each range of the list in a file; `None` if there is no such list.
fn each_range_in(path: &CStr, visit: impl FnMut(usize, usize)) -> Option<()> {
    let mut list = ListParser::new(visit);
    file::each_byte(path, |byte| list.push(byte))?;
    list.end()
}

fn cpus_in(path: &CStr) -> Option<CpuSet> {
    let mut set = CpuSet::empty();
    each_range_in(path, |first, last| (first..=last).for_each(|cpu| set.insert(cpu)))?;
    (!set.is_empty()).then_some(set)
}

/// Returns the CPUs that this machine can ever have; without `/sys`, all that masks can hold.
pub(crate) fn possible() -> CpuSet {
    cpus_in(c"/sys/devices/system/cpu/possible").unwrap_or_else(|| {
        let mut set = CpuSet::empty();
        (0..mask_bits()).for_each(|cpu| set.insert(cpu));
        set
    })
}

/// Returns how many CPUs this machine can ever have.
///
/// Uses little stack, because the first use of the library may be in a signal handler that has a
/// small stack of its own.
pub(crate) fn possible_count() -> usize {
    let mut count = 0;
    let possible = c"/sys/devices/system/cpu/possible";
    match each_range_in(possible, |first, last| count += last - first + 1) {
        Some(()) if count > 0 => count,
        _ => mask_bits(),
    }
}

/// Returns the CPUs that are online, or `None` if `/sys` is not mounted.
pub(crate) fn online() -> Option<CpuSet> {
    cpus_in(c"/sys/devices/system/cpu/online")
}

/// Returns the NUMA nodes that are online; only node 0 if `/sys` does not say.
pub(crate) fn nodes() -> CpuSet {
    cpus_in(c"/sys/devices/system/node/online").unwrap_or_else(|| {
        let mut set = CpuSet::empty();
        set.insert(0);
        set
    })
}

/// Returns the node that the calling thread is on, by a system call; 0 if unknown.
pub(crate) fn node() -> usize {
    let mut node: libc::c_uint = 0;
    // SAFETY: the kernel writes the number to `node`, and ignores null pointers.
    let result = unsafe {
        let no_cpu = core::ptr::null_mut::<libc::c_uint>();
        let no_cache = core::ptr::null_mut::<libc::c_void>();
        libc::syscall(libc::SYS_getcpu, no_cpu, &raw mut node, no_cache)
    };
    if result == 0 { node as usize } else { 0 }
}

/// Returns the online CPUs that thread `tid` may run on; 0 stands for the calling thread.
pub(crate) fn affinity(tid: i32) -> Option<CpuSet> {
    let mut set = CpuSet::empty();
    sched_getaffinity(tid, set.words.as_mut_ptr())?;
    Some(set)
}

/// Adds the CPUs this thread may run on to `set`, with offline ones if `/proc` is mounted.
///
/// Returns whether they are known.
pub(crate) fn own_affinity(set: &mut CpuSet) -> bool {
    read_allowed(set).is_some_and(|()| !set.is_empty()) || unite_affinity(0, set)
}

/// Adds the CPUs that `/proc` lists for this thread.
fn read_allowed(set: &mut CpuSet) -> Option<()> {
    const PREFIX: &[u8] = b"Cpus_allowed_list:";
    let mut list = ListParser::new(|first, last| (first..=last).for_each(|cpu| set.insert(cpu)));
    // How many bytes of the prefix the current line has begun with; `None` once it differs.
    let mut matched = Some(0);
    file::each_byte(c"/proc/thread-self/status", |byte| match matched {
        _ if byte == b'\n' => matched = Some(0),
        Some(count) if count == PREFIX.len() => list.push(byte),
        Some(count) if PREFIX[count] == byte => matched = Some(count + 1),
        _ => matched = None,
    })?;
    list.end()
}

/// Returns how many CPUs the kernel's masks have bits for, or a number above any CPU's.
fn mask_bits() -> usize {
    /// A mask that nobody reads. It is not on the stack, which may be a small one.
    static UNREAD: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
    sched_getaffinity(0, UNREAD.as_ptr() as *mut u64).map_or(CPUS_MAX, |bytes| bytes * 8)
}

/// Stores the mask of a thread in `WORDS` words, and returns its size in bytes.
fn sched_getaffinity(tid: i32, words: *mut u64) -> Option<usize> {
    // SAFETY: callers pass the words of a set of their own, or of a static of atomics, which may
    // change at any time. Both are valid for writes of this length.
    let bytes = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, CPUS_MAX / 8, words) };
    usize::try_from(bytes).ok()
}

/// Sets the CPUs that the calling thread may run on, and returns whether that worked.
pub(crate) fn set_affinity(set: &CpuSet) -> bool {
    // SAFETY: the set is valid for reads of its length.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&set.words), set.words.as_ptr())
    };
    result == 0
}

/// Moves the calling thread to `cpu`, and returns whether it has run there.
///
/// Not inlined, because a set is large.
#[inline(never)]
pub(crate) fn run_on(cpu: usize) -> bool {
    let mut set = CpuSet::empty();
    set.insert(cpu);
    set_affinity(&set)
}

/// Replaces `all` by every online CPU that some thread may run on.
///
/// Returns a digest of the threads. Not inlined, because a set is large, and callers have others.
#[inline(never)]
pub(crate) fn cpus_of_all_threads(all: &mut CpuSet) -> Option<u64> {
    let tasks = File::open(c"/proc/self/task", libc::O_DIRECTORY)?;
    all.words.fill(0);
    let (mut unknown, mut digest) = (false, 0u64);
    let mut buffer = [0u64; 128];
    loop {
        match tasks.read_entries(&mut buffer)? {
            0 => return (!unknown).then_some(digest),
            filled => each_tid(&buffer, filled, |tid| {
                // Depends on the order, too; multiplication by an odd number loses nothing.
                digest = (digest ^ tid as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                // A thread that has exited by now has no section.
                unknown |= !unite_affinity(tid, all) && errno::last() != libc::ESRCH;
            }),
        }
    }
}

/// Adds the online CPUs that a thread may run on; returns whether the system says.
fn unite_affinity(tid: i32, all: &mut CpuSet) -> bool {
    let mut words = [0_u64; WORDS];
    let is_known = sched_getaffinity(tid, words.as_mut_ptr()).is_some();
    all.words.iter_mut().zip(words).for_each(|(word, more)| *word |= more);
    is_known
}

/// Calls `visit` for each directory entry whose name is a number.
fn each_tid(buffer: &[u64], filled: usize, mut visit: impl FnMut(i32)) {
    // SAFETY: the kernel wrote `filled` bytes of the buffer, and integers may be read as bytes.
    let bytes = unsafe { core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), filled) };
    // An entry: inode (8 bytes), offset (8), its own length (2), type (1), name up to a zero byte.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut at = 0;
    while at + NAME < bytes.len() {
        let length = usize::from(u16::from_ne_bytes([bytes[at + LENGTH], bytes[at + LENGTH + 1]]));
        let name = CStr::from_bytes_until_nul(&bytes[at + NAME..]);
        if let Some(Ok(tid)) = name.ok().and_then(|name| name.to_str().ok()).map(str::parse) {
            visit(tid);
        }
        at += length.max(NAME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topology_is_consistent() {
        let (possible, allowed) = (possible(), affinity(0).unwrap());
        assert!(allowed.iter().all(|cpu| possible.contains(cpu)));
        assert!(mask_bits() >= possible.len());
        assert_eq!(possible_count(), possible.len());
        assert!(!nodes().is_empty());
        let mut all = CpuSet::empty();
        cpus_of_all_threads(&mut all).unwrap();
        let mut own = CpuSet::empty();
        assert!(own_affinity(&mut own) && own.len() >= allowed.len());
        assert!(allowed.iter().all(|cpu| all.contains(cpu)));
    }
}
