//! The tree of command words.

use super::{Args, command::Command, lexer, suggest::nearest, syntax::Syntax};
use crate::operation::{Dynamic, Invocation, OpError};
use crate::request::Argument;
use std::{collections::BTreeMap, ops::Bound, rc::Rc};

/// A command with its syntax string taken apart.
pub(crate) struct Entry<C> {
    pub(crate) command: Command<C>,
    pub(crate) syntax: Syntax,
    /// Its arguments, where they are declared.
    pub(crate) arguments: &'static [Argument],
    /// The operation whose request it makes, where that is declared.
    pub(crate) operation: Option<&'static str>,
    /// That operation, where it was declared while the program runs.
    pub(crate) dynamic: Option<Rc<Dynamic<C>>>,
}

impl<C: 'static> Entry<C> {
    /// Reads the arguments.
    pub(crate) fn parse(&self, args: &mut Args<'_>, control: &C) -> Result<Invocation<C>, OpError> {
        match &self.dynamic {
            Some(operation) => Ok(Invocation::dynamic(Rc::clone(operation), operation.request.parse(args)?)),
            None => (self.command.parse)(args, control),
        }
    }
}

/// A word of the tree: what it leads to, and its own command.
pub(crate) struct Tree<C> {
    pub(crate) children: BTreeMap<&'static str, Tree<C>>,
    pub(crate) entry: Option<Entry<C>>,
}

/// Where the words of a line lead.
pub(crate) enum Resolved<'t, 'l, C> {
    /// To a command and the text behind its words.
    Command(&'t Entry<C>, &'l str),
    /// To a request for help about this node; `all` for every command below it.
    Help { node: &'t Tree<C>, path: String, all: bool },
    /// To nothing: `comment { … }`.
    Comment,
    /// To this text, to be read in the place of what followed `path`.
    Uncomment { path: String, text: &'l str },
}

/// The words that led to a node, last first. They are put into a text only where one is asked for.
struct Trail<'a> {
    word: &'static str,
    before: Option<&'a Trail<'a>>,
}

impl Trail<'_> {
    fn text(last: Option<&Self>) -> String {
        last.map_or_else(String::new, |last| join(&Self::text(last.before), last.word))
    }
}

/// Why words lead nowhere.
struct Lost {
    /// The words that were understood.
    path: String,
    error: OpError,
}

/// The first word of a text, as far as it can be a word of the tree.
pub(crate) enum Head<'l> {
    End,
    Word(&'l str, &'l str),
    Other,
}

impl<C> Default for Tree<C> {
    fn default() -> Self {
        Self { children: BTreeMap::new(), entry: None }
    }
}

impl<C> Tree<C> {
    /// Adds a command; says what is wrong with its declaration.
    pub(crate) fn insert(
        &mut self,
        command: Command<C>,
        arguments: &'static [Argument],
        operation: Option<&'static str>,
    ) -> Result<&mut Entry<C>, String> {
        let mut node = self;
        let mut words = 0;
        for word in command.path.split_ascii_whitespace() {
            if !word.chars().all(is_word_character) || is_builtin(word) {
                return Err(format!("command `{}': `{word}' cannot be a command word", command.path));
            }
            node = node.children.entry(word).or_default();
            words += 1;
        }
        if words == 0 {
            return Err("a command needs at least one word".to_owned());
        }
        if node.entry.is_some() {
            return Err(format!("command `{}' is declared twice", command.path));
        }
        if command.path.len() != command.path.split_ascii_whitespace().map(|word| word.len() + 1).sum::<usize>() - 1 {
            return Err(format!("command `{}': more than one blank between its words", command.path));
        }
        Ok(node.entry.insert(Entry { command, syntax: Syntax::new(command.syntax), arguments, operation, dynamic: None }))
    }

    /// The child that a typed word means: the word itself, or the only one that it begins.
    pub(crate) fn child(&self, typed: &str) -> Option<(&'static str, &Self)> {
        let mut matching = self.matching(typed);
        match (matching.next(), matching.next()) {
            (Some((word, child)), None) => Some((word, child)),
            (Some((word, child)), Some(_)) if word == typed => Some((word, child)),
            _ => None,
        }
    }

    /// The children whose words a typed word begins; an exact one comes first.
    pub(crate) fn matching(&self, typed: &str) -> impl Iterator<Item = (&'static str, &Self)> {
        self.children
            .range::<str, _>((Bound::Included(typed), Bound::Unbounded))
            .take_while(move |(word, _)| word.starts_with(typed))
            .map(|(word, child)| (*word, child))
    }

    /// Follows the words of `line` from the root.
    pub(crate) fn resolve<'l>(&self, line: &'l str) -> Result<Resolved<'_, 'l, C>, OpError> {
        self.follow(None, line).map_err(|lost| lost.error.in_command(&lost.path))
    }

    fn follow<'l>(&self, path: Option<&Trail<'_>>, text: &'l str) -> Result<Resolved<'_, 'l, C>, Lost> {
        let first = head(text);
        if let Some(builtin) = self.builtin(path, text, &first)? {
            return Ok(builtin);
        }
        let typed = match first {
            Head::Word(typed, rest) => Some((typed, rest)),
            Head::End | Head::Other => None,
        };
        let below = typed.and_then(|(typed, rest)| {
            let (word, child) = self.child(typed)?;
            Some(child.follow(Some(&Trail { word, before: path }), rest))
        });
        match (below, &self.entry) {
            (Some(Ok(found)), _) => Ok(found),
            (_, Some(entry)) => Ok(Resolved::Command(entry, text)),
            (Some(Err(lost)), None) => Err(lost),
            (None, None) => Err(self.lost(&Trail::text(path), text, typed.map(|(typed, _)| typed))),
        }
    }

    /// The words that work at any level; `first` is the head of `text`.
    fn builtin<'l>(&self, path: Option<&Trail<'_>>, text: &'l str, first: &Head<'l>) -> Result<Option<Resolved<'_, 'l, C>>, Lost> {
        let (word, rest) = match first {
            Head::Word(word, rest) if is_builtin(word) => (*word, *rest),
            Head::Other => match text.trim_start().strip_prefix('?') {
                Some(rest) => ("?", rest),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let (begins, path) = (path.is_none(), &Trail::text(path));
        // `show version ?` asks about the command, not for the version of `?`.
        let (about, all) = match (word, rest.trim()) {
            ("?", "") => ("", false),
            ("help", about) => (about, false),
            ("choices", about) => (about, true),
            ("comment" | "uncomment" | "vpplog" | "leak-check", _) => {
                let inner = match lexer::group(rest, 0) {
                    Ok(Some((inner, end))) if rest[end..].trim().is_empty() => inner,
                    Ok(Some((_, end))) => {
                        return Err(lost_at(path, OpError::unknown_input(rest[end..].trim())));
                    }
                    // A word of a command's: `commit comment TEXT`.
                    Ok(None) if !begins => return Ok(None),
                    Ok(None) | Err(lexer::Unclosed) => {
                        let error = OpError::unspecified(format!("`{word}' needs a group"));
                        return Err(lost_at(path, error.remedy(format!("write `{word} {{ ... }}'"))));
                    }
                };
                return Ok(Some(match word {
                    "comment" => Resolved::Comment,
                    _ => Resolved::Uncomment { path: path.to_owned(), text: inner },
                }));
            }
            _ => return Ok(None),
        };
        let (node, path) = self.describe(path, about.trim_end_matches('?'))?;
        Ok(Some(Resolved::Help { node, path, all }))
    }

    /// The node that words lead to, for help about it; arguments behind a command do not matter.
    fn describe(&self, path: &str, words: &str) -> Result<(&Self, String), Lost> {
        let (mut node, mut path, mut text) = (self, path.to_owned(), words);
        loop {
            match head(text) {
                Head::Word(typed, rest) => match node.child(typed) {
                    Some((word, child)) => (node, path, text) = (child, join(&path, word), rest),
                    None if node.entry.is_some() => return Ok((node, path)),
                    None => return Err(node.lost(&path, text, Some(typed))),
                },
                Head::End => return Ok((node, path)),
                Head::Other if node.entry.is_some() => return Ok((node, path)),
                Head::Other => return Err(node.lost(&path, text, None)),
            }
        }
    }

    fn lost(&self, path: &str, text: &str, typed: Option<&str>) -> Lost {
        let text = text.trim();
        if text.is_empty() {
            let error = OpError::unspecified("incomplete command");
            return lost_at(path, error.remedy(format!("expected {}", self.some_children())));
        }
        if let Some(typed) = typed
            && self.matching(typed).nth(1).is_some()
        {
            let words: Vec<_> = self.matching(typed).map(|(word, _)| format!("`{word}'")).collect();
            let error = OpError::unspecified(format!("ambiguous input `{typed}'")).value(typed);
            return lost_at(path, error.remedy(format!("it begins {}", words.join(", "))));
        }
        let error = OpError::unknown_input(text);
        let meant = text.split_whitespace().next().and_then(|word| self.hint(word));
        lost_at(
            path,
            match meant {
                Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
                None if path.is_empty() => error.remedy("`?' lists the commands"),
                None => error.remedy(format!("expected {}", self.some_children())),
            },
        )
    }

    /// The child word nearest to a mistyped one.
    pub(crate) fn hint(&self, typed: &str) -> Option<&'static str> {
        let exact_or_begun = self.matching(typed).next().is_some();
        if exact_or_begun { None } else { nearest(typed, self.children.keys().copied()) }
    }

    fn some_children(&self) -> String {
        const MOST: usize = 8;
        let mut words: Vec<_> = self.children.keys().take(MOST).map(|word| format!("`{word}'")).collect();
        if self.children.len() > MOST {
            words.push("...".to_owned());
        }
        words.join(", ")
    }

    /// All commands at and below this node, in order of their words.
    pub(crate) fn entries(&self) -> Vec<&Entry<C>> {
        let mut found = Vec::new();
        let mut open = vec![self];
        while let Some(node) = open.pop() {
            found.extend(&node.entry);
            open.extend(node.children.values().rev());
        }
        found
    }
}

fn lost_at(path: &str, error: OpError) -> Lost {
    Lost { path: path.to_owned(), error }
}

pub(crate) fn join(path: &str, word: &str) -> String {
    if path.is_empty() { word.to_owned() } else { format!("{path} {word}") }
}

/// Takes the first word apart. `show?` is the word `show` and then `?`.
pub(crate) fn head(text: &str) -> Head<'_> {
    let text = text.trim_start();
    let end = text.bytes().position(|byte| !is_word_character(byte.into())).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let ends = rest.is_empty() || rest.starts_with(char::is_whitespace) || rest.trim_end() == "?";
    match (text.is_empty(), word.is_empty() || !ends) {
        (true, _) => Head::End,
        (false, true) => Head::Other,
        (false, false) => Head::Word(word, rest),
    }
}

fn is_word_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_')
}

fn is_builtin(word: &str) -> bool {
    matches!(word, "help" | "choices" | "comment" | "uncomment" | "vpplog" | "leak-check")
}
