//! The memory that a process may use, and that it uses.

use std::io;
use std::ops::Range;

/// Returns a field of `/proc/self/status`, in bytes.
pub(crate) fn status_bytes(field: &str) -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a known field");
    let kib = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB");
    kib.trim().parse::<i64>().expect("a number of KiB") * 1024
}

/// Sets a soft limit, capped by the hard limit, and returns the limits from before.
fn set_limit(resource: libc::__rlimit_resource_t, soft: u64) -> io::Result<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both limits are live locals, valid during the calls.
    unsafe {
        if libc::getrlimit(resource, &mut before) == 0 {
            let new = libc::rlimit { rlim_cur: soft.min(before.rlim_max), ..before };
            if libc::setrlimit(resource, &new) == 0 {
                return Ok(before);
            }
        }
    }
    Err(io::Error::last_os_error())
}

/// Restores a limit when dropped.
pub(crate) struct LimitGuard {
    resource: libc::__rlimit_resource_t,
    before: u64,
}

impl LimitGuard {
    fn new(resource: libc::__rlimit_resource_t, bytes: u64) -> LimitGuard {
        LimitGuard { resource, before: set_limit(resource, bytes).expect("a limit").rlim_cur }
    }
}

impl Drop for LimitGuard {
    fn drop(&mut self) {
        set_limit(self.resource, self.before).expect("the limit from before");
    }
}

/// Limits the address space to 300 KiB more than the process uses now.
pub(crate) fn limit_address_space() -> LimitGuard {
    limit_address_space_to(300 * 1024)
}

/// Limits the address space to `room` bytes more than the process uses now.
pub(crate) fn limit_address_space_to(room: u64) -> LimitGuard {
    LimitGuard::new(libc::RLIMIT_AS, status_bytes("VmSize") as u64 + room)
}

/// Limits writable memory to `room` bytes more than the process uses now.
///
/// Memory that is only reserved does not count.
pub(crate) fn limit_data(room: u64) -> LimitGuard {
    LimitGuard::new(libc::RLIMIT_DATA, status_bytes("VmData") as u64 + room)
}

/// Checks that a process can lock all its memory; call it in a process of its own.
pub(crate) fn can_lock_all() -> Result<(), String> {
    lock_all().map_err(|error| format!("needs to lock memory: {error}"))
}

/// Locks all present and future memory.
pub(crate) fn lock_all() -> io::Result<()> {
    set_limit(libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY)?;
    // SAFETY: `mlockall` changes no memory contents.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the size of a thread's stack as the standard library makes it, with its guard.
pub(crate) fn thread_stack_bytes() -> i64 {
    let stack = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok());
    stack.unwrap_or(2 << 20) + (64 << 10)
}

/// Checks that the kernel makes huge pages without `madvise`.
pub(crate) fn huge_pages_are_always_on() -> Result<(), String> {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    match enabled {
        Ok(setting) if setting.contains("[always]") => Ok(()),
        Ok(setting) => Err(format!("needs transparent huge pages for all: {}", setting.trim())),
        Err(error) => Err(format!("needs transparent huge pages: {error}")),
    }
}

/// Returns the bytes that are mapped and may not become huge pages.
pub(crate) fn no_huge_page_bytes() -> i64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let (mut size, mut sum) = (0, 0);
    for line in smaps.lines() {
        if let Some(kib) = line.strip_prefix("Size:") {
            size = kib.trim_end_matches(" kB").trim().parse::<i64>().expect("a number of KiB");
        } else if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.contains(" nh")) {
            sum += size * 1024;
        }
    }
    sum
}

/// A line of `/proc/self/maps`.
struct Mapping {
    addresses: Range<usize>,
    /// Such as `rw-p`.
    access: String,
    /// Whether the mapping has no file and no name.
    is_anonymous: bool,
}

fn mappings() -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let mapping = |line: &str| {
        let mut fields = line.split_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            addresses: address(begin)?..address(end)?,
            access: fields.next()?.to_owned(),
            is_anonymous: fields.nth(2)? == "0" && fields.next().is_none(),
        })
    };

    maps.lines().map(|line| mapping(line).expect("a mapping")).collect()
}

/// Returns the bytes of address space that are mapped and cannot be accessed.
pub(crate) fn inaccessible_bytes() -> i64 {
    let inaccessible = mappings().into_iter().filter(|mapping| mapping.access == "---p");
    inaccessible.map(|mapping| mapping.addresses.len() as i64).sum()
}

/// Returns the number of anonymous mappings.
pub(crate) fn anonymous_mappings() -> usize {
    mappings().into_iter().filter(|mapping| mapping.is_anonymous).count()
}

/// Returns the access rights of the mapping at `address`, such as `rw-p`.
pub(crate) fn access_at(address: usize) -> String {
    let mut mappings = mappings().into_iter();
    mappings.find(|mapping| mapping.addresses.contains(&address)).expect("a mapping").access
}
