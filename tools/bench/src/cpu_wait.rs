//! How long a thread could have run, and did not, because its CPU was somebody else's.
//!
//! Where threads are pinned and there is one for a CPU at most, that somebody is another program. Without it what is measured
//! does not depend on what else the machine does meanwhile, or less so.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// How long the calling thread has waited for a CPU since it began. Time in which it slept is not in it. Always 0 where
/// the kernel does not tell.
pub(crate) fn waited() -> Duration {
    // Nothing is allocated here: in a measured process that might be by a contender.
    own_file().map(|file| told(&file)).unwrap_or_default()
}

/// Threads of which others can tell how long they have waited.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Vec<File>>);

impl Waits {
    /// The calling thread is one from now on.
    pub(crate) fn join(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(own_file());
    }

    /// How long all of them together have waited since they began. What has ended counts as 0.
    pub(crate) fn total(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(told).sum()
    }
}

/// The file that tells it of the calling thread, to whoever reads it.
fn own_file() -> Option<File> {
    File::open("/proc/thread-self/schedstat").ok()
}

fn told(file: &File) -> Duration {
    let mut text = [0; 80];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    of_line(&text[..length]).unwrap_or_default()
}

/// The second of three numbers: nanoseconds on a CPU, nanoseconds waiting for one, and how often it had one.
fn of_line(line: &[u8]) -> Option<Duration> {
    let number = str::from_utf8(line).ok()?.split_whitespace().nth(1)?;
    Some(Duration::from_nanos(number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_line_is_read() {
        assert_eq!(of_line(b"25200000 24300000 17\n"), Some(Duration::from_micros(24_300)));
        assert_eq!(of_line(b""), None);
    }

    #[test]
    fn who_takes_turns_has_waited() {
        // A kernel that does not tell has no such file, or zeros in it.
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        if told.is_empty() || told.starts_with("0 0 0") {
            return;
        }
        let cpus = crate::cpus::Cpus::allowed().unwrap();
        // Two threads on one CPU, which both have work until each has waited for the other.
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
                    // Each sees its own in it, and the other's while that runs.
                    let own = waited();
                    assert!(waits.total() >= own);
                });
            }
        });
    }
}
