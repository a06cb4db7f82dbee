//! Registries of segments that a process can only read.

use std::sync::Arc;

use super::family::{Handle, place_of};
use super::head::head;
use super::insert::{check_family, find_family};
use super::names::of_counter;
use super::scrape::Scrape;
use super::usage::{RegistryUsage, usage};
use crate::counter::Bounds;
use crate::segment::file::error::SegmentError;
use crate::segment::file::mapping::Mapping;
use crate::segment::view::SegmentView;

/// The registry of a segment that this process can read, but not change.
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::options().series(10).anonymous()?;
/// segment.registry()?.counter_family("requests", "", &["path"])?.series(&["/"])?.add(3);
///
/// let file = segment.as_fd()?.try_clone_to_owned().unwrap();
/// let registry = thiscpu::SegmentView::from_fd(file)?.registry()?;
/// let scrape = registry.scrape()?;
/// let sample = scrape.samples().next().unwrap();
/// assert_eq!((sample.low(), sample.high()), (3, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RegistryView(Arc<Mapping>);

impl SegmentView {
    /// Returns the registry of the segment.
    ///
    /// # Errors
    ///
    /// If the segment was created without [`series`](crate::SegmentOptions::series).
    pub fn registry(&self) -> Result<RegistryView, SegmentError> {
        let mapping = self.mapping();
        head(mapping).map_err(|kind| mapping.error(kind))?;
        Ok(RegistryView(Arc::clone(mapping)))
    }
}

impl RegistryView {
    /// Returns bounds of all series, which hold at one instant of the call.
    ///
    /// Of a series that nobody changes meanwhile, both bounds are the exact value. If the value
    /// cannot be bounded, because it has exceeded 2^63 - 1 or because adders kept saving large
    /// amounts, the bounds are 0 and `u64::MAX`. Costs a few loads for each series and lane, and
    /// memory for the result. Waits for nobody.
    ///
    /// # Errors
    ///
    /// If the segment is lost.
    pub fn scrape(&self) -> Result<Scrape, SegmentError> {
        Scrape::bounds(&self.0).map_err(|kind| self.0.error(kind))
    }

    /// Returns bounds of one series, or `None` if there is no such series.
    ///
    /// As of a [`CounterView`](crate::CounterView): the result has the limits of `i64` if the value
    /// cannot be bounded. Costs a look-up, and a few loads for each lane.
    ///
    /// # Errors
    ///
    /// If there is another number of values, or if the segment is damaged or lost.
    pub fn find(&self, family: &str, values: &[&str]) -> Result<Option<Bounds>, SegmentError> {
        let find = || {
            let name = of_counter(family);
            let Some(at) = find_family(&self.0, &name)? else { return Ok(None) };
            let labels = check_family(&self.0, at, &name, None)?.into();
            let (segment, name) = (Arc::clone(&self.0), name.into());
            let handle = Handle { segment, at, name, labels };
            let Some(at) = handle.find(values)? else { return Ok(None) };
            let (lanes, _) = place_of(&self.0, at)?;
            let (first, second) = (lanes.count(0), lanes.count(0));
            self.0.check_length()?;
            Ok(Some(match (first, second) {
                (Some(low @ 0..), Some(high)) if low <= high => {
                    Bounds { low, estimate: low.midpoint(high), high }
                }
                _ => Bounds { low: i64::MIN, estimate: 0, high: i64::MAX },
            }))
        };
        find().map_err(|kind| self.0.error(kind))
    }

    /// Returns how much of the registry is in use.
    ///
    /// As [`SharedRegistry::usage`](crate::SharedRegistry::usage).
    ///
    /// # Errors
    ///
    /// If the segment is lost.
    pub fn usage(&self) -> Result<RegistryUsage, SegmentError> {
        usage(&self.0).map_err(|kind| self.0.error(kind))
    }
}
