//! vfork, with children that may allocate.
//!
//! posix_spawn and system use vfork semantics inside the C library, but allocate nothing in the
//! child.

thiscpu::define_vfork!("thiscpu_malloc_vfork_join_1");
