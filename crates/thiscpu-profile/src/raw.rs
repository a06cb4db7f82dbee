//! The text that a process writes: samples with addresses, and its mappings.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};

/// Blocks that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Space {
    /// Those in use
    Live,
    /// All that were allocated since the start
    Alloc,
}

/// The moment at which blocks are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Moment {
    /// When the profile was written
    Exit,
    /// When most bytes were live
    Peak,
}

/// A profile.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// The mean number of bytes between two samples.
    pub(crate) interval: u64,
    pub(crate) samples: Vec<Sample>,
    pub(crate) mappings: Vec<Mapping>,
}

/// The blocks that were allocated at one stack. All numbers are weighted.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) live: Numbers,
    pub(crate) allocated: Numbers,
    pub(crate) peak: Numbers,
    /// An address within the call instruction of each frame, innermost first.
    pub(crate) frames: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// A part of a file that was mapped executable.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) path: PathBuf,
    /// The hexadecimal digits of the file's build ID, or nothing if that is unknown.
    pub(crate) build_id: String,
}

impl Sample {
    pub(crate) fn bytes(&self, space: Space, at: Moment) -> u64 {
        match (space, at) {
            (Space::Alloc, _) => self.allocated.bytes,
            (Space::Live, Moment::Exit) => self.live.bytes,
            (Space::Live, Moment::Peak) => self.peak.bytes,
        }
    }
}

/// Parses a profile.
pub(crate) fn parse(text: &[u8]) -> Result<Profile> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().enumerate();
    let (_, heading) = lines.next().context("it is empty")?;
    ensure!(
        heading.starts_with("heap profile:") && heading.ends_with("@ heapprofile"),
        "it does not begin like a heap profile of `thiscpu run --heap-profile`"
    );
    let mut profile = Profile::default();
    for (number, line) in lines.by_ref() {
        let at = || format!("line {}: {line:?}", number + 1);
        if let Some(comment) = line.strip_prefix('#') {
            parse_comment(comment, &mut profile).with_context(at)?;
        } else if line == "MAPPED_LIBRARIES:" {
            profile.mappings = parse_mappings(lines.map(|(_, line)| line));
            return Ok(profile);
        } else if !line.is_empty() {
            profile.samples.push(parse_sample(line).with_context(at)?);
        }
    }
    bail!("it has no mappings at its end, so it was not written whole")
}

/// Parses `thiscpu 1 interval=...`, or `peak OBJECTS BYTES` of the last sample.
fn parse_comment(comment: &str, profile: &mut Profile) -> Result<()> {
    let mut words = comment.split_whitespace();
    match words.next() {
        Some("thiscpu") => {
            let version = words.next();
            ensure!(version == Some("1"), "the format is of a newer version");
            let interval = words.find_map(|word| word.strip_prefix("interval="));
            profile.interval = interval.context("it names no interval")?.parse()?;
        }
        Some("peak") => {
            let mut number = || anyhow::Ok(words.next().context("a number is missing")?.parse()?);
            let peak = Numbers { objects: number()?, bytes: number()? };
            profile.samples.last_mut().context("no sample comes before it")?.peak = peak;
        }
        // Later versions may have further comments.
        _ => {}
    }
    Ok(())
}

/// Parses `LIVE: BYTES [ALL: BYTES] @ ADDRESS ADDRESS...`.
fn parse_sample(line: &str) -> Result<Sample> {
    let (numbers, addresses) = line.split_once('@').context("there is no @")?;
    let is_digit = |letter: char| letter.is_ascii_digit();
    let numbers = numbers
        .split(|letter| !is_digit(letter))
        .filter(|word| !word.is_empty())
        .map(|word| Ok(word.parse()?))
        .collect::<Result<Vec<u64>>>()?;
    let [live_objects, live_bytes, all_objects, all_bytes] = numbers[..] else {
        bail!("there are {} numbers, not 4", numbers.len());
    };
    let frames = addresses.split_whitespace().enumerate().map(|(index, address)| {
        let digits = address.strip_prefix("0x").context("an address does not begin with 0x")?;
        // All but the innermost are return addresses.
        Ok(u64::from_str_radix(digits, 16)?.saturating_sub(u64::from(index > 0)))
    });
    Ok(Sample {
        live: Numbers { objects: live_objects, bytes: live_bytes },
        allocated: Numbers { objects: all_objects, bytes: all_bytes },
        peak: Numbers::default(),
        frames: frames.collect::<Result<_>>()?,
    })
}

/// Parses lines of `/proc/PID/maps`, among them build IDs; returns the executable mappings.
fn parse_mappings<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    // The paths and build IDs of files. A file that was replaced may be mapped beside its successor
    // of the same path, but the kernel then calls it deleted.
    let mut last = None;
    let mut build_ids = HashMap::new();
    for line in lines {
        if let Some(id) = line.strip_prefix("# build-id ") {
            let id = id.split_once(' ').map(|(_, digits)| digits.to_owned());
            build_ids.extend(last.take().zip(id));
            continue;
        }
        let mapping = parse_mapping(line);
        last = mapping.as_ref().map(|(_, mapping)| mapping.path.clone());
        mappings.extend(mapping.filter(|(is_code, _)| *is_code).map(|(_, mapping)| mapping));
    }
    for mapping in &mut mappings {
        mapping.build_id = build_ids.get(&mapping.path).cloned().unwrap_or_default();
    }
    mappings
}

/// Parses a line of `/proc/PID/maps`, and returns whether it is of executable memory.
fn parse_mapping(line: &str) -> Option<(bool, Mapping)> {
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (word, behind) = trimmed.split_at(trimmed.find(' ').unwrap_or(trimmed.len()));
        rest = behind;
        word
    };
    let (start, end) = word().split_once('-')?;
    let (access, offset, _device, _inode) = (word(), word(), word(), word());
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let mapping = Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        path: rest.trim_start().into(),
        build_id: String::new(),
    };
    Some((access.contains('x'), mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "heap profile: 3: 300 [5: 500] @ heapprofile\n\
        # thiscpu 1 interval=1024 pid=7 dropped=0 stacks=2\n\
        1: 100 [2: 200] @ 0x10 0x21\n\
        # peak 2 200\n\
        2: 200 [3: 300] @ 0x30\n\
        # peak 2 150\n\
        \n\
        MAPPED_LIBRARIES:\n\
        00400000-00401000 r--p 00000000 08:01 42                 /bin/a program\n\
        # build-id 400000 abcd01\n\
        00401000-00402000 r-xp 00001000 08:01 42                 /bin/a program\n\
        7ffd0000-7ffd1000 r-xp 00000000 00:00 0                  [vdso]\n";

    #[test]
    fn profile_is_parsed() {
        let profile = parse(TEXT.as_bytes()).unwrap();
        assert_eq!(profile.interval, 1024);
        let [first, second] = &profile.samples[..] else { panic!("{profile:?}") };
        assert_eq!(first.frames, [0x10, 0x20]);
        assert_eq!(first.live, Numbers { objects: 1, bytes: 100 });
        assert_eq!(first.allocated, Numbers { objects: 2, bytes: 200 });
        assert_eq!(first.peak, Numbers { objects: 2, bytes: 200 });
        assert_eq!(second.bytes(Space::Live, Moment::Peak), 150);
        assert_eq!(second.bytes(Space::Live, Moment::Exit), 200);
        assert_eq!(second.bytes(Space::Alloc, Moment::Peak), 300);
        let [program, vdso] = &profile.mappings[..] else { panic!("{profile:?}") };
        assert_eq!((program.start, program.offset), (0x40_1000, 0x1000));
        assert_eq!(program.path.to_str(), Some("/bin/a program"));
        assert_eq!(vdso.path.to_str(), Some("[vdso]"));
        assert_eq!((program.build_id.as_str(), vdso.build_id.as_str()), ("abcd01", ""));
    }

    #[test]
    fn other_and_incomplete_files_are_refused() {
        for (text, why) in [
            ("", "empty"),
            ("hello\n", "does not begin"),
            (&TEXT[..TEXT.find("@ 0x30").unwrap()], "line"),
            (&TEXT[..TEXT.find("\nMAPPED").unwrap()], "not written whole"),
            (&TEXT.replace("thiscpu 1", "thiscpu 2"), "newer"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }
}
