//! The operands of sections in C, and the names that a template's registers and labels get in C's
//! assembly.

use anyhow::{Context as _, Result, bail};

/// What an operand of a section is to the function around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An argument that the section only reads.
    Reads,
    /// An argument that the section only reads.
    ///
    /// A constant of 32 bits may be part of the instruction.
    ReadsOrConstant,
    /// An argument whose register it changes.
    Changes,
    /// A register of its own.
    Scratch,
    /// A register of its own that has to be `rcx`.
    ScratchRcx,
    /// The return value of the function.
    Returns,
}

/// An operand's name and role.
pub(super) type Operand = (&'static str, Role);

/// Maps a template's registers and labels to C's.
pub(super) struct Names<'a> {
    pub(super) operands: &'a [Operand],
    pub(super) returns_value: bool,
}

impl Names<'_> {
    /// Returns the operand of a register such as `r7` or `r7.d`, and which part of it.
    pub(super) fn operand<'r>(&self, register: &'r str) -> Result<Option<(&'static str, &'r str)>> {
        let Some(number) = register.strip_prefix('r') else { return Ok(None) };
        let (number, part) = number.split_once('.').unwrap_or((number, ""));
        let Ok(number) = number.parse::<usize>() else { return Ok(None) };
        let operand = number.checked_sub(1).and_then(|at| self.operands.get(at));
        let (name, _) = operand.with_context(|| format!("r{number} has no operand"))?;
        Ok(Some((name, part)))
    }

    /// Returns C's name of a label.
    ///
    /// `asm goto` leaves by a jump to a label of C; other assembly leaves by the abort handler.
    pub(super) fn label(&self, label: &str) -> Result<&'static str> {
        Ok(match label {
            "end" => "33f",
            "out" if self.returns_value => "34f",
            "out" => "%l[out]",
            _ if label.starts_with("range:") => "35f",
            _ => bail!("unknown label `{label}`"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Role::{Reads, Scratch};
    use super::*;

    #[test]
    fn registers_and_labels_have_names() {
        let operands = [("a", Scratch), ("cpu_id", Reads)];
        let names = Names { operands: &operands, returns_value: false };
        assert_eq!(names.operand("r2.d").unwrap(), Some(("cpu_id", "d")));
        assert_eq!(names.operand("range").unwrap(), None);
        assert!(names.operand("r3").is_err() && names.operand("r0").is_err());
        assert_eq!(names.label("out").unwrap(), "%l[out]");
        assert!(names.label("somewhere").is_err());
    }
}
