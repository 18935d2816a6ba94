//! Splits a file into commands.

use std::io::{BufRead, Read};

/// The longest command, joined lines included, in bytes. It bounds what a file without line ends, or
/// with a `{` that is never closed, can take.
const LONGEST_COMMAND: usize = 1 << 20;

/// A command and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Number of its first line in the file, from 1.
    pub number: u64,
    /// The command on one line, without comments and surrounding white space.
    pub command: String,
}

/// Why a script cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file could not be read.
    #[error("line {number}: {error}")]
    Read {
        /// The line that was to be read.
        number: u64,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is not text.
    #[error("line {number}: not UTF-8 text")]
    NotText {
        /// The offending line.
        number: u64,
    },
    /// A command exceeds the bound.
    #[error("line {number}: command longer than {LONGEST_COMMAND} bytes; is a `{{' not closed?")]
    TooLong {
        /// Where it begins.
        number: u64,
    },
    /// The file ends within a group.
    #[error("line {number}: `{{' is not closed")]
    Unclosed {
        /// Where the command begins.
        number: u64,
    },
}

/// Streams the commands of a text; the memory it takes does not depend on the text's length.
///
/// ```
/// use quiver_command::script::Script;
/// let text = "# comment\nip route add 10.0.0.0/8 \\\n    via 10.1.0.1   # why\n\nshow ip fib\n";
/// let commands: Vec<_> = Script::new(text.as_bytes()).map(|line| line.unwrap()).collect();
/// assert_eq!(commands[0].command, "ip route add 10.0.0.0/8 via 10.1.0.1");
/// assert_eq!((commands[0].number, commands[1].number), (2, 5));
/// ```
#[derive(Debug)]
pub struct Script<R> {
    reader: R,
    number: u64,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> Script<R> {
    /// Reads from `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader, number: 0, buffer: Vec::new(), ended: false }
    }

    /// Reads one line of the file into the buffer; false at the end.
    fn read_line(&mut self) -> Result<bool, ScriptError> {
        self.buffer.clear();
        self.number += 1;
        let number = self.number;
        let mut bounded = Read::take(&mut self.reader, LONGEST_COMMAND as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.buffer).map_err(|error| ScriptError::Read { number, error })?;
        if read > LONGEST_COMMAND {
            return Err(ScriptError::TooLong { number });
        }
        Ok(read > 0)
    }

    fn next_command(&mut self) -> Result<Option<Line>, ScriptError> {
        let mut command = String::new();
        let mut first = 0;
        let mut braces = 0_usize;
        while self.read_line()? {
            let number = self.number;
            let text = std::str::from_utf8(&self.buffer).map_err(|_| ScriptError::NotText { number })?;
            let (whole, (text, depth)) = (text, without_comment(text, braces));
            braces = depth;
            let (text, joined) = match text.trim_end().strip_suffix('\\') {
                Some(text) => (text.trim(), true),
                // A line that is only a comment does not end the command that it stands in.
                None => (text.trim(), text.trim().is_empty() && text.len() < whole.len()),
            };
            if command.is_empty() {
                first = number;
            } else if !text.is_empty() {
                command.push(' ');
            }
            command.push_str(text);
            if command.len() > LONGEST_COMMAND {
                return Err(ScriptError::TooLong { number: first });
            }
            if !joined && braces == 0 && !command.is_empty() {
                return Ok(Some(Line { number: first, command }));
            }
        }
        match (command.is_empty(), braces) {
            (true, _) => Ok(None),
            (false, 0) => Ok(Some(Line { number: first, command })),
            (false, _) => Err(ScriptError::Unclosed { number: first }),
        }
    }
}

impl<R: BufRead> Iterator for Script<R> {
    type Item = Result<Line, ScriptError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_command().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The line up to its comment, and the depth of braces at its end when it begins at `depth`. Quoted
/// words hide both.
fn without_comment(line: &str, mut depth: usize) -> (&str, usize) {
    if !line.bytes().any(|byte| matches!(byte, b'#' | b'{' | b'}')) {
        return (line, depth);
    }
    let mut word_begins = true;
    let mut quoted = false;
    let mut escaped = false;
    for (at, character) in line.char_indices() {
        match character {
            '\\' if quoted => {
                escaped = !escaped;
                continue;
            }
            '"' if quoted && !escaped => quoted = false,
            '"' if word_begins && closes(&line[at + 1..]) => quoted = true,
            '#' if word_begins && !quoted => return (&line[..at], depth),
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = false;
        word_begins = character.is_whitespace() || character == '{';
    }
    (line, depth)
}

/// Whether a quote that was opened before `text` is closed in it.
fn closes(text: &str) -> bool {
    let mut escaped = false;
    text.chars().any(|character| {
        let closing = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        closing
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(text: &str) -> Vec<(u64, String)> {
        Script::new(text.as_bytes()).map(|line| line.unwrap()).map(|line| (line.number, line.command)).collect()
    }

    fn only(text: &str) -> String {
        let found = commands(text);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].1.clone()
    }

    #[test]
    fn comments_begin_where_a_word_begins() {
        assert_eq!(commands("# a\n  # b\n\n"), []);
        assert_eq!(only("show version # why"), "show version");
        assert_eq!(only("set interface tag pg0 a#b"), "set interface tag pg0 a#b");
        assert_eq!(only("set interface tag pg0 \"a # b\" # c"), "set interface tag pg0 \"a # b\"");
        assert_eq!(commands("a # x \\\nb"), [(1, "a".into()), (2, "b".into())]);
    }

    #[test]
    fn a_backslash_joins_lines_with_one_blank() {
        assert_eq!(only("a \\\n\t  b\\\nc \\  \n d"), "a b c d");
        assert_eq!(only("a \\\n # comment \n b"), "a b");
        assert_eq!(commands("a \\\n\nb"), [(1, "a".into()), (3, "b".into())]);
        assert_eq!(only("a \\"), "a");
        assert_eq!(only("a\r\n"), "a");
    }

    #[test]
    fn an_open_brace_joins_lines() {
        let text = "packet-generator new {\n  name x   # the name\n  data { hex 0x00 }\n}\nshow version\n";
        let expected = [(1, "packet-generator new { name x data { hex 0x00 } }".to_owned()), (5, "show version".to_owned())];
        assert_eq!(commands(text), expected);
        assert!(matches!(Script::new("a {\n".as_bytes()).next(), Some(Err(ScriptError::Unclosed { number: 1 }))));
    }

    #[test]
    fn what_is_no_text_or_too_long_ends_the_script() {
        let mut script = Script::new(&b"a\n\xff\nb\n"[..]);
        assert!(matches!(script.next(), Some(Ok(_))));
        assert!(matches!(script.next(), Some(Err(ScriptError::NotText { number: 2 }))));
        assert!(script.next().is_none());
        let long = vec![b'a'; LONGEST_COMMAND + 1];
        assert!(matches!(Script::new(&long[..]).next(), Some(Err(ScriptError::TooLong { number: 1 }))));
        let many = "{ a\n".repeat(LONGEST_COMMAND / 3);
        assert!(matches!(Script::new(many.as_bytes()).next(), Some(Err(ScriptError::TooLong { number: 1 }))));
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_no_command_has_line_ends(text in "([a-c{}#\"\\\\ ]|\\n|\\PC){0,60}") {
            for line in Script::new(text.as_bytes()).flatten() {
                prop_assert!(!line.command.contains('\n') && !line.command.is_empty());
            }
        }

        #[test]
        fn plain_lines_come_out_as_they_are(lines in prop::collection::vec("[a-z][a-z0-9 /.]{0,20}[a-z]", 0..20)) {
            let numbered: Vec<_> = lines.iter().cloned().enumerate().map(|(at, line)| (at as u64 + 1, line)).collect();
            prop_assert_eq!(commands(&lines.join("\n")), numbered);
        }
    }
}
