//! `libthiscpu_malloc.so`: the whole C and C++ malloc family on `thiscpu-malloc`, for preloading.
//!
//! Each function of the family is an entry point of its own, and starts with the allocator's fast
//! path. Handling a lack of memory is out of line. Nothing in this crate allocates through the
//! family, which may be in the middle of a call.
//!
//! Each file holds one family of symbols ([`c`], [`aligned`], [`glibc`], [`new`], [`new_nothrow`],
//! [`delete`], [`introspection`], [`malloc_info`], [`loading`], [`vfork`], [`api`], [`stats_c`],
//! [`profile`]) or one thing that they need.

mod aligned;
mod api;
mod c;
mod cxx_runtime;
mod delete;
mod errno;
mod glibc;
mod inherited;
mod interpose;
mod introspection;
mod loading;
mod malloc_info;
mod new;
mod new_nothrow;
mod profile;
mod rust_runtime;
mod saved_stderr;
mod settings;
mod stats_c;
mod stats_json;
mod stats_table;
mod vfork;
