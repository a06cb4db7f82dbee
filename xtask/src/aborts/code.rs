//! Instructions as text, with registers told apart from the rest.

use std::collections::BTreeMap;

use thiscpu_test_support::sections::Copy;

use crate::template::Parts;

/// A piece of an instruction's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Register {
        /// The whole register, whichever part of it the instruction names.
        whole: String,
        /// The part of it that the instruction names; empty for all of it.
        width: &'static str,
    },
}

/// An instruction, as far as checks need to know it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) parts: Vec<Part>,
    /// The registers that it changes.
    pub(super) writes: Vec<String>,
    /// Whether it stores to memory.
    pub(super) stores: bool,
    /// Whether it calls, traps or returns: the code that it reaches need not jump back.
    pub(super) calls: bool,
    /// Whether the instruction after it is never executed.
    pub(super) ends: bool,
}

/// An instruction, as far as ways through a function depend on it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) address: u64,
    /// Whether the next instruction may follow; after a call it does not count as following.
    pub(super) goes_on: bool,
    /// The target of a jump.
    pub(super) target: Option<u64>,
    pub(super) returns: bool,
    /// Whether it loads from memory; the load of a return does not count.
    pub(super) loads: bool,
}

impl Line {
    pub(super) fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(text),
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    pub(super) fn register(&mut self, whole: String, width: &'static str) {
        self.parts.push(Part::Register { whole, width });
    }

    /// Returns the instruction with its actual registers.
    pub(super) fn disassembled(&self) -> String {
        let text = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Register { whole, width } => format!("{whole}{width}"),
        });
        text.collect()
    }
}

/// Numbers for registers, in order of appearance.
#[derive(Default)]
pub(super) struct Numbers(BTreeMap<String, usize>);

impl Numbers {
    /// Returns the indented line of an instruction.
    pub(super) fn text(&mut self, line: &Line) -> String {
        let mut text = "    ".to_owned();
        for part in &line.parts {
            match part {
                Part::Text(piece) => text += piece,
                Part::Register { whole, width } => {
                    let next = self.0.len() + 1;
                    let number = self.0.entry(whole.clone()).or_insert(next);
                    text += &format!("r{number}{width}");
                }
            }
        }
        text + "\n"
    }
}

/// Returns the lines of instructions whose registers are numbered together.
pub(super) fn numbered(lines: &[Line]) -> String {
    let mut numbers = Numbers::default();
    lines.iter().map(|line| numbers.text(line)).collect()
}

/// The instructions of a copy.
pub(super) type Code = Parts<Line>;

/// Returns the name of the target of a jump in a copy.
///
/// `begins` has the addresses of the instructions before and in its range. Other addresses in the
/// function differ from copy to copy, so they share one name.
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
