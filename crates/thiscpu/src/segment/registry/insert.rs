//! Finding families and series by name, and inserting them.

use super::head::index;
use super::index::{Outcome, at_of, entry_of, find_or_publish};
use super::memory::{Memory, give_back, take_memory};
use super::record::{
    COUNTER, FAMILY, FAMILY_HEAD, FAMILY_STRINGS, PID, PROGRAM, Record, SERIES, SERIES_HEAD,
    bytes_of, first_word, is_family, is_series, words_of, write,
};
use crate::segment::file::error::{FamilyConflict, SegmentErrorKind};
use crate::segment::file::mapping::Mapping;
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::quiet_thread::with_signals_blocked;

/// The hash of a key, while its strings are added.
///
/// It begins with a number that outsiders do not know, so they cannot choose labels that collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u64);

/// Returns the hash of the series of a family, or of families if its offset is 0.
///
/// It has no strings yet.
#[inline]
pub(super) fn hash_start(mapping: &Mapping, family_at: u64) -> Hash {
    Hash(mapping.header().nonce()).mix(family_at)
}

impl Hash {
    #[inline]
    fn mix(self, word: u64) -> Hash {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        Hash((product as u64 ^ (product >> 64) as u64).wrapping_add(FACTOR))
    }

    /// Adds a string.
    #[inline]
    pub(super) fn with(self, string: &str) -> Hash {
        words_of(string.as_bytes()).fold(self.mix(string.len() as u64), Hash::mix)
    }

    /// Returns the whole hash.
    #[inline]
    pub(super) fn end(self) -> u64 {
        self.mix(0).0
    }
}

/// Returns the hash of a key: of a family's offset or 0, and strings.
#[inline]
fn hash(mapping: &Mapping, family_at: u64, strings: &[&str]) -> u64 {
    strings.iter().fold(hash_start(mapping, family_at), |hash, string| hash.with(string)).end()
}

/// Finds a family by its name.
pub(super) fn find_family(mapping: &Mapping, name: &str) -> Result<Option<u64>, SegmentErrorKind> {
    mapping.check_end()?;
    let is_key = |entry| is_family(mapping, at_of(entry), name);
    let hash = hash(mapping, 0, &[name]);
    let found = find_or_publish(index(mapping)?, hash, FAMILY, is_key, || Ok(None))?;
    Ok(found.entry.map(at_of))
}

/// Checks a family's type and labels, and returns the names of the labels.
pub(super) fn check_family(
    mapping: &Mapping,
    at: u64,
    name: &str,
    labels: Option<&[&str]>,
) -> Result<Vec<String>, SegmentErrorKind> {
    let record = Record::read(mapping, at, FAMILY)?;
    let found = record.strings(FAMILY_STRINGS..)?;
    let is_other = labels.is_some_and(|labels| !found.iter().eq(labels));
    if record.is_of_counters() && !is_other {
        return Ok(found);
    }
    let program = [0, 1].map(|word| record.word(PROGRAM + word).to_le_bytes()).concat();
    let program = String::from_utf8_lossy(program.split(|&byte| byte == 0).next().unwrap_or(&[]));
    Err(SegmentErrorKind::OtherFamily(Box::new(FamilyConflict {
        name: name.to_owned(),
        is_counter: record.is_of_counters(),
        labels: found,
        pid: record.word(PID) as u32,
        program: program.into_owned(),
    })))
}

/// Finds a family, or makes it, and returns its offset.
pub(super) fn insert_family(
    mapping: &Mapping,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<u64, SegmentErrorKind> {
    mapping.check_end()?;
    let hash = hash(mapping, 0, &[name]);
    // Before the search: to find the name of the program takes system calls and memory.
    let [first, second] = program();
    let head: [u64; FAMILY_HEAD] = [
        first_word(FAMILY, FAMILY_HEAD, FAMILY_STRINGS + labels.len()),
        COUNTER,
        u64::from(std::process::id()),
        first,
        second,
        0,
    ];
    let strings = [name, help].into_iter().chain(labels.iter().copied());
    let is_key = |entry| is_family(mapping, at_of(entry), name);
    insert(mapping, hash, FAMILY, is_key, strings, |_| head)
}

/// Returns the beginning of this program's name.
fn program() -> [u64; 2] {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut words = words_of(&name.as_bytes()[..whole_characters(&name, 16)]);
    [words.next().unwrap_or(0), words.next().unwrap_or(0)]
}

/// Returns the largest length up to `most` at which no character is cut.
fn whole_characters(text: &str, most: usize) -> usize {
    (0..=most).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0)
}

/// Finds a series, and returns the offset of its record.
#[inline]
pub(super) fn find_series(
    mapping: &Mapping,
    family_at: u64,
    values: &[&str],
) -> Result<Option<u64>, SegmentErrorKind> {
    mapping.check_end()?;
    let hash = hash(mapping, family_at, values);
    let is_key = |entry| is_series(mapping, at_of(entry), family_at, values);
    let found = find_or_publish(index(mapping)?, hash, SERIES, is_key, || Ok(None))?;
    if found.entry.is_none() {
        // If the file was shortened meanwhile, zeros have taken the place of what it had.
        mapping.check_end()?;
    }
    Ok(found.entry.map(at_of))
}

/// Makes a series unless another process is faster, and returns the offset of its record.
#[cold]
pub(super) fn insert_series(
    mapping: &Mapping,
    family_at: u64,
    values: &[&str],
) -> Result<u64, SegmentErrorKind> {
    let hash = hash(mapping, family_at, values);
    let is_key = |entry| is_series(mapping, at_of(entry), family_at, values);
    let first = first_word(SERIES, SERIES_HEAD, values.len());
    let head = |cell| [first, family_at, cell];
    insert(mapping, hash, SERIES, is_key, values.iter().copied(), head)
}

/// Makes a family or series unless another process is faster; returns its record's offset.
///
/// `head` returns the first words of the record, which has the given cell.
fn insert<'a, const N: usize>(
    mapping: &Mapping,
    hash: u64,
    kind: u64,
    is_key: impl Fn(u64) -> Result<bool, SegmentErrorKind>,
    strings: impl Iterator<Item = &'a str> + Clone,
    head: impl Fn(u64) -> [u64; N],
) -> Result<u64, SegmentErrorKind> {
    let bytes = bytes_of(N, strings.clone());
    // Another process would have the memory too if a signal handler forked in here.
    let outcome = with_signals_blocked(|| {
        let mut own: Option<Memory> = None;
        let make = || {
            let memory = take_memory(mapping, bytes, kind)?;
            write(mapping, memory.at, &head(memory.cell), strings.clone())?;
            own = Some(memory);
            Ok(Some(entry_of(kind, memory.at, hash)))
        };
        let outcome = find_or_publish(index(mapping)?, hash, kind, &is_key, make);
        let was_published =
            outcome.as_ref().is_ok_and(|it| it.unused.is_none() && it.entry.is_some());
        if let Some(own) = own.filter(|_| !was_published) {
            give_back(mapping, own);
        }
        outcome
    });
    let error = match outcome {
        Ok(Outcome { entry: Some(entry), .. }) => {
            // If the file was shortened meanwhile, nobody else sees the record.
            mapping.check_end()?;
            return Ok(at_of(entry));
        }
        Ok(Outcome { entry: None, .. }) => SegmentErrorKind::RegistryFull,
        Err(kind) => kind,
    };
    if !matches!(error, SegmentErrorKind::RegistryFull | SegmentErrorKind::System { .. }) {
        return Err(error);
    }
    // Another process may have taken the last memory for this very name.
    let found = find_or_publish(index(mapping)?, hash, kind, is_key, || Ok(None))?;
    if let Some(entry) = found.entry {
        return Ok(at_of(entry));
    }
    // Relaxed: a number to be shown.
    super::head::head(mapping)?.refused.fetch_add(1, Relaxed);
    Err(error)
}
