//! Figures of outcomes: rows for programs, tables for people.

mod compare;
mod list;
mod rows;
mod summary;
mod table;
mod walk;

pub(crate) use self::{
    compare::Baseline,
    list::list,
    rows::{Row, is_csv, rows, to_csv},
    summary::{headline, summary},
    table::{Grid, heading, table, with_unit},
    walk::walk,
};
