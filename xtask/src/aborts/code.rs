//! Instructions as text in which registers can be told from the rest.

use anyhow::Result;

use super::image::{Architecture, Copy, Image};
use super::{aarch64, x86_64};

/// A piece of an instruction's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Register {
        /// The whole register, whichever part of it is named.
        whole: String,
        /// Says which part of it: nothing for all of it.
        width: &'static str,
    },
}

/// What checks need to know of an instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) parts: Vec<Part>,
    /// The registers that it changes.
    pub(super) writes: Vec<String>,
    /// Whether it stores to memory.
    pub(super) stores: bool,
    /// Whether it may go to code that does not come back by a jump: calls, traps, returns.
    pub(super) calls: bool,
    /// Whether nothing after it is run.
    pub(super) ends: bool,
}

impl Line {
    pub(super) fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    /// With the registers that it has.
    pub(super) fn as_it_is(&self) -> String {
        let text = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Register { whole, width } => format!("{whole}{width}"),
        });
        text.collect()
    }

    pub(super) fn register(&mut self, whole: String, width: &'static str) {
        self.parts.push(Part::Register { whole, width });
    }
}

/// The instructions of a copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// From the one that loads the descriptor's address, up to the range.
    pub(super) before: Vec<Line>,
    pub(super) range: Vec<Line>,
    /// The abort handler, up to its jump.
    pub(super) abort: Vec<Line>,
}

impl Code {
    pub(super) fn of(image: &Image, copy: &Copy) -> Result<Code> {
        match image.architecture {
            Architecture::X86_64 => x86_64::code(image, copy),
            Architecture::Aarch64 => aarch64::code(image, copy),
        }
    }

    /// With the names that templates give them.
    pub(super) fn parts(&self) -> [(&'static str, &[Line]); 3] {
        [("before", &self.before), ("range", &self.range), ("abort", &self.abort)]
    }
}

/// What a jump from a copy to `target` is called, given where the instructions before its range and in
/// it begin. The rest of the function differs from copy to copy.
pub(super) fn label(copy: &Copy, begins: &[u64], target: u64) -> String {
    let before = begins.partition_point(|&begin| begin < copy.start);
    match begins.iter().position(|&begin| begin == target) {
        Some(number) if number < before => format!("before:{}", number + 1),
        Some(number) => format!("range:{}", number - before + 1),
        None if target == copy.end => "end".to_owned(),
        None if copy.range().contains(&target) => "the middle of an instruction".to_owned(),
        None => "out".to_owned(),
    }
}
