//! pprof's format: a gzipped protocol buffer.
//!
//! The messages are those of `profile.proto`, as far as they are used.

use std::collections::HashMap;
use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use prost::Message as _;

use crate::raw::Profile;
use crate::stacks::Stacks;

#[derive(prost::Message)]
struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<PprofMapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<PprofFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, prost::Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(prost::Message)]
struct PprofSample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(prost::Message)]
struct PprofMapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(prost::Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, prost::Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, prost::Message)]
struct PprofFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The values of each sample, with their units. pprof shows the default one, `inuse_space`.
const VALUES: [(&str, &str); 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
];

/// The string table, which begins with the empty string.
struct Strings {
    table: Vec<String>,
    known: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Strings {
        Strings { table: vec![String::new()], known: HashMap::from([(String::new(), 0)]) }
    }

    fn index(&mut self, text: &str) -> i64 {
        if let Some(&index) = self.known.get(text) {
            return index;
        }
        let index = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.known.insert(text.to_owned(), index);
        index
    }
}

/// Returns the profile for pprof.
pub(crate) fn encode(profile: &Profile, stacks: &Stacks<'_>) -> Result<Vec<u8>> {
    let mut strings = Strings::new();
    let mut pprof = PprofProfile {
        sample_type: VALUES.iter().map(|value| value_type(*value, &mut strings)).collect(),
        period_type: Some(value_type(("space", "bytes"), &mut strings)),
        period: profile.interval as i64,
        default_sample_type: strings.index("inuse_space"),
        mapping: mappings(profile, &mut strings),
        ..PprofProfile::default()
    };
    add_samples(stacks, &mut strings, &mut pprof);
    pprof.string_table = strings.table;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&pprof.encode_to_vec())?;
    Ok(gzip.finish()?)
}

fn value_type((kind, unit): (&str, &str), strings: &mut Strings) -> ValueType {
    ValueType { kind: strings.index(kind), unit: strings.index(unit) }
}

fn mappings(profile: &Profile, strings: &mut Strings) -> Vec<PprofMapping> {
    let mappings = profile.mappings.iter().enumerate();
    mappings
        .map(|(index, mapping)| PprofMapping {
            id: index as u64 + 1,
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.offset,
            filename: strings.index(&mapping.path.to_string_lossy()),
            build_id: strings.index(&mapping.build_id),
            // Otherwise pprof would look for symbols again.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        })
        .collect()
}

fn add_samples(stacks: &Stacks<'_>, strings: &mut Strings, pprof: &mut PprofProfile) {
    let mut locations: HashMap<(u64, usize), u64> = HashMap::new();
    let mut functions: HashMap<(i64, i64), u64> = HashMap::new();
    for named in &stacks.samples {
        let mut location_id = Vec::new();
        for (index, &address) in named.frames.iter().enumerate() {
            let lines = stacks.functions_of_frame(named, index);
            let next = locations.len() as u64 + 1;
            let id = *locations.entry((address, lines.len())).or_insert(next);
            location_id.push(id);
            if id != next {
                continue;
            }
            let line = lines
                .iter()
                .map(|function| {
                    let name = strings.index(&function.name);
                    let filename = strings.index(&function.file);
                    let next = functions.len() as u64 + 1;
                    let id = *functions.entry((name, filename)).or_insert(next);
                    if id == next {
                        pprof.function.push(PprofFunction {
                            id,
                            name,
                            system_name: name,
                            filename,
                        });
                    }
                    Line { function_id: id, line: function.line.into() }
                })
                .collect();
            let mapping_id = stacks.symbols.mapping(address).map_or(0, |index| index as u64 + 1);
            pprof.location.push(Location { id, mapping_id, address, line });
        }
        let [allocated, live, peak] =
            [named.sample.allocated, named.sample.live, named.sample.peak];
        let value = [allocated, live, peak]
            .iter()
            .flat_map(|numbers| [numbers.objects, numbers.bytes])
            .map(|number| i64::try_from(number).unwrap_or(i64::MAX))
            .collect();
        pprof.sample.push(PprofSample { location_id, value });
    }
}
