//! A binary, and every copy of every section that its tables list.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, Result, bail, ensure};
use object::{
    Architecture, File, Object as _, ObjectSection as _, RelocationFlags, SectionFlags,
    elf::{R_AARCH64_RELATIVE, R_X86_64_RELATIVE, SHF_EXECINSTR},
};
use thiscpu_test_support::sections;

use crate::arch::Arch;

/// One copy of a section.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) name: String,
    pub(super) descriptor: u64,
    pub(super) flags: u64,
    pub(super) start: u64,
    /// The first address after the commit.
    pub(super) end: u64,
    pub(super) abort: u64,
}

impl Copy {
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

pub(super) struct Image {
    pub(super) arch: Arch,
    pub(super) copies: Vec<Copy>,
    /// The ELF sections that are loaded: name, address, whether it is code, content.
    loaded: Vec<(String, u64, bool, Vec<u8>)>,
}

impl Image {
    pub(super) fn parse(data: &[u8]) -> Result<Image> {
        let elf = File::parse(data).context("not an ELF file")?;
        let arch = match elf.architecture() {
            Architecture::X86_64 => Arch::X86_64,
            Architecture::Aarch64 => Arch::Aarch64,
            other => bail!("no sections exist for the architecture {other:?}"),
        };
        let loaded = elf.sections().filter(|section| section.address() != 0).map(|section| {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                bail!("not an ELF file")
            };
            let code = sh_flags.contains(SHF_EXECINSTR);
            Ok((section.name()?.to_owned(), section.address(), code, section.data()?.to_vec()))
        });
        let mut image = Image { arch, copies: Vec::new(), loaded: loaded.collect::<Result<_>>()? };
        let relocated = relocated(&elf, arch);
        let copies = sections::names(&elf)?.into_iter().map(|(descriptor, name)| {
            let word = |at: u64| image.word(descriptor + at, &relocated);
            let (flags, start, bytes, abort) = (word(0)?, word(8)?, word(16)?, word(24)?);
            Ok(Copy { name, descriptor, flags, start, end: start.wrapping_add(bytes), abort })
        });
        image.copies = copies.collect::<Result<_>>()?;
        Ok(image)
    }

    /// Returns the copies of the section of this name, or of all sections whose names contain it.
    pub(super) fn copies_of(&self, filter: &str) -> impl Iterator<Item = &Copy> {
        let is_exact = self.copies.iter().any(|copy| copy.name == filter);
        let is_wanted = move |copy: &&Copy| match is_exact {
            true => copy.name == filter,
            false => copy.name.contains(filter),
        };
        self.copies.iter().filter(is_wanted)
    }

    /// Returns the bytes from `address` to the end of its section.
    pub(super) fn at(&self, address: u64) -> Result<&[u8]> {
        let (_, begin, _, bytes) = self.section(address)?;
        Ok(&bytes[(address - begin) as usize..])
    }

    /// Returns the code at `range`, which must lie in one section.
    pub(super) fn code(&self, range: Range<u64>) -> Result<&[u8]> {
        let (name, begin, code, bytes) = self.section(range.start)?;
        ensure!(code, "{:#x} is in `{name}`, which is not code", range.start);
        ensure!(range.start <= range.end, "{:#x} is after {:#x}", range.start, range.end);
        let bytes = bytes.get((range.start - begin) as usize..(range.end - begin) as usize);
        bytes.with_context(|| format!("{:#x} is outside of `{name}`", range.end))
    }

    /// Returns the signature that the kernel requires before an abort handler.
    pub(super) fn signature(&self) -> u32 {
        match self.arch {
            Arch::X86_64 => 0x5305_3053,
            Arch::Aarch64 => 0xd428_bc00,
        }
    }

    pub(super) fn section(&self, address: u64) -> Result<&(String, u64, bool, Vec<u8>)> {
        self.loaded
            .iter()
            .find(|(_, begin, _, bytes)| (*begin..begin + bytes.len() as u64).contains(&address))
            .with_context(|| format!("no section contains {address:#x}"))
    }

    fn word(&self, address: u64, relocated: &BTreeMap<u64, u64>) -> Result<u64> {
        if let Some(value) = relocated.get(&address) {
            return Ok(*value);
        }
        let bytes = self.at(address)?.first_chunk();
        Ok(u64::from_le_bytes(*bytes.context("a descriptor is cut off")?))
    }
}

/// Returns the words that a loader fills in, as if it loaded the program at 0.
fn relocated(elf: &File<'_>, arch: Arch) -> BTreeMap<u64, u64> {
    let relative = match arch {
        Arch::X86_64 => R_X86_64_RELATIVE,
        Arch::Aarch64 => R_AARCH64_RELATIVE,
    };
    let all = elf.dynamic_relocations().into_iter().flatten();
    all.filter(|(_, relocation)| relocation.flags() == RelocationFlags::Elf { r_type: relative })
        .map(|(address, relocation)| (address, relocation.addend() as u64))
        .collect()
}
