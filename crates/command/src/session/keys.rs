//! Keys from the bytes of a terminal.

/// The byte that Ctrl-C sends.
pub(super) const CTRL_C: u8 = 3;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Enter,
    Tab,
    Backspace,
    Delete,
    Left,
    Right,
    WordLeft,
    WordRight,
    Up,
    Down,
    Home,
    End,
    PageDown,
    /// A control character by its letter.
    Control(char),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Plain,
    Escape,
    /// `ESC [`, and the parameter so far.
    Sequence(u32),
    /// `ESC O`.
    Function,
    /// A character of several bytes.
    Utf8,
}

/// Collects keys from bytes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    state: State,
    bytes: Vec<u8>,
    after_cr: bool,
}

impl Decoder {
    /// The key that `byte` completes.
    pub(super) fn push(&mut self, byte: u8) -> Option<Key> {
        let after_cr = std::mem::take(&mut self.after_cr);
        match self.state {
            State::Plain => match byte {
                b'\n' | 0 if after_cr => None,
                b'\r' => {
                    self.after_cr = true;
                    Some(Key::Enter)
                }
                b'\n' => Some(Key::Enter),
                b'\t' => Some(Key::Tab),
                8 | 127 => Some(Key::Backspace),
                27 => {
                    self.state = State::Escape;
                    None
                }
                0 => None,
                1..=26 => Some(Key::Control(char::from(byte - 1 + b'a'))),
                28..=31 => None,
                32..=126 => Some(Key::Character(char::from(byte))),
                128.. => {
                    self.bytes.clear();
                    self.bytes.push(byte);
                    self.utf8()
                }
            },
            State::Utf8 => {
                self.bytes.push(byte);
                self.utf8()
            }
            State::Escape => {
                self.state = State::Plain;
                match byte {
                    b'[' => self.state = State::Sequence(0),
                    b'O' => self.state = State::Function,
                    b'b' => return Some(Key::WordLeft),
                    b'f' => return Some(Key::WordRight),
                    27 => self.state = State::Escape,
                    _ => {}
                }
                None
            }
            State::Function => {
                self.state = State::Plain;
                cursor_key(byte, false)
            }
            State::Sequence(parameter) => self.sequence(parameter, byte),
        }
    }

    fn sequence(&mut self, parameter: u32, byte: u8) -> Option<Key> {
        if byte.is_ascii_digit() {
            let parameter = parameter.saturating_mul(10).saturating_add(u32::from(byte - b'0'));
            self.state = State::Sequence(parameter);
            return None;
        }
        if byte == b';' {
            // The parameter behind it tells shift, alt and control.
            self.state = State::Sequence(0);
            return None;
        }
        self.state = State::Plain;
        match (byte, parameter) {
            (b'~', 1 | 7) => Some(Key::Home),
            (b'~', 3) => Some(Key::Delete),
            (b'~', 4 | 8) => Some(Key::End),
            (b'~', 6) => Some(Key::PageDown),
            (_, parameter) => cursor_key(byte, matches!(parameter, 3 | 5)),
        }
    }

    fn utf8(&mut self) -> Option<Key> {
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => {
                self.state = State::Plain;
                text.chars().next().filter(|character| !character.is_control()).map(Key::Character)
            }
            Err(error) if error.error_len().is_none() => {
                self.state = State::Utf8;
                None
            }
            Err(_) => {
                self.state = State::Plain;
                Some(Key::Character(char::REPLACEMENT_CHARACTER))
            }
        }
    }
}

fn cursor_key(byte: u8, modified: bool) -> Option<Key> {
    Some(match (byte, modified) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', false) => Key::Right,
        (b'C', true) => Key::WordRight,
        (b'D', false) => Key::Left,
        (b'D', true) => Key::WordLeft,
        (b'H', _) => Key::Home,
        (b'F', _) => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = Decoder::default();
        bytes.iter().filter_map(|byte| decoder.push(*byte)).collect()
    }

    #[test]
    fn line_ends_in_all_forms_are_one_enter() {
        for ends in [&b"\r\n"[..], b"\r\0", b"\r", b"\n"] {
            assert_eq!(keys(ends), [Key::Enter], "{ends:?}");
        }
        assert_eq!(keys(b"\r\n\r\n\n"), [Key::Enter; 3]);
    }

    #[test]
    fn escape_sequences_and_utf8() {
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[3~\x1b[1;5C\x1b[H\x1bb"),
            [Key::Up, Key::Down, Key::Delete, Key::WordRight, Key::Home, Key::WordLeft]
        );
        assert_eq!(keys("aé\u{1F600}".as_bytes()), ['a', 'é', '\u{1F600}'].map(Key::Character));
        assert_eq!(keys(b"\xffa"), [char::REPLACEMENT_CHARACTER, 'a'].map(Key::Character));
        assert_eq!(keys(b"\x1b[99999999999999999999~x"), [Key::Character('x')]);
        assert_eq!(keys(b"\x01\x03"), ['a', 'c'].map(Key::Control));
    }
}
