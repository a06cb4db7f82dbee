//! The C and C++ family of malloc, on the functions of `thiscpu-malloc`: a shared object to be preloaded.
//!
//! Each function of the family is an entry of its own: the allocator's fast path and nothing before it. What
//! happens when there is no memory is out of line. Nothing in here allocates from the family itself, which
//! might be in the middle of a call.

mod aligned;
mod c;
mod cxx_runtime;
mod delete;
mod errno;
mod glibc;
mod interpose;
mod introspection;
mod new;
mod new_nothrow;
mod rust_runtime;
mod saved_stderr;
mod settings;
mod stats_table;
mod vfork;
