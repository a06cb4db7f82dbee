//! A table before it is drawn, for the terminal and for a page.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

/// A title, and cells in columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) title: String,
    /// The heads of the columns.
    pub(crate) header: Vec<String>,
    /// The cells, row by row, as many in each as the header has. A cell may be empty.
    pub(crate) rows: Vec<Vec<String>>,
    /// How many columns are names; the others are figures.
    pub(crate) names: usize,
}

impl fmt::Display for Grid {
    /// Writes the title, an empty line, and a table of plain characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(&self.header);
        table.add_rows(&self.rows);
        for column in table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{}\n\n{table}", self.title)
    }
}
