//! A binary, and every copy of every section that its tables list.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use iced_x86::{Code as Instruction, Decoder, DecoderOptions};
use object::{
    Architecture, File, Object as _, ObjectSection as _, RelocationFlags, SectionFlags,
    elf::{R_AARCH64_RELATIVE, R_X86_64_RELATIVE, SHF_EXECINSTR},
};

const DESCRIPTOR_BYTES: usize = 32;
/// The number of bytes that no entry exceeds.
const ENTRY_MAX: u64 = 32;

/// One copy of a section.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The section's name.
    pub name: String,
    /// The address of its descriptor.
    pub descriptor: u64,
    flags: u64,
    /// The first address of its range.
    pub start: u64,
    /// The first address after the commit.
    pub end: u64,
    /// The address of its abort handler.
    pub abort: u64,
}

impl Copy {
    /// Returns a copy with this range, for tests.
    pub fn at(name: &str, range: Range<u64>) -> Copy {
        let (start, end) = (range.start, range.end);
        Copy { name: name.to_owned(), descriptor: 0, flags: 0, start, end, abort: 0 }
    }

    /// Returns the addresses of its range.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// A binary. Addresses are those in its file.
pub struct Image {
    /// The processor architecture, one of those that have sections.
    pub architecture: Architecture,
    /// The address at which the program begins.
    pub entry: u64,
    /// All copies of all sections.
    pub copies: Vec<Copy>,
    /// The ELF sections that are loaded: name, address, whether it is code, content.
    loaded: Vec<(String, u64, bool, Vec<u8>)>,
}

impl Image {
    /// Reads an ELF file.
    ///
    /// # Errors
    ///
    /// Unless each descriptor has one name, and each name has a descriptor.
    pub fn parse(data: &[u8]) -> Result<Image> {
        let elf = File::parse(data).context("not an ELF file")?;
        let architecture = elf.architecture();
        if !matches!(architecture, Architecture::X86_64 | Architecture::Aarch64) {
            bail!("no sections exist for the architecture {architecture:?}");
        }
        let loaded = elf.sections().filter(|section| section.address() != 0).map(|section| {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                bail!("not an ELF file")
            };
            let code = sh_flags.contains(SHF_EXECINSTR);
            Ok((section.name()?.to_owned(), section.address(), code, section.data()?.to_vec()))
        });
        let (copies, loaded) = (Vec::new(), loaded.collect::<Result<_>>()?);
        let mut image = Image { architecture, entry: elf.entry(), copies, loaded };
        let relocated = relocated(&elf);
        let copies = names(&elf)?.into_iter().map(|(descriptor, name)| {
            let word = |at: u64| image.word(descriptor + at, &relocated);
            let (flags, start, bytes, abort) = (word(0)?, word(8)?, word(16)?, word(24)?);
            Ok(Copy { name, descriptor, flags, start, end: start.wrapping_add(bytes), abort })
        });
        image.copies = copies.collect::<Result<_>>()?;
        Ok(image)
    }

    /// Returns the copies of the section of this name, or of all sections whose names contain it.
    pub fn copies_of(&self, filter: &str) -> impl Iterator<Item = &Copy> {
        let is_exact = self.copies.iter().any(|copy| copy.name == filter);
        let is_wanted = move |copy: &&Copy| match is_exact {
            true => copy.name == filter,
            false => copy.name.contains(filter),
        };
        self.copies.iter().filter(is_wanted)
    }

    /// Checks what the kernel requires of a copy; it would kill the process otherwise.
    ///
    /// # Errors
    ///
    /// If the copy breaks a rule.
    pub fn check(&self, copy: &Copy) -> Result<()> {
        ensure!(copy.flags == 0, "version and flags must be 0, but are {:#x}", copy.flags);
        ensure!(!copy.range().contains(&copy.abort), "its abort handler lies in its range");
        let before = self.code(copy.abort - 4..copy.abort)?.first_chunk();
        let before = before.map(|bytes| u32::from_le_bytes(*bytes));
        let signature = match self.architecture {
            Architecture::X86_64 => 0x5305_3053,
            _ => 0xd428_bc00,
        };
        ensure!(
            before == Some(signature),
            "no signature {signature:#010x} before its abort handler, but {before:#010x?}"
        );
        Ok(())
    }

    /// Returns where the entry of a copy begins.
    ///
    /// That is the instruction that loads the descriptor's address, or on AArch64 the one that
    /// reads the thread pointer.
    ///
    /// # Errors
    ///
    /// If no such instruction is just before the range.
    pub fn entry_of(&self, copy: &Copy) -> Result<u64> {
        let (step, what) = match self.architecture {
            Architecture::X86_64 => (1, "loads its descriptor's address"),
            _ => (4, "reads the thread pointer"),
        };
        let mut begins = (1..=ENTRY_MAX / step).map(|count| copy.start - step * count);
        let begin = begins.find(|&begin| self.begins_entry(copy, begin));
        begin.with_context(|| format!("no instruction just before its range {what}"))
    }

    fn begins_entry(&self, copy: &Copy, begin: u64) -> bool {
        let Ok(code) = self.code(begin..copy.start) else { return false };
        if self.architecture == Architecture::X86_64 {
            let first = Decoder::with_ip(64, code, begin, DecoderOptions::NONE).decode();
            return first.code() == Instruction::Lea_r64_m
                && first.is_ip_rel_memory_operand()
                && first.ip_rel_memory_address() == copy.descriptor;
        }
        /// `mrs x0, tpidr_el0`, and the bits of the register's number.
        const READ_THREAD_POINTER: u32 = 0xd53b_d040;
        const REGISTER: u32 = 0x1f;
        let first = code.first_chunk().map(|word| u32::from_le_bytes(*word));
        first.is_some_and(|word| word & !REGISTER == READ_THREAD_POINTER)
    }

    /// Returns the addresses of the instructions in a range.
    ///
    /// # Errors
    ///
    /// If it is not whole instructions of one section.
    pub fn instructions(&self, range: Range<u64>) -> Result<Vec<u64>> {
        let code = self.code(range.clone())?;
        let not_whole = || format!("{range:#x?} is not whole instructions");
        if self.architecture != Architecture::X86_64 {
            ensure!(code.len().is_multiple_of(4), not_whole());
            return Ok(range.step_by(4).collect());
        }
        let decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
        let all: Vec<_> = decoder.into_iter().collect();
        ensure!(all.iter().all(|one| !one.is_invalid()), not_whole());
        Ok(all.iter().map(|one| one.ip()).collect())
    }

    /// Returns the bytes from `address` to the end of its section.
    ///
    /// # Errors
    ///
    /// If no section contains the address.
    pub fn at(&self, address: u64) -> Result<&[u8]> {
        let (_, begin, _, bytes) = self.section(address)?;
        Ok(&bytes[(address - begin) as usize..])
    }

    /// Returns the code at `range`.
    ///
    /// # Errors
    ///
    /// If it is not code of one section.
    pub fn code(&self, range: Range<u64>) -> Result<&[u8]> {
        let (name, begin, code, bytes) = self.section(range.start)?;
        ensure!(code, "{:#x} is in `{name}`, which is not code", range.start);
        ensure!(range.start <= range.end, "{:#x} is after {:#x}", range.start, range.end);
        let bytes = bytes.get((range.start - begin) as usize..(range.end - begin) as usize);
        bytes.with_context(|| format!("{:#x} is outside of `{name}`", range.end))
    }

    /// Returns the ELF section of an address: name, address, whether it is code, content.
    ///
    /// # Errors
    ///
    /// If no section contains the address.
    pub fn section(&self, address: u64) -> Result<&(String, u64, bool, Vec<u8>)> {
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
fn relocated(elf: &File<'_>) -> BTreeMap<u64, u64> {
    let relative = match elf.architecture() {
        Architecture::X86_64 => R_X86_64_RELATIVE,
        _ => R_AARCH64_RELATIVE,
    };
    let all = elf.dynamic_relocations().into_iter().flatten();
    all.filter(|(_, relocation)| relocation.flags() == RelocationFlags::Elf { r_type: relative })
        .map(|(address, relocation)| (address, relocation.addend() as u64))
        .collect()
}

/// Returns the name of each copy, by the address of its descriptor in the file.
///
/// Fails unless each descriptor has one name, and each name has a descriptor.
fn names(elf: &File<'_>) -> Result<BTreeMap<u64, String>> {
    let section =
        |name| elf.section_by_name(name).with_context(|| format!("no ELF section `{name}`"));
    let descriptors = section("__rseq_cs")?;
    let begin = descriptors.address();
    let descriptors = (begin..begin + descriptors.size()).step_by(DESCRIPTOR_BYTES);
    let mut names: BTreeMap<_, Vec<_>> = descriptors.map(|at| (at, Vec::new())).collect();
    let mut rest = section(".thiscpu_sections")?.data()?;
    while let Some((address, text)) = rest.split_first_chunk() {
        let end = text.iter().position(|&byte| byte == 0).context("names end within a name")?;
        let (address, name) = (u64::from_le_bytes(*address), String::from_utf8_lossy(&text[..end]));
        let named = names.get_mut(&address);
        named
            .with_context(|| format!("`{name}` names {address:#x}, which is not a descriptor"))?
            .push(name.into_owned());
        rest = &text[end + 1..];
    }
    let only_name = |(at, names)| match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok((at, name)),
        Err(names) => Err(anyhow!("the descriptor at {at:#x} must have one name, not {names:?}")),
    };
    names.into_iter().map(only_name).collect()
}
