//! The points at which a section can be stopped: at each instruction of its range, and just before
//! and after it.

use anyhow::{Result, ensure};

use crate::memory::Memory;

/// The instruction of a breakpoint.
#[cfg(target_arch = "x86_64")]
pub(crate) const BREAKPOINT: Code = [0xcc];
#[cfg(target_arch = "aarch64")]
pub(crate) const BREAKPOINT: Code = 0xd420_0000_u32.to_le_bytes();

/// The bytes of a breakpoint, and those that it replaces.
#[cfg(target_arch = "x86_64")]
pub(crate) type Code = [u8; 1];
#[cfg(target_arch = "aarch64")]
pub(crate) type Code = [u8; 4];

/// The distance from a breakpoint to the address that the kernel reports.
#[cfg(target_arch = "x86_64")]
pub(crate) const PAST: usize = 1;
#[cfg(target_arch = "aarch64")]
pub(crate) const PAST: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    /// In the entry.
    ///
    /// The kernel aborts nothing here, so the section must not have loaded anything yet.
    Before,
    /// In the range, where the kernel aborts the section.
    Inside,
    /// At the first instruction after the range. The commit must be done.
    After,
}

/// An instruction at which a breakpoint can stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) kind: PointKind,
    pub(crate) address: usize,
    /// The original bytes.
    pub(crate) code: Code,
}

/// Returns all points of the section whose range is `start..end`.
pub(crate) fn all(
    memory: &Memory,
    descriptor: usize,
    start: usize,
    end: usize,
) -> Result<Vec<Point>> {
    let before = entry(memory, descriptor, start)?;
    let inside = instructions(memory, start, end)?;
    ensure!(!inside.is_empty(), "its range is empty");
    let points = before.into_iter().map(|address| (PointKind::Before, address));
    let points = points.chain(inside.into_iter().map(|address| (PointKind::Inside, address)));
    points
        .chain([(PointKind::After, end)])
        .map(|(kind, address)| Ok(Point { kind, address, code: memory.read(address)? }))
        .collect()
}

/// Returns the instructions that load and store the descriptor's address.
///
/// The store must be the last instruction before the range: another one between them would be
/// unprotected.
#[cfg(target_arch = "x86_64")]
fn entry(memory: &Memory, descriptor: usize, start: usize) -> Result<Vec<usize>> {
    use iced_x86::{Code as Instruction, Decoder, DecoderOptions};
    /// The bytes that the two instructions do not exceed.
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
    anyhow::bail!("no instruction just before its range loads its descriptor's address")
}

/// Returns the instructions from the one that reads the thread pointer up to the range.
#[cfg(target_arch = "aarch64")]
fn entry(memory: &Memory, _descriptor: usize, start: usize) -> Result<Vec<usize>> {
    /// `mrs x0, tpidr_el0`, and the bits of the register's number.
    const READ_THREAD_POINTER: u32 = 0xd53b_d040;
    const REGISTER: u32 = 0x1f;
    for address in (start - 32..start).step_by(4).rev() {
        if u32::from_le_bytes(memory.read(address)?) & !REGISTER == READ_THREAD_POINTER {
            return instructions(memory, address, start);
        }
    }
    anyhow::bail!("no instruction just before its range reads the thread pointer")
}

/// Returns the addresses of the instructions in `start..end`.
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

/// Returns the addresses of the instructions in `start..end`.
#[cfg(target_arch = "aarch64")]
fn instructions(_memory: &Memory, start: usize, end: usize) -> Result<Vec<usize>> {
    ensure!((end - start).is_multiple_of(4), "{start:#x} to {end:#x} is not whole instructions");
    Ok((start..end).step_by(4).collect())
}
