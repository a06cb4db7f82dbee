//! Tables of plain text.

use std::fmt;

/// A table whose columns are as wide as their longest value.
///
/// All columns but the last one hold numbers or single words, and end at one place. Values of the
/// last column begin at one place, and have any length.
///
/// ```
/// let mut table = thiscpu_program::table::Table::new(["VALUE", "NAME"]);
/// table.row(["7", "requests"]);
/// assert_eq!(table.to_string(), "VALUE  NAME\n    7  requests\n");
/// ```
#[derive(Clone, Debug)]
pub struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Returns a table with a line of labels.
    pub fn new(labels: [&str; N]) -> Table<N> {
        Table { rows: vec![labels.map(str::to_owned)] }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, values: [T; N]) {
        self.rows.push(values.map(T::into));
    }

    /// Returns whether the table has no row besides the labels.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, value) in widths.iter_mut().zip(row) {
                *width = (*width).max(value.chars().count());
            }
        }
        for row in &self.rows {
            let Some((last, numbers)) = row.split_last() else { continue };
            for (value, width) in numbers.iter().zip(widths) {
                write!(f, "{value:>width$}  ")?;
            }
            writeln!(f, "{last}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_one_place() {
        let mut table = Table::new(["A", "RATE", "NAME"]);
        assert!(table.is_empty());
        table.row(["1234", "5", "é"]);
        table.row(["1", "12345", "a b"]);
        assert!(!table.is_empty());
        let expected = "   A   RATE  NAME\n1234      5  é\n   1  12345  a b\n";
        assert_eq!(table.to_string(), expected);
    }
}
