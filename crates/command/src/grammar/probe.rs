//! What a parser would take where the cursor is, found out by letting it parse.
//!
//! The parser reads the line up to the cursor. There the probe pretends that one more word follows, a word that matches nothing. The
//! probe records what the parser tries, and that is what may stand there. So completion and `?` never differ from the parser.

use crate::request::Argument;
use std::cell::{Cell, RefCell};

/// Something that was tried at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This keyword.
    Keyword(String),
    /// A value of this name.
    Value { what: String, argument: Option<Argument> },
}

/// Notes what is tried at the cursor.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    wanted: RefCell<Vec<Wanted>>,
    asked: Cell<u32>,
}

impl Probe {
    /// Questions answered with "a word follows". After this many the text ends, so a loop that takes nothing ends too.
    const PATIENCE: u32 = 64;

    pub(crate) fn keyword(&self, keyword: &str) {
        self.note(Wanted::Keyword(keyword.to_owned()));
    }

    pub(crate) fn value(&self, what: &str, argument: Option<&Argument>) {
        self.note(Wanted::Value { what: what.to_owned(), argument: argument.copied() });
    }

    fn note(&self, wanted: Wanted) {
        let mut all = self.wanted.borrow_mut();
        if !all.contains(&wanted) {
            all.push(wanted);
        }
    }

    /// Whether a word is still said to follow.
    pub(crate) fn follows(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.asked.get() <= Self::PATIENCE
    }

    pub(crate) fn into_wanted(self) -> Vec<Wanted> {
        self.wanted.into_inner()
    }
}
