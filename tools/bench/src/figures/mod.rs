//! What is shown of an outcome: lines for programs, tables for people.

mod grid;
mod measured;
mod rows;
mod summary;
mod table;

pub(crate) use crate::contenders::allocators::versions;

pub(crate) use self::{
    grid::Grid,
    measured::{Measured, Subject, measured},
    rows::{Row, rows},
    summary::summary,
    table::{heading, metric_title, table, with_unit},
};
