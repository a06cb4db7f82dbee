//! The memory that a process may use, and that it uses.

use std::ops::Range;
use std::{fs, io, mem};

/// Returns a field of `/proc/PROCESS/status`, in bytes; the process may be `self`.
///
/// # Errors
///
/// If there is no such process, or no such field in kB.
pub fn status_bytes(process: &str, field: &str) -> io::Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path)?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other(format!("{path}: no {field} in kB")))
}

/// Sets a soft limit, capped by the hard limit, and returns the soft limit from before.
///
/// # Errors
///
/// If the system calls fail.
pub fn set_limit(resource: libc::__rlimit_resource_t, soft: u64) -> io::Result<u64> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both limits are live locals, valid during the calls.
    unsafe {
        if libc::getrlimit(resource, &mut before) == 0 {
            let new = libc::rlimit { rlim_cur: soft.min(before.rlim_max), ..before };
            if libc::setrlimit(resource, &new) == 0 {
                return Ok(before.rlim_cur);
            }
        }
    }
    Err(io::Error::last_os_error())
}

/// Returns the resources that a process or thread has used.
///
/// `who` is a constant such as `libc::RUSAGE_SELF`.
pub fn usage(who: i32) -> libc::rusage {
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the structure is valid for writes.
    unsafe { libc::getrusage(who, &mut usage) };
    usage
}

/// A mapping, as `/proc/self/smaps` describes it.
pub struct Mapping {
    /// The mapped addresses.
    pub addresses: Range<usize>,
    /// The access rights, such as `rw-p`.
    pub access: String,
    /// Whether the mapping has no file and no name.
    pub is_anonymous: bool,
    /// The names and values of its fields.
    fields: Vec<(String, String)>,
}

impl Mapping {
    fn parse(header: &str) -> Option<Mapping> {
        let mut words = header.split_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        Some(Mapping {
            addresses: address(begin)?..address(end)?,
            access: words.next()?.to_owned(),
            is_anonymous: words.nth(2)? == "0" && words.next().is_none(),
            fields: Vec::new(),
        })
    }

    /// Returns the value of a field, or an empty string.
    pub fn field(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|field| field.0 == name);
        field.map_or("", |field| field.1.trim())
    }

    /// Returns whether the mapping has a flag.
    pub fn has(&self, flag: &str) -> bool {
        self.field("VmFlags").split_whitespace().any(|other| other == flag)
    }
}

/// Returns all mappings of this process.
///
/// # Panics
///
/// If `/proc` is not mounted.
pub fn mappings() -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in fs::read_to_string("/proc/self/smaps").expect("/proc").lines() {
        if let Some(mapping) = Mapping::parse(line) {
            all.push(mapping);
        } else if let (Some(last), Some((name, value))) = (all.last_mut(), line.split_once(':')) {
            last.fields.push((name.to_owned(), value.to_owned()));
        }
    }
    all
}

/// Returns whether the kernel reports the flags of mappings.
pub fn reports_flags() -> bool {
    mappings().iter().any(|mapping| !mapping.field("VmFlags").is_empty())
}
