//! Which sections and keys there are.

use super::{
    Config, ConfigError, Reference, Source,
    read::{self, Block},
};
use std::sync::Arc;

/// What stands behind a key.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// Nothing.
    Flag,
    /// One word.
    Value(&'static str),
    /// A list with commas, blanks around them or not.
    List(&'static str),
    /// A group with keys of its own.
    Group(Section),
    /// A word, and a group or nothing.
    Named(&'static str, Section),
    /// Anything up to the end of the section: words and one group.
    Anything,
}

/// A key of a section.
#[derive(Debug, Clone)]
pub(super) struct Key {
    /// One or more words.
    pub words: &'static str,
    pub shape: Shape,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// The value that holds where nothing is said.
    pub default: Option<&'static str>,
    /// Why it has no meaning here.
    pub ignored: Option<&'static str>,
}

impl Key {
    /// The name of the group that follows, where one does.
    pub(super) fn group_name(&self) -> Option<&'static str> {
        match &self.shape {
            Shape::Group(inner) | Shape::Named(_, inner) => Some(inner.name),
            Shape::Flag | Shape::Value(_) | Shape::List(_) | Shape::Anything => None,
        }
    }
}

/// The keys of a section or of a nested group.
#[derive(Debug, Clone, Default)]
pub struct Section {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) keys: Vec<Key>,
    /// What a word that is no key is the name of, and the keys of the group behind it.
    pub(super) any: Option<(&'static str, Box<Section>)>,
    pub(super) ignored: Option<&'static str>,
}

impl Section {
    /// A section without keys.
    pub fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// A key that stands alone. All keys may be several words, `default data-size`.
    pub fn flag(self, key: &'static str) -> Self {
        self.key(key, Shape::Flag)
    }

    /// A key with one value; `what` names it in errors.
    pub fn value(self, key: &'static str, what: &'static str) -> Self {
        self.key(key, Shape::Value(what))
    }

    /// A key with a list, `2-4,6` or `4, 6`.
    pub fn list(self, key: &'static str, what: &'static str) -> Self {
        self.key(key, Shape::List(what))
    }

    /// A key with a group: `default { … }`.
    pub fn group(self, key: &'static str, section: Section) -> Self {
        self.key(key, Shape::Group(section))
    }

    /// A key with a name and a group that may be left out: `plugin x.so { … }`.
    pub fn named(self, key: &'static str, what: &'static str, section: Section) -> Self {
        self.key(key, Shape::Named(what, section))
    }

    /// Any word that is no key, with a group behind it: `<node> { variant … }`.
    pub fn any(mut self, what: &'static str, section: Section) -> Self {
        self.any = Some((what, Box::new(section)));
        self
    }

    /// What the key that was added last does, or the section where none was: a sentence for the reference.
    pub fn about(mut self, text: &'static str) -> Self {
        match self.keys.last_mut() {
            Some(key) => key.about = text,
            None => self.about = text,
        }
        self
    }

    /// What holds where the key that was added last is not there, as one would write it.
    pub fn default_is(mut self, value: &'static str) -> Self {
        if let Some(key) = self.keys.last_mut() {
            key.default = Some(value);
        }
        self
    }

    /// The key that was added last is accepted and has no effect; `reason` says why in the notice.
    pub fn without_effect(mut self, reason: &'static str) -> Self {
        match self.keys.last_mut() {
            Some(key) => key.ignored = Some(reason),
            None => self.ignored = Some(reason),
        }
        self
    }

    /// Adds the keys of another section, such as a plugin's to a section that exists.
    pub fn extend(mut self, other: Section) -> Self {
        self.keys.extend(other.keys);
        self.any = self.any.or(other.any);
        self
    }

    fn key(mut self, words: &'static str, shape: Shape) -> Self {
        self.keys.push(Key { words, shape, about: "", default: None, ignored: None });
        self
    }
}

/// All sections. Plugins add their own.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub(super) sections: Vec<Section>,
}

impl Schema {
    /// A schema without sections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a section, or keys to the section of that name. It takes the place of one that has no effect.
    pub fn section(mut self, section: Section) -> Self {
        match self.sections.iter_mut().find(|known| known.name == section.name) {
            Some(known) if known.ignored.is_some() => *known = section,
            Some(known) => *known = std::mem::take(known).extend(section),
            None => self.sections.push(section),
        }
        self
    }

    /// Adds a section that is accepted with anything in it and has no effect; `reason` says why.
    pub fn section_without_effect(self, name: &'static str, reason: &'static str) -> Self {
        let section = Section::new(name).key("", Shape::Anything);
        self.section(Section { ignored: Some(reason), ..section })
    }

    /// The reference of all sections and keys.
    pub fn reference(&self) -> Reference {
        Reference::new(&self.sections)
    }

    /// Holds a configuration against the schema.
    pub fn read(&self, source: Source) -> Result<Config, ConfigError> {
        read::read(self, Arc::new(source))
    }

    /// The configuration of an empty file.
    pub fn defaults(&self) -> Config {
        Config { sections: Vec::new(), notices: Vec::new(), empty: Block::default() }
    }
}
