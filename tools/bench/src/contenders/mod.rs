//! The designs that run against each other: one folder per kind of structure, one file per design.
//!
//! Each design is implemented from its description, as its authors intended it. Where the kernel
//! relies on disabled preemption, a program needs an atomic instruction; each file says where.

pub(crate) mod allocators;
pub(crate) mod budgets;
pub(crate) mod counters;
mod lanes;
pub(crate) mod ledgers;
mod name;
mod percpu_counter;
pub(crate) mod registries;

pub(crate) use self::lanes::Padded;
pub(crate) use self::name::Name;
