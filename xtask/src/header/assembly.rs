//! The sections as inline assembly of C, made from their templates.
//!
//! A template says what a section is, instruction for instruction, except for its registers; here
//! operands take their place. So no section is written down twice. `cargo xtask aborts` compares
//! what C compilers make of this with the same templates.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::operands::Role::{Changes, Reads, ReadsOrConstant, Returns, Scratch, ScratchRcx};
use super::operands::{Names, Operand};
use super::sections::{SECTIONS, Section};
use super::{aarch64, x86_64};
use crate::arch::Arch;
use crate::template;

const WIDTH: usize = 98;

/// The arguments that say where lanes are.
const LANES: [(&str, &str); 4] = [
    ("intptr_t", "cpu_id"),
    ("intptr_t", "vfork_word"),
    ("intptr_t", "index"),
    ("const uintptr_t *", "table"),
];

const HEAD: &str = "/* Made by `cargo xtask header` from xtask/templates. */

#ifndef THISCPU_SECTIONS_H
#define THISCPU_SECTIONS_H

#include <stdint.h>

/*
 * The sections that inlined calls consist of: restartable sequences, each a few loads and checks
 * and one store that commits. They are those of the library, instruction for instruction. A section
 * returns whether it has committed, or the value that it took. If it has not committed, nothing has
 * happened, and the caller calls a function of the library. `cpu_id` and `index` are offsets of
 * these fields from the thread pointer. `vfork_word` is the offset of a word that keeps children of
 * vfork out of lanes. Sections that add order only themselves, for compilers too.
 *
 * For gcc 11, clang 12 and later.
 */

#define THISCPU_SECTION static inline __attribute__((always_inline, unused))

/*
 * A section's descriptor, and its name for checkers. Each is in the section group of its function,
 * if there is one; linkers keep one group of several equal ones.
 */
#define THISCPU_DESCRIPTOR(name) \\
    \".pushsection __rseq_cs, \\\"aw?\\\"\\n\\t\" \\
    \".balign 32\\n\" \\
    \"30:\\n\\t\" \\
    \".long 0, 0\\n\\t\" \\
    \".quad 31f, 32f - 31f, 34f\\n\\t\" \\
    \".popsection\\n\\t\" \\
    \".pushsection __rseq_cs_ptr_array, \\\"aw?\\\"\\n\\t\" \\
    \".quad 30b\\n\\t\" \\
    \".popsection\\n\\t\" \\
    \".pushsection .thiscpu_sections, \\\"o?\\\", %%progbits, __rseq_cs\\n\\t\" \\
    \".quad 30b\\n\\t\" \\
    \".asciz \\\"\" name \"\\\"\\n\\t\" \\
    \".popsection\\n\\t\"

";

/// Returns the header with all of them.
pub(super) fn make(root: &Path) -> Result<String> {
    let mut text = HEAD.to_owned();
    for (begin, arch, handler) in [
        ("#if defined(__x86_64__)", Arch::X86_64, x86_64::ABORT_HANDLER),
        ("#elif defined(__aarch64__)", Arch::Aarch64, aarch64::ABORT_HANDLER),
    ] {
        writeln!(text, "{begin}\n\n{handler}")?;
        for section in &SECTIONS {
            let function = function(root, arch, section);
            text += &function.with_context(|| format!("{} for C", section.name))?;
        }
    }
    text += "#endif\n\n#endif\n";
    Ok(text)
}

fn function(root: &Path, arch: Arch, section: &Section) -> Result<String> {
    let parts = template::read(root, arch, section.name)?;
    let operands = section.operands(arch);
    let names = Names { operands: &operands, returns_value: section.returns_value() };
    let translate = |line: &str| match arch {
        Arch::X86_64 => x86_64::translate(line, &names),
        Arch::Aarch64 => aarch64::translate(line, &names),
    };
    let mut body = format!("        THISCPU_DESCRIPTOR(\"{}\")\n", section.name);
    for line in &parts.entry {
        put(&mut body, &translate(line)?, false)?;
    }
    put(&mut body, "31:", true)?;
    let target = target(&parts.range)?;
    for (at, line) in parts.range.iter().enumerate() {
        if target == Some(at + 1) {
            put(&mut body, "35:", true)?;
        }
        put(&mut body, &translate(line)?, false)?;
    }
    put(&mut body, "32:", true)?;
    writeln!(body, "        THISCPU_ABORT_HANDLER")?;
    for line in &parts.abort {
        put(&mut body, &translate(line)?, false)?;
    }
    writeln!(body, "        \".popsection\\n\"\n        \"33:\"")?;
    Ok(wrap(section, &operands, &body))
}

fn put(body: &mut String, text: &str, is_label: bool) -> Result<()> {
    let end = if is_label { "\\n" } else { "\\n\\t" };
    Ok(writeln!(body, "        \"{text}{end}\"")?)
}

/// Returns the instruction of its range that a section jumps to, if any.
///
/// # Errors
///
/// If it jumps to several.
fn target(range: &[String]) -> Result<Option<usize>> {
    let mut targets = range.iter().filter_map(|line| line.split_once("range:").map(|(_, to)| to));
    let Some(first) = targets.next() else { return Ok(None) };
    ensure!(targets.all(|other| other == first), "it jumps to several places in its range");
    Ok(Some(first.parse()?))
}

/// Returns the function around a section's assembly.
fn wrap(section: &Section, operands: &[Operand], body: &str) -> String {
    let arguments = LANES.iter().chain(section.arguments);
    let arguments: Vec<_> = arguments.map(|(kind, name)| declare(kind, name)).collect();
    let is_local = |role| matches!(role, Scratch | ScratchRcx);
    let locals = operands.iter().filter(|operand| is_local(operand.1));
    let locals: Vec<_> = locals.map(|local| local.0).collect();
    let output = |&(name, role): &Operand| match role {
        Reads | ReadsOrConstant => None,
        Changes | Returns => Some(format!("[{name}] \"+&r\"({name})")),
        Scratch => Some(format!("[{name}] \"=&r\"({name})")),
        ScratchRcx => Some(format!("[{name}] \"=&c\"({name})")),
    };
    let input = |&(name, role): &Operand| match role {
        Reads => Some(format!("[{name}] \"r\"({name})")),
        ReadsOrConstant => Some(format!("[{name}] \"er\"({name})")),
        _ => None,
    };
    let outputs: Vec<_> = operands.iter().filter_map(output).collect();
    let inputs: Vec<_> = operands.iter().filter_map(input).collect();
    let returned = operands.iter().find(|operand| operand.1 == Returns).map(|operand| operand.0);
    let (kind, asm, declared, labels, end) = match returned {
        Some(name) => {
            let (declared, end) =
                (format!("    uintptr_t {name} = 0;\n"), format!("    return {name};\n"));
            ("uintptr_t", "", declared, "", end)
        }
        None => {
            let end = "    return 1;\nout:\n    return 0;\n".to_owned();
            ("int", " goto", String::new(), "\n        : out", end)
        }
    };
    let clobbers = if section.passes_memory { "\"memory\", \"cc\"" } else { "\"cc\"" };
    let name = section.name.replace("::", "_");
    let head = format!("THISCPU_SECTION {kind} thiscpu_section_{name}(");
    let mut text = format!("/* {}: {}. */\n{head}", section.name, section.about);
    text += &fill(&arguments, &head, "    ");
    text += &format!(") {{\n    uint64_t {};\n{declared}", locals.join(", "));
    text += &format!("    __asm__ __volatile__{asm}(\n{body}");
    text += &format!("        : {}\n", fill(&outputs, "        : ", "          "));
    text += &format!("        : {}\n", fill(&inputs, "        : ", "          "));
    text + &format!("        : {clobbers}{labels});\n{end}}}\n\n")
}

/// Joins a list, with line breaks before [`WIDTH`].
///
/// The first line begins with `first`, and the others with `indent`.
fn fill(items: &[String], first: &str, indent: &str) -> String {
    let (mut text, mut column) = (String::new(), first.len());
    for (number, item) in items.iter().enumerate() {
        let comma = if number + 1 < items.len() { "," } else { "" };
        // Two columns for a space and the end of the list.
        if number > 0 && column + item.len() + comma.len() + 2 > WIDTH {
            text += &format!("\n{indent}");
            column = indent.len();
        } else if number > 0 {
            text.push(' ');
            column += 1;
        }
        text += &format!("{item}{comma}");
        column += item.len() + comma.len();
    }
    text
}

fn declare(kind: &str, name: &str) -> String {
    let space = if kind.ends_with('*') { "" } else { " " };
    format!("{kind}{space}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_with_two_targets_in_its_range_is_refused() {
        let lines = |targets: [usize; 2]| targets.map(|to| format!("jne range:{to}"));
        assert_eq!(target(&lines([3, 3])).unwrap(), Some(3));
        assert!(target(&lines([3, 4])).is_err());
    }
}
