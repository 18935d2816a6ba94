//! Descriptions of commands: `help`, `?`, `choices`, and the reference in Markdown.

use super::tree::{Entry, Tree, join};
use crate::operation::{Align, Notes, Text, TextTable, View};
use crate::request::{Argument, ArgumentHelp};
use serde::Serialize;
use std::fmt::Write as _;

/// One command as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandHelp {
    /// Its words.
    pub path: String,
    /// What may follow them.
    pub syntax: &'static str,
    /// What it does; for words that only lead to others, how many those are.
    pub help: String,
    /// Its arguments, where they are declared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentHelp>,
    /// A line that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<&'static str>,
    /// The operation that it runs, for JSON clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    #[serde(skip)]
    declared: &'static [Argument],
}

/// The answer to `help`, `?` and `choices`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HelpReply {
    /// The command that was asked about, where the words name one.
    pub command: Option<CommandHelp>,
    /// What may follow.
    pub choices: Vec<CommandHelp>,
}

impl HelpReply {
    /// Describes a node: its command and its children, or all commands below it.
    pub(crate) fn new<C>(node: &Tree<C>, path: &str, all: bool) -> Self {
        let choices = if all {
            let own = usize::from(node.entry.is_some());
            node.entries().into_iter().skip(own).map(|entry| describe(entry)).collect()
        } else {
            node.children.iter().map(|(word, child)| child_help(&join(path, word), child)).collect()
        };
        Self { command: node.entry.as_ref().map(|entry| describe(entry)), choices }
    }

    /// Gives commands the lines that run them, by their words.
    pub(crate) fn with_examples(mut self, example: impl Fn(&str) -> Option<&'static str>) -> Self {
        for command in self.command.iter_mut().chain(&mut self.choices) {
            command.example = example(&command.path);
        }
        self
    }
}

fn describe<C>(entry: &Entry<C>) -> CommandHelp {
    let Entry { command, arguments, operation, .. } = entry;
    CommandHelp {
        path: command.path.to_owned(),
        syntax: command.syntax,
        help: command.help.to_owned(),
        arguments: arguments.iter().map(ArgumentHelp::from).collect(),
        example: None,
        operation: *operation,
        declared: arguments,
    }
}

fn child_help<C>(path: &str, node: &Tree<C>) -> CommandHelp {
    match (&node.entry, node.entries().as_slice()) {
        (Some(entry), _) => CommandHelp { path: path.to_owned(), ..describe(entry) },
        (None, [only]) => leading(path, only.command.help.to_owned()),
        (None, many) => leading(path, format!("{} commands", many.len())),
    }
}

/// Words that only lead to others.
fn leading(path: &str, help: String) -> CommandHelp {
    CommandHelp { path: path.to_owned(), syntax: "...", help, arguments: Vec::new(), example: None, operation: None, declared: &[] }
}

impl Text for HelpReply {
    fn text(&self, out: &mut String, _view: &View) {
        if let Some(command) = &self.command {
            let _ = writeln!(out, "{}\n    {}", with_syntax(&command.path, command.syntax), command.help);
            let width = command.declared.iter().map(|argument| argument.syntax.chars().count()).max().unwrap_or(0);
            for argument in command.declared.iter().filter(|argument| !argument.is_hidden()) {
                let _ = writeln!(out, "    {:width$}  {}", argument.syntax, argument.help());
            }
            if let Some(example) = command.example {
                let _ = writeln!(out, "    Example: {example}");
            }
        }
        let lines: Vec<_> = self.choices.iter().map(|choice| with_syntax(&choice.path, choice.syntax)).collect();
        // Wide enough for most; a longer line pushes its own help to the right.
        let width = lines.iter().map(|line| line.chars().count()).filter(|width| *width <= 44).max().unwrap_or(0);
        let table = TextTable::new().column("", 2, Align::Left).column("", width + 1, Align::Left).trim();
        for (line, choice) in lines.iter().zip(&self.choices) {
            table.row(out, &[&"", line, &choice.help]);
        }
    }
}

fn with_syntax(path: &str, syntax: &str) -> String {
    if syntax.is_empty() { path.to_owned() } else { format!("{path} {syntax}") }
}

/// What the reference says first.
const PREFACE: &str = "\
# Commands

Generated from the command tree. Each word may be shortened to what is unique among the words at its level;
arguments come in any order unless the syntax says otherwise. `<x>` is a value, `[ ]` is optional, `|` separates
alternatives. A value without a range takes all that its kind can hold.

Each command has up to two counterparts for programs:

- The **operation** is for `json.sock`: `{\"op\": \"errors_show\", \"request\": {\"zeros\": true}}`. The table of a command's arguments names
  their fields: `paths[].weight` is the field `weight` of each element of the list `paths`, `change.mtu` the field `mtu` within `change`.
  Examples show whole requests, and so does `quiverctl --json \"show configuration\"`. `{\"command\": \"show errors\", \"json\": true}` runs a command as it
  is typed.
- The **message** is for the binary API, which is VPP's ([api.md](api.md)). `cli_inband` runs a command that has no message, and answers with its text.
";

/// The reference of all commands in Markdown, one section for each first word.
pub(crate) fn markdown<C>(
    root: &Tree<C>,
    example: impl Fn(&str) -> Option<(&'static str, Option<String>)>,
    notes: &Notes,
) -> String {
    let mut out = String::from(PREFACE);
    let cell = |text: &str| text.replace('|', "\\|");
    for (word, node) in &root.children {
        let _ = writeln!(out, "\n## {word}\n");
        out.push_str("| command | what it does | message | operation |\n| --- | --- | --- | --- |\n");
        for entry in node.entries() {
            let line = with_syntax(entry.command.path, entry.command.syntax);
            let operation = entry.operation.map(|name| format!("`{name}`")).unwrap_or_default();
            let messages: Vec<_> = notes.messages(entry.command.path).iter().map(|name| format!("`{name}`")).collect();
            let (help, messages) = (cell(entry.command.help), messages.join(", "));
            let _ = writeln!(out, "| `{}` | {help} | {messages} | {operation} |", cell(&line));
        }
        for entry in node.entries() {
            let declared = entry.arguments.iter().filter(|argument| !argument.is_hidden());
            let declared = declared.map(|a| (a.in_brackets(), a.json_field().unwrap_or_default().to_owned(), a.help()));
            let by_hand = notes.arguments(entry.command.path).iter();
            let by_hand =
                by_hand.map(|(argument, field, meaning)| ((*argument).to_owned(), (*field).to_owned(), (*meaning).to_owned()));
            let mut arguments = declared.chain(by_hand).peekable();
            let example = example(entry.command.path);
            if example.is_none() && arguments.peek().is_none() {
                continue;
            }
            let _ = writeln!(out, "\n### {}", entry.command.path);
            if let Some((line, request)) = example {
                let _ = writeln!(out, "\nExample: `{line}`");
                request.iter().for_each(|request| out.push_str(&format!("\nIn JSON: `{request}`\n")));
            }
            if arguments.peek().is_some() {
                out.push_str("\n| argument | field | meaning |\n| --- | --- | --- |\n");
            }
            for (argument, field, meaning) in arguments {
                let _ = writeln!(out, "| `{}` | {field} | {} |", cell(&argument), cell(&meaning));
            }
        }
    }
    if !notes.alone().is_empty() {
        out.push_str("\n## Messages without a command\n\nWhat only programs need: connections, events, whole tables replaced.\n\n");
        notes.alone().iter().for_each(|name| out.push_str(&format!("- `{name}`\n")));
    }
    out
}
