//! Templates: what every copy of a section must be, instruction for instruction, except for its
//! registers.
//!
//! A template is a text file that somebody read before blessing it. Its registers are numbered in
//! order of appearance: `r3.d` is the lower half of the register that `r3` is all of.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::arch::Arch;

/// The parts of a section's code, in the order of a template.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts<L> {
    /// From the instruction that loads the descriptor's address up to the range.
    pub(crate) entry: Vec<L>,
    pub(crate) range: Vec<L>,
    /// The abort handler, up to its jump.
    pub(crate) abort: Vec<L>,
}

/// The headings of a template's parts.
const HEADINGS: [&str; 3] = ["before:", "range:", "abort:"];

impl<L> Parts<L> {
    /// Returns each part with its heading.
    pub(crate) fn with_headings(&self) -> impl Iterator<Item = (&'static str, &[L])> {
        HEADINGS.into_iter().zip([&self.entry[..], &self.range, &self.abort])
    }
}

/// Returns the directory of an architecture's templates.
pub(crate) fn directory(root: &Path, arch: Arch) -> PathBuf {
    root.join("xtask/templates").join(arch.to_string())
}

/// Returns the path of a section's template.
pub(crate) fn path(root: &Path, arch: Arch, section: &str) -> PathBuf {
    directory(root, arch).join(format!("{}.txt", section.replace("::", ".")))
}

/// Reads the template of a section.
pub(crate) fn read(root: &Path, arch: Arch, section: &str) -> Result<Parts<String>> {
    let path = path(root, arch, section);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "`{section}` has no template {}; run `cargo xtask aborts --bless`, and read it",
            path.display()
        )
    })?;
    let mut parts = Parts::default();
    let mut part = None;
    for line in text.lines() {
        match HEADINGS.iter().position(|heading| *heading == line) {
            Some(0) => part = Some(&mut parts.entry),
            Some(1) => part = Some(&mut parts.range),
            Some(_) => part = Some(&mut parts.abort),
            None => part
                .as_mut()
                .with_context(|| format!("{}: a line before the first heading", path.display()))?
                .push(line.trim().to_owned()),
        }
    }
    Ok(parts)
}
