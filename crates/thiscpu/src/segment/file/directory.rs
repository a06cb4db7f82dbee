//! Objects by name: records, and an index of them.
//!
//! A record is written into memory of its own, and then its offset is exchanged into a free entry
//! of the index. That exchange publishes the object. A process that dies before it leaves memory
//! that nobody uses; one that dies after it leaves the object.

use super::error::{SegmentError, SegmentErrorKind};
use super::mapping::{Mapping, SHARED_UNIT};
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The longest name, in bytes.
pub(in crate::segment) const NAME_MAX: usize = 200;
/// Words of a record before its name.
pub(in crate::segment) const HEAD: u64 = 5;

/// Words of a record: the kind of the object and how many counters it has.
pub(in crate::segment) const KIND: usize = 0;
/// Where the object's bytes begin in each lane.
pub(in crate::segment) const LANE_AT: usize = 1;
/// The length of the name, in bytes.
pub(in crate::segment) const NAME_LEN: usize = 2;
/// Two words that belong to the object itself. They begin as 0.
pub(in crate::segment) const OWN: usize = 3;
/// In place of the first of them: where the bytes of a budget begin in the shared area.
const SHARED_AT: usize = 3;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Kind {
    pub(in crate::segment) number: u32,
    /// How many of it there are side by side.
    pub(in crate::segment) count: u32,
}

impl Kind {
    /// The number of counters' kind.
    pub(in crate::segment) const COUNTERS: u32 = 1;
    /// The most counters in a group.
    pub(in crate::segment) const COUNTERS_MAX: u32 = 4096;

    pub(in crate::segment) const fn counters(count: u32) -> Kind {
        Kind { number: Kind::COUNTERS, count }
    }

    pub(in crate::segment) fn from_word(word: u64) -> Kind {
        Kind { number: (word >> 32) as u32, count: word as u32 }
    }

    pub(in crate::segment) const BUDGET: Kind = Kind { number: 2, count: 1 };

    fn to_word(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.count)
    }
}

/// The properties of an object to be made.
pub(in crate::segment) struct Request<'a> {
    pub(in crate::segment) name: &'a str,
    pub(in crate::segment) shape: Shape<'a>,
}

/// The kind of an object, and the memory that it takes.
pub(in crate::segment) struct Shape<'a> {
    pub(in crate::segment) kind: Kind,
    /// The bytes that it takes in each lane.
    pub(in crate::segment) lane_bytes: u64,
    /// Bytes in lanes begin at a multiple of this.
    pub(in crate::segment) lane_unit: u64,
    /// The bytes that it takes in the shared area, where they begin at a cache line.
    pub(in crate::segment) shared_bytes: u64,
    /// Writes the first values there.
    pub(in crate::segment) init: &'a dyn Fn(usize),
}

/// An object that exists.
#[derive(Clone, Copy)]
pub(in crate::segment) struct Found<'a> {
    /// The words that belong to the object.
    pub(in crate::segment) own: [&'a AtomicU64; 2],
    /// The offset of its bytes in the shared area, if it has any, and their address.
    pub(in crate::segment) shared: (u64, usize),
    /// The address of its bytes in lane 0.
    pub(in crate::segment) in_lane_0: usize,
}

/// Finds an object, or makes it.
pub(in crate::segment) fn find_or_make<'a>(
    mapping: &'a Mapping,
    request: &Request<'_>,
) -> Result<Found<'a>, SegmentError> {
    let mut made = None;
    let found = find(mapping, request, |entry| {
        let own = match made {
            Some(own) => own,
            None => *made.insert(make(mapping, request).map_err(|kind| mapping.error(kind))?),
        };
        // AcqRel: releases the record, and acquires another's that came first.
        let before = entry.compare_exchange(0, own, AcqRel, Acquire);
        Ok(Some(before.map_or_else(|other| other, |_| own)))
    })?;
    found.ok_or_else(|| mapping.error(SegmentErrorKind::Full))
}

/// Finds an object that exists.
pub(in crate::segment) fn find_existing<'a>(
    mapping: &'a Mapping,
    request: &Request<'_>,
) -> Result<Found<'a>, SegmentError> {
    let found = find(mapping, request, |_| Ok(None))?;
    found.ok_or_else(|| mapping.error(SegmentErrorKind::NoSuchObject))
}

/// Looks an object up. `fill` may fill a free entry, and returns the entry's offset.
fn find<'a>(
    mapping: &'a Mapping,
    request: &Request<'_>,
    mut fill: impl FnMut(&AtomicU64) -> Result<Option<u64>, SegmentError>,
) -> Result<Option<Found<'a>>, SegmentError> {
    let error = |kind| mapping.error(kind);
    let name = request.name.as_bytes();
    if !is_name(request.name) {
        return Err(error(SegmentErrorKind::InvalidName));
    }
    mapping.check_length().map_err(error)?;
    let entries = mapping.layout.index_entries;
    let index = index(mapping).map_err(error)?;
    let first = hash(name) & (entries - 1);
    for step in 0..entries {
        let entry = &index[((first + step) & (entries - 1)) as usize];
        // Acquire: pairs with the exchange in `find_or_make`; a record whose offset is seen is
        // written.
        let at = match entry.load(Acquire) {
            0 => fill(entry)?,
            at => Some(at),
        };
        let Some(at) = at else { break };
        if let Some(found) = check(mapping, request, at).map_err(error)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Calls `visit` with each object of a kind, and returns whether it saw all of them.
///
/// Leaves damaged records out: no process of this library has used them. If the system has no
/// memory for an object, others may use it.
#[must_use]
pub(in crate::segment) fn for_each<'a>(
    mapping: &'a Mapping,
    shape: &Shape<'_>,
    mut visit: impl FnMut(Found<'a>),
) -> bool {
    let Ok(index) = index(mapping) else { return false };
    let mut is_complete = true;
    // Acquire: as in `find`.
    for at in index.iter().map(|entry| entry.load(Acquire)).filter(|&at| at != 0) {
        let object = record(mapping, at, HEAD).and_then(|record| object(mapping, record, shape));
        match object {
            Ok(object) => visit(object),
            Err(SegmentErrorKind::System { .. }) => is_complete = false,
            Err(_) => {}
        }
    }
    is_complete
}

fn index(mapping: &Mapping) -> Result<&[AtomicU64], SegmentErrorKind> {
    let index = mapping.words(mapping.layout.index_at(), mapping.layout.index_entries);
    index.ok_or(SegmentErrorKind::Damaged { field: "index" })
}

/// Returns the object of a record, `None` if it has another name.
fn check<'a>(
    mapping: &'a Mapping,
    request: &Request<'_>,
    at: u64,
) -> Result<Option<Found<'a>>, SegmentErrorKind> {
    let name = request.name.as_bytes();
    let record = record(mapping, at, HEAD + words_of(name).count() as u64)?;
    let its_name = record[HEAD as usize..].iter().map(|word| word.load(Relaxed));
    if record[NAME_LEN].load(Relaxed) != name.len() as u64 || !words_of(name).eq(its_name) {
        return Ok(None);
    }
    object(mapping, record, &request.shape).map(Some)
}

/// Returns the words of a record, at most `length` of them.
fn record(mapping: &Mapping, at: u64, length: u64) -> Result<&[AtomicU64], SegmentErrorKind> {
    let damaged = SegmentErrorKind::Damaged { field: "record" };
    let layout = &mapping.layout;
    if !(layout.shared_at()..layout.lanes_at() - 8 * HEAD).contains(&at) {
        return Err(damaged);
    }
    // A record of another name may be shorter, and end where the area ends.
    let end = (at + 8 * length).min(layout.lanes_at());
    mapping.ensure_shared(end - layout.shared_at())?;
    mapping.words(at, (end - at) / 8).ok_or(damaged)
}

/// Returns the object of a record, after a check of everything that leads elsewhere.
fn object<'a>(
    mapping: &'a Mapping,
    record: &'a [AtomicU64],
    shape: &Shape<'_>,
) -> Result<Found<'a>, SegmentErrorKind> {
    let damaged = || SegmentErrorKind::Damaged { field: "record" };
    // Relaxed: the load of the index acquired what never changes again.
    let load = |word: usize| record[word].load(Relaxed);
    if load(KIND) != shape.kind.to_word() {
        return Err(SegmentErrorKind::OtherKind);
    }
    let in_lane_0 = mapping.in_lanes(load(LANE_AT), shape.lane_bytes).ok_or_else(damaged)?;
    if !load(LANE_AT).is_multiple_of(shape.lane_unit) {
        return Err(damaged());
    }
    mapping.ensure_in_lanes(load(LANE_AT) + shape.lane_bytes)?;
    let mut shared = (0, 0);
    if shape.shared_bytes > 0 {
        let (at, start) = (load(SHARED_AT), mapping.layout.shared_at());
        if !(start..mapping.layout.lanes_at()).contains(&at) || !at.is_multiple_of(SHARED_UNIT) {
            return Err(damaged());
        }
        shared = (at, mapping.in_shared(at, shape.shared_bytes).ok_or_else(damaged)?);
        mapping.ensure_shared(at + shape.shared_bytes - start)?;
    }
    Ok(Found { own: [&record[OWN], &record[OWN + 1]], shared, in_lane_0 })
}

/// Writes the record of a new object, and returns its offset.
fn make(mapping: &Mapping, request: &Request<'_>) -> Result<u64, SegmentErrorKind> {
    let name = request.name.as_bytes();
    let length = HEAD + words_of(name).count() as u64;
    let Shape { kind, lane_bytes, lane_unit, shared_bytes, init } = request.shape;
    let mut shared_at = 0;
    if shared_bytes > 0 {
        shared_at = mapping.take_shared(shared_bytes)?;
        init(mapping.in_shared(shared_at, shared_bytes).ok_or(SegmentErrorKind::Full)?);
    }
    let at = mapping.take_shared(8 * length)?;
    let lane_at = mapping.take_in_lanes(lane_bytes, lane_unit)?;
    let record = mapping.words(at, length).ok_or(SegmentErrorKind::Full)?;
    let head = [kind.to_word(), lane_at, name.len() as u64, shared_at, 0];
    // Relaxed: the exchange in `find_or_make` releases the record.
    record.iter().zip(head.into_iter().chain(words_of(name))).for_each(|(word, value)| {
        word.store(value, Relaxed);
    });
    Ok(at)
}

/// Returns whether an object can have the name.
pub(in crate::segment) fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Returns a name as words, the last one filled with zeros.
fn words_of(name: &[u8]) -> impl Iterator<Item = u64> {
    name.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// Returns the 64-bit FNV-1a hash of a name.
pub(in crate::segment) fn hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of FNV-1a depend on few bits of the name.
    hash ^ hash >> 32
}
