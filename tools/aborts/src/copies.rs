//! Every inlined copy of every section in this program.

use std::fs;

use anyhow::{Context as _, Result};
use thiscpu_test_support::sections::Image;

use crate::point::{self, Point};

const DIRECT: [&str; 6] = [
    "pop_object_direct",
    "push_object_direct",
    "pop_object_malloc",
    "pop_object_malloc_asm",
    "push_object_malloc",
    "push_object_malloc_asm",
];

/// One copy of a section.
#[derive(Debug)]
pub(crate) struct SectionCopy {
    pub(crate) name: String,
    pub(crate) abort: usize,
    /// The points at which it can be stopped: before its range, in it, after it.
    pub(crate) points: Vec<Point>,
}

impl SectionCopy {
    /// Returns whether it is a direct section, which a thread enters only if that is enabled.
    pub(crate) fn is_direct(&self) -> bool {
        DIRECT.contains(&&*self.name)
    }
}

pub(crate) fn all() -> Result<Vec<SectionCopy>> {
    const FILE: &str = "/proc/self/exe";
    let image = Image::parse(&fs::read(FILE).context(FILE)?).context(FILE)?;
    // SAFETY: getauxval only reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    // The distance of this program's addresses in memory from those in its file.
    let base = entry.wrapping_sub(image.entry as usize);
    let copies = image.copies.iter().map(|copy| {
        // The kernel would kill this process for a wrong one.
        let points = image.check(copy).and_then(|()| point::all(&image, copy, base));
        let points =
            points.with_context(|| format!("{}, descriptor {:#x}", copy.name, copy.descriptor))?;
        let abort = base.wrapping_add(copy.abort as usize);
        Ok(SectionCopy { name: copy.name.clone(), abort, points })
    });
    copies.collect()
}
