//! What the reference of commands says beyond their declarations: messages of a binary API, and arguments of parsers by hand.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::Registry;
use crate::change_log::Record;
use crate::grammar::{Parsed, markdown};

/// An argument of a command whose parser is written by hand: as the syntax has it, its field in the request, what it means.
pub type Argument = (&'static str, &'static str, &'static str);

/// What is said of commands, by their words.
#[derive(Default)]
pub(crate) struct Notes {
    messages: BTreeMap<&'static str, &'static [&'static str]>,
    alone: BTreeSet<&'static str>,
    arguments: BTreeMap<&'static str, &'static [Argument]>,
}

impl Notes {
    /// The messages that do what a command does.
    pub(crate) fn messages(&self, command: &str) -> &'static [&'static str] {
        self.messages.get(command).copied().unwrap_or_default()
    }

    /// The arguments of a command whose parser is written by hand.
    pub(crate) fn arguments(&self, command: &str) -> &'static [Argument] {
        self.arguments.get(command).copied().unwrap_or_default()
    }

    /// Messages that no command stands for.
    pub(crate) fn alone(&self) -> &BTreeSet<&'static str> {
        &self.alone
    }
}

impl<C: 'static> Registry<C> {
    /// Says which messages of the binary API do what commands do.
    pub fn messages(&mut self, all: &[(&'static str, &'static [&'static str])]) -> &mut Self {
        self.notes.messages.extend(all.iter().copied());
        self
    }

    /// Names messages of the binary API that no command stands for.
    pub fn messages_without_command(&mut self, all: &[&'static str]) -> &mut Self {
        self.notes.alone.extend(all);
        self
    }

    /// Describes arguments of commands whose parsers are written by hand.
    pub fn arguments(&mut self, all: &[(&'static str, &'static [Argument])]) -> &mut Self {
        self.notes.arguments.extend(all.iter().copied());
        self
    }

    /// The reference of all commands, in Markdown. `control` is for parsers, which may look at it.
    pub fn markdown(&self, control: &C) -> String {
        let example = |path: &str| {
            let line = self.example(path)?;
            let request = match self.parse(line, control) {
                Ok(Parsed::Run(invocation, _)) => invocation.record().ok(),
                _ => None,
            };
            Some((
                line,
                request.map(|Record { operation, request }| format!("{{\"op\": \"{operation}\", \"request\": {request}}}")),
            ))
        };
        markdown(&self.tree, example, &self.notes)
    }

    /// Where the reference does not agree with the commands, or with the messages that something answers; each with what to do.
    pub fn reference_problems(&self, answered: &[&'static str]) -> Vec<String> {
        let mut problems = Vec::new();
        self.check_messages(answered, &mut problems);
        self.check_arguments(&mut problems);
        problems
    }

    fn check_messages(&self, answered: &[&'static str], problems: &mut Vec<String>) {
        let commands: BTreeSet<&str> = self.tree.entries().iter().map(|entry| entry.command.path).collect();
        let mut named = self.notes.alone.clone();
        for (command, messages) in &self.notes.messages {
            if !commands.contains(command) {
                problems.push(format!("messages of `{command}': there is no such command"));
            }
            named.extend(*messages);
        }
        let missing = answered.iter().filter(|message| !named.contains(*message));
        problems.extend(missing.map(|message| {
            format!("message {message}: name its command (`messages') or say that it has none (`messages_without_command')")
        }));
        let gone = named.iter().filter(|message| !answered.contains(message));
        problems.extend(gone.map(|message| format!("message {message} is named, but nothing answers it")));
    }

    fn check_arguments(&self, problems: &mut Vec<String>) {
        let entries = self.tree.entries();
        for path in self.notes.arguments.keys() {
            let declared = entries.iter().find(|entry| entry.command.path == *path).map(|entry| !entry.arguments.is_empty());
            match declared {
                None => problems.push(format!("arguments of `{path}': there is no such command")),
                Some(true) => problems.push(format!("arguments of `{path}': its request declares them")),
                Some(false) => {}
            }
        }
        for entry in entries.iter().filter(|entry| entry.arguments.is_empty()) {
            let (path, described) = (entry.command.path, self.notes.arguments(entry.command.path));
            let (taken, told) =
                (words(entry.command.syntax), described.iter().flat_map(|(argument, ..)| words(argument)).collect());
            for word in taken.symmetric_difference(&told) {
                let problem =
                    if told.contains(word) { "is described, but not in the syntax" } else { "is not described (`arguments')" };
                problems.push(format!("argument `{word}' of `{path}' {problem}"));
            }
            for (argument, field, _) in described.iter().filter(|(_, field, _)| !field.is_empty()) {
                problems.extend(
                    entry
                        .operation
                        .and_then(|name| self.no_field(name, field))
                        .map(|error| format!("`{path} {argument}': {error}")),
                );
            }
        }
    }

    /// Why requests of an operation have no such field (`paths[].weight`), where they have none.
    fn no_field(&self, operation: &str, field: &str) -> Option<String> {
        let request = field.rsplit('.').fold(Value::Null, |inner, name| {
            let inner = if name.ends_with("[]") { json!([inner]) } else { inner };
            Value::Object(Map::from_iter([(name.trim_end_matches("[]").to_owned(), inner)]))
        });
        let error = self.request(operation, request).err()?.to_string();
        ["unknown field", "unknown variant"].iter().any(|unknown| error.contains(unknown)).then_some(error)
    }
}

/// The keywords and values of a syntax, each once.
fn words(syntax: &str) -> BTreeSet<&str> {
    let is_mark = |c: char| c.is_whitespace() || "[]{}|,/()".contains(c);
    syntax
        .split(is_mark)
        .flat_map(|word| word.split_inclusive('>'))
        .map(|word| word.trim_matches([':', '-', '.']))
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_syntax_is_taken_apart_into_keywords_and_values() {
        let found: Vec<_> = words("[del] <ip4>:<port>|any [via ...] <min>-<max> data {...} arp-term 1-1").into_iter().collect();
        assert_eq!(found, ["1-1", "<ip4>", "<max>", "<min>", "<port>", "any", "arp-term", "data", "del", "via"]);
    }
}
