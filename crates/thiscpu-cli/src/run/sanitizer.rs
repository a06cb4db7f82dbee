//! Recognizes programs that are built with a sanitizer whose runtime replaces malloc.
//!
//! Such a runtime must serve all allocations, because it records the state of each byte. With
//! another malloc before it, the program crashes, or its errors stay hidden.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _, path::Path};

use anyhow::{Result, bail};
use object::{
    Endianness, ReadRef, elf,
    read::elf::{Dyn as _, SectionHeader as _, SectionTable, Sym as _, SymbolTable},
};

type Header = elf::FileHeader64<Endianness>;

/// A sanitizer whose runtime replaces malloc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sanitizer {
    Address,
    HwAddress,
    Thread,
    Memory,
    Leak,
    /// A static runtime without exported names that would tell which one it is.
    Static,
}

impl Sanitizer {
    /// The names in the names of its libraries and functions.
    const NAMED: [(&str, Sanitizer); 5] = [
        ("asan", Sanitizer::Address),
        ("hwasan", Sanitizer::HwAddress),
        ("tsan", Sanitizer::Thread),
        ("msan", Sanitizer::Memory),
        ("lsan", Sanitizer::Leak),
    ];

    fn named(name: &[u8]) -> Option<Sanitizer> {
        let (_, named) = Sanitizer::NAMED.iter().find(|(known, _)| known.as_bytes() == name)?;
        Some(*named)
    }

    /// Returns the sanitizer whose runtime is the shared library of this file name.
    fn of_library(name: &[u8]) -> Option<Sanitizer> {
        // GCC's is libasan.so.8. Clang's is libclang_rt.asan-x86_64.so, or without the machine.
        let rest = [&b"libclang_rt."[..], b"lib"].iter().find_map(|lib| name.strip_prefix(*lib))?;
        Sanitizer::named(rest.split(|byte| b".-".contains(byte)).next()?)
    }

    /// Returns the sanitizer whose objects call this function first.
    fn of_function(name: &[u8]) -> Option<Sanitizer> {
        Sanitizer::named(name.strip_prefix(b"__")?.strip_suffix(b"_init")?)
    }
}

/// The reason for a refusal.
impl fmt::Display for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, option) = match self {
            Sanitizer::Address => ("AddressSanitizer", "=address"),
            Sanitizer::HwAddress => ("HWAddressSanitizer", "=hwaddress"),
            Sanitizer::Thread => ("ThreadSanitizer", "=thread"),
            Sanitizer::Memory => ("MemorySanitizer", "=memory"),
            Sanitizer::Leak => ("LeakSanitizer", "=leak"),
            Sanitizer::Static => ("a sanitizer", ""),
        };
        write!(
            f,
            "it is built with {name}, which needs its own malloc; run it without thiscpu, or build \
             it without -fsanitize{option}"
        )
    }
}

impl std::error::Error for Sanitizer {}

/// Finds a sanitizer by a program's libraries, functions, and the text of a static runtime.
///
/// UndefinedBehaviorSanitizer alone leaves malloc as it is, and is not found.
pub(super) fn find<'data, R: ReadRef<'data>>(
    endian: Endianness,
    data: R,
    sections: &SectionTable<'data, Header, R>,
    symbols: &SymbolTable<'data, Header, R>,
    has_malloc: bool,
) -> Option<Sanitizer> {
    let by_library = || {
        let (entries, strings) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, strings).ok()?;
        let needed = entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
        needed
            .filter_map(|entry| entry.string(endian, strings).ok())
            .find_map(Sanitizer::of_library)
    };
    let by_function = || {
        let names = symbols.iter().filter_map(|symbol| symbol.name(endian, symbols.strings()).ok());
        names.into_iter().find_map(Sanitizer::of_function)
    };
    // GCC exports nothing of a static runtime but the functions of libraries that it replaces.
    let by_text = || {
        let (_, section) = sections.section_by_name(endian, b".rodata")?;
        let text = section.data(endian, data).ok()?;
        // A flag that all runtimes have.
        let flag = b"symbolize_inline_frames";
        text.windows(flag.len()).any(|part| part == flag).then_some(Sanitizer::Static)
    };
    by_library().or_else(by_function).or_else(|| has_malloc.then(by_text).flatten())
}

/// Refuses a value of `LD_PRELOAD` that names a sanitizer's runtime, which must come first.
pub(super) fn check_preloaded(list: &OsStr) -> Result<()> {
    for path in list.as_bytes().split(|byte| b": \t\n".contains(byte)) {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if Sanitizer::of_library(name).is_some() {
            bail!(
                "LD_PRELOAD names {}, whose malloc must be the first; remove it, or run without \
                 thiscpu",
                Path::new(OsStr::from_bytes(path)).display()
            );
        }
    }
    Ok(())
}
