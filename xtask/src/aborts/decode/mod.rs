//! The instructions of a copy, decoded.

mod aarch64;
mod aarch64_path;
mod x86_64;

use std::ops::Range;

use anyhow::Result;
use thiscpu_test_support::sections::{Copy, Image};

use super::code::{Code, Step};
use crate::arch::Arch;

/// The number of instructions that no abort handler exceeds.
const HANDLER_MAX: usize = 4;

pub(super) fn decode(image: &Image, copy: &Copy) -> Result<Code> {
    match Arch::of(image) {
        Arch::X86_64 => x86_64::decode(image, copy),
        Arch::Aarch64 => aarch64::decode(image, copy),
    }
}

/// Returns the instructions of a function.
pub(super) fn steps(image: &Image, range: Range<u64>) -> Result<Vec<Step>> {
    let code = image.code(range.clone())?;
    match Arch::of(image) {
        Arch::X86_64 => Ok(x86_64::steps(code, range.start)),
        Arch::Aarch64 => aarch64::steps(code, range.start),
    }
}

/// Returns the text of a call's instructions, on the way through its function that it takes.
///
/// Addresses and thread-local offsets, which a linker chooses, have names.
pub(super) fn path(image: &Image, copy: &Copy, way: &[&Step]) -> Result<String> {
    match Arch::of(image) {
        Arch::X86_64 => x86_64::path(image, copy, way),
        Arch::Aarch64 => aarch64_path::path(image, copy, way),
    }
}
