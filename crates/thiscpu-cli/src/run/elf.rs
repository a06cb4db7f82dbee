//! What a file's ELF header says about who can load it.

use std::{fs::File, path::Path};

use anyhow::{Context as _, Result, bail};
use object::{
    Endianness, FileKind, ReadCache, elf,
    read::elf::{FileHeader as _, ProgramHeader as _, Sym as _},
};

/// The machine that this program, and with it the library, is built for.
#[cfg(target_arch = "x86_64")]
const MACHINE: (elf::Machine, &str) = (elf::EM_X86_64, "x86-64");
#[cfg(target_arch = "aarch64")]
const MACHINE: (elf::Machine, &str) = (elf::EM_AARCH64, "AArch64");

/// Something that this machine's dynamic loader can load, or that needs none.
pub(super) struct Loadable {
    /// The loader that a program asks for.
    pub(super) loader: Option<String>,
    /// Whether everybody finds a malloc in it, the C library included.
    pub(super) has_malloc: bool,
}

/// Reads the header of the file at `path`.
pub(super) fn read(path: &Path) -> Result<Loadable> {
    let file = File::open(path).context("it cannot be read, so nobody knows what it is")?;
    let data = ReadCache::new(file);
    match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => bail!("it is a 32-bit program; the library is for 64 bits"),
        _ => bail!("it begins neither as an ELF file does nor with #!"),
    }
    let header = elf::FileHeader64::<Endianness>::parse(&data)?;
    let endian = header.endian()?;
    let (machine, name) = MACHINE;
    if header.e_machine(endian) != machine {
        bail!("it is for another architecture; the library is for {name}");
    }
    if !matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN) {
        bail!("it is no program: an object file, or a core dump");
    }
    let mut loader = None;
    for segment in header.program_headers(endian, &data)? {
        if let Some(name) = segment.interpreter(endian, &data)? {
            loader = Some(String::from_utf8_lossy(name).into_owned());
        }
    }
    let symbols = header.sections(endian, &data)?.symbols(endian, &data, elf::SHT_DYNSYM)?;
    let is_malloc = |symbol: &elf::Sym64<Endianness>| {
        !symbol.is_undefined(endian) && symbol.name(endian, symbols.strings()) == Ok(b"malloc")
    };
    let has_malloc = symbols.iter().any(is_malloc);
    Ok(Loadable { loader, has_malloc })
}
