//! Records of families and series: written once, and checked at every use.
//!
//! ```text
//! family    first | type               | pid | program, 2 words | 0 | lengths | strings
//! series    first | offset of a family | cell                       | lengths | strings
//! free      first | offset of the next free record of this size
//! ```
//!
//! The first word has the kind (bits 0 to 15), the number of words before the lengths (16 to 31),
//! and the number of strings (32 to 47). Zeros follow. The strings of a family are its name, its
//! help text and the names of its labels; those of a series are the values. Each string begins at a
//! word of its own, and zeros fill its last one.
//!
//! A family's type decides which words its series have behind the family's offset. A counter's has
//! one, the number of its cell. This version knows no other type.

use super::names::{LABELS_MAX, NAME_MAX, STRING_MAX, of_counter, refusal};
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::{Mapping, SHARED_UNIT};
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};

/// The kinds of records.
pub(super) const FAMILY: u64 = 1;
pub(super) const SERIES: u64 = 2;
pub(super) const FREE: u64 = 3;

/// Words before the lengths.
pub(super) const FAMILY_HEAD: usize = 6;
/// Words before the lengths of a series of counters.
pub(super) const SERIES_HEAD: usize = 3;
/// The fewest words that a series of any type has before the lengths, and the most.
const SERIES_HEAD_MIN: usize = 2;
const SERIES_HEAD_MAX: usize = 4096;
/// The word of a free record that leads to the next one.
const NEXT: usize = 1;
/// Words of a series.
pub(super) const FAMILY_AT: usize = 1;
pub(super) const CELL: usize = 2;
/// Words of a family: its type, and who registered it.
pub(super) const TYPE: usize = 1;
pub(super) const PID: usize = 2;
pub(super) const PROGRAM: usize = 3;
/// Strings of a family before the names of its labels: name and help text.
pub(super) const FAMILY_STRINGS: usize = 2;

/// The type of a family of counters.
pub(super) const COUNTER: u64 = 1;

/// Returns a string as words, the last one filled with zeros.
#[inline]
pub(super) fn words_of(text: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = text.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    });
    words.iter().map(|word| u64::from_le_bytes(*word)).chain(last)
}

/// Returns the first word of a record.
#[inline]
pub(super) fn first_word(kind: u64, head: usize, strings: usize) -> u64 {
    kind | (head as u64) << 16 | (strings as u64) << 32
}

/// The number of sizes that records have.
pub(super) const CLASSES: usize = class_of(RECORD_BYTES_MAX).0 + 1;
/// The bytes of the longest record: values of 64 KiB for all labels.
const RECORD_BYTES_MAX: u64 = (8 * SERIES_HEAD_MAX + LABELS_MAX * (8 + STRING_MAX)) as u64;
const _: () = assert!(8 * (FAMILY_HEAD + 2) + NAME_MAX + STRING_MAX < RECORD_BYTES_MAX as usize);

/// Returns the number of the smallest size that a record fits in, and that size in bytes.
///
/// Sizes are 1, 2, 3, 4, 6, 8, 12 and so on times 64 bytes. So a free record is as large as all
/// others of its list, and at most a third of a record is unused.
pub(super) const fn class_of(bytes: u64) -> (usize, u64) {
    let units = bytes.div_ceil(SHARED_UNIT);
    if units <= 1 {
        return (0, SHARED_UNIT);
    }
    let log = units.ilog2();
    let (class, size) = match units - (1 << log) {
        0 => (2 * log - 1, 1 << log),
        more if 2 * more <= 1 << log => (2 * log, 3 << (log - 1)),
        _ => (2 * log + 1, 2 << log),
    };
    (class as usize, SHARED_UNIT * size)
}

/// Returns the bytes of a record.
pub(super) fn bytes_of<'a>(head: usize, strings: impl Iterator<Item = &'a str>) -> u64 {
    let words = strings.fold(head, |words, string| words + 1 + string.len().div_ceil(8));
    8 * words as u64
}

pub(super) fn damaged() -> SegmentErrorKind {
    SegmentErrorKind::Damaged { field: "registry record" }
}

/// Returns words of the area of records that have been taken, and which have memory then.
#[inline]
pub(super) fn words(
    mapping: &Mapping,
    at: u64,
    count: usize,
) -> Result<&[AtomicU64], SegmentErrorKind> {
    let start = mapping.layout.shared_at();
    // A record may end where the area ends.
    let is_end = |&end: &u64| end <= mapping.layout.lanes_at();
    let end = at.checked_add(8 * count as u64).filter(is_end).ok_or_else(damaged)?;
    if at < start || !at.is_multiple_of(SHARED_UNIT) {
        return Err(damaged());
    }
    // Or a damaged offset would take the memory of the whole area.
    if !mapping.is_shared_used(end - start) {
        return Err(damaged());
    }
    mapping.ensure_shared(end - start)?;
    mapping.words(at, count as u64).ok_or_else(damaged)
}

/// Returns the first words of a record. Each record has at least as many bytes.
#[inline]
fn first_words(mapping: &Mapping, at: u64) -> Result<&[AtomicU64], SegmentErrorKind> {
    words(mapping, at, SHARED_UNIT as usize / 8)
}

/// Returns the word of a free record that leads to the next one.
pub(super) fn link(mapping: &Mapping, at: u64) -> Result<&AtomicU64, SegmentErrorKind> {
    Ok(&first_words(mapping, at)?[NEXT])
}

/// Returns the word of a record that leads to the next one, if the record is marked as free.
pub(super) fn link_of_free(mapping: &Mapping, at: u64, bytes: u64) -> Option<&AtomicU64> {
    let record = words(mapping, at, bytes as usize / 8).ok()?;
    // Relaxed: the list that leads to the record was acquired.
    (record[0].load(Relaxed) == first_word(FREE, 2, 0)).then(|| &record[NEXT])
}

/// Marks a record as free, which nobody else uses and no entry leads to.
pub(super) fn mark_free(mapping: &Mapping, at: u64) -> Result<(), SegmentErrorKind> {
    // Relaxed: the push to a list releases it.
    first_words(mapping, at)?[0].store(first_word(FREE, 2, 0), Relaxed);
    Ok(())
}

/// Writes a record into bytes that nobody else uses.
pub(super) fn write<'a>(
    mapping: &Mapping,
    at: u64,
    head: &[u64],
    strings: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), SegmentErrorKind> {
    let count = bytes_of(head.len(), strings.clone()) / 8;
    let record = mapping.words(at, count).ok_or_else(damaged)?;
    let lengths = strings.clone().map(|string| string.len() as u64);
    let bytes = strings.flat_map(|string| words_of(string.as_bytes()));
    let values = head.iter().copied().chain(lengths).chain(bytes);
    // Relaxed: the exchange in `find_or_publish` releases the record.
    record.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
    Ok(())
}

/// Returns whether the series at an offset has this family and these values.
#[inline]
pub(super) fn is_series(
    mapping: &Mapping,
    at: u64,
    family_at: u64,
    values: &[&str],
) -> Result<bool, SegmentErrorKind> {
    let first = first_words(mapping, at)?;
    // Relaxed, both: the load of the index acquired what never changes again.
    let is_other = first[0].load(Relaxed) != first_word(SERIES, SERIES_HEAD, values.len())
        || first[FAMILY_AT].load(Relaxed) != family_at;
    if is_other {
        return Ok(false);
    }
    starts_with(mapping, at, SERIES_HEAD, values.len(), values)
}

/// Returns whether the family at an offset has this name.
pub(super) fn is_family(mapping: &Mapping, at: u64, name: &str) -> Result<bool, SegmentErrorKind> {
    // Relaxed: as in `is_series`.
    let (head, count) = parse_first(first_words(mapping, at)?[0].load(Relaxed), FAMILY)?;
    starts_with(mapping, at, head, count, &[name])
}

/// Returns whether the first strings of a record, of `count` ones, are these.
#[inline]
fn starts_with(
    mapping: &Mapping,
    at: u64,
    head: usize,
    count: usize,
    strings: &[&str],
) -> Result<bool, SegmentErrorKind> {
    // Relaxed, all: as in `is_series`.
    let load = |word: &AtomicU64| word.load(Relaxed);
    let strings_at = head + count;
    let lengths = &words(mapping, at, strings_at)?[head..];
    if !lengths.iter().zip(strings).all(|(word, string)| load(word) == string.len() as u64) {
        return Ok(false);
    }
    let end = strings.iter().fold(strings_at, |end, string| end + string.len().div_ceil(8));
    let found = words(mapping, at, end)?[strings_at..].iter().map(load);
    Ok(found.eq(strings.iter().flat_map(|string| words_of(string.as_bytes()))))
}

/// Returns the number of words before the lengths, and the number of strings.
fn parse_first(first: u64, kind: u64) -> Result<(usize, usize), SegmentErrorKind> {
    let (head, count) = ((first >> 16 & 0xffff) as usize, (first >> 32 & 0xffff) as usize);
    let (heads, fewest) = match kind {
        FAMILY => (FAMILY_HEAD..=FAMILY_HEAD, FAMILY_STRINGS),
        _ => (SERIES_HEAD_MIN..=SERIES_HEAD_MAX, 0),
    };
    let is_valid = first == first_word(kind, head, count)
        && heads.contains(&head)
        && (fewest..=fewest + LABELS_MAX).contains(&count);
    if is_valid { Ok((head, count)) } else { Err(damaged()) }
}

/// A record whose first word and lengths were checked.
pub(super) struct Record<'a> {
    words: &'a [AtomicU64],
    head: usize,
    count: usize,
}

impl<'a> Record<'a> {
    /// Reads the record at an offset, which has a name and a help text if it is a family's.
    pub(super) fn read(
        mapping: &'a Mapping,
        at: u64,
        kind: u64,
    ) -> Result<Record<'a>, SegmentErrorKind> {
        // Relaxed, all: as in `is_series`.
        let (head, count) = parse_first(first_words(mapping, at)?[0].load(Relaxed), kind)?;
        let mut end = head + count;
        for length in &words(mapping, at, end)?[head..] {
            let length = length.load(Relaxed);
            if length > STRING_MAX as u64 {
                return Err(damaged());
            }
            end += length.div_ceil(8) as usize;
        }
        Ok(Record { words: words(mapping, at, end)?, head, count })
    }

    /// Returns whether a family is one of counters.
    pub(super) fn is_of_counters(&self) -> bool {
        self.word(TYPE) == COUNTER
    }

    /// Returns the number of the cell, if the record is that of a counter.
    pub(super) fn cell(&self) -> Option<u64> {
        (self.head == SERIES_HEAD).then(|| self.word(CELL))
    }

    /// Returns the strings of a family, whose names are allowed.
    pub(super) fn family_strings(&self) -> Result<Vec<String>, SegmentErrorKind> {
        let strings = self.strings(..)?;
        let borrowed: Vec<&str> = strings.iter().map(|string| &**string).collect();
        let is_refused = match &borrowed[..] {
            [name, help, labels @ ..] => {
                refusal(name, help, labels).is_some()
                    || self.is_of_counters() && of_counter(name) != *name
            }
            _ => true,
        };
        match is_refused {
            true => Err(SegmentErrorKind::Damaged { field: "name of a family" }),
            false => Ok(strings),
        }
    }

    /// Returns the number of strings.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes that the record takes, with those that its size leaves unused.
    pub(super) fn bytes(&self) -> u64 {
        class_of(8 * self.words.len() as u64).1
    }

    /// Returns a word before the lengths.
    pub(super) fn word(&self, word: usize) -> u64 {
        // Relaxed: as in `is_series`.
        self.words[word].load(Relaxed)
    }

    /// Calls `each` with each string; `scratch` is where they are.
    ///
    /// Another process can change a damaged record at any time, so each length is checked again.
    pub(super) fn for_each_string(
        &self,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&str),
    ) -> Result<(), SegmentErrorKind> {
        let mut at = self.head + self.count;
        for length in &self.words[self.head..at] {
            let length = usize::try_from(length.load(Relaxed)).map_err(|_| damaged())?;
            let end = at.checked_add(length.div_ceil(8)).ok_or_else(damaged)?;
            scratch.clear();
            for word in self.words.get(at..end).ok_or_else(damaged)? {
                scratch.extend_from_slice(&word.load(Relaxed).to_le_bytes());
            }
            let (string, fill) = scratch.split_at(length);
            if fill.iter().any(|&byte| byte != 0) {
                return Err(damaged());
            }
            each(str::from_utf8(string).map_err(|_| damaged())?);
            at = end;
        }
        Ok(())
    }

    /// Returns some of the strings.
    pub(super) fn strings(
        &self,
        range: impl std::slice::SliceIndex<[String], Output = [String]>,
    ) -> Result<Vec<String>, SegmentErrorKind> {
        let mut all = Vec::with_capacity(self.count);
        self.for_each_string(&mut Vec::new(), |string| all.push(string.to_owned()))?;
        Ok(all.get(range).ok_or_else(damaged)?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_a_number_of_its_own() {
        let sizes = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
        for (number, units) in sizes.into_iter().enumerate() {
            assert_eq!(class_of(64 * units), (number, 64 * units));
            assert_eq!(class_of(64 * units - 63), (number, 64 * units));
            assert_eq!(class_of(64 * units + 1).0, number + 1);
        }
        for bytes in (1..RECORD_BYTES_MAX).step_by(977) {
            let (class, size) = class_of(bytes);
            assert!(class < CLASSES && size >= bytes && size <= 3 * bytes / 2 + 64, "{bytes}");
        }
    }
}
