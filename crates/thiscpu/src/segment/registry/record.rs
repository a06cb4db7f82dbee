//! Records of families and series: written once, and checked at every use.
//!
//! ```text
//! family    kind and number of texts | type | pid | program, 2 words | 0 | lengths | texts
//! series    kind and number of texts | offset of the family | cell       | lengths | texts
//! ```
//!
//! The texts of a family are its name, its help text and the names of its labels; those of a series
//! are the values. Each text begins at a word of its own, and zeros fill its last one.

use super::names::{LABELS_MAX, TEXT_MAX};
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::{Mapping, SHARED_UNIT};
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};

/// The kinds of records.
pub(super) const FAMILY: u64 = 1;
pub(super) const SERIES: u64 = 2;

/// Words before the lengths.
pub(super) const FAMILY_HEAD: usize = 6;
pub(super) const SERIES_HEAD: usize = 3;
/// Words of a series.
pub(super) const FAMILY_AT: usize = 1;
pub(super) const CELL: usize = 2;
/// Words of a family: its type, and who registered it.
pub(super) const TYPE: usize = 1;
pub(super) const PID: usize = 2;
pub(super) const PROGRAM: usize = 3;
/// Texts of a family before the names of its labels: name and help text.
pub(super) const FAMILY_TEXTS: usize = 2;

/// The type of a family of counters.
pub(super) const COUNTER: u64 = 1;

/// Returns a text as words, the last one filled with zeros.
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
pub(super) fn first_word(kind: u64, texts: usize) -> u64 {
    kind << 32 | texts as u64
}

/// Returns the bytes of a record.
pub(super) fn bytes_of<'a>(head: usize, texts: impl Iterator<Item = &'a str>) -> u64 {
    let words = texts.fold(head, |words, text| words + 1 + text.len().div_ceil(8));
    8 * words as u64
}

pub(super) fn damaged() -> SegmentErrorKind {
    SegmentErrorKind::Damaged { field: "registry record" }
}

/// Returns words of the area of records, which have memory then.
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
    mapping.ensure_shared(end - start)?;
    mapping.words(at, count as u64).ok_or_else(damaged)
}

/// Returns the first words of a record. Each record has at least as many bytes.
#[inline]
fn first_words(mapping: &Mapping, at: u64) -> Result<&[AtomicU64], SegmentErrorKind> {
    words(mapping, at, SHARED_UNIT as usize / 8)
}

/// Writes a record into bytes that nobody else uses.
pub(super) fn write<'a>(
    mapping: &Mapping,
    at: u64,
    head: &[u64],
    texts: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), SegmentErrorKind> {
    let count = bytes_of(head.len(), texts.clone()) / 8;
    let record = mapping.words(at, count).ok_or_else(damaged)?;
    let lengths = texts.clone().map(|text| text.len() as u64);
    let bytes = texts.flat_map(|text| words_of(text.as_bytes()));
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
    // Relaxed, all: the load of the index acquired what never changes again.
    let load = |word: &AtomicU64| word.load(Relaxed);
    let first = first_words(mapping, at)?;
    if load(&first[0]) != first_word(SERIES, values.len()) || load(&first[FAMILY_AT]) != family_at {
        return Ok(false);
    }
    // The record has as many lengths as these values, and then as many bytes.
    let texts_at = SERIES_HEAD + values.len();
    let lengths = &words(mapping, at, texts_at)?[SERIES_HEAD..];
    if !lengths.iter().zip(values).all(|(word, value)| load(word) == value.len() as u64) {
        return Ok(false);
    }
    let end = values.iter().fold(texts_at, |end, value| end + value.len().div_ceil(8));
    let texts = words(mapping, at, end)?[texts_at..].iter().map(load);
    Ok(texts.eq(values.iter().flat_map(|value| words_of(value.as_bytes()))))
}

/// Returns whether the family at an offset has this name.
pub(super) fn is_family(mapping: &Mapping, at: u64, name: &str) -> Result<bool, SegmentErrorKind> {
    let record = Record::read(mapping, at, FAMILY)?;
    let its_name = record.texts(0..1)?;
    Ok(its_name[0] == name)
}

/// A record whose first word and lengths were checked.
pub(super) struct Record<'a> {
    words: &'a [AtomicU64],
    head: usize,
    count: usize,
}

impl<'a> Record<'a> {
    /// Reads the record at an offset, which has at least one text if it is a family's.
    pub(super) fn read(
        mapping: &'a Mapping,
        at: u64,
        kind: u64,
    ) -> Result<Record<'a>, SegmentErrorKind> {
        let (head, fewest) = match kind {
            FAMILY => (FAMILY_HEAD, FAMILY_TEXTS),
            _ => (SERIES_HEAD, 0),
        };
        // Relaxed, all: as in `is_series`.
        let first = first_words(mapping, at)?[0].load(Relaxed);
        let count = (first & u64::from(u32::MAX)) as usize;
        if first >> 32 != kind || !(fewest..=fewest + LABELS_MAX).contains(&count) {
            return Err(damaged());
        }
        let mut end = head + count;
        for length in &words(mapping, at, end)?[head..] {
            let length = length.load(Relaxed);
            if length > TEXT_MAX as u64 {
                return Err(damaged());
            }
            end += length.div_ceil(8) as usize;
        }
        Ok(Record { words: words(mapping, at, end)?, head, count })
    }

    /// Returns the number of texts.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of the record.
    pub(super) fn bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }

    /// Returns a word before the lengths.
    pub(super) fn word(&self, word: usize) -> u64 {
        // Relaxed: as in `is_series`.
        self.words[word].load(Relaxed)
    }

    /// Calls `each` with the bytes of each text; `scratch` is where they are.
    ///
    /// Another process can change a damaged record at any time, so each length is checked again.
    pub(super) fn for_each_text(
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
            let (text, fill) = scratch.split_at(length);
            if fill.iter().any(|&byte| byte != 0) {
                return Err(damaged());
            }
            each(str::from_utf8(text).map_err(|_| damaged())?);
            at = end;
        }
        Ok(())
    }

    /// Returns some of the texts.
    pub(super) fn texts(
        &self,
        range: impl std::slice::SliceIndex<[String], Output = [String]>,
    ) -> Result<Vec<String>, SegmentErrorKind> {
        let mut all = Vec::with_capacity(self.count);
        self.for_each_text(&mut Vec::new(), |text| all.push(text.to_owned()))?;
        Ok(all.get(range).ok_or_else(damaged)?.to_vec())
    }
}
