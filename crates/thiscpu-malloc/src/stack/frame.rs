//! Frames, and the rows of unwind tables that lead from one to the next.

use gimli::{
    EvaluationStorage, Reader, Register, RegisterRule, UnwindContextStorage, UnwindTableRow, Value,
};

use super::arch::COUNT;

/// A row of unwind tables: the rules for a range of addresses.
pub(super) type Row = UnwindTableRow<usize, FixedStorage>;

/// The frame of a function that has not returned.
pub(super) struct Frame {
    pub(super) registers: [usize; COUNT],
    /// The address of the next instruction.
    pub(super) pc: usize,
    /// Whether `pc` follows a call.
    ///
    /// A call may be its function's last instruction, so `pc` may belong to the next function.
    pub(super) is_call: bool,
    /// Whether registers other than the stack pointer and the frame pointer may be stale.
    pub(super) is_partial: bool,
}

impl Frame {
    /// Returns an address within the instruction that is being executed.
    pub(super) fn call_site(&self) -> usize {
        self.pc - usize::from(self.is_call)
    }

    pub(super) fn register(&self, register: Register) -> Option<usize> {
        self.registers.get(usize::from(register.0)).copied()
    }
}

/// Storage in fixed arrays, because nothing may be allocated.
///
/// There are rules for all registers, but only few rows, because few are remembered at a time.
pub(super) struct FixedStorage;

impl UnwindContextStorage<usize> for FixedStorage {
    type Rules = [(Register, RegisterRule<usize>); COUNT];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl<R: Reader> EvaluationStorage<R> for FixedStorage {
    type Stack = [Value; 16];
    type ExpressionStack = [(R, R); 1];
    type Result = [gimli::Piece<R>; 1];
}
