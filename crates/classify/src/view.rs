//! What the nodes know: published as a whole, read as a snapshot. Sessions are looked up in a hash that the main thread changes in
//! place; each is found as long as it is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_graph::{IfIndex, Pkt, Shared};
use quiver_tables::hash::HashReader;

use crate::hits::Hits;

/// Bytes of a vector.
pub const VECTOR: usize = 16;
/// Vectors of a mask, at most.
pub const MATCH_MAX: u32 = 5;
/// Vectors that can be skipped.
pub const SKIP_MAX: u32 = 32;
/// Bytes of a key: what is compared of a packet, the rest zero.
pub const KEY: usize = VECTOR * MATCH_MAX as usize;
/// Tables in a row, at most: what a packet can cost.
pub const CHAIN_MAX: usize = 64;
/// No table, no next node.
pub const NONE: u32 = u32::MAX;
/// The next node that drops, of sessions and of misses. Any other lets a packet go on.
pub const DENY: u32 = 0;

/// Masked bytes of a packet.
pub type Key = [u8; KEY];

/// What is done with a packet besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// It is looked up in this FIB of IPv4.
    Fib4(u32),
    /// It is looked up in this FIB of IPv6.
    Fib6(u32),
    /// A number goes with it.
    Metadata(u32),
}

/// What a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// Whether its packets are dropped.
    pub deny: bool,
    /// Bytes by which the start of the data moves, as VPP's `advance`.
    pub advance: i32,
    /// What is done besides.
    pub action: Action,
}

/// A table as nodes see it.
#[derive(Clone)]
pub struct TableView {
    /// Bytes compared.
    pub len: usize,
    /// Vectors skipped before them, in bytes.
    pub skip: usize,
    /// The mask, zero behind `len`.
    pub mask: Key,
    /// Where the first vector begins: from the node's data by this many bytes, or with the frame.
    pub from_data: Option<i16>,
    /// The next table, [`NONE`] where there is none.
    pub next: u32,
    /// Whether packets that are in no table of the chain are dropped; of the last table.
    pub deny_misses: bool,
    /// Sessions, as numbers of rules.
    pub sessions: HashReader<Key>,
    /// What sessions say. Rules are added, never changed.
    pub rules: Arc<Vec<Rule>>,
    /// How many packets sessions had.
    pub hits: Arc<Hits>,
}

impl std::fmt::Debug for TableView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableView").field("len", &self.len).field("next", &self.next).finish_non_exhaustive()
    }
}

/// Where packets are classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// IPv4 packets that come in.
    Ip4In = 0,
    /// IPv6 packets that come in.
    Ip6In = 1,
    /// Frames of layer 2 that come in.
    L2In = 2,
    /// IPv4 packets that leave.
    Ip4Out = 3,
    /// IPv6 packets that leave.
    Ip6Out = 4,
    /// Frames of layer 2 that leave.
    L2Out = 5,
    /// IPv4 packets that are punted; of all interfaces, so the interface is 0.
    Ip4Punt = 6,
    /// IPv6 packets that are punted.
    Ip6Punt = 7,
}

/// How many places there are.
const PLACES: usize = 8;

/// All tables, and which of them interfaces begin with.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By number.
    pub tables: Vec<Option<Arc<TableView>>>,
    /// First table by place and interface, [`NONE`] where there is none.
    first: [Vec<u32>; PLACES],
    /// Bytes of the link header of an interface.
    links: Vec<u8>,
    /// First tables of filters.
    pub filters: Filters,
}

/// First tables of filters of traces and captures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Of traces.
    pub trace: Option<u32>,
    /// Of captures on all interfaces, and on an interface that has no filter.
    pub capture: Option<u32>,
    /// Of captures on an interface.
    pub interfaces: BTreeMap<u32, u32>,
}

impl Filters {
    /// Of a capture on an interface, or on all.
    pub fn of_capture(&self, interface: Option<u32>) -> Option<u32> {
        interface.and_then(|interface| self.interfaces.get(&interface)).copied().or(self.capture)
    }

    /// All of them, with words for where they are used.
    pub fn all(&self) -> impl Iterator<Item = (FilterOf, u32)> {
        let fixed = [(FilterOf::Trace, self.trace), (FilterOf::Capture, self.capture)];
        let fixed = fixed.into_iter().filter_map(|(of, table)| Some((of, table?)));
        fixed.chain(self.interfaces.iter().map(|(interface, table)| (FilterOf::Interface(*interface), *table)))
    }

    /// The first table of one.
    pub fn get(&self, of: FilterOf) -> Option<u32> {
        match of {
            FilterOf::Trace => self.trace,
            FilterOf::Capture => self.capture,
            FilterOf::Interface(interface) => self.interfaces.get(&interface).copied(),
        }
    }

    /// Sets it.
    pub fn set(&mut self, of: FilterOf, table: Option<u32>) {
        match (of, table) {
            (FilterOf::Trace, _) => self.trace = table,
            (FilterOf::Capture, _) => self.capture = table,
            (FilterOf::Interface(interface), Some(table)) => drop(self.interfaces.insert(interface, table)),
            (FilterOf::Interface(interface), None) => drop(self.interfaces.remove(&interface)),
        }
    }
}

/// What a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterOf {
    /// Traces.
    Trace,
    /// Captures.
    Capture,
    /// Captures on an interface.
    Interface(u32),
}

/// What classifying a packet gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The table that decided.
    pub table: u32,
    /// What its session says; none where no table has the packet.
    pub rule: Option<Rule>,
    /// Whether the packet is dropped.
    pub deny: bool,
    /// Whether it was not the first table.
    pub chained: bool,
}

impl View {
    /// Sets the first table of a place on an interface.
    pub fn set_first(&mut self, place: Place, interface: u32, table: u32) {
        let (all, at) = (&mut self.first[place as usize], interface as usize);
        if all.len() <= at && table != NONE {
            all.resize(at + 1, NONE);
        }
        if let Some(first) = all.get_mut(at) {
            *first = table;
        }
    }

    /// The first table of a place on an interface.
    #[inline(always)]
    pub fn first(&self, place: Place, interface: IfIndex) -> u32 {
        self.first[place as usize].get(interface.0 as usize).copied().unwrap_or(NONE)
    }

    /// Sets the bytes of an interface's link header.
    pub fn set_link(&mut self, interface: u32, bytes: u8) {
        let at = interface as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, 0);
        }
        self.links[at] = bytes;
    }

    /// Bytes of the link header of an interface.
    #[inline(always)]
    pub fn link(&self, interface: IfIndex) -> usize {
        self.links.get(interface.0 as usize).copied().unwrap_or_default().into()
    }

    fn table(&self, number: u32) -> Option<&TableView> {
        self.tables.get(number as usize)?.as_deref()
    }

    /// Walks the tables from the first one on. `read` copies bytes of the packet to the key; its arguments say where they begin, counted
    /// from the node's data or from the frame. No table: the packet goes on.
    #[inline(always)]
    pub fn classify(
        &self,
        first: u32,
        read: impl Fn(Option<i16>, usize, &mut [u8]),
        count: impl FnOnce(&Hits, u32),
    ) -> Option<Found> {
        let (mut number, mut table) = (first, self.table(first)?);
        for walked in 0..CHAIN_MAX {
            let mut key = [0; KEY];
            read(table.from_data, table.skip, &mut key[..table.len.min(KEY)]);
            for (byte, mask) in key.iter_mut().zip(&table.mask) {
                *byte &= mask;
            }
            // A rule that is newer than the snapshot: as before the session was there.
            let known = table.sessions.find(&key).and_then(|(entry, rule)| Some((entry, table.rules.get(rule as usize)?)));
            if let Some((entry, rule)) = known {
                count(&table.hits, entry);
                return Some(Found { table: number, rule: Some(*rule), deny: rule.deny, chained: walked > 0 });
            }
            match self.table(table.next) {
                Some(next) => (number, table) = (table.next, next),
                None => break,
            }
        }
        Some(Found { table: number, rule: None, deny: table.deny_misses, chained: false })
    }
}

/// Copies bytes of a packet from `at` on, counted from its data; such before it are those of headers that were pulled. Bytes that are
/// not there are 0.
#[inline(always)]
pub fn copy(packet: &Pkt<'_, Shared>, at: isize, to: &mut [u8]) {
    let before = usize::try_from(-at).unwrap_or(0).min(to.len());
    let mut done = 0;
    // What lies in front of the data is read in pieces of fixed size.
    while done < before {
        let (left, from) = (before - done, (-at) as usize - done);
        done += match left {
            16.. => put(packet.read_before::<[u8; 16]>(from), &mut to[done..]),
            8..16 => put(packet.read_before::<[u8; 8]>(from), &mut to[done..]),
            4..8 => put(packet.read_before::<[u8; 4]>(from), &mut to[done..]),
            2..4 => put(packet.read_before::<[u8; 2]>(from), &mut to[done..]),
            _ => put(packet.read_before::<[u8; 1]>(from), &mut to[done..]),
        };
    }
    if done < to.len() {
        packet.copy_out(usize::try_from(at).unwrap_or(0), &mut to[done..]);
    }
}

#[inline(always)]
fn put<const N: usize>(bytes: Option<[u8; N]>, to: &mut [u8]) -> usize {
    if let (Some(bytes), Some(to)) = (bytes, to.first_chunk_mut()) {
        *to = bytes;
    }
    N
}
