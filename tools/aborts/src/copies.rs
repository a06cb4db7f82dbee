//! Every inlined copy of every section in this program, found in its own file and its own memory.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use object::{File, Object as _, ObjectSection as _};

use crate::memory::Memory;
use crate::point::{self, Point};

const DESCRIPTORS: &str = "__rseq_cs";
const NAMES: &str = ".thiscpu_sections";
const DESCRIPTOR_BYTES: usize = 32;

/// What the kernel wants to see before an abort handler.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

/// One copy of a section.
#[derive(Debug)]
pub(crate) struct Inlined {
    pub(crate) name: String,
    pub(crate) abort: usize,
    /// Where it can be stopped: before its range, in it, after it.
    pub(crate) points: Vec<Point>,
}

impl Inlined {
    /// Whether only threads that were let in are ever in it.
    pub(crate) fn is_near(&self) -> bool {
        [
            "pop_object_direct",
            "push_object_direct",
            "pop_object_malloc",
            "pop_object_malloc_asm",
            "push_object_malloc",
        ]
        .contains(&&*self.name)
    }
}

/// Finds them all.
pub(crate) fn all(memory: &Memory) -> Result<Vec<Inlined>> {
    let data = fs::read("/proc/self/exe").context("/proc/self/exe")?;
    let elf = File::parse(&*data).context("/proc/self/exe is no ELF file")?;
    // SAFETY: getauxval reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    // How far from its addresses in the file this program was loaded.
    let base = entry.wrapping_sub(elf.entry() as usize);
    let mut names = names(&elf)?;
    let section = elf.section_by_name(DESCRIPTORS);
    let section = section.context("this program has no sections at all: no `__rseq_cs`")?;
    let (begin, size) = (section.address() as usize, section.size() as usize);
    let mut copies = Vec::new();
    for address in (begin..begin + size).step_by(DESCRIPTOR_BYTES) {
        let name = names.remove(&address).unwrap_or_default();
        ensure!(name.len() == 1, "the descriptor at {address:#x} has {} names", name.len());
        let [name] = <[String; 1]>::try_from(name).unwrap_or_default();
        let descriptor = base.wrapping_add(address);
        let copy = copy(memory, &name, descriptor);
        copies.push(copy.with_context(|| format!("{name}, descriptor {address:#x}"))?);
    }
    if let Some((address, names)) = names.first_key_value() {
        bail!("`{}` names {address:#x}, where there is no descriptor", names.join("`, `"));
    }
    Ok(copies)
}

/// What the copies are called, by the addresses of their descriptors in the file.
fn names(elf: &File<'_>) -> Result<BTreeMap<usize, Vec<String>>> {
    let section = elf.section_by_name(NAMES).with_context(|| format!("no `{NAMES}` is left"))?;
    let mut rest = section.data()?;
    let mut names = BTreeMap::<_, Vec<_>>::new();
    while let Some((address, text)) = rest.split_first_chunk() {
        let end = text.iter().position(|&byte| byte == 0);
        let end = end.with_context(|| format!("`{NAMES}` ends inside a name"))?;
        let name = String::from_utf8_lossy(&text[..end]).into_owned();
        names.entry(u64::from_le_bytes(*address) as usize).or_default().push(name);
        rest = &text[end + 1..];
    }
    Ok(names)
}

/// Reads a descriptor as the kernel does, and refuses what the kernel would kill this process for.
fn copy(memory: &Memory, name: &str, descriptor: usize) -> Result<Inlined> {
    let word = |at: usize| memory.read(descriptor + at).map(usize::from_le_bytes);
    let (flags, start, bytes, abort) = (word(0)?, word(8)?, word(16)?, word(24)?);
    ensure!(flags == 0, "its version and flags are {flags:#x} where only 0 is allowed");
    ensure!(!(start..start + bytes).contains(&abort), "its abort handler lies in its range");
    let signature = u32::from_le_bytes(memory.read(abort - 4)?);
    ensure!(
        signature == SIGNATURE,
        "{signature:#010x} stands before its abort handler, not the signature {SIGNATURE:#010x}"
    );
    let points = point::all(memory, descriptor, start, start + bytes)?;
    Ok(Inlined { name: name.to_owned(), abort, points })
}
