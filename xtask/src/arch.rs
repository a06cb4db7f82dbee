//! The processor architectures that have sections.

use thiscpu_test_support::sections::Image;

use crate::arguments::display_as_argument;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

display_as_argument!(Arch);

impl Arch {
    pub(crate) const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    pub(crate) fn of_this_machine() -> Arch {
        if cfg!(target_arch = "x86_64") { Arch::X86_64 } else { Arch::Aarch64 }
    }

    /// Returns the architecture of a binary.
    pub(crate) fn of(image: &Image) -> Arch {
        match image.architecture {
            object::Architecture::X86_64 => Arch::X86_64,
            _ => Arch::Aarch64,
        }
    }

    /// Returns Rust's name of its target.
    pub(crate) fn target(self) -> String {
        format!("{self}-unknown-linux-gnu")
    }
}
