//! A check that all of a registry fits together, for `thiscpu segment`.
//!
//! Its memory is a few words for each entry of the index, whatever the file says: records are read
//! in the order in which they lie, and none that overlaps another is read.

use super::head::{Head, cell_words, head, index, lanes};
use super::index::{at_of, entry_of, kind_of};
use super::insert::hash_start;
use super::record::{FAMILY, FAMILY_AT, FAMILY_STRINGS, Record, SERIES, class_of, link_of_free};
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::Mapping;
use crate::sys::atomic::Ordering::{Acquire, Relaxed};

/// The most index entries before a name's own that a check looks at.
const PROBES_MAX: u64 = 256;
/// The most items of a free list: more than there are threads that insert at once.
const FREE_MAX: u64 = 1 << 16;
/// How often free lists that change meanwhile are looked at.
const LOOKS: usize = 10;
/// The most bytes of a name in a fault.
const NAME_BYTES: usize = 200;

/// Bytes of the area of records, and whose they are.
pub(in crate::segment) struct Part {
    pub(in crate::segment) at: u64,
    pub(in crate::segment) end: u64,
    pub(in crate::segment) of: String,
}

/// An entry of the index whose record is sound.
struct Sound {
    number: u64,
    kind: u64,
    at: u64,
    hash: u64,
    cell: Option<u64>,
}

/// Free records and cells, of one moment.
struct Free {
    /// Offsets and sizes.
    records: Vec<[u64; 2]>,
    cells: Vec<u64>,
}

/// Checks a registry, and returns the parts of the area of records that it has.
///
/// `fault` gets the part that is damaged, and the fault; it returns whether to go on.
pub(in crate::segment) fn check(
    mapping: &Mapping,
    mut fault: impl FnMut(String, String) -> bool,
) -> Result<Vec<Part>, SegmentErrorKind> {
    let head = head(mapping)?;
    let mut entries = Vec::new();
    let free = (0..LOOKS).find_map(|_| {
        let before = versions(head);
        let free = free_memory(mapping, head, &mut fault);
        entries = entries_in_use(mapping);
        // If no list has changed, no free record had an entry when the index was read.
        (versions(head) == before).then_some(free)
    });
    // Relaxed: what an entry leads to was taken before, as `head::cells_used` explains.
    let used = head.cells_used.load(Relaxed);
    let mut parts = Vec::new();
    let mut all = Vec::new();
    let (mut end, mut before) = (0, 0);
    for &(entry, number) in &entries {
        let part = format!("registry entry {number}");
        let result = match at_of(entry) < end {
            true => Err(format!("its record overlaps that of registry entry {before}")),
            false => read(mapping, number, entry).map_err(|kind| kind.to_string()),
        };
        let is_going_on = match result {
            Err(why) => fault(part, why),
            Ok((sound, behind)) => {
                (end, before) = (behind, number);
                let is_found = is_reachable(mapping, entry, &sound);
                parts.push(Part { at: sound.at, end, of: part.clone() });
                all.push(sound);
                let name = |sound: &Sound| name(mapping, sound);
                is_found
                    || fault(
                        part,
                        format!("no search finds {}", all.last().map_or(String::new(), name)),
                    )
            }
        };
        if !is_going_on {
            return Ok(parts);
        }
    }
    find_doubled_names(mapping, &mut all, &mut fault);
    check_cells(mapping, used, &all, free.as_ref(), &mut fault);
    for [at, bytes] in free.map(|free| free.records).unwrap_or_default() {
        parts.push(Part {
            at,
            end: at.saturating_add(bytes),
            of: format!("a free record at {at}"),
        });
    }
    Ok(parts)
}

/// Returns all entries in use and their numbers, in the order of their records.
fn entries_in_use(mapping: &Mapping) -> Vec<(u64, u64)> {
    // Acquire: pairs with the exchange in `find_or_publish`.
    let entries = index(mapping).unwrap_or(&[]).iter().map(|entry| entry.load(Acquire));
    let mut entries: Vec<_> = entries.zip(0..).filter(|&(entry, _)| entry != 0).collect();
    entries.sort_unstable_by_key(|&(entry, number)| (at_of(entry), number));
    entries
}

fn versions(head: &Head) -> Vec<u64> {
    let lists = head.free_records.iter().chain([&head.free_cells]);
    lists.map(|list| list.version()).collect()
}

/// Returns what is free, if nobody changes the lists meanwhile.
fn free_memory(
    mapping: &Mapping,
    head: &Head,
    fault: &mut impl FnMut(String, String) -> bool,
) -> Free {
    let mut free = Free { records: Vec::new(), cells: Vec::new() };
    for (class, list) in head.free_records.iter().enumerate() {
        let bytes = bytes_of_class(class);
        let before = list.version();
        let link = |at| link_of_free(mapping, at, bytes);
        let of_others = free.records.len();
        let has_end = list.for_each(FREE_MAX, link, |at| free.records.push([at, bytes]));
        if !has_end && list.version() == before {
            // A list without an end has each item many times.
            free.records.truncate(of_others);
            fault(format!("free records of {bytes} bytes"), "their list is damaged".to_owned());
        }
    }
    let words = cell_words(mapping).unwrap_or(&[]);
    let link = |item: u64| words.get(usize::try_from(item.checked_sub(1)?).ok()?);
    let before = head.free_cells.version();
    let has_end =
        head.free_cells.for_each(FREE_MAX, link, |item| free.cells.push(item.wrapping_sub(1)));
    if !has_end && head.free_cells.version() == before {
        free.cells.clear();
        fault("free cells".to_owned(), "their list is damaged".to_owned());
    }
    free
}

/// Returns the bytes of the records of a size, by its number.
fn bytes_of_class(class: usize) -> u64 {
    let sizes = std::iter::successors(Some(64), |&bytes| Some(class_of(bytes + 1).1));
    sizes.into_iter().nth(class).unwrap_or(0)
}

/// Reads and checks the record of an entry, and returns where it ends.
fn read(mapping: &Mapping, number: u64, entry: u64) -> Result<(Sound, u64), SegmentErrorKind> {
    let damaged = |field| SegmentErrorKind::Damaged { field };
    let (at, kind) = (at_of(entry), kind_of(entry));
    if kind != FAMILY && kind != SERIES {
        return Err(damaged("registry entry"));
    }
    let record = Record::read(mapping, at, kind)?;
    let (mut hash, mut cell) = (hash_start(mapping, 0), None);
    let mut hashed = 1;
    if kind == FAMILY {
        record.family_strings()?;
    } else {
        let family_at = record.word(FAMILY_AT);
        let family =
            Record::read(mapping, family_at, FAMILY).map_err(|_| damaged("family of a series"))?;
        if family.count() != FAMILY_STRINGS + record.count() {
            return Err(damaged("number of values"));
        }
        // Series of other types have what this version does not know.
        if family.is_of_counters() {
            cell = record.cell().filter(|&cell| lanes(mapping, cell).is_some());
            cell.ok_or(damaged("cell of a series"))?;
        }
        (hash, hashed) = (hash_start(mapping, family_at), record.count());
    }
    let mut left = hashed;
    record.for_each_string(&mut Vec::new(), |string| {
        if left > 0 {
            (hash, left) = (hash.with(string), left - 1);
        }
    })?;
    Ok((Sound { number, kind, at, hash: hash.end(), cell }, at + record.bytes()))
}

/// Returns whether a search for the name of an entry comes to the entry.
fn is_reachable(mapping: &Mapping, entry: u64, sound: &Sound) -> bool {
    let index = index(mapping).unwrap_or(&[]);
    let mask = index.len() as u64 - 1;
    let steps = sound.number.wrapping_sub(sound.hash) & mask;
    entry_of(sound.kind, sound.at, sound.hash) == entry
        && (1..=steps.min(PROBES_MAX)).all(|step| {
            // Relaxed: an entry that is in use stays so.
            index[(sound.number.wrapping_sub(step) & mask) as usize].load(Relaxed) != 0
        })
}

/// Returns the name of a family, or the values of a series, for a fault.
fn name(mapping: &Mapping, sound: &Sound) -> String {
    let strings = |at, kind| Record::read(mapping, at, kind).and_then(|record| record.strings(..));
    let mut name = match sound.kind {
        FAMILY => strings(sound.at, FAMILY).map(|all| all[..1].concat()),
        _ => strings(sound.at, SERIES).map(|values| format!("{values:?}")),
    }
    .unwrap_or_default();
    let is_long = name.len() > NAME_BYTES;
    while name.len() > NAME_BYTES {
        name.pop();
    }
    if is_long { format!("{name:?} and more") } else { format!("{name:?}") }
}

fn find_doubled_names(
    mapping: &Mapping,
    all: &mut [Sound],
    fault: &mut impl FnMut(String, String) -> bool,
) {
    all.sort_unstable_by_key(|sound| (sound.hash, sound.kind, sound.number));
    for pair in all.windows(2) {
        let [one, other] = pair else { continue };
        if (one.hash, one.kind) != (other.hash, other.kind) {
            continue;
        }
        let names = [one, other].map(|sound| name(mapping, sound));
        if names[0] == names[1] {
            let part = format!("registry entry {}", other.number);
            fault(part, format!("entry {} and it have this name: {}", one.number, names[0]));
        }
    }
}

fn check_cells(
    mapping: &Mapping,
    used: u64,
    all: &[Sound],
    free: Option<&Free>,
    fault: &mut impl FnMut(String, String) -> bool,
) {
    let of_series = all.iter().filter_map(|sound| {
        sound.cell.map(|cell| (cell, format!("registry entry {}", sound.number)))
    });
    let free = free.map_or(&[][..], |free| &free.cells).iter();
    let mut cells: Vec<_> =
        of_series.chain(free.map(|&cell| (cell, "a free cell".into()))).collect();
    cells.sort_unstable();
    for pair in cells.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        fault(pair[1].1.clone(), format!("its cell is that of {}", pair[0].1));
    }
    let (there, highest) = (mapping.layout.cells(), cells.last().map_or(0, |cell| cell.0));
    if used > there || !cells.is_empty() && highest >= used {
        let what = format!("{used} of {there} cells are in use, and number {highest} too");
        fault("registry".to_owned(), what);
    }
}
