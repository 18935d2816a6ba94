//! All shapes of a router, and reading and writing documents by them. It can be given to another thread: reading a long document takes seconds.

use super::shape::{Compiled, Rank, Shape};
use super::template::Vars;
use super::tree::{Key, Node, Place, What};
use super::yaml::Tree;
use crate::configuration::{Back, Entry, Stage};
use crate::grammar::nearest;
use crate::operation::{OpError, retval};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// The key of operations that have no shape.
pub(super) const OTHERS: &str = "operations";
/// The key of the parts that a document owns.
pub(super) const OWN: &str = "own";
/// Keys that an error lists.
const LISTED: usize = 12;

/// A request as the operation itself writes it.
pub struct Normalised {
    /// The request.
    pub request: Box<RawValue>,
    /// The command that makes it; empty where none does.
    pub command: String,
}

/// Why JSON is no request of an operation.
pub struct NotNormal {
    /// The field that is wrong, with dots; empty where it is the whole.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

/// Reads a request and writes it again.
pub type Normalise = fn(Value) -> Result<Normalised, NotNormal>;

/// What a document wants: an entry of the configuration.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The entry.
    pub entry: Entry,
    /// Where it stands, keys with `/` between.
    pub path: String,
    /// Where in the text.
    pub place: Place,
    /// It is one of a list.
    pub list: bool,
    pub(super) rank: Rank,
}

/// A document that was read.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Parts that the document says are its own; none: all.
    pub own: Vec<String>,
    /// What it wants, in the order of the text.
    pub wanted: Vec<Wanted>,
}

/// Where an entry of the configuration stands in a document.
pub(super) struct Placed {
    pub(super) keys: Vec<String>,
    pub(super) list: bool,
    pub(super) rank: Rank,
    pub(super) value: Value,
    /// None: it has no shape.
    pub(super) shape: Option<usize>,
}

impl Placed {
    pub(super) fn path(&self) -> String {
        self.keys.join("/")
    }
}

/// What was learned of fields: of a shape, at a place, with a value; whether it goes without saying.
pub(super) type Usual = HashMap<(usize, String, String), bool>;

/// All shapes of a router.
#[derive(Clone)]
pub struct Book {
    pub(super) shapes: Vec<Compiled>,
    by_operation: BTreeMap<&'static str, Vec<usize>>,
    normal: BTreeMap<&'static str, Normalise>,
    /// What each operation is about, and its declared arguments as JSON schemas.
    pub(super) fields: BTreeMap<&'static str, BTreeMap<&'static str, Value>>,
}

impl Book {
    /// Of these shapes.
    pub(crate) fn new(
        shapes: &[(Shape, Rank)],
        normal: BTreeMap<&'static str, Normalise>,
        fields: BTreeMap<&'static str, BTreeMap<&'static str, Value>>,
    ) -> Self {
        let shapes: Vec<Compiled> = shapes.iter().map(|(shape, rank)| Compiled::new(*shape, *rank)).collect();
        let mut by_operation: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for (at, compiled) in shapes.iter().enumerate() {
            by_operation.entry(compiled.shape.operation).or_default().push(at);
        }
        Self { shapes, by_operation, normal, fields }
    }

    /// The operations that have a shape.
    pub fn operations(&self) -> impl Iterator<Item = &'static str> {
        self.by_operation.keys().copied()
    }

    /// All operations.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + use<'_> {
        self.normal.keys().copied()
    }

    /// Where an entry stands.
    pub(super) fn place(&self, entry: &Entry) -> Placed {
        let request: Value = serde_json::from_str(entry.request.get()).unwrap_or_default();
        for at in self.by_operation.get(&*entry.operation).into_iter().flatten() {
            let compiled = &self.shapes[*at];
            if let Some((keys, value)) = compiled.write(&request) {
                return Placed { keys, list: compiled.shape.list, rank: compiled.rank, value, shape: Some(*at) };
            }
        }
        let value = json!({"operation": entry.operation, "request": request});
        Placed { keys: vec![OTHERS.to_owned()], list: true, rank: (Stage::Services, u32::MAX), value, shape: None }
    }

    /// A configuration as a document.
    pub fn write(&self, entries: &[Entry]) -> String {
        let mut tree = Tree::default();
        let usual = RefCell::default();
        for entry in entries {
            let mut placed = self.place(entry);
            self.prune(entry, &mut placed, &usual);
            let number = |at: usize| placed.shape.is_some_and(|shape| self.shapes[shape].segments[at].is_number());
            let keys: Vec<(&str, bool)> = placed.keys.iter().enumerate().map(|(at, key)| (key.as_str(), number(at))).collect();
            if !tree.add(&keys, placed.list, placed.value) {
                let request: Value = serde_json::from_str(entry.request.get()).unwrap_or_default();
                tree.add(&[(OTHERS, false)], true, json!({"operation": entry.operation, "request": request}));
            }
        }
        tree.text()
    }

    /// Leaves out what goes without saying: fields without which the request is the same.
    pub(super) fn prune(&self, entry: &Entry, placed: &mut Placed, usual: &RefCell<Usual>) {
        let Some(shape) = placed.shape else { return };
        let compiled = &self.shapes[shape];
        let mut vars = Vars::new();
        if !compiled.segments.iter().zip(&placed.keys).all(|(segment, key)| segment.read(key, &mut vars)) {
            return;
        }
        let is_same = |value: &Value| {
            let request = compiled.read(vars.clone(), value);
            let again = request.and_then(|(request, _)| self.normal.get(compiled.shape.operation)?(request).ok());
            again.is_some_and(|again| again.request.get() == entry.request.get())
        };
        for pointer in leaves(&placed.value) {
            let Some((parent, key)) = pointer.rsplit_once('/') else { continue };
            let Some(value) = placed.value.pointer(&pointer) else { continue };
            let kind: String = pointer.split('/').filter(|part| part.parse::<usize>().is_err()).collect::<Vec<_>>().join("/");
            let known = (shape, kind, value.to_string());
            let mut without = placed.value.clone();
            if let Some(Value::Object(object)) = without.pointer_mut(parent) {
                object.remove(key);
            }
            let goes = usual.borrow().get(&known).copied();
            let goes = goes.unwrap_or_else(|| {
                let goes = is_same(&without);
                usual.borrow_mut().insert(known, goes);
                goes
            });
            if goes {
                placed.value = without;
            }
        }
    }

    /// Reads a document. `name`: what errors call it.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and column.
    pub fn read(&self, name: &str, text: &str) -> Result<Wish, OpError> {
        let root = Node::parse(name, text)?;
        let mut reader = Reader { book: self, name, keys: Vec::new(), wish: Wish::default() };
        let alive: Vec<(usize, Vars)> = (0..self.shapes.len()).map(|at| (at, Vars::new())).collect();
        match &root.what {
            What::One(Value::Null) => {}
            What::Map(fields) => {
                for (key, node) in fields {
                    reader.subject(key, node, &alive)?;
                }
            }
            _ => return Err(reader.wrong(root.place, format!("expected keys with values, not {}", root.shown()))),
        }
        Ok(reader.wish)
    }
}

/// Pointers to all words of a value that are fields.
fn leaves(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    // A key with these would need to be escaped.
                    if key.contains(['/', '~']) {
                        continue;
                    }
                    let at = format!("{at}/{key}");
                    walk(value, &at, found);
                    let is_empty = value.as_array().is_some_and(Vec::is_empty);
                    if is_empty || !value.is_array() && !value.is_object() {
                        found.push(at);
                    }
                }
            }
            Value::Array(items) => items.iter().enumerate().for_each(|(place, item)| walk(item, &format!("{at}/{place}"), found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}

/// Reads a document by the shapes of a book.
struct Reader<'a> {
    book: &'a Book,
    name: &'a str,
    keys: Vec<String>,
    wish: Wish,
}

impl Reader<'_> {
    fn wrong(&self, place: Place, what: impl AsRef<str>) -> OpError {
        let path = if self.keys.is_empty() { String::new() } else { format!("{}: ", self.keys.join(".")) };
        let text = format!("{}:{}:{}: {path}{}", self.name, place.line, place.column, what.as_ref());
        OpError::new(retval::INVALID_ARGUMENT, text)
    }

    /// A key that nothing takes; `known` are those there are.
    fn unknown(&self, key: &Key, known: &[String]) -> OpError {
        let error = self.wrong(key.place, format!("unknown key `{}'", key.text));
        match nearest(&key.text, known.iter().map(String::as_str)) {
            Some(meant) => error.remedy(format!("did you mean `{meant}'?")),
            None if known.is_empty() => error,
            None => {
                let more = if known.len() > LISTED { ", …" } else { "" };
                error.remedy(format!("expected {}{more}", known[..known.len().min(LISTED)].join(", ")))
            }
        }
    }

    /// The keys that may stand here.
    fn expected(&self, alive: &[(usize, Vars)], depth: usize) -> Vec<String> {
        let mut all: Vec<String> = alive
            .iter()
            .filter_map(|(at, _)| self.book.shapes[*at].segments.get(depth))
            .map(super::template::Pattern::shown)
            .collect();
        all.sort();
        all.dedup();
        all
    }

    fn subject(&mut self, key: &Key, node: &Node, alive: &[(usize, Vars)]) -> Result<(), OpError> {
        match key.text.as_str() {
            OWN => self.own(key, node),
            OTHERS => self.others(key, node),
            _ => {
                let next = self.step(alive, 0, &key.text);
                if next.is_empty() {
                    let mut known = self.expected(alive, 0);
                    known.extend([OWN, OTHERS].map(str::to_owned));
                    return Err(self.unknown(key, &known));
                }
                self.within(key, node, &next, 1)
            }
        }
    }

    /// The shapes that go on with this key.
    fn step(&self, alive: &[(usize, Vars)], depth: usize, key: &str) -> Vec<(usize, Vars)> {
        let go = |(at, vars): &(usize, Vars)| {
            let segment = self.book.shapes[*at].segments.get(depth)?;
            let mut vars = vars.clone();
            segment.read(key, &mut vars).then_some((*at, vars))
        };
        alive.iter().filter_map(go).collect()
    }

    fn within(&mut self, key: &Key, node: &Node, alive: &[(usize, Vars)], depth: usize) -> Result<(), OpError> {
        self.keys.push(key.text.clone());
        let result = self.value(node, alive, depth);
        self.keys.pop();
        result
    }

    fn value(&mut self, node: &Node, alive: &[(usize, Vars)], depth: usize) -> Result<(), OpError> {
        let (here, deeper): (Vec<_>, Vec<_>) =
            alive.iter().cloned().partition(|(at, _)| self.book.shapes[*at].segments.len() == depth);
        if deeper.is_empty() {
            return self.items(node, &here);
        }
        let fields = match &node.what {
            What::Map(fields) => &fields[..],
            What::One(Value::Null) => &[],
            _ => {
                let expected = self.expected(&deeper, depth);
                let more = if expected.len() > LISTED { ", …" } else { "" };
                let expected = expected[..expected.len().min(LISTED)].join(", ");
                return Err(self.wrong(node.place, format!("expected keys ({expected}{more}), not {}", node.shown())));
            }
        };
        let (mut own, mut below) = (Vec::new(), Vec::new());
        for (key, child) in fields {
            let next = self.step(&deeper, depth, &key.text);
            if !next.is_empty() {
                below.push((key, child, next));
            } else if here.is_empty() {
                return Err(self.unknown(key, &self.expected(&deeper, depth)));
            } else {
                own.push((key.clone(), child.clone()));
            }
        }
        // What stands here itself is made before what is below it.
        if !here.is_empty() {
            self.one(&Node { what: What::Map(own), place: node.place }, &here, &self.expected(&deeper, depth))?;
        }
        below.into_iter().try_for_each(|(key, child, next)| self.within(key, child, &next, depth + 1))
    }

    /// The value of shapes, or a list of such values.
    fn items(&mut self, node: &Node, here: &[(usize, Vars)]) -> Result<(), OpError> {
        if !here.iter().any(|(at, _)| self.book.shapes[*at].shape.list) {
            return self.one(node, here, &[]);
        }
        match &node.what {
            What::One(Value::Null) => Ok(()),
            What::List(items) => items.iter().try_for_each(|item| self.one(item, here, &[])),
            _ => Err(self.wrong(node.place, format!("expected a list, not {}", node.shown()))),
        }
    }

    fn one(&mut self, node: &Node, here: &[(usize, Vars)], also: &[String]) -> Result<(), OpError> {
        let is_object = here.iter().any(|(at, _)| self.book.shapes[*at].value.keys().is_some());
        let value = match node.json() {
            Value::Null if is_object => json!({}),
            // What has no value is not configured.
            Value::Null => return Ok(()),
            value => value,
        };
        for (at, vars) in here {
            let compiled = &self.book.shapes[*at];
            if let Some((request, vars)) = compiled.read(vars.clone(), &value) {
                let (rank, list) = (compiled.rank, compiled.shape.list);
                let makes = compiled.shape.makes.iter().filter_map(|name| super::template::Pattern::parse(name).write(&vars));
                let back = Back { makes: makes.collect(), ..Back::default() };
                let operation = compiled.shape.operation;
                return self.push(operation, request, node, (rank, list), back);
            }
        }
        if here.iter().any(|(at, _)| self.book.shapes[*at].value.contrary().as_ref() == Some(&value)) {
            return Ok(());
        }
        Err(self.unfit(node, here, also))
    }

    /// The error for a value that no shape takes.
    fn unfit(&self, node: &Node, here: &[(usize, Vars)], also: &[String]) -> OpError {
        if let What::Map(fields) = &node.what {
            let keys: Vec<&str> =
                here.iter().filter_map(|(at, _)| self.book.shapes[*at].value.keys()).flat_map(|(keys, _)| keys).collect();
            if let Some((key, _)) = fields.iter().find(|(key, _)| !keys.contains(&key.text.as_str()))
                && !keys.is_empty()
            {
                let known: Vec<String> = keys.iter().map(|key| (*key).to_owned()).chain(also.iter().cloned()).collect();
                return self.unknown(key, &known);
            }
        }
        let mut expected: Vec<String> = here.iter().map(|(at, _)| self.book.shapes[*at].value.shown()).collect();
        expected.dedup();
        self.wrong(node.place, format!("expected {}, not {}", expected.join(" or "), node.shown()))
    }

    fn push(
        &mut self,
        operation: &'static str,
        request: Value,
        node: &Node,
        (rank, list): (Rank, bool),
        back: Back,
    ) -> Result<(), OpError> {
        let Some(normal) = self.book.normal.get(operation) else {
            return Err(self.wrong(node.place, format!("no such operation: {operation}")));
        };
        let Normalised { request, command } = normal(request).map_err(|error| self.not_normal(node, &error))?;
        // What errors call it, where no command is its contrary.
        let command = if command.is_empty() { format!("{}: {}", self.keys.join("/"), request.get()) } else { command };
        let entry = Entry { operation: Cow::Borrowed(operation), request, command, back };
        self.wish.wanted.push(Wanted { entry, path: self.keys.join("/"), place: node.place, list, rank });
        Ok(())
    }

    fn not_normal(&self, node: &Node, error: &NotNormal) -> OpError {
        let quoted: Vec<&str> = error.message.split('`').skip(1).step_by(2).collect();
        if error.message.starts_with("unknown field")
            && let Some((unknown, known)) = quoted.split_first()
        {
            let place = node.place_of(unknown);
            let key = Key { text: (*unknown).to_owned(), place };
            return self.unknown(&key, &known.iter().map(|known| (*known).to_owned()).collect::<Vec<_>>());
        }
        let field = error.field.rsplit('.').find(|part| !part.is_empty() && *part != "?").unwrap_or_default();
        let place = node.place_of(field);
        let what = if field.is_empty() || matches!(node.what, What::One(_)) {
            error.message.clone()
        } else {
            format!("{}: {}", error.field, error.message)
        };
        self.wrong(place, what)
    }

    fn own(&mut self, key: &Key, node: &Node) -> Result<(), OpError> {
        let What::List(items) = &node.what else {
            return Err(self.wrong(node.place, format!("{}: expected a list of parts, not {}", key.text, node.shown())));
        };
        for item in items {
            match &item.what {
                What::One(Value::String(part)) => self.wish.own.push(part.trim_matches('/').to_owned()),
                _ => return Err(self.wrong(item.place, format!("{}: expected a part, not {}", key.text, item.shown()))),
            }
        }
        Ok(())
    }

    /// Operations that have no shape: each with its request.
    fn others(&mut self, key: &Key, node: &Node) -> Result<(), OpError> {
        self.keys.push(key.text.clone());
        let What::List(items) = &node.what else {
            return Err(self.wrong(node.place, format!("expected a list of operations, not {}", node.shown())));
        };
        for item in items {
            let What::Map(fields) = &item.what else {
                return Err(self.wrong(item.place, format!("expected `operation' and `request', not {}", item.shown())));
            };
            if let Some((key, _)) = fields.iter().find(|(key, _)| !["operation", "request"].contains(&key.text.as_str())) {
                return Err(self.unknown(key, &["operation", "request"].map(str::to_owned)));
            }
            let of = |name: &str| fields.iter().find(|(key, _)| key.text == name).map(|(_, node)| node);
            let named = of("operation").map(Node::json);
            let Some(name) = named.as_ref().and_then(Value::as_str) else {
                return Err(self.wrong(item.place, "`operation' is missing"));
            };
            let place = of("operation").map_or(item.place, |node| node.place);
            let Some(operation) = self.book.normal.keys().copied().find(|known| *known == name) else {
                let known: Vec<String> = self.book.normal.keys().map(|known| (*known).to_owned()).collect();
                return Err(self.unknown(&Key { text: name.to_owned(), place }, &known));
            };
            let empty = Node { what: What::Map(Vec::new()), place };
            let request = of("request").unwrap_or(&empty);
            self.push(operation, request.json(), request, ((Stage::Services, u32::MAX), true), Back::default())?;
        }
        self.keys.pop();
        Ok(())
    }
}
