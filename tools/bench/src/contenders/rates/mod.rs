//! Rates: limits on calls over time.

pub(crate) use self::{
    buckets::{AtomicCas, Governor, Ratelimit, ThisCpu},
    windows::worst_second,
};

mod buckets;
#[cfg(test)]
mod tests;
mod windows;

family! {
    $ rates: AtomicCas Governor Ratelimit ThisCpu
}

/// The contenders whose worst second is measured.
pub(crate) const WORST_SECOND: &[super::Name] = &[
    super::Name::Governor,
    super::Name::Ratelimit,
    super::Name::Tower,
    super::Name::ThisCpu,
    super::Name::ThisCpuWindow,
];

/// A limit on calls over time that many threads share.
pub(crate) trait Contender: Send + Sync + Sized {
    /// Creates a limit of `per_second` calls a second, of which `burst` may come at once.
    fn new(per_second: u32, burst: u32) -> Self;

    /// Returns whether a call is admitted.
    fn try_acquire(&self) -> bool;
}
