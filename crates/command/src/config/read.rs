//! Holds a configuration against its schema.

use super::{
    ConfigError, Notice, Schema, Section, Source, Value,
    schema::{Key, Shape},
    source::{self, Node, Word},
};
use crate::grammar::nearest;
use std::{ops::Range, sync::Arc};

/// A configuration that fits its schema.
#[derive(Debug, Clone)]
pub struct Config {
    pub(super) sections: Vec<(String, Block)>,
    pub(super) notices: Vec<Notice>,
    pub(super) empty: Block,
}

impl Config {
    /// The section of this name; an empty one where the text has none. Where it occurs several times,
    /// everything in it counts, and the last of equal keys.
    pub fn section(&self, name: &str) -> &Block {
        self.sections.iter().find(|(known, _)| known == name).map_or(&self.empty, |(_, block)| block)
    }

    /// Whether the text has this section, be it empty.
    pub fn has(&self, name: &str) -> bool {
        self.sections.iter().any(|(known, _)| known == name)
    }

    /// What was accepted without effect.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// A key as it occurs in the text.
#[derive(Debug, Clone)]
struct Entry {
    key: String,
    value: Option<Value>,
    block: Option<Block>,
}

/// The entries of a section or group, in order.
#[derive(Debug, Clone, Default)]
pub struct Block {
    entries: Vec<Entry>,
}

impl Block {
    /// Whether the key occurs.
    pub fn flag(&self, key: &str) -> bool {
        self.entries(key).next().is_some()
    }

    /// The value of the key, the last where it occurs several times.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values(key).last()
    }

    /// All values of the key.
    pub fn values(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.entries(key).filter_map(|entry| entry.value.as_ref())
    }

    /// The group of the key, the last where it occurs several times.
    pub fn group(&self, key: &str) -> Option<&Block> {
        self.entries(key).filter_map(|entry| entry.block.as_ref()).last()
    }

    /// All names behind the key, each with its group.
    pub fn named(&self, key: &str) -> impl Iterator<Item = (&Value, &Block)> {
        self.entries(key).filter_map(|entry| entry.value.as_ref().zip(entry.block.as_ref()))
    }

    /// All words that are no keys ([`Section::any`]), each with its group.
    pub fn any(&self) -> impl Iterator<Item = (&Value, &Block)> {
        self.named("")
    }

    /// The keys in the order of the text; to know which of two was given last.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }

    fn entries(&self, key: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.key == key)
    }
}

pub(super) fn read(schema: &Schema, source: Arc<Source>) -> Result<Config, ConfigError> {
    let nodes = source::nodes(&source)?;
    let mut reader = Reader { source, notices: Vec::new() };
    let mut sections: Vec<(String, Block)> = Vec::new();
    let mut nodes = Nodes { nodes: &nodes, at: 0 };
    while let Some(node) = nodes.next() {
        let Node::Word(word) = node else {
            let brace = node.span().start;
            let error = reader.error(brace..brace + 1, "a group without a section name before it");
            return Err(error.help("write `unix { ... }'"));
        };
        let Some(section) = schema.sections.iter().find(|section| section.name == word.text) else {
            return Err(reader.unknown_section(schema, word));
        };
        let Some(Node::Group(inside, _)) = nodes.peek() else {
            let error = reader.error(word.span.clone(), format!("section `{}' without its group", word.text));
            return Err(error.help(format!("write `{} {{ ... }}'", word.text)));
        };
        nodes.at += 1;
        if let Some(reason) = section.ignored {
            reader.notice(word.span.clone(), format!("section `{}' has no effect: {reason}", word.text));
        }
        let block = reader.block(section, inside)?;
        match sections.iter_mut().find(|(name, _)| *name == word.text) {
            Some((_, known)) => known.entries.extend(block.entries),
            None => sections.push((word.text.clone(), block)),
        }
    }
    Ok(Config { sections, notices: reader.notices, empty: Block::default() })
}

/// A place among words and groups.
struct Nodes<'n> {
    nodes: &'n [Node],
    at: usize,
}

impl<'n> Nodes<'n> {
    fn peek(&self) -> Option<&'n Node> {
        self.nodes.get(self.at)
    }

    fn next(&mut self) -> Option<&'n Node> {
        let node = self.peek()?;
        self.at += 1;
        Some(node)
    }

    fn next_word(&mut self) -> Option<&'n Word> {
        match self.peek()? {
            Node::Word(word) => {
                self.at += 1;
                Some(word)
            }
            Node::Group(..) => None,
        }
    }

    fn next_group(&mut self) -> Option<&'n [Node]> {
        match self.peek()? {
            Node::Group(inside, _) => {
                self.at += 1;
                Some(inside)
            }
            Node::Word(_) => None,
        }
    }

    /// Whether the words here are those of a key.
    fn begins(&self, key: &Key) -> bool {
        let mut words = key.words.split_ascii_whitespace();
        let mut nodes = self.nodes[self.at..].iter();
        words.all(|word| matches!(nodes.next(), Some(Node::Word(there)) if there.text == word))
    }
}

struct Reader {
    source: Arc<Source>,
    notices: Vec<Notice>,
}

impl Reader {
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.source, span, message)
    }

    fn notice(&mut self, span: Range<usize>, message: String) {
        self.notices.push(Notice::new(self.error(span, message)));
    }

    fn value(&self, key: &str, text: String, span: Range<usize>) -> Value {
        Value { key: key.to_owned(), text, span, source: Arc::clone(&self.source) }
    }

    fn block(&mut self, section: &Section, nodes: &[Node]) -> Result<Block, ConfigError> {
        let mut nodes = Nodes { nodes, at: 0 };
        let mut block = Block::default();
        while let Some(first) = nodes.peek() {
            // `default data-size` before `default`: the longest key that fits is meant.
            let fitting = section.keys.iter().filter(|key| nodes.begins(key));
            let key = fitting.max_by_key(|key| key.words.split_ascii_whitespace().count());
            let entry = match (key, first, &section.any) {
                (Some(key), ..) => self.entry(key, &mut nodes)?,
                (None, Node::Word(word), Some((_, inside))) => {
                    nodes.at += 1;
                    let value = self.value("", word.text.clone(), word.span.clone());
                    let group = nodes.next_group().unwrap_or_default();
                    Entry { key: String::new(), value: Some(value), block: Some(self.block(inside, group)?) }
                }
                (None, Node::Word(word), None) => return Err(self.unknown_key(section, word, &nodes)),
                (None, Node::Group(_, span), _) => {
                    let error = self.error(span.start..span.start + 1, "a group that belongs to no key");
                    return Err(error.help(format!("section `{}' has no group here", section.name)));
                }
            };
            block.entries.push(entry);
        }
        Ok(block)
    }

    fn entry(&mut self, key: &Key, nodes: &mut Nodes<'_>) -> Result<Entry, ConfigError> {
        let start = nodes.peek().map(Node::span).unwrap_or_default();
        nodes.at += key.words.split_ascii_whitespace().count();
        let last = nodes.nodes[..nodes.at].last().map(Node::span).unwrap_or_default();
        let span = start.start..last.end.max(start.end);
        if let Some(reason) = key.ignored {
            self.notice(span.clone(), format!("`{}' has no effect: {reason}", key.words));
        }
        let mut entry = Entry { key: key.words.to_owned(), value: None, block: None };
        let missing = |what: &str| format!("`{}' needs a {what}", key.words);
        match &key.shape {
            Shape::Flag => {}
            Shape::Value(what) => {
                let word = nodes.next_word().ok_or_else(|| self.error(span, missing(what)))?;
                entry.value = Some(self.value(key.words, word.text.clone(), word.span.clone()));
            }
            Shape::List(what) => {
                let word = nodes.next_word().ok_or_else(|| self.error(span, missing(what)))?;
                entry.value = Some(self.list(key.words, word, nodes));
            }
            Shape::Group(section) => {
                let inside = nodes.next_group().ok_or_else(|| self.error(span, missing("group in braces")))?;
                entry.block = Some(self.block(section, inside)?);
            }
            Shape::Named(what, section) => {
                let word = nodes.next_word().ok_or_else(|| self.error(span, missing(what)))?;
                entry.value = Some(self.value(key.words, word.text.clone(), word.span.clone()));
                let inside = nodes.next_group().unwrap_or_default();
                entry.block = Some(self.block(section, inside)?);
            }
            Shape::Anything => nodes.at = nodes.nodes.len(),
        }
        Ok(entry)
    }

    /// Takes further words as long as a comma joins them.
    fn list(&self, key: &str, first: &Word, nodes: &mut Nodes<'_>) -> Value {
        let mut text = first.text.clone();
        let mut span = first.span.clone();
        while let Some(Node::Word(next)) = nodes.peek() {
            if !text.ends_with(',') && !next.text.starts_with(',') {
                break;
            }
            text.push_str(&next.text);
            span.end = next.span.end;
            nodes.at += 1;
        }
        self.value(key, text, span)
    }

    fn unknown_section(&self, schema: &Schema, word: &Word) -> ConfigError {
        let known = || schema.sections.iter().map(|section| section.name);
        let error = self.error(word.span.clone(), format!("unknown section `{}'", word.text));
        if let Some(meant) = nearest(&word.text, known()) {
            return error.help(format!("did you mean `{meant}'?"));
        }
        // A key without its section is a common slip.
        let has_key = |section: &&Section| section.keys.iter().any(|key| key.words == word.text);
        match schema.sections.iter().find(has_key) {
            Some(section) => error.help(format!("write `{} {{ {} ... }}'", section.name, word.text)),
            None => error.help(format!("sections are {}", some(known()))),
        }
    }

    fn unknown_key(&self, section: &Section, word: &Word, nodes: &Nodes<'_>) -> ConfigError {
        let place = if section.name.is_empty() { "here".to_owned() } else { format!("in section `{}'", section.name) };
        let known = || section.keys.iter().map(|key| key.words);
        // The first word of a longer key may be right: then it is the second that is unknown.
        let begun = known().filter(|key| key.split_ascii_whitespace().next() == Some(&word.text));
        let begun: Vec<_> = begun.collect();
        if !begun.is_empty() {
            let span = nodes.nodes.get(nodes.at + 1).map_or(word.span.clone(), Node::span);
            let error = self.error(span, format!("unknown key after `{}' {place}", word.text));
            return error.help(format!("expected {}", some(begun.into_iter())));
        }
        let error = self.error(word.span.clone(), format!("unknown key `{}' {place}", word.text));
        match nearest(&word.text, known()) {
            Some(meant) => error.help(format!("did you mean `{meant}'?")),
            None if section.keys.is_empty() => error.help("nothing may stand here"),
            None => error.help(format!("keys are {}", some(known()))),
        }
    }
}

/// Some of the words, for a help text.
fn some<'a>(words: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 12;
    let mut words: Vec<_> = words.map(|word| format!("`{word}'")).collect();
    words.sort_unstable();
    if words.len() > MOST {
        words.truncate(MOST);
        words.push("...".to_owned());
    }
    words.join(", ")
}
