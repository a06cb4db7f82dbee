//! The resident memory of this process: now, and at its peak.

use std::fs;

use anyhow::{Context as _, Result};

/// Returns the resident memory of this process, in bytes.
///
/// Most files show counters of each CPU, which lag by some hundred KiB; `smaps_rollup` looks at the
/// pages themselves. Some sandboxes lack it, and then the counters have to do.
pub(crate) fn bytes() -> Result<u64> {
    match fs::read_to_string("/proc/self/smaps_rollup") {
        Ok(text) => kib_of(&text, "Rss:").context("/proc/self/smaps_rollup has no line Rss"),
        Err(_) => by_counters(),
    }
}

/// Returns the most memory that was ever resident in this process, in bytes.
///
/// The kernel takes it from counters of each CPU, which lag by some hundred KiB on a few CPUs.
pub(crate) fn peak_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    kib_of(&text, "VmHWM:").context("/proc/self/status has no line VmHWM")
}

/// Returns the value of the line that begins with `key`, which is in KiB, in bytes.
fn kib_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn by_counters() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let field = statm.split_whitespace().nth(1).context("/proc/self/statm has no second field")?;
    let pages: u64 = field.parse()?;
    // SAFETY: sysconf takes any name and has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * u64::try_from(page_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollup_is_parsed() {
        let text =
            "55e0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:                1364 kB\nPss: 3 kB\n";
        assert_eq!(kib_of(text, "Rss:"), Some(1364 * 1024));
        assert_eq!(kib_of("Pss: 3 kB\n", "Rss:"), None);
    }

    #[test]
    fn written_memory_is_resident() {
        const BYTES: u64 = 64 << 20;
        let written = std::hint::black_box(vec![1_u8; BYTES as usize]);
        let (exact, counted) = (bytes().unwrap(), by_counters().unwrap());
        drop(written);
        assert!(exact >= BYTES && counted >= BYTES / 2, "{exact} and {counted}");
        assert!(peak_bytes().unwrap() >= BYTES / 2, "the peak outlasts what was dropped");
    }
}
