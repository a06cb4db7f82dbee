//! The processor architectures that have sections.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Arch {
    pub(crate) const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// Returns Rust's name of its target.
    pub(crate) fn target(self) -> String {
        format!("{self}-unknown-linux-gnu")
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        })
    }
}
