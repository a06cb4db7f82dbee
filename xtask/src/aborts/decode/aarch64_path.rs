//! The text of a call on AArch64.
//!
//! An address takes two instructions: one for its page, and one for the rest. Both parts, and
//! offsets from the thread pointer, are the linker's choice, so they have names.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use thiscpu_test_support::sections::{Copy, Image};
use yaxpeax_arm::armv8::a64::{Instruction, Opcode, Operand};

use super::aarch64::{PAGE, instructions, registers, target, text};
use crate::aborts::code::{Step, numbered};

/// The content of a register that a linker's choice is added to.
#[derive(Clone, Copy)]
enum Base {
    /// A page's address.
    Page(u64),
    ThreadPointer,
}

pub(super) fn path(image: &Image, copy: &Copy, way: &[&Step]) -> Result<String> {
    let mut bases = BTreeMap::new();
    let mut lines = Vec::new();
    for (index, step) in way.iter().enumerate() {
        let word = image.at(step.address)?.get(..4).context("an instruction is cut off")?;
        let [(_, instruction)] = instructions(word, step.address)?[..] else { continue };
        let next = way.get(index + 1).map_or(0, |next| next.address);
        lines.push(text(&named(copy, &bases, step.address, next, &instruction)));
        note_base(&mut bases, step.address, &instruction);
    }
    Ok(numbered(&lines))
}

/// Returns an instruction's text, with names for what the linker has chosen.
fn named(
    copy: &Copy,
    bases: &BTreeMap<String, Base>,
    address: u64,
    next: u64,
    instruction: &Instruction,
) -> String {
    let plain = instruction.to_string();
    let name_of = |address| if address == copy.descriptor { "descriptor" } else { "static" };
    if let Some(target) = target(address, instruction) {
        let name = match instruction.opcode {
            Opcode::ADRP => "page",
            Opcode::ADR => name_of(target),
            _ if target == next => "next",
            _ => "out",
        };
        let (before, _) = plain.rsplit_once('$').unwrap_or((&plain, ""));
        return format!("{before}{name}");
    }
    let Some((base, offset)) = based(bases, instruction) else { return plain };
    let name = match base {
        Base::Page(page) => name_of(page + offset),
        Base::ThreadPointer => "offset",
    };
    let Some((before, last)) = plain.rsplit_once(", ") else { return plain };
    // A shifted immediate has two parts.
    let before = match last.starts_with("lsl") {
        true => before.rsplit_once(", ").map_or(before, |(before, _)| before),
        false => before,
    };
    format!("{before}, {name}{}", if last.ends_with(']') { "]" } else { "" })
}

/// Returns the base that an instruction adds a constant to, and the constant.
fn based(bases: &BTreeMap<String, Base>, instruction: &Instruction) -> Option<(Base, u64)> {
    let base = |operand: &Operand| bases.get(registers(operand).first()?).copied();
    match instruction.operands {
        [_, from, Operand::Immediate(low), _] if instruction.opcode == Opcode::ADD => {
            Some((base(&from)?, low.into()))
        }
        [_, from, Operand::ImmShift(..), _] if instruction.opcode == Opcode::ADD => {
            Some((base(&from)?, 0))
        }
        [_, Operand::RegPreIndex(from, offset, false), ..] if offset != 0 => {
            let base = bases.get(&format!("x{from}")).copied();
            Some((base?, offset.try_into().ok()?))
        }
        _ => None,
    }
}

/// Notes which registers have bases after an instruction.
fn note_base(bases: &mut BTreeMap<String, Base>, address: u64, instruction: &Instruction) {
    let [to, from, ..] = instruction.operands;
    let stores = instruction.to_string().starts_with("st");
    let Some(to) = registers(&to).first().filter(|_| !stores).cloned() else { return };
    let base = match instruction.opcode {
        Opcode::ADRP => target(address, instruction).map(|at| Base::Page(at & !(PAGE - 1))),
        Opcode::MRS => Some(Base::ThreadPointer),
        Opcode::ADD => {
            // The sum of a page and the rest is a whole address.
            let base = registers(&from).first().and_then(|from| bases.get(from)).copied();
            base.filter(|base| matches!(base, Base::ThreadPointer) && is_constant(instruction))
        }
        _ => None,
    };
    match base {
        Some(base) => _ = bases.insert(to, base),
        None => _ = bases.remove(&to),
    }
}

fn is_constant(instruction: &Instruction) -> bool {
    matches!(instruction.operands[2], Operand::Immediate(_) | Operand::ImmShift(..))
}
