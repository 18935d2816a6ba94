//! The text of a configuration and its words.

use super::ConfigError;
use std::{ops::Range, sync::Arc};

/// Where a configuration comes from, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What errors call it: the file's path.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// The text of a file.
    pub fn file(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The words of a command line, as if they stood in a file on one line.
    pub fn words<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Self {
        let words: Vec<W> = words.into_iter().collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        Self { name: "command line".to_owned(), text: words.join(" ") }
    }

    /// Line and column (both from 1, columns in characters) of a byte.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let mut end = byte.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column)
    }
}

/// A word, or a group of words in braces.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Word(Word),
    Group(Vec<Node>, Range<usize>),
}

impl Node {
    pub(super) fn span(&self) -> Range<usize> {
        match self {
            Self::Word(word) => word.span.clone(),
            Self::Group(_, span) => span.clone(),
        }
    }
}

/// A word and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub text: String,
    pub span: Range<usize>,
}

/// Deeper nesting is nobody's configuration.
const DEEPEST: usize = 32;

/// Takes the text apart into words and groups.
pub(super) fn nodes(source: &Arc<Source>) -> Result<Vec<Node>, ConfigError> {
    let text = source.text.as_str();
    // The groups that are open, each with the place of its brace.
    let mut open: Vec<(Vec<Node>, usize)> = Vec::new();
    let mut nodes = Vec::new();
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        match character {
            '#' => at += text[at..].find('\n').unwrap_or(text.len() - at),
            '{' => {
                if open.len() >= DEEPEST {
                    return Err(ConfigError::new(source, at..at + 1, "groups are nested too deep"));
                }
                open.push((std::mem::take(&mut nodes), at));
                at += 1;
            }
            '}' => {
                at += 1;
                let Some((outer, start)) = open.pop() else {
                    let error = ConfigError::new(source, at - 1..at, "`}' without `{'");
                    return Err(error.help("remove it, or open the group before it"));
                };
                let group = Node::Group(std::mem::replace(&mut nodes, outer), start..at);
                nodes.push(group);
            }
            _ if character.is_whitespace() => at += character.len_utf8(),
            _ => {
                let word = word(text, at);
                at = word.span.end;
                nodes.push(Node::Word(word));
            }
        }
    }
    match open.pop() {
        None => Ok(nodes),
        Some((_, start)) => {
            let error = ConfigError::new(source, start..start + 1, "`{' without `}'");
            Err(error.help("close the group with `}'"))
        }
    }
}

/// The word at `start`: up to white space or a brace, or what double quotes enclose on the line.
fn word(text: &str, start: usize) -> Word {
    let rest = &text[start..];
    if let Some(inner) = rest.strip_prefix('"')
        && let Some(end) = inner.find(['"', '\n'])
        && inner[end..].starts_with('"')
    {
        return Word { text: inner[..end].to_owned(), span: start..start + end + 2 };
    }
    let length = rest.find(|c: char| c.is_whitespace() || matches!(c, '{' | '}')).unwrap_or(rest.len());
    Word { text: rest[..length].to_owned(), span: start..start + length }
}
