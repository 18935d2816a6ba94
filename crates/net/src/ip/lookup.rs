//! `ip4-lookup`, `ip6-lookup`: destination to load-balance to bucket; and `lookup-ip4-dst`, `lookup-ip6-dst` for routes that
//! lead to another table, and `lookup-ip4-src`, `lookup-ip6-src` for those by which the source address decides.

use quiver_graph::{
    Batch, FastPath, IfIndex, NoDrops, Node, NodeCx, Pkt, Sent, Shared, Snapshot, Verdict, drop_reasons, flags, next_nodes,
};

use super::Family;
use crate::data::IfTable;
use crate::fib::numa::{Placed, Readers};
use crate::fib::records::{Bucket, Class, LbRecord, LbTable};
use crate::run_counter::RunCounter;

next_nodes! {
    /// Where IPv4 packets go, in the order of [`Class`].
    pub enum Next4 {
        Drop = "ip4-drop",
        Punt = "ip4-punt",
        Receive = "ip4-receive",
        Glean = "ip4-glean",
        Incomplete = "ip4-arp",
        Rewrite = "ip4-rewrite",
        Lookup = "lookup-ip4-dst",
        Null = "ip4-null",
        LinkLocal = "ip4-drop",
        SourceLookup = "lookup-ip4-src",
        InterfaceRx = "interface-rx-dpo-ip4",
    }
}

next_nodes! {
    /// Where IPv6 packets go, in the order of [`Class`].
    pub enum Next6 {
        Drop = "ip6-drop",
        Punt = "ip6-punt",
        Receive = "ip6-receive",
        Glean = "ip6-glean",
        Incomplete = "ip6-discover-neighbor",
        Rewrite = "ip6-rewrite",
        Lookup = "lookup-ip6-dst",
        Null = "ip6-null",
        LinkLocal = "ip6-link-local",
        SourceLookup = "lookup-ip6-src",
        InterfaceRx = "interface-rx-dpo-ip6",
    }
}

const _: () = assert!(Next4::Rewrite as u16 == Class::Rewrite as u16 && Next6::InterfaceRx as u16 == Class::InterfaceRx as u16);

/// The next slot of a bucket: classes are the positions of the `Next` enums, slots count from 1.
#[inline(always)]
pub(crate) fn verdict(bucket: Bucket) -> Verdict {
    Verdict::slot(bucket.slot() + 1)
}

/// Whether a batch agrees, as packets to one neighbour do.
#[inline(always)]
pub(super) fn all_same<const W: usize>(values: &[u32; W]) -> bool {
    values.iter().fold(0, |differ, value| differ | (value ^ values[0])) == 0
}

/// What lookups read. Each node of a thread has one of its own.
pub(crate) struct Tables<F: Family> {
    published: Snapshot<Placed<F>>,
    /// Own copy of the handles, of the tables' copies near the thread: two loads less for each packet.
    readers: Readers<F>,
    pub load_balances: LbTable,
}

impl<F: Family> Clone for Tables<F> {
    fn clone(&self) -> Self {
        let (published, readers) = (self.published.clone(), self.readers.clone());
        Self { published, readers, load_balances: self.load_balances.clone() }
    }
}

impl<F: Family> Tables<F> {
    /// For a prototype: a clone picks up what is near its thread at its first refresh. Until then it has the tables that there
    /// are, of the first memory node.
    pub fn new(published: Snapshot<Placed<F>>, load_balances: LbTable) -> Self {
        Self { readers: published.get().of(0), published: published.outdated(), load_balances }
    }

    /// Picks up tables that have come or gone, once a vector.
    #[inline(always)]
    pub fn refresh(&mut self, cx: &NodeCx<'_>) {
        if self.published.refresh() {
            self.pick_up(cx);
        }
    }

    #[cold]
    fn pick_up(&mut self, cx: &NodeCx<'_>) {
        self.readers = self.published.get().of(cx.numa());
    }

    /// The handle of a table that lookups use.
    #[cfg(test)]
    pub fn reader(&self, fib: u32) -> Option<&F::Reader> {
        self.readers.get(fib as usize)?.as_ref()
    }

    /// The load-balance for an address; 0, which drops, where there is no such table.
    #[inline(always)]
    pub fn lookup(&self, fib: u32, address: F::Addr) -> u32 {
        match self.readers.get(fib as usize) {
            Some(Some(reader)) => F::lookup(reader, address),
            _ => 0,
        }
    }

    /// As [`Tables::lookup`] for a batch, whose waits for memory overlap.
    #[inline(always)]
    pub fn lookup_batch<const W: usize>(&self, fib: u32, addresses: &[F::Addr; W]) -> [u32; W] {
        match self.readers.get(fib as usize) {
            Some(Some(reader)) => F::lookup_batch(reader, addresses),
            _ => [0; W],
        }
    }
}

/// The lookup node.
#[derive(Clone)]
pub struct Lookup<F: Family> {
    interfaces: IfTable,
    tables: Tables<F>,
    count: RunCounter,
    /// An interface and its FIB, kept for a run of packets.
    run: (u32, u32),
}

impl<F: Family> Lookup<F> {
    pub(super) fn new(interfaces: IfTable, tables: Tables<F>, count: RunCounter) -> Self {
        Self { interfaces, tables, count, run: (u32::MAX, 0) }
    }

    #[inline(always)]
    fn fib_of(&mut self, interface: IfIndex) -> u32 {
        if self.run.0 == interface.0 { self.run.1 } else { self.begin_run(interface) }
    }

    /// Whether packets of all these interfaces are looked up in this table.
    #[inline(always)]
    fn all_use(&self, fib: u32, interfaces: &[IfIndex]) -> bool {
        interfaces.iter().fold(0, |differ, interface| differ | (F::fib_of(self.interfaces.fibs(*interface)) ^ fib)) == 0
    }

    #[inline(never)]
    fn begin_run(&mut self, interface: IfIndex) -> u32 {
        let fib = F::fib_of(self.interfaces.fibs(interface));
        self.run = (interface.0, fib);
        fib
    }
}

impl<F: Family> Node<Shared> for Lookup<F> {
    type Next = F::LookupNext;
    type Drop = NoDrops;
    const PREFETCH: u8 = F::LOOKUP_PREFETCH;

    fn start(&mut self, thread: usize) {
        self.count.start(thread);
    }

    #[inline(always)]
    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.tables.refresh(cx);
        self.run = (u32::MAX, 0);
        // The main table is the one that many routes are expected in.
        if !self.tables.readers.first().is_some_and(|main| main.as_ref().is_some_and(F::is_wide)) {
            cx.skip_prefetch();
        }
    }

    /// The table's line: in a large table the lookup waits for nothing else.
    #[inline(always)]
    fn prefetch(&self, packet: &Pkt<'_, Shared>) {
        if let Some(Some(reader)) = self.tables.readers.get(self.run.1 as usize) {
            F::prefetch(reader, F::destination(packet));
        }
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let fib = match packet.table() {
            Some(fib) => fib,
            None => self.fib_of(packet.rx_if()),
        };
        let lb = self.tables.lookup(fib, F::destination(&packet));
        let bucket = self.tables.load_balances.choose(lb, |config| F::flow_hash(&packet.again(), config));
        self.count.add(lb, packet.total_len() as u32);
        packet.set_aux(bucket.index());
        verdict(bucket)
    }

    #[inline(always)]
    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.count.flush();
    }
}

impl<F: Family> FastPath<Shared> for Lookup<F> {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let interface = batch.first_rx_if();
        let fib = self.fib_of(interface);
        // A flag may mean a table that a node has set.
        if !batch.all_from(interface, flags::ANY) && !self.all_use(fib, &batch.interfaces(flags::ANY)?) {
            return None;
        }
        let lbs = self.tables.lookup_batch(fib, &F::destinations(batch));
        let records = self.tables.load_balances.records();
        if all_same(&lbs) {
            let record = LbRecord(records.get(lbs[0]));
            if record.is_many() {
                return None;
            }
            batch.set_aux([record.bucket().index(); W]);
            self.count.add_all(lbs[0], &batch.lens());
            return Some(batch.send_all(verdict(record.bucket())));
        }
        let (mut aux, mut verdicts, mut many) = ([0; W], [Verdict::DROP; W], 0);
        for k in 0..W {
            let record = LbRecord(records.get(lbs[k]));
            many |= record.buckets_log2();
            aux[k] = record.bucket().index();
            verdicts[k] = verdict(record.bucket());
        }
        if many != 0 {
            return None;
        }
        batch.set_aux(aux);
        self.count.add_each(&lbs, &batch.lens());
        Some(batch.send(verdicts))
    }
}

drop_reasons! {
    /// Why a lookup in another table drops.
    pub enum LookupDrop {
        /// Routes lead from table to table without an end.
        ///
        /// Causes: routes with `via table` (`ip4-lookup-in-table`) that point at one another.
        /// Check: follow the routes of the address from table to table: `show ip fib table ID ADDRESS`.
        /// See: `show ip fib table ID ADDRESS`.
        Loop = "lookup loop between tables",
    }
}

/// Tables that a packet may be sent through.
const TABLES_MAX: usize = 8;

/// Looks a packet up in the table that its aux lane names, and on from there. The path from table to table is followed here, so that
/// a loop of tables is found without a mark on the packet.
#[derive(Clone)]
pub(super) struct LookupIn<F: Family> {
    pub tables: Tables<F>,
    pub count: RunCounter,
    /// What is looked up first: the source address, or the destination.
    pub source: bool,
}

impl<F: Family> Node<Shared> for LookupIn<F> {
    type Next = F::LookupNext;
    type Drop = LookupDrop;

    fn start(&mut self, thread: usize) {
        self.count.start(thread);
    }

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.tables.refresh(cx);
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let (mut fib, mut source) = (packet.aux(), self.source);
        for _ in 0..TABLES_MAX {
            let address = if source { F::source(&packet) } else { F::destination(&packet) };
            let lb = self.tables.lookup(fib, address);
            let bucket = self.tables.load_balances.choose(lb, |config| F::flow_hash(&packet, config));
            self.count.add(lb, packet.total_len() as u32);
            source = bucket.class() == Class::SourceLookup;
            if bucket.class() != Class::Lookup && !source {
                packet.set_aux(bucket.index());
                return verdict(bucket);
            }
            fib = bucket.index();
        }
        packet.drop(LookupDrop::Loop)
    }

    fn end(&mut self, _cx: &mut NodeCx<'_>) {
        self.count.flush();
    }
}
