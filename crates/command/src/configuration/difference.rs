//! What leads from one configuration to another.
//!
//! ```text
//!  from:  a  b  c  d  e            kept: what both have, and nothing that is taken away or made before it in its own list concerns
//!  to:    a  b' d  f               undone: the others of `from`, the last one first:      undo(e) undo(c)
//!                                  made: the others of `to`, in order:                    b' in the place of b, f
//! ```
//!
//! *Concerns.* An entry that makes an interface says the interface's name ([`Back::makes`]). When that entry is undone or made, whatever names the
//! interface behind it is undone and made again as well, although both configurations have it: it went with the interface. Names are
//! found in the requests themselves; a text that only looks like the name has something made again for nothing, which does no harm.
//!
//! *Order.* Entries can be made in the order of their list, so they can be undone in the contrary one, and what is kept is not concerned. Where the order
//! of a list within the configuration counts (addresses: the first one is the source of packets), what is kept must be the beginning
//! of the new list, because entries are appended.
//!
//! [`Back::makes`]: super::Back::makes

use super::{Entry, Update};
use crate::change_log::Record;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// What leads from one configuration to another. Entries of the first one must have been collected with their undoing.
#[derive(Debug, Default)]
pub struct Difference<'a> {
    /// What only the first one has, in its order.
    pub removed: Vec<&'a Entry>,
    /// What only the second one has, in its order.
    pub added: Vec<&'a Entry>,
    /// What both have, and is undone and made again because it goes with something else.
    pub again: Vec<&'a Entry>,
    /// What should be undone and cannot be.
    pub stuck: Vec<&'a Entry>,
    undo: Vec<&'a Record>,
    make: Vec<Cow<'a, Record>>,
}

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// The place of the same entry in the other list.
    twin: Option<usize>,
    kept: bool,
    /// Something that it names or builds on is undone or made.
    concerned: bool,
    /// Its thing gets another value in place.
    updated: bool,
}

impl<'a> Difference<'a> {
    /// From `from` to `to`.
    pub fn of(from: &'a [Entry], to: &'a [Entry]) -> Self {
        let (mut old, mut new) = pair(from, to);
        while keep_beginnings(from, to, &mut old, &mut new) | spread(from, &mut old, &mut new) | spread(to, &mut new, &mut old) {}
        update(from, to, &mut old, &mut new);
        let mut found = Self::default();
        found.undone(from, &old);
        for (entry, fate) in to.iter().zip(&new).filter(|(_, fate)| !fate.kept) {
            match fate.twin {
                Some(_) => found.again.push(entry),
                None => found.added.push(entry),
            }
            found.make.push(match &entry.back.update {
                Update::By(record) if fate.updated => Cow::Borrowed(record),
                _ => Cow::Owned(entry.record()),
            });
        }
        found
    }

    fn undone(&mut self, from: &'a [Entry], fates: &[Fate]) {
        // What goes by itself with something that is undone needs no undoing.
        let mut gone = HashSet::new();
        for (entry, fate) in from.iter().zip(fates).filter(|(_, fate)| !fate.kept) {
            if fate.twin.is_none() {
                self.removed.push(entry);
            }
            if fate.updated {
                continue;
            }
            match &entry.back.undo {
                Some(undo) => {
                    self.undo.push(undo);
                    gone.extend(entry.back.makes.iter().map(String::as_str));
                }
                None if is_concerned(entry, &gone) => {}
                None => self.stuck.push(entry),
            }
        }
        self.undo.reverse();
    }

    /// Whether both are the same.
    pub fn is_empty(&self) -> bool {
        self.undo.is_empty() && self.make.is_empty() && self.stuck.is_empty()
    }

    /// The operations that lead there, in order.
    pub fn operations(&self) -> Vec<Record> {
        self.undo.iter().copied().cloned().chain(self.make.iter().map(|record| record.clone().into_owned())).collect()
    }

    /// The commands that are only in the first one with `-` before them, those only in the second one with `+`, and with `~` what
    /// is made again.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (sign, entries) in [('-', &self.removed), ('+', &self.added), ('~', &self.again)] {
            for entry in entries {
                // Writing to a String does not fail.
                let _ = writeln!(text, "{sign} {}", entry.command);
            }
        }
        text
    }
}

/// Finds the entries that both have.
fn pair(from: &[Entry], to: &[Entry]) -> (Vec<Fate>, Vec<Fate>) {
    let (mut old, mut new) = (vec![Fate::default(); from.len()], vec![Fate::default(); to.len()]);
    let mut places: HashMap<(&str, &str), Vec<usize>> = HashMap::with_capacity(from.len());
    // The first one is taken first.
    for (place, entry) in from.iter().enumerate().rev() {
        places.entry((&entry.operation, entry.request.get())).or_default().push(place);
    }
    for (at, entry) in to.iter().enumerate() {
        let found = places.get_mut(&(&*entry.operation, entry.request.get())).and_then(Vec::pop);
        if let Some(place) = found {
            old[place] = Fate { twin: Some(at), kept: true, ..Fate::default() };
            new[at] = Fate { twin: Some(place), kept: true, ..Fate::default() };
        }
    }
    (old, new)
}

fn drop_twin(fate: &mut Fate, others: &mut [Fate]) {
    fate.kept = false;
    if let Some(twin) = fate.twin {
        others[twin].kept = false;
    }
}

/// Of a list whose order counts only the beginning of the new one can be kept.
fn keep_beginnings(from: &[Entry], to: &[Entry], old: &mut [Fate], new: &mut [Fate]) -> bool {
    debug_assert_eq!(from.len(), old.len());
    let mut changed = false;
    // The place in `from` of the last one that is kept; none behind the first one that is not.
    let mut lists: HashMap<&str, Option<usize>> = HashMap::new();
    for (entry, fate) in to.iter().zip(new) {
        let Some(list) = &entry.back.list else { continue };
        let last = lists.entry(list).or_insert(Some(0));
        *last = match (fate.kept, fate.twin, *last) {
            (true, Some(place), Some(before)) if place >= before => Some(place),
            _ => None,
        };
        if last.is_none() && fate.kept {
            drop_twin(fate, old);
            changed = true;
        }
    }
    changed
}

/// What names or builds on something that is undone or made is undone and made with it. Says whether more is not kept than before.
fn spread(entries: &[Entry], fates: &mut [Fate], others: &mut [Fate]) -> bool {
    let mut changed = false;
    let mut names = HashSet::new();
    for (entry, fate) in entries.iter().zip(fates) {
        if !fate.concerned && is_concerned(entry, &names) {
            fate.concerned = true;
            if fate.kept {
                drop_twin(fate, others);
                changed = true;
            }
        }
        if !fate.kept {
            names.extend(entry.back.makes.iter().map(String::as_str));
        }
    }
    changed
}

/// Whether an entry makes, names or builds on one of these.
fn is_concerned(entry: &Entry, names: &HashSet<&str>) -> bool {
    let has = |name: &String| names.contains(name.as_str());
    !names.is_empty()
        && (entry.back.makes.iter().any(has)
            || entry.back.needs.iter().any(has)
            || texts(entry.request.get()).any(|text| names.contains(&*text)))
}

/// The texts in JSON; those of keys, too.
fn texts(json: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = json;
    std::iter::from_fn(move || {
        let begin = rest.find('"')? + 1;
        let mut escaped = false;
        let end = begin
            + rest[begin..].find(|c: char| {
                c == '"' && !escaped || {
                    escaped = c == '\\' && !escaped;
                    false
                }
            })?;
        let (text, quoted) = (&rest[begin..end], &rest[begin - 1..=end]);
        rest = &rest[end + 1..];
        Some(match text.contains('\\') {
            true => serde_json::from_str::<String>(quoted).map_or(Cow::Borrowed(text), Cow::Owned),
            false => Cow::Borrowed(text),
        })
    })
}

/// Entries that the same request undoes are values of the same thing: the new one takes the place of the old one.
fn update(from: &[Entry], to: &[Entry], old: &mut [Fate], new: &mut [Fate]) {
    let mut values: HashMap<(&str, &str), usize> = HashMap::new();
    for (place, (entry, fate)) in from.iter().zip(&*old).enumerate() {
        if let (Some(undo), false, false) = (&entry.back.undo, fate.kept, fate.concerned) {
            values.insert((&undo.operation, undo.request.get()), place);
        }
    }
    for (entry, fate) in to.iter().zip(new) {
        let (Some(undo), false, false) = (&entry.back.undo, fate.kept, fate.concerned) else { continue };
        if matches!(entry.back.update, Update::Remade) {
            continue;
        }
        if let Some(place) = values.remove(&(&*undo.operation, undo.request.get())) {
            (old[place].updated, fate.updated) = (true, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Back, Entry};
    use super::*;
    use serde_json::value::to_raw_value;

    fn record(text: &str) -> Record {
        Record { operation: "do".to_owned(), request: to_raw_value(&text.split(' ').collect::<Vec<_>>()).unwrap() }
    }

    /// `make X`, `list L X` and `set T V` with what undoes them; all others cannot be undone.
    fn entries(lines: &[&str]) -> Vec<Entry> {
        let entry = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            let back = match words[..] {
                ["make", name, ..] => {
                    Back { undo: Some(record(&format!("unmake {name}"))), makes: vec![name.to_owned()], ..Back::default() }
                }
                ["list", list, _] => {
                    Back { undo: Some(record(&format!("un{line}"))), list: Some(list.to_owned()), ..Back::default() }
                }
                ["set", thing, _] => {
                    Back { undo: Some(record(&format!("unset {thing}"))), update: Update::Replaced, ..Back::default() }
                }
                _ => Back::default(),
            };
            let Record { operation, request } = record(line);
            Entry { operation: operation.into(), request, command: (*line).to_owned(), back }
        };
        lines.iter().map(entry).collect()
    }

    /// The operations that lead from one to the other.
    fn steps(from: &[&str], to: &[&str]) -> Vec<String> {
        let (from, to) = (entries(from), entries(to));
        let difference = Difference::of(&from, &to);
        assert!(difference.stuck.is_empty(), "{difference:?}");
        let words = |record: Record| serde_json::from_str::<Vec<String>>(record.request.get()).unwrap().join(" ");
        difference.operations().into_iter().map(words).collect()
    }

    #[test]
    fn the_same_configuration_differs_in_nothing() {
        let all = ["make a", "set a 1", "list l x", "set a 1", "ping"];
        assert!(steps(&all, &all).is_empty());
        let (from, to) = (entries(&all), entries(&all));
        assert!(Difference::of(&from, &to).is_empty());
    }

    #[test]
    fn what_only_the_first_has_goes_backwards_and_what_only_the_second_has_comes_in_order() {
        let is = steps(&["make a", "set a 1", "make b", "set b 2"], &["make b", "set b 2", "make c", "set c 1"]);
        assert_eq!(is, ["unset a", "unmake a", "make c", "set c 1"]);
    }

    #[test]
    fn another_value_takes_the_place_of_the_first() {
        assert_eq!(steps(&["make a", "set a 1"], &["make a", "set a 2"]), ["set a 2"]);
        // Not of what goes with its interface meanwhile.
        assert_eq!(steps(&["make a one", "set a 1"], &["make a two", "set a 2"]), ["unset a", "unmake a", "make a two", "set a 2"]);
    }

    #[test]
    fn what_goes_with_something_is_made_again_with_it() {
        let (from, to) = (entries(&["make a one", "set x a", "set y b"]), entries(&["make a two", "set x a", "set y b"]));
        let difference = Difference::of(&from, &to);
        assert_eq!(difference.text(), "- make a one\n+ make a two\n~ set x a\n");
        assert_eq!(difference.operations().len(), 4);
        // Also what goes with that, and what was there before is not concerned.
        let is = steps(&["set z a", "make a one", "make b a", "set x b"], &["set z a", "make a two", "make b a", "set x b"]);
        assert_eq!(is, ["unset x", "unmake b", "unmake a", "make a two", "make b a", "set x b"]);
    }

    #[test]
    fn of_a_list_the_beginning_is_kept() {
        assert_eq!(steps(&["list l a", "list l b", "list l c"], &["list l b", "list l c"]), ["unlist l a"]);
        assert_eq!(steps(&["list l b", "list m a"], &["list l a", "list l b", "list m a"]), ["unlist l b", "list l a", "list l b"]);
        assert_eq!(steps(&["list l a", "list l b"], &["list l b", "list l a"]), ["unlist l a", "list l a"]);
    }

    #[test]
    fn what_cannot_be_undone_is_told_unless_it_goes_by_itself() {
        let (from, to) = (entries(&["make a", "poke a", "poke b"]), entries(&[]));
        let difference = Difference::of(&from, &to);
        assert_eq!(difference.stuck.iter().map(|entry| &*entry.command).collect::<Vec<_>>(), ["poke b"]);
        assert!(!difference.is_empty());
    }

    #[test]
    fn texts_are_found_in_json() {
        let found: Vec<_> = texts(r#"{"a":"b\"c","d":["é",1,"\\"],"e":""}"#).collect();
        assert_eq!(found, ["a", "b\"c", "d", "é", "\\", "e", ""]);
    }
}
