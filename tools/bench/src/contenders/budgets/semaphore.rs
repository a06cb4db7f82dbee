//! `semaphore`: the tokio crate's semaphore, acquired without waiting.

use super::Contender;

/// The semaphore, whose permits are the units.
pub(crate) struct Semaphore(tokio::sync::Semaphore);

impl Contender for Semaphore {
    const IS_RIGHT: bool = true;

    fn new(limit: u64) -> Self {
        let permits = usize::try_from(limit).unwrap_or(usize::MAX);
        Self(tokio::sync::Semaphore::new(permits.min(tokio::sync::Semaphore::MAX_PERMITS)))
    }

    #[inline(always)]
    fn try_acquire(&self, n: u64) -> bool {
        let permits = u32::try_from(n).unwrap_or(u32::MAX);
        self.0.try_acquire_many(permits).map(|permits| permits.forget()).is_ok()
    }

    #[inline(always)]
    fn release(&self, n: u64) {
        self.0.add_permits(n as usize);
    }

    fn available(&self) -> i64 {
        self.0.available_permits() as i64
    }
}
