//! What may stand where the cursor is.

use super::{
    args::Args,
    lexer,
    probe::{Probe, Wanted},
    syntax::Syntax,
    tree::{Entry, Head, Tree, head},
};
use crate::contain::contain;
use crate::request::Argument;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

/// A text that may stand at the cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The whole word.
    pub text: String,
    /// What it is, in a few words; may be empty.
    pub help: String,
}

/// The answer to a completion request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Byte offset of the word under the cursor; the candidates replace the text from there to the cursor.
    pub start: usize,
    /// What may stand there, sorted.
    pub candidates: Vec<Candidate>,
    /// Kinds of value that may stand there, `<n>`, with what is known of them. They are for people: nothing to insert.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Candidate>,
}

impl Completion {
    /// The candidates and hints as lines for people.
    pub fn lines(&self) -> Vec<String> {
        let all = || self.hints.iter().chain(&self.candidates);
        let width = all().map(|c| c.text.chars().count()).max().unwrap_or(0);
        let line = |c: &Candidate| format!("  {:width$}  {}", c.text, c.help).trim_end().to_owned();
        let lines: Vec<String> = all().map(line).collect();
        if lines.is_empty() { vec!["  nothing is known to follow here".to_owned()] } else { lines }
    }
}

/// Gives the candidates for the word that ends at byte `cursor`; `values` gives the names of a kind of
/// value (`if`).
pub(crate) fn complete<C: 'static>(
    root: &Tree<C>,
    line: &str,
    cursor: usize,
    control: &C,
    mut values: impl FnMut(&str) -> Vec<String>,
) -> Completion {
    let mut cursor = cursor.min(line.len());
    while !line.is_char_boundary(cursor) {
        cursor -= 1;
    }
    let line = &line[..cursor];
    let start = line.rfind(char::is_whitespace).map_or(0, |at| at + line[at..].chars().next().map_or(0, char::len_utf8));
    let (before, typed) = line.split_at(start);

    let mut node = root;
    let mut arguments = before;
    while let Head::Word(word, rest) = head(arguments) {
        // `help` and the like: what follows is completed as if they were not there.
        if matches!(word, "help" | "choices") {
            arguments = rest;
            continue;
        }
        let Some((_, child)) = node.child(word) else {
            break;
        };
        (node, arguments) = (child, rest);
    }

    let mut found = Found { typed, candidates: BTreeMap::new(), hints: Vec::new() };
    if arguments.trim().is_empty() {
        for (word, child) in node.matching(typed) {
            found.add(word, child.entry.as_ref().map_or("", |entry| entry.command.help));
        }
    }
    if let Some(entry) = &node.entry {
        let wanted = wanted(entry, arguments, control);
        match wanted.is_empty() {
            // What goes before is not what the parser takes, or it takes all that is left as it is.
            true => found.add_unread(&entry.syntax, arguments, &mut values),
            false => found.add_wanted(entry, arguments, &wanted, &mut values),
        }
    }
    let candidates = found.candidates.into_iter().map(|(text, help)| Candidate { text, help }).collect();
    Completion { start, candidates, hints: found.hints }
}

/// What the command's parser tries behind these arguments.
fn wanted<C: 'static>(entry: &Entry<C>, arguments: &str, control: &C) -> Vec<Wanted> {
    let probe = Probe::default();
    let mut args = Args::of_command(entry.command.path, arguments, &entry.syntax).with_probe(&probe);
    let parsed = contain(|| entry.parse(&mut args, control).map(drop));
    // It fails: a word is said to follow that it cannot take.
    drop(parsed);
    probe.into_wanted()
}

struct Found<'a> {
    typed: &'a str,
    candidates: BTreeMap<String, String>,
    hints: Vec<Candidate>,
}

impl Found<'_> {
    fn add(&mut self, text: &str, help: &str) {
        if text.starts_with(self.typed) {
            self.candidates.entry(text.to_owned()).or_insert_with(|| help.to_owned());
        }
    }

    fn add_wanted<C>(
        &mut self,
        entry: &Entry<C>,
        arguments: &str,
        wanted: &[Wanted],
        values: &mut impl FnMut(&str) -> Vec<String>,
    ) {
        let typed = words(arguments);
        let repeats = entry.syntax.text().contains("...");
        // Declared arguments are not asked for twice; another parser asks in its loop for all.
        let again = |keyword: &str| repeats || !typed.iter().any(|word| entry.syntax.keyword(word) == Some(keyword));
        for wanted in wanted {
            match wanted {
                Wanted::Keyword(keyword) => {
                    let declared = entry.arguments.iter().find(|argument| argument.leads().any(|word| word == keyword));
                    if declared.is_some() || again(keyword) {
                        self.add(keyword, &declared.map(Argument::help).unwrap_or_default());
                    }
                }
                Wanted::Value { what, argument } => {
                    let kinds = match argument.as_ref().map(Argument::placeholder) {
                        Some(placeholder) => placeholder.into_iter().collect(),
                        None => kinds(&entry.syntax, &typed),
                    };
                    let name = if kinds.len() == 1 { kinds[0] } else { what };
                    let help = argument.as_ref().map_or_else(|| what.clone(), Argument::help);
                    self.hints.push(Candidate { text: format!("<{name}>"), help });
                    self.add_values(kinds, values);
                }
            }
        }
    }

    /// By the syntax line alone: keywords that are not there yet, and names of values.
    fn add_unread(&mut self, syntax: &Syntax, arguments: &str, values: &mut impl FnMut(&str) -> Vec<String>) {
        let typed = words(arguments);
        let last = typed.last().and_then(|word| syntax.keyword(word));
        if last.is_none_or(|keyword| syntax.values_after(keyword).is_empty()) {
            let repeats = syntax.text().contains("...");
            let open = syntax.keywords().iter();
            for keyword in open.filter(|keyword| repeats || !typed.iter().any(|word| syntax.keyword(word) == Some(keyword))) {
                self.add(keyword, "");
            }
        }
        self.add_values(kinds(syntax, &typed), values);
    }

    fn add_values(&mut self, kinds: Vec<&str>, values: &mut impl FnMut(&str) -> Vec<String>) {
        for kind in kinds {
            values(kind).iter().for_each(|name| self.add(name, kind));
        }
    }
}

/// The kinds of value that may follow, by the syntax line.
fn kinds(syntax: &Syntax, typed: &[Cow<'_, str>]) -> Vec<&'static str> {
    let last = typed.last().and_then(|word| syntax.keyword(word));
    let mut kinds = last.map(|keyword| syntax.values_after(keyword)).unwrap_or_default();
    if kinds.is_empty() {
        kinds = syntax.free_values();
    }
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn words(arguments: &str) -> Vec<Cow<'_, str>> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(word) = lexer::word(arguments, at) {
        at = word.end;
        words.push(word.text);
    }
    words
}
