//! The documents of this project, whose Rust examples are tests of this package.
//!
//! Documents that a crate includes in its own documentation are tested there: the guide and the
//! designs in `thiscpu`, malloc in `thiscpu-malloc`, metrics in `thiscpu-metrics`, tower in
//! `thiscpu-tower`.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../ARCHITECTURE.md")]
mod architecture {}

#[cfg(doctest)]
#[doc = include_str!("../CONTRIBUTING.md")]
mod contributing {}

#[cfg(doctest)]
#[doc = include_str!("../docs/benchmarks.md")]
mod benchmarks {}

#[cfg(doctest)]
#[doc = include_str!("../docs/c.md")]
mod c {}

#[cfg(doctest)]
#[doc = include_str!("../docs/guarantees.md")]
mod guarantees {}
