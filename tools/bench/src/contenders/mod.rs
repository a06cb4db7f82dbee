//! The designs that run against each other: one folder per kind of structure, one file per design,
//! except that short ones share a file.
//!
//! Each design is implemented from its description, as its authors intended it. Where the kernel
//! relies on disabled preemption, a program needs an atomic instruction; each file says where.
//!
//! Workloads are generic over the trait of a folder, so that the measured loop calls each contender
//! as a program does: a library's function by its name, inlined code inline.

/// Defines the list `ALL` of a family of contenders, and a macro that dispatches by name.
///
/// That macro evaluates an expression in which a type stands for the contender. `ALL` does not have
/// the baseline, which follows a semicolon. It has those that a feature leaves out, too.
macro_rules! family {
    ($d:tt $family:ident:
        $($(#[$cfg:meta])* $Name:ident)* $(; $Baseline:ident)?) => {
        pub(crate) const ALL: &[$crate::contenders::Name] =
            &[$($crate::contenders::Name::$Name),*];

        macro_rules! dispatch {
            ($d name:expr, $d C:ident => $d body:expr) => {
                match $d name {
                    $($(#[$cfg])* $crate::contenders::Name::$Name => {
                        type $d C = $crate::contenders::$family::$Name;
                        $d body
                    })*
                    $($crate::contenders::Name::$Baseline => {
                        type $d C = $crate::contenders::$family::$Baseline;
                        $d body
                    })?
                    other => unreachable!("{other} is not one of {}", stringify!($family)),
                }
            };
        }
        pub(crate) use dispatch;
    };
}

/// Makes a test of each generic check, for all contenders of a family that can run here.
#[cfg(test)]
macro_rules! test_all {
    ($($check:ident)*) => {
        mod all {
            $(#[test]
            fn $check() {
                for &name in super::super::ALL.iter().filter(|name| name.available().is_ok()) {
                    // A check that fails shows it.
                    println!("{name}");
                    super::super::dispatch!(name, C => super::$check::<C>());
                }
            })*
        }
    };
}

pub(crate) mod allocators;
pub(crate) mod budgets;
pub(crate) mod counters;
mod lanes;
pub(crate) mod layers;
pub(crate) mod ledgers;
pub(crate) mod limits;
mod name;
mod percpu_counter;
pub(crate) mod processes;
pub(crate) mod rates;
pub(crate) mod registries;

pub(crate) use self::{lanes::Padded, name::Name};
