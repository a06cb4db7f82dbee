//! Steps from a frame to its caller.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Evaluation, EvaluationResult,
    NativeEndian, Pointer, Register, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection as _, Value,
};

use super::arch::{COUNT, FRAME_POINTER, STACK_POINTER, strip_pac};
use super::frame::{FixedStorage, Frame, Row};
use super::memory::Memory;
use super::object;
use super::rules::{self, Rule};

type Bytes = EndianSlice<'static, NativeEndian>;

/// The largest frame that is believed if only a frame pointer says so.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The result of a step by rules.
pub(super) enum Step {
    Caller(Frame),
    /// There is no caller, or it is unknown.
    End,
    /// The tables ask for a register that rules do not restore.
    Restart,
}

/// Returns the frame of the caller, or `None` if there is none or it is unknown.
pub(super) fn caller(frame: &Frame, memory: &mut Memory) -> Option<Frame> {
    match step(frame, memory) {
        Step::Caller(caller) => Some(caller),
        Step::End | Step::Restart => None,
    }
}

/// Finds the caller by a kept rule, or else like [`caller`], and keeps the rule.
pub(super) fn caller_by_rules(frame: &Frame, memory: &mut Memory) -> Step {
    match rules::find(frame.call_site()) {
        Some(rule) => found(rule.apply(frame, memory)),
        None => step(frame, memory),
    }
}

fn found(caller: Option<Frame>) -> Step {
    caller.filter(|caller| caller.pc > 1).map_or(Step::End, Step::Caller)
}

/// Finds the caller by tables, or else by the frame pointer.
fn step(frame: &Frame, memory: &mut Memory) -> Step {
    let caller = match object::tables(frame.call_site()) {
        Some(tables) => by_tables(frame, &tables, memory),
        None => Err(gimli::Error::NoUnwindInfoForAddress),
    };
    caller.unwrap_or_else(|_| found(by_frame_pointer(frame, memory)))
}

/// Returns the caller by the chain of frame pointers, if that leads up the stack.
fn by_frame_pointer(frame: &Frame, memory: &mut Memory) -> Option<Frame> {
    let (at, stack) = (frame.registers[FRAME_POINTER], frame.registers[STACK_POINTER]);
    if at < stack || at - stack > FRAME_BYTES_MAX {
        return None;
    }
    let mut registers = frame.registers;
    registers[FRAME_POINTER] = memory.word(at)?;
    registers[STACK_POINTER] = at + 2 * size_of::<usize>();
    let pc = strip_pac(memory.word(at + size_of::<usize>())?);
    Some(Frame { registers, pc, is_call: true, is_partial: frame.is_partial })
}

/// Returns the caller by the object's unwind tables.
///
/// # Errors
///
/// If the tables do not cover this frame.
fn by_tables(frame: &Frame, tables: &object::Tables, memory: &mut Memory) -> gimli::Result<Step> {
    const NO_TABLES: gimli::Error = gimli::Error::NoUnwindInfoForAddress;
    let code = frame.call_site() as u64;
    let bases = BaseAddresses::default().set_eh_frame_hdr(tables.header as u64);
    let header = Bytes::new(tables.from(tables.header).ok_or(NO_TABLES)?, NativeEndian);
    let header = EhFrameHdr::from(header).parse(&bases, 8)?;
    let Pointer::Direct(start) = header.eh_frame_ptr() else { return Err(NO_TABLES) };
    let bases = bases.set_eh_frame(start);
    let frames = tables.from(start as usize).ok_or(NO_TABLES)?;
    let frames = EhFrame::from(Bytes::new(frames, NativeEndian));
    let table = header.table().ok_or(NO_TABLES)?;
    let function = table.fde_for_address(&frames, &bases, code, |section, bases, offset| {
        section.cie_from_offset(bases, offset)
    })?;
    let mut context = UnwindContext::new_in();
    let row = function.unwind_info_for_address(&frames, &bases, &mut context, code)?;
    let mut row_rules = RowRules { frame, frames, encoding: function.cie().encoding(), memory };
    let return_address = function.cie().return_address_register();
    let is_call = !function.is_signal_trampoline();
    let rule = Rule::of(row, return_address).filter(|_| is_call);
    match rule {
        Some(rule) => rules::keep(frame.call_site(), rule),
        None if frame.is_partial => return Ok(Step::Restart),
        None => {}
    }
    Ok(found(row_rules.apply(row, return_address).map(|(registers, pc)| Frame {
        registers,
        pc: strip_pac(pc),
        is_call,
        is_partial: frame.is_partial,
    })))
}

/// The state that unwind rules are applied to.
struct RowRules<'a> {
    frame: &'a Frame,
    frames: EhFrame<Bytes>,
    encoding: gimli::Encoding,
    memory: &'a mut Memory,
}

impl RowRules<'_> {
    /// Returns the caller's registers and its pc.
    fn apply(&mut self, row: &Row, return_address: Register) -> Option<([usize; COUNT], usize)> {
        let top = match *row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.frame.register(register)?.wrapping_add_signed(offset as isize)
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None)?,
        };
        let mut registers = self.frame.registers;
        registers[STACK_POINTER] = top;
        for &(register, ref rule) in row.registers() {
            let Some(value) = registers.get_mut(usize::from(register.0)) else { continue };
            // An undefined return address marks the outermost function.
            *value = self.value(register, rule, top).unwrap_or(0);
        }
        let pc = *registers.get(usize::from(return_address.0))?;
        Some((registers, pc))
    }

    /// Returns the caller's value of a register, or `None` if the rule says that it is lost.
    fn value(
        &mut self,
        register: Register,
        rule: &RegisterRule<usize>,
        top: usize,
    ) -> Option<usize> {
        let at = |offset: i64| top.wrapping_add_signed(offset as isize);
        match *rule {
            RegisterRule::SameValue => self.frame.register(register),
            RegisterRule::Offset(offset) => self.memory.word(at(offset)),
            RegisterRule::ValOffset(offset) => Some(at(offset)),
            RegisterRule::Register(other) => self.frame.register(other),
            RegisterRule::Expression(expression) => {
                let address = self.evaluate(expression, Some(top))?;
                self.memory.word(address)
            }
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(top)),
            RegisterRule::Constant(value) => Some(value as usize),
            _ => None,
        }
    }

    /// Evaluates an expression. Its stack begins with `first`, if that is given.
    fn evaluate(
        &mut self,
        expression: UnwindExpression<usize>,
        first: Option<usize>,
    ) -> Option<usize> {
        let bytes = expression.get(&self.frames).ok()?.0;
        let mut evaluation = Evaluation::<Bytes, FixedStorage>::new_in(bytes, self.encoding);
        evaluation.set_max_iterations(100);
        if let Some(first) = first {
            evaluation.set_initial_value(first as u64);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.frame.register(register)? as u64);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = Value::Generic(self.memory.word(address as usize)? as u64);
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                gimli::Location::Address { address } => Some(address as usize),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stack;

    #[inline(never)]
    fn outer(depth: usize) -> Stack {
        match depth {
            0 => core::hint::black_box(Stack::capture()),
            _ => core::hint::black_box(outer(depth - 1)),
        }
    }

    #[test]
    fn walk_finds_each_caller() {
        let stack = outer(10);
        let addresses: Vec<_> = stack.addresses().collect();
        let own = outer as *const () as usize;
        let own = own..own + 1000;
        assert!(addresses.len() > 11, "{addresses:x?}");
        assert!(
            addresses[..11].iter().all(|address| own.contains(address)),
            "{addresses:x?}, {own:x?}"
        );
        assert!(addresses[1..10].windows(2).all(|pair| pair[0] == pair[1]), "{addresses:x?}");
    }
}
