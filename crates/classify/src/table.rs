//! A table on the main thread: its mask, its sessions, and its view for the nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_tables::hash::{BoundedHash, InsertError};
use quiver_tables::qsbr::Domain;

use crate::hits::Hits;
use crate::view::{Action, DENY, KEY, Key, MATCH_MAX, NONE, Rule, SKIP_MAX, TableView, VECTOR};

/// Bytes that a session costs: its entry and its part of the buckets.
const SESSION_BYTES: u64 = 112;
/// Sessions of a table, at most.
pub const SESSIONS_MAX: u32 = 1 << 20;
/// Different actions that sessions of a table can have.
const RULES_MAX: usize = 1 << 16;

/// How a table is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What is compared, a multiple of [`VECTOR`].
    pub mask: Vec<u8>,
    /// Vectors skipped before.
    pub skip: u32,
    /// Buckets; VPP's users say it, and the hash here makes its own.
    pub buckets: u32,
    /// Bytes that the table may take.
    pub memory: u64,
    /// Whether the first vector begins with the node's data, not with the frame.
    pub current_data: bool,
    /// Bytes from there on.
    pub offset: i16,
    /// What happens to packets that have no session: [`DENY`], or they go on.
    pub miss_next: u32,
}

/// What a session is, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// [`DENY`], or its packets go on.
    pub hit_next: u32,
    /// A number that is kept.
    pub opaque: u32,
    /// Bytes by which the data moves.
    pub advance: i32,
    /// Action, with the user's number of a table.
    pub action: Action,
}

/// A table.
pub struct Table {
    /// How it was made.
    pub shape: Shape,
    /// The next table.
    pub next: Option<u32>,
    sessions: BTreeMap<Key, Session>,
    hash: BoundedHash<Key>,
    rules: Arc<Vec<Rule>>,
    hits: Arc<Hits>,
    known: HashMap<Rule, u32>,
}

fn invalid(key: &'static str, value: impl std::fmt::Display, text: impl Into<String>) -> OpError {
    OpError::new(retval::INVALID_VALUE, text.into()).key(key).value(value)
}

impl Table {
    /// A table without sessions, before another one.
    ///
    /// # Errors
    /// A mask or numbers that cannot be, or no memory.
    pub fn new(shape: Shape, next: Option<u32>, domain: &Domain) -> Result<Self, OpError> {
        let len = shape.mask.len();
        if len == 0 || len > KEY || !len.is_multiple_of(VECTOR) {
            return Err(invalid("match", len.div_ceil(VECTOR), "a mask has 1 to 5 vectors of 16 bytes"));
        }
        if shape.skip > SKIP_MAX {
            return Err(invalid("skip", shape.skip, format!("at most {SKIP_MAX} vectors can be skipped")));
        }
        if shape.buckets == 0 {
            return Err(invalid("buckets", 0, "expected 1 or more"));
        }
        if shape.memory == 0 {
            return Err(OpError::new(retval::INVALID_MEMORY_SIZE, "a table needs memory").key("memory-size").value(0));
        }
        let room = (shape.memory / SESSION_BYTES).clamp(8, SESSIONS_MAX.into()) as u32;
        let hash = BoundedHash::new(room, domain).map_err(|_| OpError::new(retval::TABLE_TOO_BIG, "no memory for the table"))?;
        let (sessions, rules, known) = (BTreeMap::new(), Arc::default(), HashMap::new());
        let hits = Arc::new(Hits::new(hash.capacity()));
        Ok(Self { shape, next, sessions, hash, rules, hits, known })
    }

    /// Vectors of the mask.
    pub fn vectors(&self) -> u32 {
        (self.shape.mask.len() / VECTOR) as u32
    }

    /// Sessions, by their masked bytes.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = (&Key, &Session)> {
        self.sessions.iter()
    }

    /// Sessions that there can be.
    pub fn capacity(&self) -> usize {
        self.hash.capacity()
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.hash.memory_bytes()
    }

    /// The masked bytes of a match, whose skipped vectors stand before; what is missing at the end is 0.
    pub fn key(&self, bytes: &[u8]) -> Key {
        let mut key = [0; KEY];
        let behind = bytes.get(self.shape.skip as usize * VECTOR..).unwrap_or_default();
        for ((key, byte), mask) in key.iter_mut().zip(behind).zip(&self.shape.mask) {
            *key = byte & mask;
        }
        key
    }

    /// A session.
    pub fn session(&self, key: &Key) -> Option<&Session> {
        self.sessions.get(key)
    }

    /// The number of a rule, and whether it is new. Nodes must know a new rule before a session has it.
    ///
    /// # Errors
    /// Too many different ones.
    pub fn rule(&mut self, rule: Rule) -> Result<(u32, bool), OpError> {
        if let Some(known) = self.known.get(&rule) {
            return Ok((*known, false));
        }
        if self.rules.len() >= RULES_MAX {
            return Err(OpError::new(
                retval::TABLE_TOO_BIG,
                format!("sessions of a table have at most {RULES_MAX} different actions"),
            ));
        }
        let number = self.rules.len() as u32;
        Arc::make_mut(&mut self.rules).push(rule);
        self.known.insert(rule, number);
        Ok((number, true))
    }

    /// Adds a session, or changes what it says; gives the one that was there.
    ///
    /// # Errors
    /// The table is full.
    pub fn insert(&mut self, key: Key, session: Session, rule: u32) -> Result<Option<Session>, OpError> {
        self.hash.insert(key, rule).map_err(|error| match error {
            InsertError::Full => {
                let most = self.hash.capacity();
                OpError::new(retval::TABLE_TOO_BIG, format!("the table is full: its memory-size is enough for {most} sessions"))
            }
            InsertError::OutOfMemory => OpError::new(retval::TABLE_TOO_BIG, "no memory for another session"),
        })?;
        let before = self.sessions.insert(key, session);
        if before.is_none()
            && let Some((entry, _)) = self.hash.reader().find(&key)
        {
            self.hits.forget(entry);
        }
        Ok(before)
    }

    /// Packets that a session had.
    pub fn hits(&self, key: &Key) -> u64 {
        self.hash.reader().find(key).map_or(0, |(entry, _)| self.hits.of(entry))
    }

    /// Removes a session.
    pub fn remove(&mut self, key: &Key) -> Option<Session> {
        self.hash.remove(key);
        self.sessions.remove(key)
    }

    /// The view for the nodes.
    pub fn view(&self) -> TableView {
        let mut mask = [0; KEY];
        mask[..self.shape.mask.len()].copy_from_slice(&self.shape.mask);
        TableView {
            len: self.shape.mask.len(),
            skip: self.shape.skip as usize * VECTOR,
            mask,
            from_data: self.shape.current_data.then_some(self.shape.offset),
            next: self.next.unwrap_or(NONE),
            deny_misses: self.shape.miss_next == DENY,
            sessions: self.hash.reader().clone(),
            rules: self.rules.clone(),
            hits: self.hits.clone(),
        }
    }
}

const _: () = assert!(MATCH_MAX as usize * VECTOR == KEY);
