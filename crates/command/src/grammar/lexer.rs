//! Words and groups of a command line.

use std::borrow::Cow;

/// A word and where the text after it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    /// The word, without quotes and escapes.
    pub text: Cow<'a, str>,
    /// Byte offset of its first character.
    pub start: usize,
    /// Byte offset behind it.
    pub end: usize,
}

/// The next word at or after byte `from`: text up to white space, or text in double quotes, in which
/// `\"` and `\\` stand for themselves. A quote that is not closed is an ordinary character.
pub(crate) fn word(line: &str, from: usize) -> Option<Word<'_>> {
    let start = from + blanks(line.get(from..)?);
    let text = &line[start..];
    if text.is_empty() {
        return None;
    }
    if let Some((quoted, length)) = quoted(text) {
        return Some(Word { text: quoted, start, end: start + length });
    }
    let length = unbroken(text);
    Some(Word { text: Cow::Borrowed(&text[..length]), start, end: start + length })
}

/// Bytes of white space at the start of `text`.
pub(crate) fn blanks(text: &str) -> usize {
    let (ascii, rest) = ascii_while(text, is_blank);
    ascii + rest.len() - rest.trim_start().len()
}

/// Bytes of `text` before its first white space.
fn unbroken(text: &str) -> usize {
    let (ascii, rest) = ascii_while(text, |byte| !is_blank(byte));
    ascii + rest.find(char::is_whitespace).unwrap_or(rest.len())
}

/// How many bytes of ASCII at the start of `text` pass `test`, and, where these end before one that is not ASCII, the text from
/// there; else nothing. Scripts of a million lines are ASCII, and bytes are compared faster than characters decoded.
fn ascii_while(text: &str, test: impl Fn(u8) -> bool) -> (usize, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii() || !test(byte)).unwrap_or(text.len());
    let beyond = text.as_bytes().get(end).is_some_and(|byte| !byte.is_ascii());
    (end, if beyond { &text[end..] } else { "" })
}

/// `char::is_whitespace` for ASCII.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// A quoted word at the start of `text` and its length with quotes; it must end where white space or
/// the text ends.
fn quoted(text: &str) -> Option<(Cow<'_, str>, usize)> {
    let inner = text.strip_prefix('"')?;
    let mut word = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let after = &inner[at + 1..];
                let ends = after.is_empty() || after.starts_with(char::is_whitespace);
                return ends.then_some((Cow::Owned(word), at + 2));
            }
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => word.push(escaped),
                Some((_, other)) => word.extend(['\\', other]),
                None => return None,
            },
            _ => word.push(character),
        }
    }
    None
}

/// Writes `word` so that [`word`] reads it back as one word.
pub fn quote(word: &str) -> Cow<'_, str> {
    let plain = !word.is_empty() && !word.starts_with('"') && !word.contains(char::is_whitespace);
    if plain {
        return Cow::Borrowed(word);
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    for character in word.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

/// A `{ … }` group at or after byte `from`: its inner text and where the text after it begins.
/// `Ok(None)` where the next character is not `{`, `Err` where the group is not closed.
pub(crate) fn group(line: &str, from: usize) -> Result<Option<(&str, usize)>, Unclosed> {
    let Some(rest) = line.get(from..) else {
        return Ok(None);
    };
    let open = from + blanks(rest);
    if !line[open..].starts_with('{') {
        return Ok(None);
    }
    let mut depth = 0_usize;
    let mut at = open;
    let mut word_begins = true;
    while let Some(character) = line[at..].chars().next() {
        if word_begins
            && character == '"'
            && let Some((_, length)) = quoted(&line[at..])
        {
            at += length;
            continue;
        }
        at += character.len_utf8();
        word_begins = character.is_whitespace() || character == '{';
        match character {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some((&line[open + 1..at - 1], at)));
                }
            }
            _ => {}
        }
    }
    Err(Unclosed)
}

/// A `{` without its `}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unclosed;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_end_at_white_space() {
        let line = "  set  int\tx ";
        let first = word(line, 0).unwrap();
        assert_eq!((&*first.text, first.start, first.end), ("set", 2, 5));
        assert_eq!(word(line, 5).unwrap().text, "int");
        assert_eq!(word(line, 12), None);
        assert_eq!(word(line, 99), None);
    }

    #[test]
    fn quotes_keep_blanks_and_open_quotes_are_text() {
        assert_eq!(word(r#""a \"b\" c" d"#, 0).unwrap().text, r#"a "b" c"#);
        assert_eq!(word(r#""a b"#, 0).unwrap().text, "\"a");
        assert_eq!(word(r#""a"b c"#, 0).unwrap().text, "\"a\"b");
        assert_eq!(word(r#""""#, 0).unwrap().text, "");
    }

    #[test]
    fn groups_nest_and_must_close() {
        assert_eq!(group(" { a { b } c } d", 0), Ok(Some((" a { b } c ", 14))));
        assert_eq!(group("{}", 0), Ok(Some(("", 2))));
        assert_eq!(group("{ \"}\" }x", 0), Ok(Some((" \"}\" ", 7))));
        assert_eq!(group("{ a", 0), Err(Unclosed));
        assert_eq!(group("a { b }", 0), Ok(None));
        assert_eq!(group("", 0), Ok(None));
    }

    proptest! {
        #[test]
        fn white_space_is_what_unicode_calls_so(text in "([a\u{b}\t \u{1c}\u{85}\u{a0}\u{3000}é]|\\PC){0,12}") {
            prop_assert_eq!(blanks(&text), text.len() - text.trim_start().len());
            prop_assert_eq!(unbroken(&text), text.find(char::is_whitespace).unwrap_or(text.len()));
        }

        #[test]
        fn a_quoted_word_reads_back(text in "\\PC*", blank in "[ a\"\\\\]*") {
            for text in [text, blank] {
                let quoted = quote(&text);
                prop_assert_eq!(&word(&quoted, 0).unwrap().text, &text);
            }
        }
    }
}
