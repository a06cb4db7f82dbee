//! Parts that the programs `thiscpu` and `thiscpu-top` share: not a stable interface.
//!
//! - [`find`]: segments by name, by process and by directory;
//! - [`manual`]: man pages and completions;
//! - [`output`]: output whose errors are noticed;
//! - [`table`]: tables of plain text;
//! - [`text`]: text that cannot change a terminal.

// `println!` and `eprintln!` panic when they cannot write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod find;
pub mod manual;
pub mod output;
pub mod table;
pub mod text;
