//! x86-64 instructions.

use anyhow::{Context as _, Result, ensure};
use iced_x86::{
    Code as InstructionCode, Decoder, DecoderOptions, FlowControl, Formatter as _, FormatterOutput,
    FormatterTextKind, Instruction, InstructionInfoFactory, IntelFormatter, MemorySizeOptions,
    OpAccess, Register, SymbolResolver, SymbolResult,
};
use thiscpu_test_support::sections::{Copy, Image};

use super::HANDLER_MAX;
use crate::aborts::code::{Code, Line, Step, label, numbered};

pub(super) fn decode(image: &Image, copy: &Copy) -> Result<Code> {
    let range = image.code(copy.range())?;
    let instructions: Vec<_> = instructions(range, copy.start).collect();
    ensure!(
        instructions.iter().all(|instruction| !instruction.is_invalid()),
        "its range is not whole instructions"
    );
    let begin = image.entry_of(copy)?;
    let entry: Vec<_> = self::instructions(image.code(begin..copy.start)?, begin).collect();
    let begins: Vec<_> = entry.iter().chain(&instructions).map(Instruction::ip).collect();
    let line = |instruction: &Instruction| line(copy, &begins, instruction);
    let mut abort = Vec::new();
    for instruction in self::instructions(image.at(copy.abort)?, copy.abort).take(HANDLER_MAX) {
        abort.push(line(&instruction));
        if abort.last().is_some_and(|line| line.ends) {
            break;
        }
    }
    let lines = |all: Vec<Instruction>| all.iter().map(line).collect();
    Ok(Code { entry: lines(entry), range: lines(instructions), abort })
}

fn instructions(bytes: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// Returns the instructions of a function at `address`.
pub(super) fn steps(code: &[u8], address: u64) -> Vec<Step> {
    instructions(code, address).map(|instruction| step(&instruction)).collect()
}

fn step(instruction: &Instruction) -> Step {
    let flow = instruction.flow_control();
    let (goes_on, jumps) = match flow {
        FlowControl::Next => (true, false),
        FlowControl::ConditionalBranch => (true, true),
        FlowControl::UnconditionalBranch => (false, true),
        _ => (false, false),
    };
    let returns = flow == FlowControl::Return;
    let mut factory = InstructionInfoFactory::new();
    let loads = |access| !matches!(access, OpAccess::Write | OpAccess::NoMemAccess);
    let memory = factory.info(instruction).used_memory();
    Step {
        address: instruction.ip(),
        goes_on,
        target: Some(instruction.near_branch_target()).filter(|_| jumps),
        returns,
        loads: !returns && memory.iter().any(|used| loads(used.access())),
    }
}

pub(super) fn path(image: &Image, copy: &Copy, way: &[&Step]) -> Result<String> {
    let mut lines = Vec::new();
    for (index, step) in way.iter().enumerate() {
        let instruction = instructions(image.at(step.address)?, step.address).next();
        let next = way.get(index + 1).map_or(0, |next| next.address);
        let mut line = Line::default();
        let names = PathNames { descriptor: copy.descriptor, next };
        let instruction = instruction.context("an instruction is cut off")?;
        formatter(Box::new(names)).format(&instruction, &mut line);
        lines.push(line);
    }
    Ok(numbered(&lines))
}

fn formatter(names: Box<dyn SymbolResolver>) -> IntelFormatter {
    let mut formatter = IntelFormatter::with_options(Some(names), None);
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_space_between_memory_add_operators(true);
    options.set_memory_size_options(MemorySizeOptions::Always);
    options.set_show_branch_size(false);
    options.set_rip_relative_addresses(false);
    formatter
}

fn line(copy: &Copy, begins: &[u64], instruction: &Instruction) -> Line {
    let mut line = Line::default();
    let names = Names { copy: copy.clone(), begins: begins.to_vec() };
    formatter(Box::new(names)).format(instruction, &mut line);
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let writes = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let registers = info.used_registers().iter().filter(|used| writes(used.access()));
    line.writes = registers.map(|used| whole(used.register())).collect();
    line.stores = info.used_memory().iter().any(|used| writes(used.access()));
    let flow = instruction.flow_control();
    let stays =
        [FlowControl::Next, FlowControl::ConditionalBranch, FlowControl::UnconditionalBranch];
    line.calls = !stays.contains(&flow);
    line.ends = line.calls || flow == FlowControl::UnconditionalBranch;
    line
}

fn whole(register: Register) -> String {
    format!("{:?}", register.full_register()).to_lowercase()
}

impl FormatterOutput for Line {
    fn write(&mut self, text: &str, _: FormatterTextKind) {
        self.text(text);
    }

    fn write_register(
        &mut self,
        _: &Instruction,
        _: u32,
        _: Option<u32>,
        text: &str,
        register: Register,
    ) {
        let width = match register.size() {
            _ if register.is_vector_register() => ".x",
            _ if !register.is_gpr() => return self.text(text),
            8 => "",
            4 => ".d",
            2 => ".w",
            _ => ".b",
        };
        self.register(whole(register), width);
    }
}

/// The names of addresses that differ from copy to copy.
struct Names {
    copy: Copy,
    begins: Vec<u64>,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        if address == self.copy.descriptor && instruction.is_ip_rel_memory_operand() {
            return Some(SymbolResult::with_str(address, "descriptor"));
        }
        let is_jump = instruction.flow_control() != FlowControl::Next;
        is_jump
            .then(|| SymbolResult::with_string(address, label(&self.copy, &self.begins, address)))
    }
}

/// The names of addresses in a call's fast path.
struct PathNames {
    descriptor: u64,
    /// The address of the instruction that is executed next.
    next: u64,
}

impl SymbolResolver for PathNames {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        /// What a thread-local variable's offset is at least; constants of the library are smaller.
        const OFFSET_MIN: u64 = -(1i64 << 16) as u64;
        let name = match () {
            () if instruction.flow_control() != FlowControl::Next => match address == self.next {
                true => "next",
                false => "out",
            },
            () if address == self.descriptor => "descriptor",
            () if instruction.is_ip_rel_memory_operand() => "static",
            () if is_thread_local(instruction) && address >= OFFSET_MIN => "offset",
            () => return None,
        };
        Some(SymbolResult::with_str(address, name))
    }
}

/// Returns whether an instruction loads or uses a thread-local offset.
fn is_thread_local(instruction: &Instruction) -> bool {
    instruction.code() == InstructionCode::Mov_rm64_imm32
        || instruction.segment_prefix() == Register::FS
}
