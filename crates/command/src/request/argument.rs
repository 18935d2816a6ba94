//! What a declaration says about one argument.

use super::Field;
use crate::operation::OpError;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Whether an argument must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Once.
    Required,
    /// Once or not at all.
    Optional,
    /// Any number of times.
    Repeated,
}

/// An argument of a request. `syntax` is its part of the command's syntax line: what it begins with, words with bars between,
/// and what follows, a value or words.
///
/// | syntax | begins with | follows |
/// |---|---|---|
/// | `busy-poll <us>` | `busy-poll` | `<us>` |
/// | `<if>` | | `<if>`: the argument is known by its place |
/// | `zero-copy\|no-zero-copy` | one of two words | |
/// | `num-rx-queues <n>\|all` | `num-rx-queues` | `<n>`, or the word `all` |
/// | nothing | | no words of a command say it |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Name of the request's field, as JSON has it; empty where a word is taken and has no effect.
    pub field: &'static str,
    /// Its part of the syntax line.
    pub syntax: &'static str,
    /// What it is, from the field's comment.
    pub doc: &'static str,
    /// Whether it must be given.
    pub need: Need,
    /// Type of its value, in a word.
    pub kind: &'static str,
    /// The words that its value is one of; none where it is something else.
    pub one_of: &'static [&'static str],
    /// Values that it may have, where these are fewer than its type has.
    pub range: Option<(u64, u64)>,
    /// Value that it has where it is not given, as the declaration says it.
    pub default: Option<&'static str>,
    /// A MAC address that one station may have, and not a group of them.
    pub unicast: bool,
    /// Its word says no.
    pub negates: bool,
    /// No field of the request has its value as it is: the request is made of several arguments.
    pub nested: bool,
    name: &'static str,
    lead: usize,
}

impl Argument {
    /// An argument of a field of this type.
    pub const fn of_field<F: Field>(field: &'static str, syntax: &'static str, doc: &'static str) -> Self {
        Self { one_of: F::WORDS, ..Self::new(field, syntax, doc, F::NEED, F::KIND) }
    }

    /// Words that are taken and have no effect.
    pub const fn ignored(syntax: &'static str, doc: &'static str) -> Self {
        Self::new("", syntax, doc, Need::Optional, "ignored")
    }

    pub(super) const fn new(field: &'static str, syntax: &'static str, doc: &'static str, need: Need, kind: &'static str) -> Self {
        let bytes = syntax.as_bytes();
        let mut lead = 0;
        if !bytes.is_empty() && bytes[0] != b'<' {
            while lead < bytes.len() && bytes[lead] != b' ' {
                lead += 1;
            }
        }
        Self {
            field,
            syntax,
            doc,
            need,
            kind,
            one_of: &[],
            range: None,
            default: None,
            unicast: false,
            negates: false,
            nested: false,
            name: "",
            lead,
        }
    }

    /// Values that it may have.
    #[must_use]
    pub const fn range(self, range: RangeInclusive<u64>) -> Self {
        Self { range: Some((*range.start(), *range.end())), ..self }
    }

    /// What errors call it, where that is not its keyword.
    #[must_use]
    pub const fn name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// The address of one station.
    #[must_use]
    pub const fn unicast(self) -> Self {
        Self { unicast: true, ..self }
    }

    /// Its word says no.
    #[must_use]
    pub const fn negates(self) -> Self {
        Self { negates: true, ..self }
    }

    /// Part of a request that is made of several arguments.
    #[must_use]
    pub const fn nested(self) -> Self {
        Self { nested: true, ..self }
    }

    /// It must be given.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { need: Need::Required, ..self }
    }

    /// It has a value where it is not given.
    #[must_use]
    pub const fn with_default(self, default: &'static str) -> Self {
        let need = if matches!(self.need, Need::Required) { Need::Optional } else { self.need };
        Self { default: Some(default), need, ..self }
    }

    /// The request's field that has its value; none where its words have no effect, or the request is made of several arguments.
    pub fn json_field(&self) -> Option<&'static str> {
        Some(self.field).filter(|field| !field.is_empty() && !self.nested)
    }

    /// The words that it may begin with; none where it is known by its place.
    pub fn leads(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.lead().split('|').filter(|word| !word.is_empty())
    }

    fn lead(&self) -> &'static str {
        &self.syntax[..self.lead]
    }

    /// What follows the first word.
    pub fn rest(&self) -> &'static str {
        self.syntax[self.lead..].trim_start()
    }

    /// Whether no words of a command say it: the command's path does, or only JSON and messages can.
    pub fn is_hidden(&self) -> bool {
        self.syntax.is_empty()
    }

    /// Whether a command has words for its value; not for the default, unless it must be given.
    pub fn is_said(&self, is_default: bool) -> bool {
        !self.is_hidden() && (!is_default || self.need == Need::Required)
    }

    /// Whether it is known by its place, and not by a word.
    pub fn is_positional(&self) -> bool {
        self.lead == 0
    }

    /// The kind of value, the text between the first `<` and `>`.
    pub fn placeholder(&self) -> Option<&'static str> {
        let (_, after) = self.rest().split_once('<')?;
        after.split_once('>').map(|(name, _)| name)
    }

    /// The words that may stand in the place of its value, `all` in `<n>|all`.
    pub fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.rest().split('|').filter(|word| !word.is_empty() && !word.contains(['<', ' ']))
    }

    /// What errors call its value: the name given, else the keyword, else the kind of value, else the field.
    pub fn what(&self) -> &'static str {
        match (self.name, self.lead(), self.placeholder()) {
            ("", "", Some("if")) => "interface",
            ("", "", Some(placeholder)) => placeholder,
            ("", lead, _) if !lead.contains('|') => lead,
            ("", ..) => self.field,
            (name, ..) => name,
        }
    }

    /// What errors call the value behind the `lead`th of the words that it may begin with.
    pub fn what_behind(&self, lead: usize) -> &'static str {
        match (self.name, self.leads().nth(lead)) {
            ("", Some(word)) => word,
            _ => self.what(),
        }
    }

    /// Whether it is one word of several, and nothing follows.
    pub fn is_choice(&self) -> bool {
        !self.is_positional() && self.rest().is_empty()
    }

    /// What it is; where its declaration does not say it, what kind of value.
    fn about(&self) -> &'static str {
        match (self.doc.trim(), self.kind) {
            ("", "flag") if self.default == Some("true") => "Off; on where not given",
            ("", "flag") => "On or off",
            ("", "interface") => "Interface",
            ("", "number") => "Number",
            ("", kind) => kind,
            (doc, _) => doc,
        }
    }

    /// What it is, and which values it may have.
    pub fn help(&self) -> String {
        let mut help = self.about().trim_end_matches('.').to_owned();
        if let Some((least, most)) = self.range {
            help += &format!("; {least} to {most}");
        }
        if let Some(default) = self.default_shown() {
            help += &format!(", {default} where not given");
        }
        help
    }

    /// The default, where it is a number.
    fn default_shown(&self) -> Option<&'static str> {
        self.default.filter(|text| text.starts_with(|first: char| first.is_ascii_digit()))
    }

    /// Its part of the syntax line, with brackets.
    pub fn in_brackets(&self) -> String {
        match self.need {
            Need::Required => self.syntax.to_owned(),
            Need::Optional => format!("[{}]", self.syntax),
            Need::Repeated => format!("[{}] ...", self.syntax),
        }
    }

    /// What is wrong with its declaration.
    pub(crate) fn problem(&self) -> Option<String> {
        let same = |words: &mut dyn Iterator<Item = &'static str>| words.eq(self.one_of.iter().copied());
        let none = self.one_of.is_empty() || self.is_hidden();
        let words_fit = none || if self.is_choice() { same(&mut self.leads()) } else { same(&mut self.words()) };
        let differ = || format!("argument `{}' does not have the words {:?}", self.syntax, self.one_of);
        (!words_fit).then(differ)
    }

    /// The error for a value that it may not have.
    pub fn out_of_range(&self, value: impl std::fmt::Display) -> OpError {
        let what = self.what();
        let error = OpError::invalid(what, &value, format!("invalid {what} `{value}'"));
        match self.range {
            Some((least, most)) => error.remedy(format!("expected {least} to {most}")),
            None => error,
        }
    }
}

/// An argument as programs read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArgumentHelp {
    /// Its part of the syntax line.
    pub syntax: &'static str,
    /// Name in JSON requests; absent where the words have no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
    /// Whether it must be given.
    pub need: Need,
    /// Type of its value.
    pub kind: &'static str,
    /// Least and largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
    /// Its value where it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<&'static str>,
    /// What it is.
    pub help: &'static str,
}

impl From<&Argument> for ArgumentHelp {
    fn from(argument: &Argument) -> Self {
        Self {
            syntax: argument.syntax,
            field: argument.json_field(),
            need: argument.need,
            kind: argument.kind,
            range: argument.range,
            default: argument.default_shown(),
            help: argument.about(),
        }
    }
}
