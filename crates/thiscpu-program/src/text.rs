//! Text of files and processes, which must not change the terminal that shows it.

use std::path::Path;

/// Returns a path as one line of text.
pub fn of_path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Returns a text with its control characters escaped.
pub fn escaped(text: &str) -> String {
    text.chars().flat_map(escape).collect()
}

/// Escapes a control character, which could change a terminal.
fn escape(character: char) -> Vec<char> {
    match character.is_control() {
        true => character.escape_default().collect(),
        false => vec![character],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a\u{1b}[2J\n\u{9b}é"), "a\\u{1b}[2J\\n\\u{9b}é");
    }
}
