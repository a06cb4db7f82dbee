//! Build IDs of loaded objects, by which a reader knows whether a file was replaced since.
//!
//! They are read through `/proc/self/mem`, because another thread may unload an object meanwhile.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::{fmt, slice, str};

use super::system;

/// Enough for a line of `/proc/self/maps` up to its path.
const LINE_BYTES: usize = 128;
/// Enough for the notes of an object that come with its build ID.
const NOTE_BYTES: usize = 256;
/// The longest build ID that is written.
const ID_BYTES_MAX: usize = 32;
/// An object with more segments has no build ID here.
const SEGMENTS_MAX: u16 = 64;
/// The type of the note with the build ID, and its owner.
const NT_GNU_BUILD_ID: u32 = 3;
const OWNER: &[u8] = b"GNU\0";

/// Finds build IDs while the lines of `/proc/self/maps` pass.
pub(super) struct BuildIds {
    /// `/proc/self/mem`, or -1.
    memory: c_int,
    line: [u8; LINE_BYTES],
    filled: usize,
}

/// A build ID, shown in hexadecimal digits.
pub(super) struct BuildId {
    bytes: [u8; ID_BYTES_MAX],
    len: usize,
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes[..self.len].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Drop for BuildIds {
    fn drop(&mut self) {
        system::close(self.memory);
    }
}

impl BuildIds {
    pub(super) fn new() -> BuildIds {
        let memory = system::open(c"/proc/self/mem", libc::O_RDONLY).unwrap_or(-1);
        BuildIds { memory, line: [0; LINE_BYTES], filled: 0 }
    }

    /// Takes the next byte of the lines.
    ///
    /// Returns address and build ID of the object whose first line ends here, if known.
    pub(super) fn take(&mut self, byte: u8) -> Option<(usize, BuildId)> {
        if byte != b'\n' {
            if let Some(place) = self.line.get_mut(self.filled) {
                *place = byte;
                self.filled += 1;
            }
            return None;
        }
        let filled = core::mem::take(&mut self.filled);
        let (start, end) = first_range(str::from_utf8(&self.line[..filled]).ok()?)?;
        Some((start, self.id_at(start, end - start)?))
    }

    /// Returns the build ID of the object whose first `bytes` bytes are mapped at `start`.
    fn id_at(&self, start: usize, bytes: usize) -> Option<BuildId> {
        // SAFETY: a header is plain data, for which all bytes are valid.
        let header: libc::Elf64_Ehdr = unsafe { self.read(start)? };
        if !header.e_ident.starts_with(b"\x7fELF") || header.e_phnum > SEGMENTS_MAX {
            return None;
        }
        let table = start.checked_add(usize::try_from(header.e_phoff).ok()?)?;
        (0..usize::from(header.e_phnum)).find_map(|number| {
            let at = table.checked_add(number * size_of::<libc::Elf64_Phdr>())?;
            // SAFETY: a program header is plain data, for which all bytes are valid.
            let segment: libc::Elf64_Phdr = unsafe { self.read(at)? };
            let offset = usize::try_from(segment.p_offset).ok()?;
            let is_here = segment.p_type == libc::PT_NOTE && offset < bytes;
            let len = usize::try_from(segment.p_filesz).unwrap_or(usize::MAX);
            is_here.then(|| self.id_in_notes(start + offset, len))?
        })
    }

    /// Returns the build ID among the notes at `address`, of which the first ones are read.
    fn id_in_notes(&self, address: usize, bytes: usize) -> Option<BuildId> {
        let mut notes = [0; NOTE_BYTES];
        let notes = &mut notes[..bytes.min(NOTE_BYTES)];
        let read = system::read_at(self.memory, i64::try_from(address).ok()?, notes).ok()?;
        (read == notes.len()).then(|| id_in(notes))?
    }

    /// Reads a value from an address that may be invalid.
    ///
    /// # Safety
    ///
    /// All bytes are valid for a `T`.
    unsafe fn read<T>(&self, address: usize) -> Option<T> {
        let offset = i64::try_from(address).ok()?;
        let mut value = MaybeUninit::<T>::zeroed();
        // SAFETY: the value has that many bytes, all initialized, and nothing else refers to them.
        // The caller guarantees that all bytes are valid.
        unsafe {
            let bytes = slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>());
            let read = system::read_at(self.memory, offset, bytes);
            (read == Ok(size_of::<T>())).then(|| value.assume_init())
        }
    }
}

/// Returns the addresses of a line of `/proc/self/maps`, if a file begins there, readable.
fn first_range(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (access, offset, path) = (words.next()?, words.next()?, words.nth(2)?);
    let hex = |digits| usize::from_str_radix(digits, 16).ok();
    (access.starts_with('r') && hex(offset)? == 0 && path.starts_with('/'))
        .then_some((hex(start)?, hex(end)?))
}

/// Returns the build ID among notes.
fn id_in(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let (head, rest) = notes.split_first_chunk::<12>()?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let [owner_len, id_len] = [word(0), word(4)].map(|bytes| bytes as usize);
        let behind_owner = owner_len.checked_next_multiple_of(4)?;
        let (owner, found) = (rest.get(..owner_len)?, rest.get(behind_owner..)?);
        if word(8) == NT_GNU_BUILD_ID && owner == OWNER {
            let id = found.get(..id_len)?;
            let mut bytes = [0; ID_BYTES_MAX];
            bytes.get_mut(..id_len)?.copy_from_slice(id);
            return Some(BuildId { bytes, len: id_len });
        }
        notes = found.get(id_len.checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_first_mappings_have_addresses() {
        let line = "00400000-00452000 r--p 00000000 08:02 173521      /usr/bin/dbus-daemon";
        assert_eq!(first_range(line), Some((0x40_0000, 0x45_2000)));
        for other in [
            "00400000-00452000 ---p 00000000 08:02 173521      /usr/bin/dbus-daemon",
            "00400000-00452000 r--p 00001000 08:02 173521      /usr/bin/dbus-daemon",
            "00400000-00452000 r--p 00000000 00:00 0",
            "00400000-00452000 r--p 00000000 00:00 0           [vvar]",
            "",
        ] {
            assert_eq!(first_range(other), None, "{other}");
        }
    }

    #[test]
    fn build_id_is_found_behind_other_notes() {
        let note = |owner: &[u8], kind: u32, id: &[u8]| {
            let mut note = Vec::new();
            for word in [owner.len() as u32, id.len() as u32, kind] {
                note.extend(word.to_ne_bytes());
            }
            for part in [owner, id] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let id = note(OWNER, NT_GNU_BUILD_ID, &[0xab, 0xcd, 1]);
        let notes = [note(b"stapsdt\0", 3, &[9; 5]), note(OWNER, 1, &[7; 16]), id.clone()].concat();
        let found = id_in(&notes).map(|id| id.to_string());
        assert_eq!(found.as_deref(), Some("abcd01"));
        assert!(id_in(&notes[..notes.len() - 4]).is_none() && id_in(&[]).is_none());
        assert!(id_in(&note(OWNER, NT_GNU_BUILD_ID, &[0; ID_BYTES_MAX + 1])).is_none());
        assert!(id_in(&[0xff; 64]).is_none());
    }
}
