//! A line being edited, with its echo and history.
//!
//! The echo uses nothing but printing, backspaces and blanks, so it works on every terminal; on a line
//! that is wider than the terminal, moving back over the edge looks wrong on some (`quiverctl` has a
//! better editor). Each character is taken to be one column wide.

use std::collections::VecDeque;

/// Longest line that can be typed, in characters.
const LONGEST: usize = 4096;
const BELL: u8 = 7;

#[derive(Debug, Default)]
pub(super) struct Editor {
    text: Vec<char>,
    cursor: usize,
    history: VecDeque<String>,
    pub(super) history_limit: usize,
    /// The place in the history that is shown, and the line that was typed before going there.
    recalled: Option<(usize, Vec<char>)>,
}

impl Editor {
    pub(super) fn new(history_limit: usize) -> Self {
        Self { history_limit, ..Self::default() }
    }

    pub(super) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// Byte offset of the cursor in the text.
    pub(super) fn cursor_byte(&self) -> usize {
        self.text[..self.cursor].iter().map(|character| character.len_utf8()).sum()
    }

    pub(super) fn history(&self) -> impl Iterator<Item = &str> {
        self.history.iter().map(String::as_str)
    }

    pub(super) fn insert(&mut self, character: char, output: &mut Vec<u8>) {
        if self.text.len() >= LONGEST {
            output.push(BELL);
            return;
        }
        self.text.insert(self.cursor, character);
        self.cursor += 1;
        echo(&self.text[self.cursor - 1..], output);
        back(self.text.len() - self.cursor, output);
    }

    /// Removes the characters from `from` to the cursor or the other way round.
    fn remove(&mut self, from: usize, to: usize, output: &mut Vec<u8>) {
        self.move_to(from, output);
        self.text.drain(from..to);
        echo(&self.text[from..], output);
        output.extend(std::iter::repeat_n(b' ', to - from));
        back(self.text.len() - from + (to - from), output);
    }

    pub(super) fn backspace(&mut self, output: &mut Vec<u8>) {
        if self.cursor > 0 {
            self.remove(self.cursor - 1, self.cursor, output);
        }
    }

    pub(super) fn delete(&mut self, output: &mut Vec<u8>) {
        if self.cursor < self.text.len() {
            self.remove(self.cursor, self.cursor + 1, output);
        }
    }

    pub(super) fn delete_word(&mut self, output: &mut Vec<u8>) {
        self.remove(self.word_left(), self.cursor, output);
    }

    pub(super) fn delete_to_start(&mut self, output: &mut Vec<u8>) {
        self.remove(0, self.cursor, output);
    }

    pub(super) fn delete_to_end(&mut self, output: &mut Vec<u8>) {
        self.remove(self.cursor, self.text.len(), output);
    }

    pub(super) fn left(&mut self, output: &mut Vec<u8>) {
        self.move_to(self.cursor.saturating_sub(1), output);
    }

    pub(super) fn right(&mut self, output: &mut Vec<u8>) {
        self.move_to(self.cursor + 1, output);
    }

    pub(super) fn home(&mut self, output: &mut Vec<u8>) {
        self.move_to(0, output);
    }

    pub(super) fn end(&mut self, output: &mut Vec<u8>) {
        self.move_to(self.text.len(), output);
    }

    pub(super) fn move_word_left(&mut self, output: &mut Vec<u8>) {
        self.move_to(self.word_left(), output);
    }

    pub(super) fn move_word_right(&mut self, output: &mut Vec<u8>) {
        let rest = &self.text[self.cursor..];
        let blanks = rest.iter().take_while(|character| character.is_whitespace()).count();
        let word = rest[blanks..].iter().take_while(|character| !character.is_whitespace()).count();
        self.move_to(self.cursor + blanks + word, output);
    }

    fn word_left(&self) -> usize {
        let before = &self.text[..self.cursor];
        let blanks = before.iter().rev().take_while(|character| character.is_whitespace()).count();
        let before = &before[..before.len() - blanks];
        before.len() - before.iter().rev().take_while(|character| !character.is_whitespace()).count()
    }

    fn move_to(&mut self, place: usize, output: &mut Vec<u8>) {
        let place = place.min(self.text.len());
        if place > self.cursor {
            echo(&self.text[self.cursor..place], output);
        } else {
            back(self.cursor - place, output);
        }
        self.cursor = place;
    }

    /// Replaces the text from byte `start` to the cursor.
    pub(super) fn replace_from(&mut self, start: usize, text: &str, output: &mut Vec<u8>) {
        let mut bytes = 0;
        let from = self.text.iter().take_while(|character| {
            bytes += character.len_utf8();
            bytes <= start
        });
        let from = from.count().min(self.cursor);
        self.remove(from, self.cursor, output);
        text.chars().for_each(|character| self.insert(character, output));
    }

    /// Shows the line again, on a new screen line that already has its prompt.
    pub(super) fn redraw(&self, output: &mut Vec<u8>) {
        echo(&self.text, output);
        back(self.text.len() - self.cursor, output);
    }

    /// Goes back (`-1`) or on in the history.
    pub(super) fn recall(&mut self, older: bool, output: &mut Vec<u8>) {
        let place = self.recalled.as_ref().map_or(self.history.len(), |(place, _)| *place);
        let target = if older { place.checked_sub(1) } else { Some(place + 1) };
        let Some(target) = target.filter(|target| *target <= self.history.len() && *target != place) else {
            output.push(BELL);
            return;
        };
        let typed = self.recalled.take().map_or_else(|| self.text.clone(), |(_, typed)| typed);
        let shown = match self.history.get(target) {
            Some(line) => {
                let shown = line.chars().collect();
                self.recalled = Some((target, typed));
                shown
            }
            None => typed,
        };
        self.end(output);
        self.delete_to_start(output);
        echo(&shown, output);
        self.cursor = shown.len();
        self.text = shown;
    }

    /// Takes the finished line and remembers it.
    pub(super) fn finish(&mut self) -> String {
        let line = self.text();
        self.clear();
        let repeated = self.history.back().is_some_and(|last| *last == line);
        if !line.trim().is_empty() && !repeated {
            self.history.push_back(line.clone());
        }
        while self.history.len() > self.history_limit {
            self.history.pop_front();
        }
        line
    }

    /// Gives the line up.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.cursor = 0;
        self.recalled = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

fn echo(text: &[char], output: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    text.iter().for_each(|character| output.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes()));
}

fn back(columns: usize, output: &mut Vec<u8>) {
    output.extend(std::iter::repeat_n(8, columns));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a one-line terminal shows after these bytes, and where its cursor is.
    fn screen(bytes: &[u8]) -> (String, usize) {
        let (mut shown, mut cursor) = (Vec::new(), 0_usize);
        for character in String::from_utf8(bytes.to_vec()).unwrap().chars() {
            match character {
                '\x07' => {}
                '\x08' => cursor = cursor.checked_sub(1).expect("a backspace over the left edge"),
                _ => {
                    if cursor == shown.len() {
                        shown.push(' ');
                    }
                    shown[cursor] = character;
                    cursor += 1;
                }
            }
        }
        (shown.into_iter().collect(), cursor)
    }

    proptest! {
        #[test]
        fn the_screen_shows_the_line(actions in prop::collection::vec((0..16_u8, prop::char::range('a', 'e')), 0..80)) {
            let mut editor = Editor::new(5);
            editor.history.extend(["one two".to_owned(), "three".to_owned()]);
            let mut output = Vec::new();
            for (action, character) in actions {
                let out = &mut output;
                match action {
                    0 => editor.backspace(out),
                    1 => editor.delete(out),
                    2 => editor.left(out),
                    3 => editor.right(out),
                    4 => editor.home(out),
                    5 => editor.end(out),
                    6 => editor.delete_word(out),
                    7 => editor.delete_to_end(out),
                    8 => editor.recall(true, out),
                    9 => editor.recall(false, out),
                    10 => editor.move_word_left(out),
                    11 => editor.move_word_right(out),
                    12 => editor.insert(' ', out),
                    13 => editor.insert('é', out),
                    14 => editor.replace_from(editor.cursor_byte() / 2, "xy", out),
                    _ => editor.insert(character, out),
                }
                let (shown, cursor) = screen(&output);
                let text = editor.text();
                prop_assert_eq!(shown.trim_end(), text.trim_end());
                prop_assert_eq!(cursor, editor.cursor);
            }
        }
    }

    #[test]
    fn history_keeps_its_limit_and_the_typed_line() {
        let mut editor = Editor::new(2);
        let mut out = Vec::new();
        for line in ["a", "b", "b", "c", " "] {
            line.chars().for_each(|character| editor.insert(character, &mut out));
            assert_eq!(editor.finish(), line);
        }
        assert_eq!(editor.history().collect::<Vec<_>>(), ["b", "c"]);
        editor.insert('x', &mut out);
        editor.recall(true, &mut out);
        editor.recall(true, &mut out);
        editor.recall(true, &mut out);
        assert_eq!(editor.text(), "b");
        editor.recall(false, &mut out);
        editor.recall(false, &mut out);
        assert_eq!(editor.text(), "x");
    }

    #[test]
    fn a_line_does_not_grow_without_end() {
        let mut editor = Editor::new(2);
        let mut out = Vec::new();
        (0..2 * LONGEST).for_each(|_| editor.insert('x', &mut out));
        assert_eq!(editor.text().len(), LONGEST);
    }
}
