//! The lookup structures of a table: one, or one for each memory node.
//!
//! ```text
//!   change ──► prepare 0, prepare 1, ...   may fail: then all are cancelled, and no reader has seen anything
//!         ──► publish 0, publish 1, ...   cannot fail
//! ```
//!
//! All copies have the same contents but between the first and the last `publish` of a change. Then a reader of an earlier copy
//! sees the change and one of a later copy does not yet: what two readers of one copy can see of a change that takes several
//! stores, too. Changes are never seen in another order than they were made in, and no copy is ahead by more than one. Of a
//! batch this holds as a whole: the copies publish it one after the other.

use std::io;

use crate::error::OutOfMemory;
use crate::lpm::{LpmWriter, PrefixChange};
use crate::store::PrefixStore;

/// A copy of a lookup structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyInfo {
    /// The memory node that it was asked for on; none where nothing was asked for.
    pub node: Option<u32>,
    /// Why the kernel did not do that: then the copy lies on any node.
    pub refused: Option<String>,
    /// Bytes of real memory.
    pub bytes: usize,
}

/// The copies; at least one.
#[derive(Debug)]
pub(super) struct Copies<W> {
    first: Placed<W>,
    others: Vec<Placed<W>>,
}

#[derive(Debug)]
struct Placed<W> {
    writer: W,
    node: Option<u32>,
    refused: Option<io::Error>,
}

impl<W: LpmWriter> Placed<W> {
    fn on(writer: W, node: Option<u32>) -> Self {
        let refused = node.and_then(|node| writer.place(node).err());
        Self { writer, node, refused }
    }
}

impl<W: LpmWriter> Copies<W> {
    /// A copy on each of these memory nodes; one wherever the kernel takes its memory from where there are none.
    pub fn new(nodes: &[u32], make: impl Fn() -> Result<W, OutOfMemory>) -> Result<Self, OutOfMemory> {
        let mut nodes = nodes.iter().copied();
        let first = Placed::on(make()?, nodes.next());
        let others = nodes.map(|node| Ok(Placed::on(make()?, Some(node)))).collect::<Result<_, OutOfMemory>>()?;
        Ok(Self { first, others })
    }

    /// The writer of a copy; of the first where there is none of that number.
    pub fn writer(&self, copy: usize) -> &W {
        let other = copy.checked_sub(1).and_then(|at| self.others.get(at));
        &other.unwrap_or(&self.first).writer
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    fn all(&self) -> impl Iterator<Item = &Placed<W>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn writers(&mut self) -> impl Iterator<Item = &mut W> {
        std::iter::once(&mut self.first).chain(&mut self.others).map(|copy| &mut copy.writer)
    }

    /// Makes a change in all copies, or in none.
    pub fn change(&mut self, change: &PrefixChange<W::Addr>, store: &PrefixStore<W::Addr>) -> Result<(), OutOfMemory> {
        let mut prepared = 0;
        let mut result = Ok(());
        for writer in self.writers() {
            result = writer.prepare(change, store);
            if result.is_err() {
                break;
            }
            prepared += 1;
        }
        match result {
            Ok(()) => self.writers().for_each(|writer| writer.publish(change, store)),
            Err(_) => self.writers().take(prepared).for_each(LpmWriter::cancel),
        }
        result
    }

    /// Sets what addresses have that no prefix of length 1 or more covers.
    pub fn set_default(&mut self, leaf: u32) {
        self.writers().for_each(|writer| writer.set_default(leaf));
    }

    /// Frees what is past its grace period.
    pub fn reclaim(&mut self) {
        self.writers().for_each(LpmWriter::reclaim);
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.writers().for_each(LpmWriter::begin);
    }

    /// Ends it.
    pub fn commit(&mut self) {
        self.writers().for_each(LpmWriter::commit);
    }

    /// What there is, in the order of the nodes that were named.
    pub fn info(&self) -> Vec<CopyInfo> {
        let info = |copy: &Placed<W>| CopyInfo {
            node: copy.node,
            refused: copy.refused.as_ref().map(ToString::to_string),
            bytes: copy.writer.memory_bytes(),
        };
        self.all().map(info).collect()
    }
}
