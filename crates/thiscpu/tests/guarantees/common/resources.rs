//! The memory that a process may use, and that it uses.

use std::io;

use thiscpu_test_support::memory::{self, Mapping, mappings, set_limit};

/// Returns a field of `/proc/self/status`, in bytes.
pub(crate) fn status_bytes(field: &str) -> i64 {
    memory::status_bytes("self", field).expect("a known field") as i64
}

/// Restores a limit when dropped.
pub(crate) struct LimitGuard {
    resource: libc::__rlimit_resource_t,
    before: u64,
}

impl LimitGuard {
    fn new(resource: libc::__rlimit_resource_t, bytes: u64) -> LimitGuard {
        LimitGuard { resource, before: set_limit(resource, bytes).expect("a limit") }
    }
}

impl Drop for LimitGuard {
    fn drop(&mut self) {
        set_limit(self.resource, self.before).expect("the limit from before");
    }
}

/// Makes the calling thread's stack large enough for the calls that follow.
///
/// A stack that has to grow while address space is limited would end the process.
#[inline(never)]
fn grow_stack() {
    // Not a temporary, which the compiler would make a static.
    let bytes = [0_u8; 256 * 1024];
    std::hint::black_box(&bytes);
}

/// Limits the address space to 300 KiB more than the process uses now.
pub(crate) fn limit_address_space() -> LimitGuard {
    limit_address_space_to(300 * 1024)
}

/// Limits the address space to `room` bytes more than the process uses now.
pub(crate) fn limit_address_space_to(room: u64) -> LimitGuard {
    grow_stack();
    LimitGuard::new(libc::RLIMIT_AS, status_bytes("VmSize") as u64 + room)
}

/// Limits writable memory to `room` bytes more than the process uses now.
///
/// Memory that is only reserved does not count.
pub(crate) fn limit_data(room: u64) -> LimitGuard {
    grow_stack();
    LimitGuard::new(libc::RLIMIT_DATA, status_bytes("VmData") as u64 + room)
}

/// Checks that a process can lock all its memory; call it in a process of its own.
pub(crate) fn can_lock_all() -> Result<(), String> {
    lock_all().map_err(|error| format!("needs to lock memory: {error}"))
}

/// Returns how many page faults of this process needed no input or output.
pub(crate) fn page_faults() -> i64 {
    // SAFETY: zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a valid structure.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) }, 0);
    usage.ru_minflt
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

/// Returns the total size of the mappings that `is_meant` selects.
fn mapped_bytes(is_meant: impl Fn(&Mapping) -> bool) -> i64 {
    let meant = mappings().into_iter().filter(is_meant);
    meant.map(|mapping| mapping.addresses.len() as i64).sum()
}

/// Returns the bytes that are mapped and may not become huge pages.
pub(crate) fn no_huge_page_bytes() -> i64 {
    mapped_bytes(|mapping| mapping.has("nh"))
}

/// Returns the bytes of address space that are mapped and cannot be accessed.
pub(crate) fn inaccessible_bytes() -> i64 {
    mapped_bytes(|mapping| mapping.access == "---p")
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
