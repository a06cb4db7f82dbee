//! AArch64 instructions.

use anyhow::{Context as _, Result, anyhow, bail};
use thiscpu_test_support::sections::{Copy, Image};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

use super::HANDLER_MAX;
use crate::aborts::code::{Code, Line, Part, Step, label};

pub(super) const PAGE: u64 = 4096;
/// The number of the zero register.
const ZERO: u16 = 31;

pub(super) fn decode(image: &Image, copy: &Copy) -> Result<Code> {
    let begin = image.entry_of(copy)?;
    let entry = instructions(image.code(begin..copy.start)?, begin)?;
    let range = instructions(image.code(copy.range())?, copy.start)?;
    let begins: Vec<_> = entry.iter().chain(&range).map(|(address, _)| *address).collect();
    let lines = |all: &[(u64, Instruction)]| {
        all.iter().map(|(at, one)| line(copy, &begins, *at, one)).collect::<Result<Vec<_>>>()
    };
    let handler = image.at(copy.abort)?;
    let handler = instructions(&handler[..handler.len().min(4 * HANDLER_MAX) & !3], copy.abort)?;
    let jump = handler.iter().position(|(_, one)| one.opcode == Opcode::B);
    let jump = jump.context("its abort handler does not jump away")?;
    Ok(Code {
        entry: name_descriptor(copy, &begins, &entry)?,
        range: lines(&range)?,
        abort: lines(&handler[..=jump])?,
    })
}

/// Returns the instructions of a function at `address`.
pub(super) fn steps(code: &[u8], address: u64) -> Result<Vec<Step>> {
    Ok(instructions(code, address)?.iter().map(|(at, one)| step(*at, one)).collect())
}

fn step(address: u64, instruction: &Instruction) -> Step {
    let jumps = matches!(
        instruction.opcode,
        Opcode::B | Opcode::Bcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ
    );
    let leaves = matches!(kind(instruction.opcode), Some(Kind::Calls));
    let mnemonic = instruction.to_string();
    Step {
        address,
        goes_on: !leaves && instruction.opcode != Opcode::B,
        target: target(address, instruction).filter(|_| jumps),
        returns: instruction.opcode == Opcode::RET,
        loads: ["ld", "cas", "swp"].iter().any(|name| mnemonic.starts_with(name)),
    }
}

/// Returns the address that an instruction names by its distance.
pub(super) fn target(address: u64, instruction: &Instruction) -> Option<u64> {
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(address.wrapping_add_signed(*offset)),
        _ => None,
    })
}

pub(super) fn instructions(bytes: &[u8], address: u64) -> Result<Vec<(u64, Instruction)>> {
    let (words, rest) = bytes.as_chunks::<4>();
    anyhow::ensure!(rest.is_empty(), "its code is not whole instructions");
    let decoder = InstDecoder::default();
    let addresses = (address..).step_by(4);
    addresses
        .zip(words)
        .map(|(address, word)| {
            let instruction = decoder.decode(&mut U8Reader::new(word));
            let invalid =
                |_| anyhow!("{:08x} is not a valid instruction", u32::from_le_bytes(*word));
            Ok((address, instruction.map_err(invalid)?))
        })
        .collect()
}

/// Gives the pair of instructions that makes the descriptor's address one text in all copies.
///
/// A linker may have changed the pair if the descriptor is close.
fn name_descriptor(copy: &Copy, begins: &[u64], all: &[(u64, Instruction)]) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut rest = all;
    while let [(address, first), more @ ..] = rest {
        rest = more;
        let register = match more {
            [(at, second), after @ ..] if is_address(copy, (*address, first), (*at, second)) => {
                rest = after;
                second.operands[0]
            }
            _ => {
                lines.push(line(copy, begins, *address, first)?);
                continue;
            }
        };
        let [register] = &registers(&register)[..] else {
            bail!("the descriptor's address is in no register")
        };
        for text in ["adrp ", "add "] {
            let mut line = Line { writes: vec![register.clone()], ..Line::default() };
            line.text(text);
            line.register(register.clone(), "");
            line.text(", descriptor");
            lines.push(line);
        }
    }
    Ok(lines)
}

/// Returns whether two instructions put the descriptor's address into a register.
fn is_address(copy: &Copy, first: (u64, &Instruction), second: (u64, &Instruction)) -> bool {
    let ((at, first), (next, second)) = (first, second);
    match (first.opcode, first.operands, second.opcode, second.operands) {
        (
            Opcode::ADRP,
            [to, Operand::PCOffset(page), ..],
            Opcode::ADD,
            [result, from, Operand::Immediate(low), ..],
        ) => {
            let page = (at & !(PAGE - 1)).wrapping_add_signed(page);
            let same = registers(&to) == registers(&from) && registers(&to) == registers(&result);
            same && page + u64::from(low) == copy.descriptor
        }
        (Opcode::HINT, _, Opcode::ADR, [_, Operand::PCOffset(offset), ..]) => {
            next.wrapping_add_signed(offset) == copy.descriptor
        }
        _ => false,
    }
}

fn whole(number: u16) -> String {
    format!("x{number}")
}

/// The effect of an instruction, as far as a section's rules are about it.
enum Kind {
    /// Changes the registers in this many operands, the first ones.
    Computes(usize),
    Stores,
    /// Stores, and changes the registers in this many operands.
    Exchanges(usize),
    Jumps,
    Compares,
    Calls,
}

/// Returns the effect of an instruction.
///
/// Unknown instructions fail the check until somebody adds them here.
fn kind(opcode: Opcode) -> Option<Kind> {
    use Opcode::*;
    Some(match opcode {
        ADD | ADDS | SUB | SUBS | AND | ANDS | ORR | EOR | LSRV | LSLV | UBFM | MOVZ | MOVN
        | MOVK | MRS | ADRP | ADR | LDR | LDRB | LDRH | LDUR => Kind::Computes(1),
        LDP => Kind::Computes(2),
        // `ldadd` is shown as `stadd` if its old value is discarded.
        STR | STRB | STRH | STUR | STP | LDADD(_) => Kind::Stores,
        CASP(_) => Kind::Exchanges(1),
        B | Bcc(_) | CBZ | CBNZ | TBZ | TBNZ => Kind::Jumps,
        CCMP => Kind::Compares,
        BL | BLR | BR | RET | SVC | HVC | SMC | BRK | HLT => Kind::Calls,
        _ => return None,
    })
}

fn line(copy: &Copy, begins: &[u64], address: u64, instruction: &Instruction) -> Result<Line> {
    let mut line = text(&instruction.to_string());
    if let Some(target) = target(address, instruction) {
        let Some(Part::Text(last)) = line.parts.pop() else {
            bail!("`{instruction}` does not end with its target");
        };
        let (before, _) = last
            .split_once('$')
            .with_context(|| format!("`{instruction}`: no `$` in its target"))?;
        line.text(&format!("{before}{}", label(copy, begins, target)));
    }
    let kind = kind(instruction.opcode).with_context(|| {
        format!("`{instruction}`: unknown instruction; add it to `kind` in {}", file!())
    })?;
    let changed = match kind {
        Kind::Computes(count) | Kind::Exchanges(count) => count,
        _ => 0,
    };
    // The register that an operand changes before it is used as an address.
    let bases = instruction.operands.iter().filter_map(|operand| match *operand {
        Operand::RegPreIndex(number, _, true) => Some(whole(number)),
        _ => None,
    });
    line.writes = instruction.operands[..changed].iter().flat_map(registers).chain(bases).collect();
    line.stores = matches!(kind, Kind::Stores | Kind::Exchanges(_));
    line.calls = matches!(kind, Kind::Calls);
    line.ends = line.calls || instruction.opcode == Opcode::B;
    Ok(line)
}

/// Returns an instruction's text with its registers told apart.
pub(super) fn text(instruction: &str) -> Line {
    let mut line = Line::default();
    for token in tokens(instruction) {
        match register(&token) {
            Some((number, width)) => line.register(whole(number), width),
            None => line.text(&token),
        }
    }
    line
}

/// Returns the registers that an operand names.
pub(super) fn registers(operand: &Operand) -> Vec<String> {
    match *operand {
        Operand::Register(_, ZERO) => Vec::new(),
        Operand::Register(_, number) | Operand::RegisterOrSP(_, number) => vec![whole(number)],
        Operand::RegisterPair(_, first) => vec![whole(first), whole(first + 1)],
        _ => Vec::new(),
    }
}

/// Splits an instruction's text into words and the text between them.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for c in text.chars() {
        match tokens.last_mut() {
            Some(last) if last.ends_with(char::is_alphanumeric) == c.is_alphanumeric() => {
                last.push(c)
            }
            _ => tokens.push(c.to_string()),
        }
    }
    tokens
}

fn register(token: &str) -> Option<(u16, &'static str)> {
    let (width, number) = token.split_at_checked(1)?;
    let width = match width {
        "x" => "",
        "w" => ".w",
        _ => return None,
    };
    number.parse().ok().map(|number| (number, width))
}
