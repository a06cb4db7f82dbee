//! What a file's ELF header says about the loader it needs.

use std::{fs::File, path::Path};

use anyhow::{Context as _, Result, bail};
use object::{
    Endianness, FileKind, ReadCache, elf,
    read::elf::{FileHeader as _, ProgramHeader as _, Sym as _},
};

use super::sanitizer::{self, Sanitizer};

/// The machine that this program and the library are built for.
#[cfg(target_arch = "x86_64")]
const MACHINE: (elf::Machine, &str) = (elf::EM_X86_64, "x86-64");
#[cfg(target_arch = "aarch64")]
const MACHINE: (elf::Machine, &str) = (elf::EM_AARCH64, "AArch64");

/// A program that this machine can start, or a library that it can load.
pub(super) struct Loadable {
    /// The dynamic loader that a program names; statically linked programs have none.
    pub(super) loader: Option<String>,
    /// Whether it exports `malloc`, which the C library would then use too.
    pub(super) has_malloc: bool,
    /// The sanitizer that it is built with.
    pub(super) sanitizer: Option<Sanitizer>,
}

/// Reads the header of the file at `path`.
pub(super) fn read(path: &Path) -> Result<Loadable> {
    let file = File::open(path).context("cannot read its header")?;
    let data = ReadCache::new(file);
    match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => bail!("it is a 32-bit program; the library is 64-bit"),
        _ => bail!("it is neither an ELF file nor a script that begins with #!"),
    }
    let header = elf::FileHeader64::<Endianness>::parse(&data)?;
    let endian = header.endian()?;
    let (machine, name) = MACHINE;
    if header.e_machine(endian) != machine {
        bail!("it is built for another architecture; the library is built for {name}");
    }
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        bail!("it is an object file or a core dump, not a program");
    }
    let mut loader = None;
    for segment in header.program_headers(endian, &data)? {
        if let Some(name) = segment.interpreter(endian, &data)? {
            loader = Some(String::from_utf8_lossy(name).into_owned());
        }
    }
    let sections = header.sections(endian, &data)?;
    let symbols = sections.symbols(endian, &data, elf::SHT_DYNSYM)?;
    let is_malloc = |symbol: &elf::Sym64<Endianness>| {
        !symbol.is_undefined(endian) && symbol.name(endian, symbols.strings()) == Ok(b"malloc")
    };
    let has_malloc = symbols.iter().any(is_malloc);
    let sanitizer = sanitizer::find(endian, &data, &sections, &symbols, has_malloc);
    Ok(Loadable { loader, has_malloc, sanitizer })
}
