//! What a process may have, and what it has.

use std::io;

/// A field of `/proc/self/status`, in bytes.
pub(crate) fn status_bytes(field: &str) -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("such a field");
    let kib = line.trim_matches([':', ' ', '\t']).trim_end_matches(" kB");
    kib.trim().parse::<i64>().expect("a number of KiB") * 1024
}

fn limit(what: libc::__rlimit_resource_t, soft: u64) -> io::Result<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both limits are valid for the calls.
    unsafe {
        if libc::getrlimit(what, &mut before) == 0 {
            let new = libc::rlimit { rlim_cur: soft.min(before.rlim_max), ..before };
            if libc::setrlimit(what, &new) == 0 {
                return Ok(before);
            }
        }
    }
    Err(io::Error::last_os_error())
}

/// Lifts a limit when dropped.
pub(crate) struct LimitGuard {
    what: libc::__rlimit_resource_t,
    before: u64,
}

impl LimitGuard {
    fn new(what: libc::__rlimit_resource_t, bytes: u64) -> LimitGuard {
        LimitGuard { what, before: limit(what, bytes).expect("a limit").rlim_cur }
    }
}

impl Drop for LimitGuard {
    fn drop(&mut self) {
        limit(self.what, self.before).expect("the limit from before");
    }
}

/// Leaves hardly any address space beyond what the process has now.
pub(crate) fn limit_address_space() -> LimitGuard {
    limit_address_space_to(300 * 1024)
}

/// Leaves so much address space beyond what the process has now.
pub(crate) fn limit_address_space_to(room: u64) -> LimitGuard {
    LimitGuard::new(libc::RLIMIT_AS, status_bytes("VmSize") as u64 + room)
}

/// Leaves so much memory that can be written to beyond what the process has now, whatever is reserved.
pub(crate) fn limit_data(room: u64) -> LimitGuard {
    LimitGuard::new(libc::RLIMIT_DATA, status_bytes("VmData") as u64 + room)
}

/// For scenarios that lock all memory; tried in a process of its own.
pub(crate) fn can_lock_all() -> Result<(), String> {
    lock_all().map_err(|error| format!("needs to lock memory: {error}"))
}

/// Locks all memory that there is and that will be.
pub(crate) fn lock_all() -> io::Result<()> {
    limit(libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY)?;
    // SAFETY: mlockall changes no memory.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a thread's stack takes, as the standard library makes it, with room for its guard.
pub(crate) fn thread_stack_bytes() -> i64 {
    let stack = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok());
    stack.unwrap_or(2 << 20) + (64 << 10)
}

/// For scenarios that mean nothing where the kernel makes no huge pages unasked.
pub(crate) fn huge_pages_are_always_on() -> Result<(), String> {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    match enabled {
        Ok(setting) if setting.contains("[always]") => Ok(()),
        Ok(setting) => Err(format!("needs transparent huge pages for all: {}", setting.trim())),
        Err(error) => Err(format!("needs transparent huge pages: {error}")),
    }
}

/// How much is mapped that never becomes huge pages, in bytes.
pub(crate) fn no_huge_page_bytes() -> i64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    let (mut size, mut sum) = (0, 0);
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Size:") {
            size = kib.trim_end_matches(" kB").trim().parse::<i64>().expect("a number of KiB");
        } else if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.contains(" nh")) {
            sum += size * 1024;
        }
    }
    sum
}

/// How much address space is mapped that cannot be accessed, in bytes.
pub(crate) fn inaccessible_bytes() -> i64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let bytes = |line: &str| {
        let (range, rest) = line.split_once(' ').expect("a range, and what it is");
        let (begin, end) = range.split_once('-').expect("a range");
        let address = |text| i64::from_str_radix(text, 16).ok();
        match rest.starts_with("---p") {
            true => address(end).zip(address(begin)).map_or(0, |(end, begin)| end - begin),
            false => 0,
        }
    };
    maps.lines().map(bytes).sum()
}

/// How many mappings the process has that are of no file and have no name.
pub(crate) fn anonymous_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let anonymous = |line: &&str| {
        let mut fields = line.split_whitespace();
        fields.nth(4) == Some("0") && fields.next().is_none()
    };
    maps.lines().filter(anonymous).count()
}
