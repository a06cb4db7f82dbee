//! What is shown of an outcome: lines for programs, tables for people.

mod rows;
mod summary;
mod table;

pub use self::{
    rows::{Row, rows},
    summary::summary,
    table::{heading, table},
};
