//! The flows of a thread: a bounded table, with a timer for each flow.

use quiver_ipfix::{Destination, Times};
use quiver_net::local::datagram::{Outbox, Sends, UdpPath};
use quiver_net::{Due, Timed};
use quiver_tables::error::OutOfMemory;
use quiver_tables::hash::BoundedHash;
use quiver_tables::qsbr::Domain;
use quiver_tables::timer::Wheel;

use crate::key::{Key, Record};
use crate::observe::Seen;
use crate::stream::Stream;
use crate::template::{Reason, Template};

/// Most flows of a thread.
pub const FLOWS_MAX: u32 = 65_536;
/// Ticks of the timers, ns.
const TICK: u64 = 100_000_000;
/// Flows that are looked at in one poll iteration.
const STEP: usize = 64;
const SECOND: u64 = 1_000_000_000;

/// How flows are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// What records contain.
    pub record: Record,
    /// A flow that goes on is exported after so many seconds; 0: only when it is idle.
    pub active: u32,
    /// A flow without packets ends after so many seconds; 0: there are no flows, each packet is exported.
    pub passive: u32,
    /// One packet in so many is recorded.
    pub sample: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self { record: Record::default(), active: 15, passive: 120, sample: 1 }
    }
}

/// A flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// What tells it apart.
    pub key: Key,
    /// Packets since the last export.
    pub packets: u64,
    /// Bytes of IP packets.
    pub octets: u64,
    /// Bytes of frames.
    pub frame_octets: u64,
    /// All TCP flags that were seen.
    pub tcp_flags: u8,
    /// Time of the first packet since the last export, ns.
    pub start: u64,
    /// Time of the last packet.
    pub last: u64,
    /// When it was last exported, or began.
    exported: u64,
}

impl Flow {
    fn new(key: Key, now: u64) -> Self {
        Self { key, packets: 0, octets: 0, frame_octets: 0, tcp_flags: 0, start: now, last: now, exported: now }
    }

    fn add(&mut self, seen: &Seen, frame_octets: u64, now: u64) {
        if self.packets == 0 {
            self.start = now;
        }
        self.packets += 1;
        self.octets += seen.octets;
        self.frame_octets += frame_octets;
        self.tcp_flags |= seen.tcp_flags;
        self.last = now;
    }

    /// When to look at it next.
    fn deadline(&self, params: &Params) -> u64 {
        let idle = self.last.saturating_add(u64::from(params.passive) * SECOND);
        if params.active == 0 || self.packets == 0 {
            return idle;
        }
        idle.min(self.exported.saturating_add(u64::from(params.active) * SECOND))
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is in a flow.
    Recorded,
    /// It is the first one of a flow.
    New,
    /// There was no room for another flow.
    Full,
}

struct Table {
    index: BoundedHash<[u8; 64]>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    wheel: Wheel,
    /// Flows whose time has come.
    fired: Vec<u32>,
}

impl Table {
    fn new(domain: &Domain, now: u64) -> Result<Self, OutOfMemory> {
        let most = FLOWS_MAX as usize;
        let (mut flows, mut free, mut fired) = (Vec::new(), Vec::new(), Vec::new());
        flows.try_reserve_exact(most)?;
        free.try_reserve_exact(most)?;
        fired.try_reserve_exact(most)?;
        let mut wheel = Wheel::new(TICK, now)?;
        wheel.reserve_memory(most)?;
        Ok(Self { index: BoundedHash::new(FLOWS_MAX, domain)?, flows, free, wheel, fired })
    }

    fn note(&mut self, seen: &Seen, frame_octets: u64, now: u64, params: &Params) -> Noted {
        let hash = self.index.hash(&seen.key.0);
        let known = self.index.get_hashed(&seen.key.0, hash);
        if let Some(flow) = known.and_then(|at| self.flows.get_mut(at as usize)) {
            flow.add(seen, frame_octets, now);
            return Noted::Recorded;
        }
        let mut flow = Flow::new(seen.key, now);
        flow.add(seen, frame_octets, now);
        let at = match self.free.last() {
            Some(at) => *at,
            None if self.flows.len() < FLOWS_MAX as usize => self.flows.len() as u32,
            None => return Noted::Full,
        };
        if self.index.insert_hashed(seen.key.0, hash, at).is_err() {
            return Noted::Full;
        }
        if self.wheel.start(at, flow.deadline(params)).is_err() {
            self.index.remove_hashed(&seen.key.0, hash);
            return Noted::Full;
        }
        match self.flows.get_mut(at as usize) {
            Some(place) => {
                self.free.pop();
                *place = flow;
            }
            None => self.flows.push(flow),
        }
        Noted::New
    }

    /// Looks at some of the flows whose time has come.
    fn expire(&mut self, times: Times, params: &Params, stream: &mut Stream) {
        if self.fired.is_empty() {
            self.wheel.expire(times.now, &mut self.fired);
        }
        for _ in 0..STEP {
            let Some(at) = self.fired.pop() else { return };
            let Some(flow) = self.flows.get_mut(at as usize) else { continue };
            let is_idle = flow.last.saturating_add(u64::from(params.passive) * SECOND) <= times.now;
            if is_idle {
                if flow.packets > 0 {
                    stream.record(flow, Reason::Idle, times);
                }
                self.index.remove(&flow.key.0);
                self.free.push(at);
                continue;
            }
            if flow.packets > 0 && flow.deadline(params) <= times.now {
                stream.record(flow, Reason::Active, times);
                (flow.packets, flow.octets, flow.frame_octets, flow.tcp_flags) = (0, 0, 0, 0);
            }
            // Until a packet comes there is nothing to export: then the time of the next export counts from now.
            if flow.packets == 0 {
                flow.exported = times.now;
            }
            let next = flow.deadline(params).min(times.now.saturating_add(active(params)));
            // It had a timer before, so there is room for it.
            let _ = self.wheel.start(at, next);
        }
    }

    fn due(&self) -> u64 {
        if self.fired.is_empty() { self.wheel.next_deadline().unwrap_or(u64::MAX) } else { 0 }
    }

    /// Takes all flows out, exporting them.
    fn end(&mut self, times: Times, stream: &mut Stream) {
        let (flows, mut all) = (&self.flows, Vec::new());
        self.index.for_each(|key, at| all.push((key, at)));
        for (key, at) in all {
            if let Some(flow) = flows.get(at as usize).filter(|flow| flow.packets > 0) {
                stream.record(flow, Reason::Forced, times);
            }
            self.index.remove(&key);
            self.wheel.stop(at);
        }
        (self.flows, self.free, self.fired) = (Vec::new(), Vec::new(), Vec::new());
    }
}

const fn active(params: &Params) -> u64 {
    if params.active == 0 { u64::MAX } else { params.active as u64 * SECOND }
}

/// The flows of a thread, and where they are exported to.
pub struct Flows {
    params: Params,
    table: Option<Table>,
    /// Its stream.
    pub stream: Stream,
    /// Packets until the next one is chosen.
    skip: u32,
}

/// A thread's flows, for its nodes and for what main sends it to do.
pub type Shared = Timed<Flows>;

impl Flows {
    /// None, of a thread.
    pub fn new(thread: usize) -> Self {
        Self { params: Params::default(), table: None, stream: Stream::new(thread as u32 + 1), skip: 0 }
    }

    /// How flows are recorded.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Sets how flows are recorded from now on.
    pub fn set_params(&mut self, params: Params, now: u64) {
        self.params = params;
        self.skip = self.skip.min(params.sample.saturating_sub(1));
        self.stream.set_rate(params.sample, now);
    }

    /// Makes room for flows, where there is none yet, and has the collector know which records to expect.
    ///
    /// # Errors
    /// There is no memory.
    pub fn prepare(&mut self, domain: &Domain, templates: &[Template], now: u64) -> Result<(), OutOfMemory> {
        if self.table.is_none() {
            self.table = Some(Table::new(domain, now)?);
        }
        self.stream.expect(templates.iter().copied(), now);
        Ok(())
    }

    /// Another collector, or none.
    pub fn set_destination(&mut self, to: Option<Destination>, now: u64) {
        self.stream.set_destination(to, now);
    }

    /// Whether the next packet is recorded: one in so many.
    #[inline(always)]
    pub fn choose(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.skip = self.params.sample.saturating_sub(1);
        true
    }

    /// Records a packet, of a frame of so many bytes.
    pub fn note(&mut self, seen: &Seen, frame_octets: u64, now: u64) -> Noted {
        if self.params.passive == 0 {
            let mut flow = Flow::new(seen.key, now);
            flow.add(seen, frame_octets, now);
            self.stream.record(&flow, Reason::Active, Times::of(now));
            return Noted::Recorded;
        }
        let Self { table: Some(table), params, .. } = self else { return Noted::Full };
        table.note(seen, frame_octets, now, params)
    }

    /// Does what is due.
    pub fn advance(&mut self, times: Times) {
        let Self { params, table, stream, .. } = self;
        if let Some(table) = table {
            table.expire(times, params, stream);
        }
        stream.tick(times);
    }

    /// Exports all flows, and forgets them.
    pub fn end(&mut self, times: Times) {
        if let Some(mut table) = self.table.take() {
            table.end(times, &mut self.stream);
        }
        self.stream.flush();
        self.stream.tick(times);
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.table.as_ref().map_or(0, |table| table.index.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `most` of the flows.
    pub fn some(&self, most: usize) -> Vec<Flow> {
        let mut some = Vec::new();
        let Some(table) = &self.table else { return some };
        table.index.for_each(|_, at| {
            if some.len() < most {
                some.extend(table.flows.get(at as usize));
            }
        });
        some
    }
}

impl Due for Flows {
    fn due(&self) -> u64 {
        self.stream.due().min(self.table.as_ref().map_or(u64::MAX, Table::due))
    }
}

impl Sends for Flows {
    fn tick(&mut self, now: u64) {
        self.advance(Times::of(now));
    }

    fn outbox(&mut self) -> (Option<UdpPath>, &mut Outbox) {
        (self.stream.destination().map(|to| to.path), self.stream.outbox_mut())
    }
}
