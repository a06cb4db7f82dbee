//! Every inlined copy of every section in this program, from its file and its memory.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use object::{File, Object as _, ObjectSection as _};

use crate::memory::Memory;
use crate::point::{self, Point};

const DESCRIPTORS: &str = "__rseq_cs";
const NAMES: &str = ".thiscpu_sections";
const DESCRIPTOR_BYTES: usize = 32;

/// The word that the kernel requires before an abort handler.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

/// The direct sections.
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

/// Finds all copies.
pub(crate) fn all(memory: &Memory) -> Result<Vec<SectionCopy>> {
    let data = fs::read("/proc/self/exe").context("/proc/self/exe")?;
    let elf = File::parse(&*data).context("/proc/self/exe is not an ELF file")?;
    // SAFETY: getauxval only reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    // The distance of this program's addresses in memory from those in its file.
    let base = entry.wrapping_sub(elf.entry() as usize);
    let mut names = names(&elf)?;
    let section = elf.section_by_name(DESCRIPTORS);
    let section = section.with_context(|| format!("this program has no `{DESCRIPTORS}`"))?;
    let (begin, size) = (section.address() as usize, section.size() as usize);
    let mut copies = Vec::new();
    for address in (begin..begin + size).step_by(DESCRIPTOR_BYTES) {
        let name = names.remove(&address).unwrap_or_default();
        ensure!(name.len() == 1, "the descriptor at {address:#x} has {} names", name.len());
        let [name] = <[String; 1]>::try_from(name).unwrap_or_default();
        let copy = copy(memory, &name, base.wrapping_add(address));
        copies.push(copy.with_context(|| format!("{name}, descriptor {address:#x}"))?);
    }
    if let Some((address, names)) = names.first_key_value() {
        bail!("`{}` names {address:#x}, which is not a descriptor", names.join("`, `"));
    }
    Ok(copies)
}

/// Returns the names of the copies, by the addresses of their descriptors in the file.
fn names(elf: &File<'_>) -> Result<BTreeMap<usize, Vec<String>>> {
    let section =
        elf.section_by_name(NAMES).with_context(|| format!("this program has no `{NAMES}`"))?;
    let mut rest = section.data()?;
    let mut names = BTreeMap::<_, Vec<_>>::new();
    while let Some((address, text)) = rest.split_first_chunk() {
        let end = text.iter().position(|&byte| byte == 0);
        let end = end.with_context(|| format!("`{NAMES}` ends within a name"))?;
        let name = String::from_utf8_lossy(&text[..end]).into_owned();
        names.entry(u64::from_le_bytes(*address) as usize).or_default().push(name);
        rest = &text[end + 1..];
    }
    Ok(names)
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
