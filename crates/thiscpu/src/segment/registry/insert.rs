//! Finding families and series by name, and inserting them.

use super::head::{head, index, lanes};
use super::index::{
    Outcome, Spare, at_of, entry_of, find_or_publish, keep_spare, take_number, take_spare,
};
use super::record::{
    CELL, COUNTER, FAMILY, FAMILY_HEAD, FAMILY_TEXTS, PID, PROGRAM, Record, SERIES, SERIES_HEAD,
    TYPE, bytes_of, first_word, is_family, is_series, words, words_of, write,
};
use crate::segment::file::error::{FamilyConflict, SegmentErrorKind};
use crate::segment::file::mapping::{Mapping, SHARED_UNIT};
use crate::sys::atomic::Ordering::Relaxed;

/// Returns the hash of a key: of the segment, a family or 0, and texts.
///
/// It begins with a number that outsiders do not know, so they cannot choose labels that collide.
#[inline]
pub(super) fn hash(mapping: &Mapping, family_at: u64, texts: &[&str]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(FACTOR);
        (product as u64 ^ (product >> 64) as u64).wrapping_add(FACTOR)
    };
    let first = mix(mapping.header().nonce(), family_at);
    let all = texts.iter().fold(first, |hash, text| {
        words_of(text.as_bytes()).fold(mix(hash, text.len() as u64), mix)
    });
    mix(all, 0)
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
    let found = record.texts(FAMILY_TEXTS..)?;
    let is_other = labels.is_some_and(|labels| !found.iter().eq(labels));
    if record.word(TYPE) == COUNTER && !is_other {
        return Ok(found);
    }
    let program = [0, 1].map(|word| record.word(PROGRAM + word).to_le_bytes()).concat();
    let program = String::from_utf8_lossy(program.split(|&byte| byte == 0).next().unwrap_or(&[]));
    Err(SegmentErrorKind::OtherFamily(Box::new(FamilyConflict {
        name: name.to_owned(),
        is_counter: record.word(TYPE) == COUNTER,
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
    let texts = [name, help].into_iter().chain(labels.iter().copied());
    let make = || {
        let [first, second] = program();
        let kind = first_word(FAMILY, FAMILY_TEXTS + labels.len());
        let pid = u64::from(std::process::id());
        let record: [u64; FAMILY_HEAD] = [kind, COUNTER, pid, first, second, 0];
        let at = mapping.take_shared(bytes_of(FAMILY_HEAD, texts.clone()))?;
        write(mapping, at, &record, texts.clone())?;
        Ok(Some(entry_of(FAMILY, at, hash)))
    };
    let is_key = |entry| is_family(mapping, at_of(entry), name);
    let outcome = find_or_publish(index(mapping)?, hash, FAMILY, is_key, make);
    note_refused(mapping, outcome).map(|outcome| at_of(outcome.entry.unwrap_or(0)))
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

/// Counts an insert that failed for want of room or memory.
fn note_refused(
    mapping: &Mapping,
    outcome: Result<Outcome, SegmentErrorKind>,
) -> Result<Outcome, SegmentErrorKind> {
    let outcome = match outcome {
        Ok(Outcome { entry: None, .. }) | Err(SegmentErrorKind::Full) => {
            Err(SegmentErrorKind::RegistryFull)
        }
        other => other,
    };
    let is_refused = |kind: &SegmentErrorKind| {
        matches!(kind, SegmentErrorKind::RegistryFull | SegmentErrorKind::System { .. })
    };
    if outcome.as_ref().is_err_and(is_refused) {
        // Relaxed: a number to be shown.
        head(mapping)?.refused.fetch_add(1, Relaxed);
    }
    outcome
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
    let head = head(mapping)?;
    let texts = || values.iter().copied();
    let units = bytes_of(SERIES_HEAD, texts()).div_ceil(SHARED_UNIT);
    let mut own = None;
    let make = || {
        let (spare, cell) = match kept_memory(mapping, units) {
            Some(memory) => memory,
            None => match new_memory(mapping, units)? {
                Some(memory) => memory,
                None => return Ok(None),
            },
        };
        let record = [first_word(SERIES, values.len()), family_at, cell];
        write(mapping, spare.at, &record, texts())?;
        own = Some(spare);
        Ok(Some(entry_of(SERIES, spare.at, hash)))
    };
    let is_key = |entry| is_series(mapping, at_of(entry), family_at, values);
    let outcome = find_or_publish(index(mapping)?, hash, SERIES, is_key, make);
    let was_published = outcome.as_ref().is_ok_and(|it| it.unused.is_none() && it.entry.is_some());
    if let Some(own) = own.filter(|_| !was_published) {
        // Its record says which cell it has. If there is no word for it, both are lost.
        keep_spare(&head.spares, own);
    }
    note_refused(mapping, outcome).map(|outcome| at_of(outcome.entry.unwrap_or(0)))
}

/// Takes the record and the cell of an insert that another process was faster with.
fn kept_memory(mapping: &Mapping, units: u64) -> Option<(Spare, u64)> {
    let spare = take_spare(&head(mapping).ok()?.spares, units)?;
    // Whoever can write to the file can have written any word there.
    let record = words(mapping, spare.at, (8 * spare.units) as usize).ok()?;
    // Relaxed: `take_spare` acquired the record.
    let cell = record[CELL].load(Relaxed);
    lanes(mapping, cell)?;
    mapping.ensure_cells(cell + 1).ok()?;
    Some((spare, cell))
}

/// Takes bytes for a record, and a cell.
fn new_memory(mapping: &Mapping, units: u64) -> Result<Option<(Spare, u64)>, SegmentErrorKind> {
    let (used, cells) = (&head(mapping)?.cells_used, mapping.layout.cells());
    // Relaxed: `take_number` looks again.
    if used.load(Relaxed) >= cells {
        return Ok(None);
    }
    let bytes = SHARED_UNIT * units;
    let at = mapping.take_shared(bytes)?;
    match take_number(used, cells, |count| mapping.ensure_cells(count)) {
        Ok(Some(cell)) => Ok(Some((Spare { at, units }, cell))),
        failed => {
            mapping.give_back_shared(at, bytes);
            failed.map(|_| None)
        }
    }
}
