//! How long threads were able to run but waited, because another thread had their CPU.
//!
//! Where threads are pinned, at most one per CPU, that other thread belongs to another program.
//! Without that time, measurements depend less on the other work of the machine.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Returns how long the calling thread has waited for a CPU since it began.
///
/// Time in which it slept does not count. Without support by the kernel, it is always 0.
pub(crate) fn waited() -> Duration {
    // Nothing is allocated here: in a measured process, a contender might serve the allocation.
    own_file().map(|file| read(&file)).unwrap_or_default()
}

/// Threads whose waits other threads can read.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Vec<File>>);

impl Waits {
    pub(crate) fn join(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(own_file());
    }

    /// Returns how long all threads together have waited. One that has ended counts as 0.
    pub(crate) fn total(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(read).sum()
    }
}

/// Opens the file with the waits of the calling thread, which any thread can read.
fn own_file() -> Option<File> {
    File::open("/proc/thread-self/schedstat").ok()
}

fn read(file: &File) -> Duration {
    let mut text = [0; 80];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    of_line(&text[..length]).unwrap_or_default()
}

/// Parses the second of three numbers: time on a CPU, time waiting, time slices.
fn of_line(line: &[u8]) -> Option<Duration> {
    let number = str::from_utf8(line).ok()?.split_whitespace().nth(1)?;
    Some(Duration::from_nanos(number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn line_is_parsed() {
        assert_eq!(of_line(b"25200000 24300000 17\n"), Some(Duration::from_micros(24_300)));
        assert_eq!(of_line(b""), None);
    }

    #[test]
    fn threads_on_one_cpu_wait_for_each_other() {
        // A kernel without support has no such file, or zeros in it.
        let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        if line.is_empty() || line.starts_with("0 0 0") {
            return;
        }
        let cpus = crate::cpus::Cpus::allowed().unwrap();
        // Both threads have work until each has waited for the other.
        let (have_waited, waits) = (AtomicU32::new(0), Waits::default());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    cpus.pin(0).unwrap();
                    waits.join();
                    let before = waited();
                    while waited() == before {}
                    have_waited.fetch_add(1, SeqCst);
                    while have_waited.load(SeqCst) < 2 {}
                    // The total includes this thread, and the other one while it runs.
                    let own = waited();
                    assert!(waits.total() >= own);
                });
            }
        });
    }
}
