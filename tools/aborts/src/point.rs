//! Where a section can be stopped: at each of its instructions, and just before and after them.

use anyhow::{Result, ensure};

use crate::memory::Memory;

/// What stops a processor.
#[cfg(target_arch = "x86_64")]
pub(crate) const BREAKPOINT: Code = [0xcc];
#[cfg(target_arch = "aarch64")]
pub(crate) const BREAKPOINT: Code = 0xd420_0000_u32.to_le_bytes();

/// The bytes of a breakpoint, and those it takes the place of.
#[cfg(target_arch = "x86_64")]
pub(crate) type Code = [u8; 1];
#[cfg(target_arch = "aarch64")]
pub(crate) type Code = [u8; 4];

/// How far behind a breakpoint the kernel finds the processor.
#[cfg(target_arch = "x86_64")]
pub(crate) const PAST: usize = 1;
#[cfg(target_arch = "aarch64")]
pub(crate) const PAST: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the way in: the kernel aborts nothing here, so nothing must have been looked at yet.
    Before,
    /// In the range: the kernel aborts it.
    Inside,
    /// The first instruction after the range: the commit must be done.
    After,
}

/// An instruction at which a breakpoint can stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) place: Place,
    pub(crate) address: usize,
    /// What stands there.
    pub(crate) code: Code,
}

/// All points of the section whose range is `start..end`.
pub(crate) fn all(
    memory: &Memory,
    descriptor: usize,
    start: usize,
    end: usize,
) -> Result<Vec<Point>> {
    let before = way_in(memory, descriptor, start)?;
    let inside = instructions(memory, start, end)?;
    ensure!(!inside.is_empty(), "its range is empty");
    let places = before.into_iter().map(|address| (Place::Before, address));
    let places = places.chain(inside.into_iter().map(|address| (Place::Inside, address)));
    places
        .chain([(Place::After, end)])
        .map(|(place, address)| Ok(Point { place, address, code: memory.read(address)? }))
        .collect()
}

/// The instructions from the one that loads the descriptor's address to the one that stores it, which
/// is the last before the range. One that stood between the store and the range would be unprotected.
#[cfg(target_arch = "x86_64")]
fn way_in(memory: &Memory, descriptor: usize, start: usize) -> Result<Vec<usize>> {
    use iced_x86::{Code as Instruction, Decoder, DecoderOptions};
    /// More than the two instructions take.
    const WINDOW: usize = 32;
    let bytes = memory.read::<WINDOW>(start - WINDOW)?;
    for at in (0..WINDOW).rev() {
        let address = start - WINDOW + at;
        let mut decoder = Decoder::with_ip(64, &bytes[at..], address as u64, DecoderOptions::NONE);
        let first = decoder.decode();
        if first.code() == Instruction::Lea_r64_m
            && first.is_ip_rel_memory_operand()
            && first.ip_rel_memory_address() == descriptor as u64
        {
            return instructions(memory, address, start);
        }
    }
    anyhow::bail!("nothing just before its range loads its descriptor's address")
}

/// The instructions from the one that reads the thread pointer to the one that stores the descriptor's
/// address, which is the last before the range.
#[cfg(target_arch = "aarch64")]
fn way_in(memory: &Memory, _descriptor: usize, start: usize) -> Result<Vec<usize>> {
    /// `mrs x0, tpidr_el0`, and the bits that say which register.
    const READ_THREAD_POINTER: u32 = 0xd53b_d040;
    const REGISTER: u32 = 0x1f;
    for address in (start - 32..start).step_by(4).rev() {
        if u32::from_le_bytes(memory.read(address)?) & !REGISTER == READ_THREAD_POINTER {
            return instructions(memory, address, start);
        }
    }
    anyhow::bail!("nothing just before its range reads the thread pointer")
}

/// Where each instruction of `start..end` begins.
#[cfg(target_arch = "x86_64")]
fn instructions(memory: &Memory, start: usize, end: usize) -> Result<Vec<usize>> {
    use iced_x86::{Decoder, DecoderOptions};
    let mut bytes = vec![0; end - start];
    memory.read_into(start, &mut bytes)?;
    let mut decoder = Decoder::with_ip(64, &bytes, start as u64, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        ensure!(!instruction.is_invalid(), "{start:#x} to {end:#x} is not whole instructions");
        all.push(instruction.ip() as usize);
    }
    Ok(all)
}

/// Where each instruction of `start..end` begins.
#[cfg(target_arch = "aarch64")]
fn instructions(_memory: &Memory, start: usize, end: usize) -> Result<Vec<usize>> {
    ensure!((end - start).is_multiple_of(4), "{start:#x} to {end:#x} is not whole instructions");
    Ok((start..end).step_by(4).collect())
}
