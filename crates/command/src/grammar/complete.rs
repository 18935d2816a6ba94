//! What may stand where the cursor is.

use super::{
    lexer,
    syntax::Syntax,
    tree::{Head, Tree, head},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A text that may stand at the cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The whole word.
    pub text: String,
    /// What it is, in a few words; may be empty.
    pub help: String,
}

/// The answer to a completion request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Byte offset of the word under the cursor; the candidates replace the text from there to the cursor.
    pub start: usize,
    /// What may stand there, sorted.
    pub candidates: Vec<Candidate>,
}

/// Gives the candidates for the word that ends at byte `cursor`; `values` gives the names of a kind of
/// value (`if`).
pub(crate) fn complete<C>(root: &Tree<C>, line: &str, cursor: usize, mut values: impl FnMut(&str) -> Vec<String>) -> Completion {
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

    let mut found = BTreeMap::new();
    if arguments.trim().is_empty() {
        for (word, child) in node.matching(typed) {
            let help = child.entry.as_ref().map_or("", |entry| entry.command.help);
            found.insert(word.to_owned(), help.to_owned());
        }
    }
    if let Some(entry) = &node.entry {
        for candidate in argument_candidates(&entry.syntax, arguments, &mut values) {
            if candidate.text.starts_with(typed) {
                found.entry(candidate.text).or_insert(candidate.help);
            }
        }
    }
    let candidates = found.into_iter().map(|(text, help)| Candidate { text, help }).collect();
    Completion { start, candidates }
}

fn argument_candidates(syntax: &Syntax, arguments: &str, values: &mut impl FnMut(&str) -> Vec<String>) -> Vec<Candidate> {
    let mut typed = Vec::new();
    let mut at = 0;
    while let Some(word) = lexer::word(arguments, at) {
        at = word.end;
        typed.push(word.text);
    }
    let mut found = Vec::new();
    let last = typed.last().and_then(|word| syntax.keyword(word));
    let mut kinds = last.map(|keyword| syntax.values_after(keyword)).unwrap_or_default();
    if kinds.is_empty() {
        kinds = syntax.free_values();
        let repeats = syntax.text().contains("...");
        let open =
            syntax.keywords().iter().filter(|keyword| repeats || !typed.iter().any(|word| syntax.keyword(word) == Some(keyword)));
        found.extend(open.map(|keyword| Candidate { text: (*keyword).to_owned(), help: String::new() }));
    }
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        found.extend(values(kind).into_iter().map(|text| Candidate { text, help: kind.to_owned() }));
    }
    found
}
