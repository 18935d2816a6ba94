//! One operation of the running configuration, and how its effect goes again.

use crate::change_log::Record;
use crate::operation::Operation;
use crate::request::Declared;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;

/// An operation that makes a part of the configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the operation.
    pub operation: Cow<'static, str>,
    /// Its request.
    pub request: Box<RawValue>,
    /// The command that makes it.
    pub command: String,
    /// How its effect goes again. Only where it was asked for; see [`Collect::with_undo`](super::Collect::with_undo).
    #[serde(skip)]
    pub back: Back,
}

/// How the effect of an entry goes again, and which entries it concerns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Back {
    /// What undoes it, run where all that was made after it and builds on it is undone. Entries that the same request undoes are
    /// values of the same thing.
    pub undo: Option<Record>,
    /// What becomes of another value of the same thing.
    pub update: Update,
    /// Names that only exist once it has run, or mean something else then: whatever has one of them in its request, or in
    /// `needs`, is made again with it.
    pub makes: Vec<String>,
    /// What it builds on, beside the names in its request.
    pub needs: Vec<String>,
    /// The list that it appends to, where the order of that counts.
    pub list: Option<String>,
}

/// How one value of a thing becomes another.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub enum Update {
    /// The old one is undone, the new one made.
    #[default]
    Remade,
    /// The new one's request takes the place of the old one.
    Replaced,
    /// This request of the new one does.
    By(Record),
}

/// A request is a struct of plain values: it can always be JSON. Should one not be, `null` is refused when it is read.
fn raw(request: &impl Serialize) -> Box<RawValue> {
    to_raw_value(request).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn record(operation: &str, request: &impl Serialize) -> Record {
    Record { operation: operation.to_owned(), request: raw(request) }
}

impl Entry {
    /// A declared request.
    pub fn of<R: Declared>(request: &R) -> Self {
        Self { operation: Cow::Borrowed(R::NAME), request: raw(request), command: request.command(), back: Back::default() }
    }

    /// A request with a parser of its own, and the command that it reads it from.
    pub fn with_command<C, O: Operation<C>>(request: &O::Request, command: String) -> Self {
        Self { operation: Cow::Borrowed(O::NAME), request: raw(request), command, back: Back::default() }
    }

    /// Says what it builds on that its request does not name.
    pub fn needing(mut self, name: impl Into<String>) -> Self {
        self.back.needs.push(name.into());
        self
    }

    /// The operation and its request.
    pub fn record(&self) -> Record {
        Record { operation: self.operation.clone().into_owned(), request: self.request.clone() }
    }
}

/// An entry that was pushed: says how its effect goes again, where somebody wants to know.
pub struct Pushed<'a>(pub(super) Option<&'a mut Back>);

impl Pushed<'_> {
    fn with(mut self, say: impl FnOnce(&mut Back)) -> Self {
        if let Some(back) = self.0.as_deref_mut() {
            say(back);
        }
        self
    }

    /// Whether somebody wants to know; where an answer takes time and there may be millions.
    pub const fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// The request that undoes it.
    pub fn undo<R: Declared>(self, request: &R) -> Self {
        self.with(|back| back.undo = Some(record(R::NAME, request)))
    }

    /// The same, of an operation with a parser of its own.
    pub fn undo_as<C, O: Operation<C>>(self, request: &O::Request) -> Self {
        self.with(|back| back.undo = Some(record(O::NAME, request)))
    }

    /// It sets a value: run again with another one, it takes the place of the one before.
    pub fn replaced(self) -> Self {
        self.with(|back| back.update = Update::Replaced)
    }

    /// The request that has it take the place of another value of the same thing.
    pub fn replaced_by<R: Declared>(self, request: &R) -> Self {
        self.with(|back| back.update = Update::By(record(R::NAME, request)))
    }

    /// The same, of an operation with a parser of its own.
    pub fn replaced_as<C, O: Operation<C>>(self, request: &O::Request) -> Self {
        self.with(|back| back.update = Update::By(record(O::NAME, request)))
    }

    /// A name that it brings; see [`Back::makes`].
    pub fn makes(self, name: impl Into<String>) -> Self {
        self.with(|back| back.makes.push(name.into()))
    }

    /// What it builds on that its request does not name.
    pub fn needs(self, name: impl Into<String>) -> Self {
        self.with(|back| back.needs.push(name.into()))
    }

    /// It is the next one of a list whose order counts.
    pub fn in_list(self, list: impl Into<String>) -> Self {
        self.with(|back| back.list = Some(list.into()))
    }
}
