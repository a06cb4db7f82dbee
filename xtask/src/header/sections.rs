//! The sections for C, made from what Rust's compile to.
//!
//! A template (`cargo xtask aborts` compares every copy of a section in what is shipped with it) says what a section is, instruction for
//! instruction, but for the registers. Here it becomes inline assembly, whose operands stand for those. So nothing of a section is written
//! down twice but what its operands are; and what C compilers make of it is compared with the same template.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::{aarch64, x86_64};
use crate::aborts::Architecture;

/// What an operand of a section is to the function around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An argument that the section only reads.
    Reads,
    /// The same, which may also be part of the instruction, if it is a constant of 32 bits.
    ReadsOrHas,
    /// An argument whose register it changes.
    Uses,
    /// A register of its own.
    Scratch,
    /// The same, that has to be `rcx`.
    Counts,
    /// What the function returns.
    Answer,
}
use Role::{Answer, Counts, Reads, ReadsOrHas, Scratch, Uses};

/// An operand's name and role.
pub(super) type Operand = (&'static str, Role);

/// A section that C has.
struct Section {
    /// As in `.thiscpu_sections`.
    name: &'static str,
    /// In C's words.
    about: &'static str,
    /// What it takes besides where lanes are found.
    arguments: &'static [(&'static str, &'static str)],
    /// Whether it returns what it took, 0 if nothing. Else it returns whether it committed.
    returns_what_it_took: bool,
    /// Whether what it hands over, or takes, is memory of the program's. Else it orders nothing, as a relaxed atomic operation does, and
    /// compilers keep what they know of memory.
    is_of_memory: bool,
    /// The operands behind those of every section, in the order in which their registers appear.
    x86_64: &'static [Operand],
    aarch64: &'static [Operand],
}

/// The operands that every section begins with.
const FIRST_X86_64: [Operand; 4] =
    [("a", Scratch), ("cpu_id", Reads), ("index", Reads), ("table", Reads)];
const FIRST_AARCH64: [Operand; 5] =
    [("s", Scratch), ("a", Scratch), ("cpu_id", Uses), ("index", Reads), ("table", Reads)];

/// Those of words on x86-64. A constant of 32 bits need not fit into a narrower one.
const NARROW: [Operand; 2] = [("item", Reads), ("n", Reads)];
const WIDE: [Operand; 2] = [("item", Reads), ("n", ReadsOrHas)];

const fn word(name: &'static str, about: &'static str, on_x86_64: &'static [Operand]) -> Section {
    Section {
        name,
        about,
        arguments: &[("uintptr_t", "item"), ("uint64_t", "n")],
        returns_what_it_took: false,
        is_of_memory: false,
        x86_64: on_x86_64,
        aarch64: &[("item", Reads), ("v", Scratch), ("n", Reads)],
    }
}

const SECTIONS: [Section; 8] = [
    Section {
        name: "add_windowed",
        about: "adds to this CPU's part of a counter or budget, if that stays in its window",
        arguments: &[("const void *", "gate"), ("int64_t", "n")],
        returns_what_it_took: false,
        is_of_memory: false,
        x86_64: &[
            ("gate", Reads),
            ("count", Scratch),
            ("n", ReadsOrHas),
            ("window", Counts),
            ("distance", Scratch),
        ],
        aarch64: &[("gate", Reads), ("count", Scratch), ("window", Scratch), ("n", Reads)],
    },
    Section {
        name: "charge",
        about: "charges an account, if it is in this CPU's cache",
        arguments: &[
            ("uintptr_t", "set"),
            ("uint64_t", "key"),
            ("uintptr_t", "cell"),
            ("int64_t", "n"),
        ],
        returns_what_it_took: false,
        is_of_memory: false,
        x86_64: &[
            ("set", Reads),
            ("key", Reads),
            ("count", Scratch),
            ("cell", Reads),
            ("n", Reads),
            ("distance", Scratch),
        ],
        aarch64: &[
            ("set", Reads),
            ("key", Reads),
            ("count", Scratch),
            ("cell", Reads),
            ("n", Reads),
        ],
    },
    Section {
        name: "take_first",
        about: "takes an entry out of this CPU's part of a cache; 0 if there is none",
        arguments: &[("const void *", "gate")],
        returns_what_it_took: true,
        is_of_memory: true,
        x86_64: &[("gate", Reads), ("top", Scratch), ("entry", Answer)],
        aarch64: &[("gate", Reads), ("top", Scratch), ("entry", Answer)],
    },
    Section {
        name: "give_first",
        about: "puts an entry into this CPU's part of a cache, if there is room",
        arguments: &[("const void *", "gate"), ("uintptr_t", "entry")],
        returns_what_it_took: false,
        is_of_memory: true,
        x86_64: &[("gate", Uses), ("top", Scratch), ("entry", Uses)],
        aarch64: &[("gate", Reads), ("top", Scratch), ("entry", Reads)],
    },
    word("u8::add", "adds to this CPU's word of 1 byte", &NARROW),
    word("u16::add", "the same of 2 bytes", &NARROW),
    word("u32::add", "the same of 4 bytes", &NARROW),
    word("u64::add", "the same of 8 bytes", &WIDE),
];

/// How many sections C has.
pub(crate) const COUNT: usize = SECTIONS.len();

/// The register of a section's template in whose place C compilers may put a constant, if there is one.
pub(crate) fn may_be_constant(architecture: Architecture, section: &str) -> Option<String> {
    let section = SECTIONS.iter().find(|it| it.name == section)?;
    let operands = match architecture {
        Architecture::X86_64 => [&FIRST_X86_64, section.x86_64].concat(),
        Architecture::Aarch64 => [&FIRST_AARCH64, section.aarch64].concat(),
    };
    let at = operands.iter().position(|&(_, role)| role == ReadsOrHas)?;
    Some(format!("r{}", at + 1))
}

/// Where lanes are found.
const LANES: [(&str, &str); 3] =
    [("intptr_t", "cpu_id"), ("intptr_t", "index"), ("const uintptr_t *", "table")];

const HEAD: &str = "/* Made by `cargo xtask header` from xtask/templates. */

#ifndef THISCPU_SECTIONS_H
#define THISCPU_SECTIONS_H

#include <stdint.h>

/*
 * The sections that inlined calls are made of: restartable sequences, each a few loads and checks and one store that commits. The same as the
 * library's, instruction for instruction. They return whether they have committed, or what they took; if not, nothing has happened, and a
 * function of the library has to be called. `cpu_id` and `index` are the offsets of these fields from the thread pointer. Those that add order nothing but
 * themselves, to compilers too.
 *
 * For gcc 11 and clang 12 and newer ones.
 */

#define THISCPU_SECTION static inline __attribute__((always_inline, unused))

/* A section's descriptor, and for checkers its name. Each is in the group of its function, if that is one of which linkers keep one copy of several. */
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

/// The header with all of them.
pub(super) fn make(root: &Path) -> Result<String> {
    let mut text = HEAD.to_owned();
    for (begin, architecture, handler) in [
        ("#if defined(__x86_64__)", Architecture::X86_64, x86_64::ABORT_HANDLER),
        ("#elif defined(__aarch64__)", Architecture::Aarch64, aarch64::ABORT_HANDLER),
    ] {
        writeln!(text, "{begin}\n\n{handler}")?;
        for section in &SECTIONS {
            let function = function(root, architecture, section);
            text += &function.with_context(|| format!("{} for C", section.name))?;
        }
    }
    text += "#endif\n\n#endif\n";
    Ok(text)
}

/// A template's parts: the way in, the range, the abort handler.
struct Parts {
    before: Vec<String>,
    range: Vec<String>,
    abort: Vec<String>,
}

fn read(root: &Path, architecture: Architecture, name: &str) -> Result<Parts> {
    let path = crate::aborts::template_of(root, architecture, name);
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut parts = Parts { before: Vec::new(), range: Vec::new(), abort: Vec::new() };
    let mut part = &mut parts.before;
    for line in text.lines() {
        match line {
            "before:" => part = &mut parts.before,
            "range:" => part = &mut parts.range,
            "abort:" => part = &mut parts.abort,
            line => part.push(line.trim().to_owned()),
        }
    }
    ensure!(!parts.range.is_empty(), "{} has no range", path.display());
    Ok(parts)
}

fn function(root: &Path, architecture: Architecture, section: &Section) -> Result<String> {
    let parts = read(root, architecture, section.name)?;
    let (operands, translate): (_, fn(&str, &Names<'_>) -> Result<String>) = match architecture {
        Architecture::X86_64 => ([&FIRST_X86_64, section.x86_64].concat(), x86_64::translate),
        Architecture::Aarch64 => ([&FIRST_AARCH64, section.aarch64].concat(), aarch64::translate),
    };
    let names = Names::of(&operands, section.returns_what_it_took);
    let mut body = format!("        THISCPU_DESCRIPTOR(\"{}\")\n", section.name);
    let mut put = |text: &str, label: bool| {
        let end = if label { "\\n" } else { "\\n\\t" };
        writeln!(body, "        \"{text}{end}\"")
    };
    for line in &parts.before {
        put(&translate(line, &names)?, false)?;
    }
    put("31:", true)?;
    let target = target(&parts.range)?;
    for (at, line) in parts.range.iter().enumerate() {
        if target == Some(at + 1) {
            put("35:", true)?;
        }
        put(&translate(line, &names)?, false)?;
    }
    put("32:", true)?;
    writeln!(body, "        THISCPU_ABORT_HANDLER")?;
    for line in &parts.abort {
        writeln!(body, "        \"{}\\n\\t\"", translate(line, &names)?)?;
    }
    writeln!(body, "        \".popsection\\n\"\n        \"33:\"")?;
    Ok(wrap(section, &operands, &body))
}

/// Where a section jumps to within itself, if it does: to one place only.
fn target(range: &[String]) -> Result<Option<usize>> {
    let mut targets = range.iter().filter_map(|line| line.split_once("range:").map(|(_, to)| to));
    let Some(first) = targets.next() else { return Ok(None) };
    ensure!(targets.all(|other| other == first), "it jumps to several places in itself");
    Ok(Some(first.parse()?))
}

/// The function around a section's assembly.
fn wrap(section: &Section, operands: &[Operand], body: &str) -> String {
    let arguments = LANES.iter().chain(section.arguments);
    let arguments: Vec<_> = arguments.map(|(kind, name)| declare(kind, name)).collect();
    let is_own = |role| matches!(role, Scratch | Counts);
    let own: Vec<_> =
        operands.iter().filter(|operand| is_own(operand.1)).map(|own| own.0).collect();
    let output = |&(name, role): &Operand| match role {
        Reads | ReadsOrHas => None,
        Uses => Some(format!("[{name}] \"+&r\"({name})")),
        Scratch => Some(format!("[{name}] \"=&r\"({name})")),
        Counts => Some(format!("[{name}] \"=&c\"({name})")),
        Answer => Some(format!("[{name}] \"+&r\"({name})")),
    };
    let input = |&(name, role): &Operand| match role {
        Reads => Some(format!("[{name}] \"r\"({name})")),
        ReadsOrHas => Some(format!("[{name}] \"er\"({name})")),
        _ => None,
    };
    let outputs: Vec<_> = operands.iter().filter_map(output).collect();
    let inputs: Vec<_> = operands.iter().filter_map(input).collect();
    let (kind, asm, answer, labels, ends) = match section.returns_what_it_took {
        true => ("uintptr_t", "", "    uintptr_t entry = 0;\n", "", "    return entry;\n"),
        false => ("int", " goto", "", "\n        : out", "    return 1;\nout:\n    return 0;\n"),
    };
    let clobbers = if section.is_of_memory { "\"memory\", \"cc\"" } else { "\"cc\"" };
    format!(
        "/* {}: {}. */\nTHISCPU_SECTION {kind} thiscpu_section_{}({}) {{\n    uint64_t {};\n{answer}    \
         __asm__ __volatile__{asm}(\n{body}        : {}\n        : {}\n        : {clobbers}{labels});\n{ends}}}\n\n",
        section.name,
        section.about,
        section.name.replace("::", "_"),
        arguments.join(", "),
        own.join(", "),
        outputs.join(", "),
        inputs.join(", "),
    )
}

fn declare(kind: &str, name: &str) -> String {
    let space = if kind.ends_with('*') { "" } else { " " };
    format!("{kind}{space}{name}")
}

/// What a template's registers and labels are called in C's assembly.
pub(super) struct Names<'a> {
    operands: &'a [Operand],
    returns: bool,
}

impl<'a> Names<'a> {
    pub(super) fn of(operands: &'a [Operand], returns: bool) -> Names<'a> {
        Names { operands, returns }
    }

    /// The operand of a register, `r7` or `r7.d`, and the part of it.
    pub(super) fn operand<'r>(&self, register: &'r str) -> Result<Option<(&'static str, &'r str)>> {
        let Some(number) = register.strip_prefix('r') else { return Ok(None) };
        let (number, part) = number.split_once('.').unwrap_or((number, ""));
        let Ok(number) = number.parse::<usize>() else { return Ok(None) };
        let operand = number.checked_sub(1).and_then(|at| self.operands.get(at));
        let (name, _) = operand.with_context(|| format!("nothing is said of r{number}"))?;
        Ok(Some((name, part)))
    }

    /// A label. Where there are labels of C's, leaving is a jump to one; else the abort handler leaves.
    pub(super) fn label(&self, label: &str) -> Result<&'static str> {
        Ok(match label {
            "end" => "33f",
            "out" if self.returns => "34f",
            "out" => "%l[out]",
            _ if label.starts_with("range:") => "35f",
            _ => bail!("no label is called `{label}`"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_labels_have_names() {
        let operands = [("a", Scratch), ("cpu_id", Reads)];
        let names = Names::of(&operands, false);
        assert_eq!(names.operand("r2.d").unwrap(), Some(("cpu_id", "d")));
        assert_eq!(names.operand("range").unwrap(), None);
        assert!(names.operand("r3").is_err() && names.operand("r0").is_err());
        assert_eq!(names.label("out").unwrap(), "%l[out]");
        assert!(names.label("somewhere").is_err());
    }

    #[test]
    fn a_section_that_jumps_to_two_places_in_itself_is_refused() {
        let lines = |targets: [usize; 2]| targets.map(|to| format!("jne range:{to}"));
        assert_eq!(target(&lines([3, 3])).unwrap(), Some(3));
        assert!(target(&lines([3, 4])).is_err());
    }
}
