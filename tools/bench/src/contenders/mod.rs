//! The designs that run against each other: a folder for what each kind of structure is for, a file for
//! each design.
//!
//! Each is written from its description, as its authors meant it. What a kernel gets from disabled
//! preemption, a program must pay an atomic instruction for; each file says where.

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
