//! Parts that the programs `thiscpu`, `thiscpu-top` and `thiscpu-export` share: not a stable
//! interface.
//!
//! - [`budget`]: the units of a budget that processes hold;
//! - [`find`]: segments by name, by process and by directory;
//! - [`manual`]: man pages and completions;
//! - [`output`]: output whose errors are noticed;
//! - [`source`]: a segment whose file may go or be replaced;
//! - [`table`]: tables of plain text;
//! - [`text`]: text that cannot change a terminal.

// `println!` and `eprintln!` panic when they cannot write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod budget;
pub mod find;
pub mod manual;
pub mod output;
pub mod source;
pub mod table;
pub mod text;
