//! What leads from the running configuration to the one that a document wants.
//!
//! ```text
//!  running:   what the document does not own ────────────────► stays as it is
//!             what it owns ─┬─ the document wants it, too ───► stays as it is
//!                           ├─ another value at its path ────► ~ the new value takes the place of the old one
//!                           └─ nothing at its path ──────────► - undone
//!  document:                   nothing of it is running ─────► + made
//! ```
//!
//! How an entry goes again is known of those that run, not of those that a document wants. One that is the same has the same undoing; one
//! with another value at the same path is undone by the same request, so it can take the place of the other one. One that is new is
//! undone by nobody now.

use super::book::{Book, Placed, Wanted, Wish};
use crate::change_log::Record;
use crate::configuration::{Back, Difference, Entry, Update};
use crate::operation::{OpError, retval};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Lines that a plan lists; of the others it says how many there are.
pub const LISTED: usize = 1000;

/// What becomes of a part of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// It is made.
    Add,
    /// It is undone.
    Remove,
    /// It gets another value.
    Change,
    /// It goes with something else, and is made again.
    Again,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What becomes of it.
    pub action: Sign,
    /// Where it stands in a document.
    pub path: String,
    /// Its value; the new one where it changes.
    pub value: Value,
    /// The value before, where it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (path, value) = (&self.path, word(&self.value));
        match (self.action, &self.before) {
            (Sign::Add, _) => write!(f, "+ {path}: {value}"),
            (Sign::Remove, _) => write!(f, "- {path}: {value}"),
            (Sign::Change, Some(before)) => write!(f, "~ {path}: {} -> {value}", word(before)),
            (Sign::Change, None) => write!(f, "~ {path}: {value}"),
            (Sign::Again, _) => write!(f, "~ {path}: {value} (made again)"),
        }
    }
}

/// How many changes there are, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Made.
    pub added: usize,
    /// Undone.
    pub removed: usize,
    /// With another value.
    pub changed: usize,
    /// Made again.
    pub again: usize,
    /// The first 1000.
    pub changes: Vec<Line>,
}

impl Changes {
    /// All of them.
    pub const fn total(&self) -> usize {
        self.added + self.removed + self.changed + self.again
    }
}

/// What a document comes to on a running configuration.
#[derive(Debug, Default)]
pub struct Plan {
    /// The configuration that is to be, with what undoes it where that is known.
    pub target: Vec<Entry>,
    /// What leads there.
    pub changes: Changes,
}

/// Whether a path is within parts; all are where none is named.
fn is_within(path: &str, parts: &[String]) -> bool {
    let is = |part: &String| path.strip_prefix(part.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    parts.is_empty() || parts.iter().any(is)
}

impl Book {
    /// What leads from what runs, collected with its undoing, to what a document wants. `own`: the parts that it owns, in place of those
    /// that it names itself.
    ///
    /// # Errors
    /// It wants what it does not own; something that must go cannot be undone.
    pub fn plan(&self, name: &str, running: &[Entry], wish: Wish, own: &[String]) -> Result<Plan, OpError> {
        let own: Vec<String> =
            if own.is_empty() { wish.own } else { own.iter().map(|part| part.trim_matches('/').to_owned()).collect() };
        self.check_parts(&own)?;
        if let Some(wanted) = wish.wanted.iter().find(|wanted| !is_within(&wanted.path, &own)) {
            let Wanted { path, place, .. } = wanted;
            let text = format!(
                "{name}:{}:{}: {} is not one of the parts that are owned",
                place.line,
                place.column,
                path.replace('/', ".")
            );
            return Err(OpError::new(retval::INVALID_ARGUMENT, text).remedy(format!("own {path}, or take it out")));
        }
        let places: Vec<Placed> = running.iter().map(|entry| self.place(entry)).collect();
        let known = Known::new(running, &places);
        let mut target = Vec::new();
        for (at, (entry, placed)) in running.iter().zip(&places).enumerate() {
            if !is_within(&placed.path(), &own) {
                target.push(((placed.rank, 0, at), entry.clone()));
            }
        }
        for (at, wanted) in wish.wanted.into_iter().enumerate() {
            target.push(((wanted.rank, 1, at), known.with_back(wanted)));
        }
        target.sort_by_key(|(rank, _)| *rank);
        let target: Vec<Entry> = target.into_iter().map(|(_, entry)| entry).collect();
        let difference = Difference::of(running, &target);
        if let Some(stuck) = difference.stuck.first() {
            let text = format!("cannot be undone: `{}'", stuck.command);
            return Err(OpError::new(retval::UNSUPPORTED, text).remedy("keep it in the document, or own less"));
        }
        let changes = self.changes(&difference);
        Ok(Plan { target, changes })
    }

    /// A part that begins with no subject there is, is a mistake.
    fn check_parts(&self, own: &[String]) -> Result<(), OpError> {
        let mut subjects: Vec<&str> = self.shapes.iter().filter_map(|compiled| compiled.segments[0].literal()).collect();
        subjects.push(super::book::OTHERS);
        for part in own {
            let subject = part.split('/').next().unwrap_or_default();
            if !subjects.contains(&subject) {
                let error = OpError::invalid("own", part, format!("unknown part `{part}'"));
                return Err(match crate::grammar::nearest(subject, subjects.iter().copied()) {
                    Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
                    None => error.remedy("a part begins with a subject, such as interfaces or routes/0"),
                });
            }
        }
        Ok(())
    }

    fn changes(&self, difference: &Difference<'_>) -> Changes {
        type Part<'a> = (&'a Entry, Placed);
        let placed = |entry: &&'_ Entry| self.place(entry);
        let mut removed: Vec<Option<Part<'_>>> = difference.removed.iter().map(|entry| Some((*entry, placed(entry)))).collect();
        let is_value = |part: &Option<Part<'_>>| part.as_ref().filter(|(_, placed)| !placed.list).map(|(_, placed)| placed.path());
        let places: HashMap<String, usize> =
            removed.iter().enumerate().filter_map(|(at, part)| Some((is_value(part)?, at))).collect();
        let (mut other, mut added) = (Vec::new(), Vec::new());
        for entry in &difference.added {
            let new = placed(entry);
            let before = places.get(&new.path()).filter(|_| !new.list).and_then(|at| removed[*at].take());
            match before {
                Some(_) => other.push((Sign::Change, (*entry, new), before)),
                None => added.push((Sign::Add, (*entry, new), None)),
            }
        }
        let mut changes = Changes { added: added.len(), changed: other.len(), again: difference.again.len(), ..Changes::default() };
        other.extend(difference.again.iter().map(|entry| (Sign::Again, (*entry, placed(entry)), None)));
        let removed: Vec<_> = removed.into_iter().flatten().map(|part| (Sign::Remove, part, None)).collect();
        changes.removed = removed.len();
        // What is not listed need not be written as a document would have it.
        let usual = RefCell::default();
        let value = |(entry, mut placed): Part<'_>| {
            self.prune(entry, &mut placed, &usual);
            placed.value
        };
        let line = |(action, part, before): (Sign, Part<'_>, Option<Part<'_>>)| Line {
            action,
            path: part.1.path(),
            value: value(part),
            before: before.map(value),
        };
        changes.changes = removed.into_iter().chain(other).chain(added).take(LISTED).map(line).collect();
        changes
    }
}

/// What runs, by what a document may want of it.
struct Known<'a> {
    running: &'a [Entry],
    same: HashMap<(&'a str, &'a str), usize>,
    at_path: HashMap<String, usize>,
    lists: HashMap<String, &'a str>,
}

impl<'a> Known<'a> {
    fn new(running: &'a [Entry], places: &[Placed]) -> Self {
        let mut known =
            Self { running, same: HashMap::with_capacity(running.len()), at_path: HashMap::new(), lists: HashMap::new() };
        for (at, (entry, placed)) in running.iter().zip(places).enumerate() {
            known.same.insert((&*entry.operation, entry.request.get()), at);
            match (placed.list, &entry.back.list) {
                (false, _) => drop(known.at_path.insert(placed.path(), at)),
                (true, Some(list)) => drop(known.lists.insert(placed.path(), list)),
                (true, None) => {}
            }
        }
        known
    }

    /// A wanted entry, with what is known of its undoing.
    fn with_back(&self, wanted: Wanted) -> Entry {
        let Wanted { mut entry, path, list, .. } = wanted;
        if let Some(at) = self.same.get(&(&*entry.operation, entry.request.get())) {
            return Entry { back: self.running[*at].back.clone(), ..entry };
        }
        if list {
            entry.back.list = self.lists.get(&path).map(|list| (*list).to_owned());
            return entry;
        }
        if let Some(at) = self.at_path.get(&path) {
            entry.back = another_value(&self.running[*at], &entry);
        }
        entry
    }
}

/// The undoing of a value that takes the place of another one.
fn another_value(is: &Entry, wanted: &Entry) -> Back {
    let mut back = is.back.clone();
    let names: HashSet<String> = wanted.back.makes.iter().filter(|name| !back.makes.contains(name)).cloned().collect();
    back.makes.extend(names);
    back.update = match &is.back.update {
        Update::By(by) => replacing(is, by, wanted).map_or(Update::Remade, Update::By),
        // By its own request, which must be one of the same operation.
        Update::Replaced if is.operation == wanted.operation => Update::Replaced,
        _ => Update::Remade,
    };
    back
}

/// The request that puts another value in the place of one: `by` does that for the value that is there. What differs between the two
/// values differs there as well; what the new one does not say has the value that it has without the old one.
fn replacing(is: &Entry, by: &Record, wanted: &Entry) -> Option<Record> {
    let object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let (old, new) = (object(is.request.get())?, object(wanted.request.get())?);
    let undo = is.back.undo.as_ref().and_then(|undo| object(undo.request.get())).unwrap_or_default();
    let mut request = object(by.request.get())?;
    for (key, value) in &mut request {
        let Some(wanted) = new.get(key).filter(|wanted| old.get(key) != Some(wanted)) else { continue };
        *value = match (wanted, undo.get(key)) {
            (Value::Null, Some(usual)) if !usual.is_null() => usual.clone(),
            // It has a value now, and nobody knows how it has none.
            (Value::Null, _) => return None,
            (wanted, _) => wanted.clone(),
        };
    }
    let request = serde_json::value::to_raw_value(&request).ok()?;
    Some(Record { operation: by.operation.clone(), request })
}
