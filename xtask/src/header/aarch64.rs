//! Lines of AArch64 templates, whose syntax is almost that of assemblers.

use anyhow::{Context as _, Result};

use super::operands::Names;

pub(super) const ABORT_HANDLER: &str = "\
/* The kernel continues here if it aborts a section: after an instruction that is the signature. */
#define THISCPU_ABORT_HANDLER \\
    \".pushsection __rseq_failure, \\\"ax?\\\"\\n\\t\" \\
    \".inst 0xd428bc00\\n\" \\
    \"34:\\n\\t\"
";

/// Instructions that jump to their last operand.
const JUMPS: [&str; 5] = ["b", "cbz", "cbnz", "tbz", "tbnz"];

pub(super) fn translate(line: &str, names: &Names<'_>) -> Result<String> {
    let (mnemonic, operands) = line.split_once(' ').with_context(|| format!("`{line}`"))?;
    let mut operands: Vec<_> = operands.split(", ").map(str::to_owned).collect();
    if JUMPS.contains(&mnemonic) || mnemonic.starts_with("b.") {
        let label = operands.pop().context("a jump without a target")?;
        operands.push(names.label(&label)?.to_owned());
    }
    if operands.last().is_some_and(|last| last == "descriptor") {
        let target = if mnemonic == "adrp" { "30b" } else { ":lo12:30b" };
        operands.pop();
        if mnemonic == "add" {
            operands.push(operands[0].clone());
        }
        operands.push(target.to_owned());
    }
    let mut translated = Vec::new();
    for operand in &operands {
        translated.push(translate_operand(operand, names)?);
    }
    Ok(format!("{mnemonic} {}", translated.join(", ")))
}

/// Translates a register, with or without the brackets of an address.
///
/// Leaves other operands as they are.
fn translate_operand(operand: &str, names: &Names<'_>) -> Result<String> {
    let core = operand.trim_start_matches('[').trim_end_matches(['!', ']']);
    let Some((name, part)) = names.operand(core)? else { return Ok(operand.to_owned()) };
    Ok(operand.replace(core, &format!("%{part}[{name}]")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::operands::Role::Reads;

    #[test]
    fn registers_become_operands() {
        let operands = [("s", Reads), ("a", Reads), ("cpu_id", Reads)];
        let names = Names { operands: &operands, returns_value: false };
        for (template, wanted) in [
            ("mrs r1, tpidr_el0", "mrs %[s], tpidr_el0"),
            ("adrp r2, descriptor", "adrp %[a], 30b"),
            ("add r2, descriptor", "add %[a], %[a], :lo12:30b"),
            ("stur r2, [r3, #0x4]", "stur %[a], [%[cpu_id], #0x4]"),
            ("ldr r1, [r2, #0x8]!", "ldr %[s], [%[a], #0x8]!"),
            ("ldrh r2.w, [r1, r3]", "ldrh %w[a], [%[s], %[cpu_id]]"),
            ("ldr r2, [r3, r2, lsl #3]", "ldr %[a], [%[cpu_id], %[a], lsl #3]"),
            ("b.lt out", "b.lt %l[out]"),
            ("cbnz r1, range:17", "cbnz %[s], 35f"),
            ("tbnz r1.w, #0x1f, end", "tbnz %w[s], #0x1f, 33f"),
        ] {
            assert_eq!(translate(template, &names).unwrap(), wanted);
        }
    }
}
