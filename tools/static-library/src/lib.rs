//! Makes the static library for C from the one that rustc builds.
//!
//! rustc leaves symbols of the library and of Rust's runtime visible, because it compiles a package
//! once for all kinds of libraries. A shared object that contains the static library would export
//! them again. So [`finish`] hides all symbols that C programs do not need. The library's objects,
//! and those that are linked with them, still find hidden symbols. The objects stay apart, so a
//! static program gets only those that it uses.
//!
//! Rust's standard library has code for networks and users, which this library never calls. The
//! linker warns of some functions of that code in static programs. [`finish`] makes its references
//! to these functions weak, so that the linker does not look for them.

use std::fmt;

const ARCHIVE_MAGIC: &[u8] = b"!<arch>\n";
const MEMBER_HEADER_BYTES: usize = 60;
const MEMBER_SIZE_AT: usize = 48;
const MEMBER_SIZE_DIGITS: usize = 10;

/// The magic number of ELF, then 64 bits, then little endian.
const ELF_MAGIC: &[u8] = b"\x7fELF\x02\x01";
const SECTION_HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// A section that holds the object's symbols.
const SHT_SYMTAB: u32 = 2;
/// The section number of symbols that an object uses and does not define.
const SHN_UNDEF: u16 = 0;
/// The bits of a symbol's `st_other` that hold its visibility.
const VISIBILITY: u8 = 3;
const STV_INTERNAL: u8 = 1;
const STV_HIDDEN: u8 = 2;

/// In a symbol's `st_info`, the binding is above the type.
const BINDING_SHIFT: u32 = 4;
const STB_WEAK: u8 = 2;

/// Functions that std refers to, in objects of glibc that linkers warn of.
const NEVER_CALLED: [&[u8]; 3] = [b"freeaddrinfo", b"getaddrinfo", b"getpwuid_r"];

/// A static library that [`finish`] cannot read.
#[derive(Debug)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot change the symbols of the static library: {}; report this", self.0)
    }
}

impl std::error::Error for Malformed {}

type Result<T> = std::result::Result<T, Malformed>;

/// Hides the symbols that a static library defines, except `thiscpu_*`; returns how many.
///
/// Also makes references to functions weak that the library never calls.
///
/// # Errors
///
/// If `library` is not an archive, or one of its objects is not an ELF file for 64 bits and little
/// endian. Some symbols may be changed then.
pub fn finish(library: &mut [u8]) -> Result<usize> {
    if !library.starts_with(ARCHIVE_MAGIC) {
        return Err(Malformed("it is not an archive"));
    }
    let (mut hidden, mut at) = (0, ARCHIVE_MAGIC.len());
    while at < library.len() {
        let header = bytes(library, at, MEMBER_HEADER_BYTES)?;
        let digits = &header[MEMBER_SIZE_AT..][..MEMBER_SIZE_DIGITS];
        let size =
            std::str::from_utf8(digits).ok().and_then(|digits| digits.trim_end().parse().ok());
        let size: usize = size.ok_or(Malformed("a member has no size"))?;
        // The tables of the archive itself have these names: `/`, `/SYM64/` and `//`.
        let is_table =
            [&b"/ "[..], b"/SYM64/ ", b"// "].iter().any(|name| header.starts_with(name));
        let start = at + MEMBER_HEADER_BYTES;
        bytes(library, start, size)?;
        if !is_table {
            hidden += finish_object(&mut library[start..start + size])?;
        }
        // Members begin at even offsets.
        at = (start + size).next_multiple_of(2);
    }
    Ok(hidden)
}

/// Changes the symbols of one object of the library; returns how many it has hidden.
fn finish_object(object: &mut [u8]) -> Result<usize> {
    if !object.starts_with(ELF_MAGIC) {
        return Err(Malformed("a member is not an ELF file for 64 bits and little endian"));
    }
    let mut hidden = 0;
    for section in sections(object)?.into_iter().filter(|section| section.kind == SHT_SYMTAB) {
        let names = sections(object)?.into_iter().nth(section.link).ok_or(Malformed("no names"))?;
        for at in (section.start..section.end).step_by(SYMBOL_BYTES).skip(section.locals) {
            let symbol = bytes(object, at, SYMBOL_BYTES)?;
            let (info, other) = (symbol[4], symbol[5]);
            let is_defined = read_u16(symbol, 6)? != SHN_UNDEF;
            let name = names.start + read_u32(symbol, 0)? as usize;
            let name = object.get(name..names.end).ok_or(Malformed("a symbol has no name"))?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let is_hidden = matches!(other & VISIBILITY, STV_INTERNAL | STV_HIDDEN);
            if is_defined && !is_hidden && !name.starts_with(b"thiscpu_") {
                object[at + 5] = other & !VISIBILITY | STV_HIDDEN;
                hidden += 1;
            } else if !is_defined && NEVER_CALLED.contains(&name) {
                object[at + 4] = STB_WEAK << BINDING_SHIFT | info & ((1 << BINDING_SHIFT) - 1);
            }
        }
    }
    Ok(hidden)
}

/// A section of an object, as its header describes it.
struct Section {
    kind: u32,
    start: usize,
    end: usize,
    /// The number of another section; of a symbol table, the section of its symbols' names.
    link: usize,
    /// The number of a symbol table's first entries that no other object sees.
    locals: usize,
}

fn sections(object: &[u8]) -> Result<Vec<Section>> {
    let (first, count) = (read_u64(object, 40)?, read_u16(object, 60)? as usize);
    // An object with very many sections has their number in the first header.
    let count = if count == 0 && first != 0 { read_u64(object, first + 32)? } else { count };
    (0..count)
        .map(|number| {
            let header =
                bytes(object, first + number * SECTION_HEADER_BYTES, SECTION_HEADER_BYTES)?;
            let start = read_u64(header, 24)?;
            Ok(Section {
                kind: read_u32(header, 4)?,
                start,
                end: start + read_u64(header, 32)?,
                link: read_u32(header, 40)? as usize,
                locals: read_u32(header, 44)? as usize,
            })
        })
        .collect()
}

fn bytes(from: &[u8], start: usize, count: usize) -> Result<&[u8]> {
    from.get(start..).and_then(|rest| rest.get(..count)).ok_or(Malformed("it ends too early"))
}

fn read_u16(from: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(bytes(from, at, 2)?.try_into().expect("2 bytes")))
}

fn read_u32(from: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(bytes(from, at, 4)?.try_into().expect("4 bytes")))
}

fn read_u64(from: &[u8], at: usize) -> Result<usize> {
    Ok(u64::from_le_bytes(bytes(from, at, 8)?.try_into().expect("8 bytes")) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_refused_when_damaged() {
        for library in [&b"MZ"[..], b"!<arch>\nshort", b"!<arch>\n"] {
            let result = finish(&mut library.to_vec());
            assert_eq!(result.is_ok(), library == ARCHIVE_MAGIC, "{result:?}");
        }
        let mut text =
            [ARCHIVE_MAGIC, format!("{:48}{:<10}`\n", "a/", 4).as_bytes(), b"text"].concat();
        assert!(finish(&mut text).unwrap_err().to_string().contains("not an ELF file"));
    }
}
