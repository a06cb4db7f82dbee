//! CPUs and NUMA nodes: possible, online, allowed; with or without `/sys`.
//!
//! Nothing here allocates or takes a lock. Bare system calls read files into buffers on the stack.

use core::ffi::CStr;

use super::errno;

/// A number above any CPU's: Linux can be built for 8,192 CPUs on x86-64.
pub(crate) const CPUS_MAX: usize = 16_384;
const WORDS: usize = CPUS_MAX / 64;

/// A set of CPU or node numbers, each below 16,384.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    pub(crate) const fn empty() -> Self {
        CpuSet { words: [0; WORDS] }
    }

    pub(crate) const fn full() -> Self {
        CpuSet { words: [!0; WORDS] }
    }

    /// Adds `cpu` to the set, if it is below 16,384.
    pub(crate) fn insert(&mut self, cpu: usize) {
        if let Some(word) = self.words.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    fn unite(&mut self, other: &CpuSet) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Returns the number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CPUS_MAX).filter(|&cpu| self.contains(cpu))
    }

    /// Parses the kernel's list format, such as `0-4,6-15`; `None` if it is malformed.
    pub(crate) fn parse(list: &str) -> Option<CpuSet> {
        let mut set = CpuSet::empty();
        for range in ranges(list) {
            let (first, last) = range?;
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }
}

/// Returns the first and last CPU of each range of a list, or `None` for a malformed range.
fn ranges(list: &str) -> impl Iterator<Item = Option<(usize, usize)>> {
    list.trim().split(',').filter(|range| !range.is_empty()).map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < CPUS_MAX).then_some((first, last))
    })
}

impl core::fmt::Display for CpuSet {
    /// Writes the kernel's list format, such as `0-4,6-15`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Reads a whole file; returns `None` if it is missing, not text, or as large as `buffer`.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a str> {
    let file = File::open(path, 0)?;
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => return core::str::from_utf8(&buffer[..filled]).ok(),
            read => filled += read,
        }
    }
    None
}

/// A file that is open for reading.
pub(super) struct File(i32);

impl File {
    pub(super) fn open(path: &CStr, flags: i32) -> Option<File> {
        // SAFETY: `path` ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | flags) };
        // Not `then_some`, which would construct a File of -1 and close it.
        (file >= 0).then(|| File(file))
    }

    /// Reads into `buffer`, and returns the number of bytes; 0 at the end, `None` on an error.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        // SAFETY: the buffer is valid for writes of its length.
        let read = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        usize::try_from(read).ok()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        unsafe { libc::close(self.0) };
    }
}

fn cpus_in(path: &CStr) -> Option<CpuSet> {
    let mut buffer = [0; 4096];
    CpuSet::parse(read_file(path, &mut buffer)?).filter(|set| !set.is_empty())
}

/// Returns the CPUs that this machine can ever have; without `/sys`, all that masks can hold.
pub(crate) fn possible() -> CpuSet {
    cpus_in(c"/sys/devices/system/cpu/possible").unwrap_or_else(|| {
        let mut set = CpuSet::empty();
        (0..mask_bytes().unwrap_or(CPUS_MAX / 8) * 8).for_each(|cpu| set.insert(cpu));
        set
    })
}

/// Returns how many CPUs this machine can ever have.
///
/// Uses little stack, because the first use of the library may be in a signal handler that has a
/// small stack of its own.
pub(crate) fn possible_count() -> usize {
    let mut buffer = [0; 512];
    let list = read_file(c"/sys/devices/system/cpu/possible", &mut buffer);
    let count = list.and_then(|list| ranges(list).map(|range| range.map(|(a, b)| b - a + 1)).sum());
    match count {
        Some(count @ 1..) => count,
        _ => possible().len(),
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
    sched_getaffinity(tid, &mut set.words)?;
    Some(set)
}

/// Returns the CPUs this thread may run on, with offline ones if `/proc` is mounted.
pub(crate) fn own_affinity() -> Option<CpuSet> {
    let mut buffer = [0; 8192];
    let status = read_file(c"/proc/thread-self/status", &mut buffer);
    let list = |status: &str| {
        let mut lines = status.lines();
        CpuSet::parse(lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
    };
    status.and_then(list).filter(|set| !set.is_empty()).or_else(|| affinity(0))
}

/// Returns the size of the kernel's CPU masks, in bytes.
fn mask_bytes() -> Option<usize> {
    sched_getaffinity(0, &mut CpuSet::empty().words)
}

fn sched_getaffinity(tid: i32, words: &mut [u64; WORDS]) -> Option<usize> {
    // SAFETY: `words` is valid for writes of its length.
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(words), words.as_mut_ptr())
    };
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
pub(crate) fn run_on(cpu: usize) -> bool {
    let mut set = CpuSet::empty();
    set.insert(cpu);
    set_affinity(&set)
}

/// Returns every online CPU that some thread may run on, and a digest of the threads.
pub(crate) fn cpus_of_all_threads() -> Option<(CpuSet, u64)> {
    let tasks = File::open(c"/proc/self/task", libc::O_DIRECTORY)?;
    let mut all = CpuSet::empty();
    let (mut unknown, mut digest) = (false, 0u64);
    let mut buffer = [0u64; 512];
    loop {
        // SAFETY: `buffer` is valid for writes of its length and aligned for directory entries.
        let filled = unsafe {
            libc::syscall(libc::SYS_getdents64, tasks.0, buffer.as_mut_ptr(), size_of_val(&buffer))
        };
        match usize::try_from(filled).ok()? {
            0 => return (!unknown).then_some((all, digest)),
            filled => each_tid(&buffer, filled, |tid| {
                // Depends on the order, too; multiplication by an odd number loses nothing.
                digest = (digest ^ tid as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                match affinity(tid) {
                    Some(set) => all.unite(&set),
                    // A thread that has exited by now has no section.
                    None => unknown |= errno::last() != libc::ESRCH,
                }
            }),
        }
    }
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
    fn cpu_list_parse_and_display_round_trip() {
        for list in ["0", "0-1", "0-4,6-15", "0,2,4-5,100-127", "16383"] {
            assert_eq!(CpuSet::parse(list).unwrap().to_string(), list);
        }
        assert_eq!(CpuSet::parse("0-3\n").unwrap().len(), 4);
        assert!(CpuSet::parse("").unwrap().is_empty());
        for bad in ["x", "3-1", "1-", "16384", "0-99999999999999999999"] {
            assert_eq!(CpuSet::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn topology_is_consistent() {
        let (possible, allowed) = (possible(), affinity(0).unwrap());
        assert!(allowed.iter().all(|cpu| possible.contains(cpu)));
        assert!(mask_bytes().unwrap() * 8 >= possible.len());
        assert!(!nodes().is_empty());
        let (all, _) = cpus_of_all_threads().unwrap();
        assert!(own_affinity().unwrap().len() >= allowed.len());
        assert!(allowed.iter().all(|cpu| all.contains(cpu)));
    }
}
