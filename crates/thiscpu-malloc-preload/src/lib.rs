//! The C and C++ family of malloc, on the functions of `thiscpu-malloc`: a shared object to be preloaded.
//!
//! Each function of the family is an entry of its own: the allocator's fast path and nothing before it. What
//! happens when there is no memory is out of line. Nothing in here allocates from the family itself, which
//! might be in the middle of a call.

mod aligned;
mod basic;
mod caught;
mod deleting;
mod errno;
mod glibc;
mod output;
mod own;
mod process;
mod replaced;
mod runtime;
mod settings;
mod statistics;
mod table;
mod throwing;
