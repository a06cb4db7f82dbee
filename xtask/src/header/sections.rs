//! The sections that C has, with the operands that their templates do not name.

use super::operands::Operand;
use super::operands::Role::{Changes, Reads, ReadsOrConstant, Returns, Scratch, ScratchRcx};
use crate::arch::Arch;

/// A section that C has.
pub(super) struct Section {
    /// Its name in `.thiscpu_sections`.
    pub(super) name: &'static str,
    /// What it does, for the comment in the header.
    pub(super) about: &'static str,
    /// The types and names of its arguments, without those that say where lanes are.
    pub(super) arguments: &'static [(&'static str, &'static str)],
    /// Whether it passes the program's memory from one owner to another.
    ///
    /// The others order nothing, as relaxed atomic operations do, and compilers keep what they know
    /// of memory.
    pub(super) passes_memory: bool,
    /// The operands after [`FIRST_X86_64`], in the order of their registers in the template.
    pub(super) x86_64: &'static [Operand],
    /// The operands after [`FIRST_AARCH64`], in the order of their registers in the template.
    pub(super) aarch64: &'static [Operand],
}

/// The operands that every section begins with.
const FIRST_X86_64: [Operand; 5] =
    [("a", Scratch), ("cpu_id", Reads), ("vfork_word", Reads), ("index", Reads), ("table", Reads)];
const FIRST_AARCH64: [Operand; 6] = [
    ("s", Scratch),
    ("a", Scratch),
    ("cpu_id", Changes),
    ("vfork_word", Reads),
    ("index", Reads),
    ("table", Reads),
];

/// The operands of words on x86-64. A constant of 32 bits may not fit into a narrower word.
const NARROW: [Operand; 2] = [("item", Reads), ("n", Reads)];
const WIDE: [Operand; 2] = [("item", Reads), ("n", ReadsOrConstant)];

const fn word(name: &'static str, about: &'static str, x86_64: &'static [Operand]) -> Section {
    Section {
        name,
        about,
        arguments: &[("uintptr_t", "item"), ("uint64_t", "n")],
        passes_memory: false,
        x86_64,
        aarch64: &[("item", Reads), ("v", Scratch), ("n", Reads)],
    }
}

pub(super) const SECTIONS: [Section; 9] = [
    Section {
        name: "add_windowed",
        about: "adds to this CPU's lane of a counter or budget, if that stays in its window",
        arguments: &[("const void *", "gate"), ("int64_t", "n")],
        passes_memory: false,
        x86_64: &[
            ("gate", Reads),
            ("count", Scratch),
            ("n", ReadsOrConstant),
            ("window", ScratchRcx),
            ("distance", Scratch),
        ],
        aarch64: &[("gate", Reads), ("count", Scratch), ("window", Scratch), ("n", Reads)],
    },
    Section {
        name: "add_windowed_at",
        about: "adds to this CPU's lane of one of several counters, as add_windowed does",
        arguments: &[("const void *", "gate"), ("uintptr_t", "cell"), ("int64_t", "n")],
        passes_memory: false,
        x86_64: &[
            ("gate", Reads),
            ("cell", Reads),
            ("count", Scratch),
            ("n", ReadsOrConstant),
            ("window", ScratchRcx),
            ("distance", Scratch),
        ],
        aarch64: &[
            ("gate", Reads),
            ("cell", Reads),
            ("count", Scratch),
            ("window", Scratch),
            ("n", Reads),
        ],
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
        passes_memory: false,
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
        name: "pop_object_single",
        about: "pops an encoded pointer from this CPU's lane of a cache; 0 if it is empty",
        arguments: &[("const void *", "gate")],
        passes_memory: true,
        x86_64: &[("gate", Reads), ("top", Scratch), ("encoded", Returns)],
        aarch64: &[("gate", Reads), ("top", Scratch), ("encoded", Returns)],
    },
    Section {
        name: "push_object_single",
        about: "pushes an encoded pointer to this CPU's lane of a cache if it has room",
        arguments: &[("const void *", "gate"), ("uintptr_t", "encoded")],
        passes_memory: true,
        x86_64: &[("gate", Changes), ("top", Scratch), ("encoded", Changes)],
        aarch64: &[("gate", Reads), ("top", Scratch), ("encoded", Reads)],
    },
    word("u8::add", "adds to this CPU's word of 1 byte", &NARROW),
    word("u16::add", "adds to this CPU's word of 2 bytes", &NARROW),
    word("u32::add", "adds to this CPU's word of 4 bytes", &NARROW),
    word("u64::add", "adds to this CPU's word of 8 bytes", &WIDE),
];

/// The number of sections that C has.
pub(crate) const COUNT: usize = SECTIONS.len();

impl Section {
    /// Returns whether it returns the value that it took, or 0.
    ///
    /// The others return whether they committed.
    pub(super) fn returns_value(&self) -> bool {
        self.x86_64.iter().any(|operand| operand.1 == Returns)
    }

    /// Returns its operands in the order of their registers in the template.
    pub(super) fn operands(&self, arch: Arch) -> Vec<Operand> {
        match arch {
            Arch::X86_64 => [&FIRST_X86_64, self.x86_64].concat(),
            Arch::Aarch64 => [&FIRST_AARCH64, self.aarch64].concat(),
        }
    }
}

/// Returns the register of a section's template that C compilers may replace by a constant.
pub(crate) fn maybe_constant(arch: Arch, section: &str) -> Option<String> {
    let section = SECTIONS.iter().find(|it| it.name == section)?;
    let operands = section.operands(arch);
    let at = operands.iter().position(|&(_, role)| role == ReadsOrConstant)?;
    Some(format!("r{}", at + 1))
}
