//! Keys, from the bytes that a terminal sends for them.

/// A key that this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    /// A letter together with Ctrl.
    Ctrl(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Tab,
}

const ESCAPE: u8 = 0x1b;

/// The longest sequence that a terminal sends for a key.
const SEQUENCE_MAX: usize = 16;

/// Takes the first key from some bytes.
///
/// Returns `None` if more bytes must come first. Unless `is_complete`, that is so for the escape
/// character alone: the rest of a sequence may be on its way. The inner result is `None` for a key
/// that this program does not know.
pub(super) fn take(bytes: &mut Vec<u8>, is_complete: bool) -> Option<Option<Key>> {
    let (key, len) = match *bytes.first()? {
        ESCAPE => match sequence(&bytes[1..]) {
            Some((key, len)) => (key, 1 + len),
            None if is_complete || bytes.len() > SEQUENCE_MAX => {
                (Some(Key::Escape).filter(|_| bytes.len() == 1), bytes.len())
            }
            None => return None,
        },
        b'\r' | b'\n' => (Some(Key::Enter), 1),
        b'\t' => (Some(Key::Tab), 1),
        0x08 | 0x7f => (Some(Key::Backspace), 1),
        control @ 0x01..=0x1a => (Some(Key::Ctrl(char::from(control - 1 + b'a'))), 1),
        ..0x20 => (None, 1),
        first => {
            let rest_max = match first {
                0xf0.. => 3,
                0xe0.. => 2,
                0xc0.. => 1,
                _ => 0,
            };
            // A byte that goes on with no character is a key of its own.
            let rest = bytes[1..].iter().take_while(|byte| (0x80..=0xbf).contains(*byte));
            let len = 1 + rest.take(rest_max).count();
            if len == bytes.len() && len <= rest_max && !is_complete {
                return None;
            }
            let text = str::from_utf8(&bytes[..len]).ok();
            (text.and_then(|text| text.chars().next()).map(Key::Char), len)
        }
    };
    bytes.drain(..len);
    Some(key)
}

/// Returns the key of a sequence after the escape character, and the sequence's length.
///
/// `None` if it is not complete.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        b'[' => {
            let len = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            let key = match (&rest[..len], rest[len]) {
                (b"1" | b"7", b'~') => Some(Key::Home),
                (b"4" | b"8", b'~') => Some(Key::End),
                (b"5", b'~') => Some(Key::PageUp),
                (b"6", b'~') => Some(Key::PageDown),
                (b"", end) => of_end(end),
                _ => None,
            };
            Some((key, len + 2))
        }
        b'O' => rest.first().map(|&end| (of_end(end), 2)),
        // The escape key, and another one.
        ESCAPE => Some((Some(Key::Escape), 0)),
        // A key together with Alt.
        _ => Some((None, 1)),
    }
}

fn of_end(end: u8) -> Option<Key> {
    match end {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        b'H' => Some(Key::Home),
        b'F' => Some(Key::End),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Option<Key>> {
        let mut bytes = bytes.to_vec();
        std::iter::from_fn(|| take(&mut bytes, true)).collect()
    }

    #[test]
    fn bytes_are_keys() {
        let expected = [
            Key::Char('q'),
            Key::Up,
            Key::PageDown,
            Key::End,
            Key::Char('é'),
            Key::Ctrl('c'),
            Key::Enter,
            Key::Backspace,
            Key::Tab,
            Key::Home,
            Key::Escape,
        ];
        let bytes = b"q\x1b[A\x1b[6~\x1bOF\xc3\xa9\x03\r\x7f\t\x1b[1~\x1b";
        assert_eq!(keys(bytes), expected.map(Some));
        // Ctrl with Up, Alt with x, and a byte that begins no character.
        assert_eq!(keys(b"\x1b[1;5A\x1bx\xff"), [None, None, None]);
        // A character that is cut off leaves the key after it.
        assert_eq!(keys(b"\xe2\x82q\xf0q"), [None, Some(Key::Char('q'))].repeat(2));
    }

    #[test]
    fn sequences_may_come_in_parts() {
        let mut bytes = vec![];
        for part in *b"\x1b[5" {
            bytes.push(part);
            assert_eq!(take(&mut bytes, false), None);
        }
        bytes.push(b'~');
        assert_eq!(take(&mut bytes, false), Some(Some(Key::PageUp)));
        bytes.extend(b"\xc3");
        assert_eq!(take(&mut bytes, false), None);
        bytes.extend(b"\xa9");
        assert_eq!(take(&mut bytes, false), Some(Some(Key::Char('é'))));
        assert_eq!(take(&mut bytes, false), None);
    }

    #[test]
    fn any_bytes_come_to_an_end() {
        for first in 0..=255 {
            for second in 0..=255 {
                let mut bytes = vec![first, second, ESCAPE];
                while take(&mut bytes, true).is_some() {}
                assert!(bytes.is_empty());
            }
        }
    }
}
