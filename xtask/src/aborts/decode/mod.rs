//! The instructions of a copy, decoded.

mod aarch64;
mod x86_64;

use anyhow::Result;
use thiscpu_test_support::sections::{Copy, Image};

use super::code::Code;
use crate::arch::Arch;

pub(super) use x86_64::path;

/// The number of instructions that no abort handler exceeds.
const HANDLER_MAX: usize = 4;

pub(super) fn decode(image: &Image, copy: &Copy) -> Result<Code> {
    match Arch::of(image) {
        Arch::X86_64 => x86_64::decode(image, copy),
        Arch::Aarch64 => aarch64::decode(image, copy),
    }
}
