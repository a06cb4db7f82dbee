//! Why units of a shared budget were not acquired.

use std::fmt;

use crate::budget::TryAcquireError;
use crate::segment::file::error::{SegmentError, SegmentErrorKind};

/// The error of an acquire of a [`SharedBudget`](crate::SharedBudget).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedAcquireError {
    /// Fewer units were available than requested, or they are promised to a waiter.
    Exhausted {
        /// The number of units that were available, at one instant of the refused call.
        available: u64,
    },
    /// The budget is [closed](crate::SharedBudget::close): it will never hand out units again.
    Closed,
    /// This process could not take a slot of the segment, at its first call after a fork.
    NoSlot(Box<SegmentError>),
    /// A part of the segment's file is gone; see [`Segment::is_lost`](crate::Segment::is_lost).
    Lost,
}

impl SharedAcquireError {
    /// Returns how many units were available to the refused call; otherwise 0.
    pub fn available(&self) -> u64 {
        match *self {
            SharedAcquireError::Exhausted { available } => available,
            _ => 0,
        }
    }
}

impl fmt::Display for SharedAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SharedAcquireError::Exhausted { available } => {
                TryAcquireError::Exhausted { available }.fmt(f)
            }
            SharedAcquireError::Closed => TryAcquireError::Closed.fmt(f),
            SharedAcquireError::NoSlot(ref error) => error.fmt(f),
            SharedAcquireError::Lost => {
                write!(f, "cannot acquire units of the segment: {}", SegmentErrorKind::Lost)
            }
        }
    }
}

impl std::error::Error for SharedAcquireError {}
