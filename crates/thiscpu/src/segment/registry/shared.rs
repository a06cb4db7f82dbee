//! The registry of an attached segment.

use std::sync::Arc;

use super::family::{Handle, SharedFamily};
use super::head::head;
use super::insert::{check_family, find_family, insert_family};
use super::names::{of_counter, refusal};
use super::scrape::Scrape;
use super::usage::{RegistryUsage, usage};
use crate::segment::attached::Segment;
use crate::segment::file::error::{SegmentError, SegmentErrorKind};
use crate::segment::file::mapping::Mapping;
use crate::sys::atomic::Ordering::Relaxed;

/// Named series that processes share: families of counters, with labels.
///
/// [`Segment::registry`] returns it. Any process of the segment inserts families and series. No
/// lock guards them, so a process that is killed at any instruction leaves a registry that others
/// can go on using: with the new name or without it, and with whole records.
///
/// [`Segment::registry`]: crate::Segment::registry
///
/// | | cost | waits for |
/// |---|---|---|
/// | [`SharedFamily::series`], if the series exists | a hash and a few cache lines | nothing |
/// | [`SharedFamily::series`], if it does not | two system calls, three exchanges | nothing |
/// | [`SharedSeries::add`] | one locked instruction on a cache line of this CPU | nothing |
/// | [`scrape`] | for each lane, an exchange and a few loads for each series | nothing |
///
/// [`SharedFamily::series`]: crate::SharedFamily::series
/// [`SharedSeries::add`]: crate::SharedSeries::add
/// [`scrape`]: SharedRegistry::scrape
///
/// A process that dies in the middle of an insert can leave the memory of one series unused. The
/// registry has room for 64 of these, beyond the number of series that it was created for. An
/// insert now and then asks the kernel for memory of the file, which takes microseconds.
///
/// **Signal handlers** may add to series that they find in variables. They must not look up
/// families and series: errors allocate memory. An insert blocks all signals while it has memory
/// that is not published, because a handler may fork. Signals of a thread's own faults are not
/// blocked. A handler of SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP or SIGSYS that interrupts an
/// insert must not fork.
///
/// **After `fork`** parent and child use one registry, through the handles that both have. Any
/// thread may fork at any time, also by the system call itself.
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::options().series(1000).anonymous()?;
/// let registry = segment.registry()?;
/// let requests = registry.counter_family("requests", "Requests served.", &["method", "status"])?;
/// let found = requests.series(&["GET", "200"])?;
/// found.inc();
///
/// let scrape = registry.scrape()?;
/// let sample = scrape.samples().next().unwrap();
/// assert_eq!((sample.name(), sample.value()), ("requests_total", Some(1)));
/// assert!(sample.labels().eq([("method", "GET"), ("status", "200")]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedRegistry(pub(super) Arc<Mapping>);

impl Segment {
    /// Returns the registry of the segment.
    ///
    /// # Errors
    ///
    /// If the segment was created without [`series`](crate::SegmentOptions::series), or is lost.
    pub fn registry(&self) -> Result<SharedRegistry, SegmentError> {
        let mapping = self.mapping();
        let check = || head(mapping).and_then(|_| mapping.check_length());
        check().map_err(|kind| mapping.error(kind))?;
        Ok(SharedRegistry(Arc::clone(mapping)))
    }
}

impl SharedRegistry {
    /// Returns the family of counters of a name, and makes it if there is none.
    ///
    /// The rules for names are those of Prometheus: letters, digits and underscores, no digit
    /// first, and colons in the name of the family. A name gets the suffix `_total` unless it has
    /// it. Labels have an order, `le` and names that begin with `__` are reserved, and there are at
    /// most 64. The process that makes the family decides about its help text.
    ///
    /// # Errors
    ///
    /// If a name is not allowed, if the family exists with another type or other labels, if the
    /// registry is full or damaged, or if the system has no memory.
    pub fn counter_family(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<SharedFamily, SegmentError> {
        let name = of_counter(name);
        if let Some(reason) = refusal(&name, help, labels) {
            return Err(self.0.error(SegmentErrorKind::InvalidSeries { reason }));
        }
        let found = insert_family(&self.0, &name, help, labels);
        let at = found.map_err(|kind| self.0.error(kind))?;
        self.family_at(at, &name, Some(labels))
    }

    /// Returns the family of counters of a name, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the family is of another type, or if the segment is damaged or lost.
    pub fn find_family(&self, name: &str) -> Result<Option<SharedFamily>, SegmentError> {
        let name = of_counter(name);
        let found = find_family(&self.0, &name).map_err(|kind| self.0.error(kind))?;
        found.map(|at| self.family_at(at, &name, None)).transpose()
    }

    /// Returns the handle of a family, if it is one of counters and has these labels.
    fn family_at(
        &self,
        at: u64,
        name: &str,
        labels: Option<&[&str]>,
    ) -> Result<SharedFamily, SegmentError> {
        let checked = check_family(&self.0, at, name, labels);
        let label_names = checked.map_err(|kind| self.0.error(kind))?;
        let segment = Arc::clone(&self.0);
        Ok(SharedFamily(Handle { segment, at, name: name.into(), labels: label_names.into() }))
    }

    /// Returns the values of all series, as they were at one instant of the call.
    ///
    /// Series that are inserted meanwhile may be missing. A damaged record ends only its own step:
    /// see [`Scrape::damaged`]. If others read the registry all the time, so that a hundred
    /// attempts fail, the result has bounds, and [`Scrape::is_exact`] is false. Costs, for each
    /// lane, an exchange and a few loads for each series, and memory for the result.
    ///
    /// # Errors
    ///
    /// If the segment is lost, or if the system has no memory for what others have inserted.
    pub fn scrape(&self) -> Result<Scrape, SegmentError> {
        Scrape::exact(&self.0).map_err(|kind| self.0.error(kind))
    }

    /// Returns how much of the registry is in use.
    ///
    /// Costs a load for each entry of the index, of which there are three to six for each series.
    ///
    /// # Errors
    ///
    /// If the segment is lost.
    pub fn usage(&self) -> Result<RegistryUsage, SegmentError> {
        usage(&self.0).map_err(|kind| self.0.error(kind))
    }

    /// Returns how many inserts failed because there was no room or memory.
    pub fn refused(&self) -> u64 {
        // Relaxed: a number to be shown.
        head(&self.0).map_or(0, |head| head.refused.load(Relaxed))
    }
}
