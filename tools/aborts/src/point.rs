//! The points at which a section can be stopped: at each instruction of its range, and just before
//! and after it.

use anyhow::{Context as _, Result, ensure};
use thiscpu_test_support::sections::{Copy, Image};

/// The instruction of a breakpoint.
#[cfg(target_arch = "x86_64")]
pub(crate) const BREAKPOINT: Code = [0xcc];
#[cfg(target_arch = "aarch64")]
pub(crate) const BREAKPOINT: Code = 0xd420_0000_u32.to_le_bytes();

/// The bytes of a breakpoint, and those that it replaces.
#[cfg(target_arch = "x86_64")]
pub(crate) type Code = [u8; 1];
#[cfg(target_arch = "aarch64")]
pub(crate) type Code = [u8; 4];

/// The distance from a breakpoint to the address that the kernel reports.
#[cfg(target_arch = "x86_64")]
pub(crate) const PAST: usize = 1;
#[cfg(target_arch = "aarch64")]
pub(crate) const PAST: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// In the entry.
    ///
    /// The kernel aborts nothing here, so the section must not have loaded anything yet.
    Before,
    /// In the range, where the kernel aborts the section.
    Inside,
    /// At the first instruction after the range. The commit must be done.
    After,
}

/// An instruction at which a breakpoint can stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) kind: PointKind,
    pub(crate) address: usize,
    /// The original bytes.
    pub(crate) code: Code,
}

/// Returns all points of a copy, in a program that is loaded `base` after its addresses.
pub(crate) fn all(image: &Image, copy: &Copy, base: usize) -> Result<Vec<Point>> {
    // The store of the descriptor's address must be the last instruction before the range: another
    // one between them would be unprotected.
    let before = image.instructions(image.entry_of(copy)?..copy.start)?;
    let inside = image.instructions(copy.range())?;
    ensure!(!inside.is_empty(), "its range is empty");
    let points = before.into_iter().map(|address| (PointKind::Before, address));
    let points = points.chain(inside.into_iter().map(|address| (PointKind::Inside, address)));
    points
        .chain([(PointKind::After, copy.end)])
        .map(|(kind, address)| {
            let code = *image.at(address)?.first_chunk().context("an instruction is cut off")?;
            Ok(Point { kind, address: base.wrapping_add(address as usize), code })
        })
        .collect()
}
