//! Tables in Markdown.

use comfy_table::{CellAlignment, Table, presets};

/// Makes a table whose columns are aligned right, except the first one.
pub(crate) fn table(heads: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(heads).add_rows(rows);
    table.column_iter_mut().skip(1).for_each(|it| it.set_cell_alignment(CellAlignment::Right));
    table
}
