//! What is shown of an outcome: lines for programs, tables for people.

mod rows;
mod table;

pub use self::{
    rows::{Row, rows},
    table::{heading, table},
};
