//! Every inlined copy of every section in this program, from its file and its memory.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use object::{File, Object as _};
use thiscpu_test_support::sections;

use crate::memory::Memory;
use crate::point::{self, Point};

/// The word that the kernel requires before an abort handler.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

const DIRECT: [&str; 5] = [
    "pop_object_direct",
    "push_object_direct",
    "pop_object_malloc",
    "pop_object_malloc_asm",
    "push_object_malloc",
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

pub(crate) fn all(memory: &Memory) -> Result<Vec<SectionCopy>> {
    let data = fs::read("/proc/self/exe").context("/proc/self/exe")?;
    let elf = File::parse(&*data).context("/proc/self/exe is not an ELF file")?;
    // SAFETY: getauxval only reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    // The distance of this program's addresses in memory from those in its file.
    let base = entry.wrapping_sub(elf.entry() as usize);
    let copies = sections::names(&elf)?.into_iter().map(|(address, name)| {
        let copy = copy(memory, &name, base.wrapping_add(address as usize));
        copy.with_context(|| format!("{name}, descriptor {address:#x}"))
    });
    copies.collect()
}

/// Reads a descriptor, and refuses one for which the kernel would kill this process.
fn copy(memory: &Memory, name: &str, descriptor: usize) -> Result<SectionCopy> {
    let word = |at: usize| memory.read(descriptor + at).map(usize::from_le_bytes);
    let (flags, start, bytes, abort) = (word(0)?, word(8)?, word(16)?, word(24)?);
    ensure!(flags == 0, "version and flags must be 0, but are {flags:#x}");
    ensure!(!(start..start + bytes).contains(&abort), "its abort handler lies in its range");
    let signature = u32::from_le_bytes(memory.read(abort - 4)?);
    ensure!(
        signature == SIGNATURE,
        "no signature {SIGNATURE:#010x} before its abort handler, but {signature:#010x}"
    );
    let points = point::all(memory, descriptor, start, start + bytes)?;
    Ok(SectionCopy { name: name.to_owned(), abort, points })
}
