//! The fast path on the main thread: it is loaded, told about interfaces, asked what it wants to know, and counted.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use quiver_command::operation::OpError;
use quiver_drivers::fast_path::{FastPath, NO_PROGRAM, PORTS, Peers, Question, Received, Takers, Traffic};
use quiver_drivers::rights::SharedRights;
use quiver_graph::{Hold, IfIndex};
use quiver_net::fib::Class;
use quiver_net::ip::FamilyId;
use quiver_net::{IfEvent, PluginState, Router};

use crate::ports::{self, Hook, Part};
use crate::table::{Lead, Shared, Table};

/// Name of the process.
pub const PROCESS: &str = "fast-path-process";
/// A round, ns: how long a destination that was asked for waits, and how long a trace or capture takes to see every packet.
pub const ROUND: u64 = 20_000_000;
/// Destinations decided, and load-balances looked up again, in one call of the process.
const STEP: usize = 16;
/// Destinations that a search for unused ones looks at in one call.
const SWEEP: usize = 128;
/// Rounds after which a destination without packets is forgotten: 10 s.
const UNUSED: u32 = 500;
/// Rounds between two looks at devices, and at the traffic of load-balances: 1 s.
const SLOW: u32 = 50;
/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// An interface that takes part.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub number: u32,
    /// What it may do.
    pub part: Part,
    /// Why the program has no place for it.
    pub(crate) refused: Option<String>,
    /// Why its device does not run the program, though it should.
    pub trouble: Option<String>,
    /// What of its traffic has been counted.
    pub(crate) counted: (Received, Traffic),
    /// Its traffic since it takes part.
    pub received: Received,
    /// The same of what has left.
    pub sent: Traffic,
}

/// Whether there is a program.
pub(crate) enum Program {
    /// No interface can use one.
    None,
    /// A thread loads it.
    Coming(Receiver<io::Result<FastPath>>),
    /// It is there.
    Here(Arc<Shared>),
    /// There is none, and why.
    Failed(String),
}

/// The plugin's state.
pub struct State {
    /// Whether it is wanted for AF_XDP interfaces.
    pub driver: bool,
    /// Whether it is wanted for host interfaces.
    pub ingress: bool,
    pub(crate) program: Program,
    pub(crate) takers: Option<Takers>,
    pub(crate) peers: Option<Peers>,
    /// By interface.
    pub ports: BTreeMap<IfIndex, Port>,
    round: u32,
    /// When the next round begins, ns of the router's clock.
    next_round: u64,
    /// Traces and captures run, as last seen.
    pub observed: bool,
    /// Packets are left to another process, or about to be.
    pub(crate) held: bool,
}

impl PluginState for State {
    const OFF: &'static str = "the plugin of the fast path is off";
}

/// Adds state and process.
pub fn start(router: &mut Router) {
    let held = router.graph.hold() != Hold::None;
    router.add_part(State {
        driver: true,
        ingress: false,
        program: Program::None,
        takers: None,
        peers: None,
        ports: BTreeMap::new(),
        round: 0,
        next_round: 0,
        observed: false,
        held,
    });
    router.listen(on_interface);
    router.listen_to_hold(on_hold);
    router.add_process(PROCESS, run);
    router.add_counters(count);
}

impl State {
    /// The table, while there is a program.
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        match &self.program {
            Program::Here(shared) => Some(shared),
            _ => None,
        }
    }

    /// Whether interfaces with this hook may take part.
    pub fn wants(&self, hook: Hook) -> bool {
        match hook {
            Hook::Driver => self.driver,
            Hook::Ingress => self.ingress,
        }
    }

    /// Whether a packet could come in by one port and leave by another.
    fn is_active(&self) -> bool {
        self.ports.values().any(|port| port.part.input.is_ok()) && self.ports.values().any(|port| port.part.output.is_ok())
    }

    /// Why there is no program.
    pub fn failure(&self) -> Option<&str> {
        match &self.program {
            Program::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// Switches the fast path on or off for all interfaces with this hook.
///
/// # Errors
/// The plugin is off.
pub fn set(router: &mut Router, hook: Hook, on: bool) -> Result<(), OpError> {
    let state: &mut State = router.state_mut()?;
    match hook {
        Hook::Driver => state.driver = on,
        Hook::Ingress => state.ingress = on,
    }
    if on && state.failure().is_some() {
        state.program = Program::None;
    }
    if !state.driver && !state.ingress {
        stop(router);
    } else if !on {
        let gone: Vec<IfIndex> = state.ports.iter().filter(|(_, port)| port.part.hook == hook).map(|(index, _)| *index).collect();
        gone.into_iter().for_each(|index| leave(router, index));
    }
    if let Some(shared) = router.part::<State>().and_then(State::shared) {
        shared.ask_review();
    }
    router.wake_process(PROCESS, 0);
    Ok(())
}

/// Every packet goes to the graph, and nothing is known any more.
fn stop(router: &mut Router) {
    count(router);
    let Some(state) = router.part_mut::<State>() else { return };
    let ports = std::mem::take(&mut state.ports);
    let shared = state.shared().cloned();
    for index in ports.keys() {
        // A device that is gone runs nothing.
        let _ = ports::set_member(router, *index, None);
    }
    if let Some(shared) = shared {
        let mut table = shared.table();
        table.kernel.set_on(false);
        table.clear();
        for port in ports.values() {
            table.kernel.forget_input(port.part.device);
            table.kernel.close_port(port.number);
        }
        table.ports.clear();
    }
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    match event {
        IfEvent::Deleted(index) => leave(router, *index),
        IfEvent::Created(_) | IfEvent::Admin(..) | IfEvent::Device(_) | IfEvent::Link(..) => {
            if let Some(shared) = router.part::<State>().and_then(State::shared) {
                shared.ask_review();
            }
        }
        _ => return,
    }
    router.wake_process(PROCESS, 0);
}

/// Both processes' packet sockets get all frames, so what one of them kept in the kernel the other would forward as well. The queues of AF_XDP
/// pass with their program.
fn on_hold(router: &mut Router, hold: Hold) {
    let Some(state) = router.part_mut::<State>() else { return };
    state.held = hold != Hold::None;
    let Some(shared) = state.shared().cloned() else { return };
    if state.held {
        let ingress = state.ports.values().filter(|port| port.part.hook == Hook::Ingress);
        ingress.for_each(|port| shared.table().kernel.close_input(port.part.device));
    }
    shared.ask_review();
}

/// An interface takes part no longer.
fn leave(router: &mut Router, index: IfIndex) {
    count(router);
    let Some(state) = router.part_mut::<State>() else { return };
    let Some(port) = state.ports.remove(&index) else { return };
    if let Some(shared) = state.shared().cloned() {
        let mut table = shared.table();
        table.kernel.forget_input(port.part.device);
        table.kernel.close_port(port.number);
        table.ports.remove(&index);
        table.doubt_all();
    }
    let _ = ports::set_member(router, index, None);
}

/// The process. Says when it wants to be called next.
fn run(router: &mut Router, now: u64) -> u64 {
    let Some(state) = router.part::<State>() else { return u64::MAX };
    if !state.driver && !state.ingress {
        return u64::MAX;
    }
    let Some(shared) = program(router) else {
        // Loading takes some rounds; what failed is tried again when it is switched on again.
        let waits = router.part::<State>().is_some_and(|state| matches!(state.program, Program::Coming(_)));
        return if waits { now + ROUND } else { u64::MAX };
    };
    let is_new = begin_round(router, &shared, now);
    let is_active = router.part::<State>().is_some_and(State::is_active);
    let is_slow = is_new.is_some_and(|round| !is_active || round.is_multiple_of(SLOW));
    if shared.take_review() || is_slow {
        review(router, &shared);
        if let Some(state) = router.part_mut::<State>()
            && state.is_active() != is_active
        {
            state.next_round = now;
        }
    }
    let more = settle(router, &shared) | decide(router, &shared);
    if let Some(round) = is_new {
        count_ports(router);
        if is_slow {
            count_paths(router, &shared);
        }
        shared.table().sweep(SWEEP, round, UNUSED);
    }
    let state = router.part::<State>();
    match state {
        _ if more => now,
        Some(state) if !state.ports.is_empty() => state.next_round.max(now + 1),
        _ => u64::MAX,
    }
}

/// Interfaces that may take part.
fn wanted(router: &Router) -> Vec<IfIndex> {
    let Some(state) = router.part::<State>() else { return Vec::new() };
    ports::interfaces(router, |hook| state.wants(hook))
}

/// The program, once it is there; it is loaded when the first interface could use it.
fn program(router: &mut Router) -> Option<Arc<Shared>> {
    let is_used = !wanted(router).is_empty();
    let SharedRights(rights) = router.part::<SharedRights>().cloned().unwrap_or_default();
    let signal = router.process_signal(PROCESS);
    let state: &mut State = router.part_mut()?;
    match &state.program {
        Program::Here(shared) => return Some(Arc::clone(shared)),
        Program::None if is_used => {
            let (sender, receiver) = channel();
            let load = move || drop(sender.send(FastPath::open(&*rights)));
            let spawned = std::thread::Builder::new().name("fast-path-load".to_owned()).spawn(load);
            state.program = match spawned {
                Ok(_) => Program::Coming(receiver),
                Err(error) => Program::Failed(error.to_string()),
            };
        }
        Program::Coming(receiver) => {
            let result = match receiver.try_recv() {
                Ok(result) => result,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => Err(io::Error::other("the thread that loads it has ended")),
            };
            match result {
                Ok(kernel) => {
                    let shared = Arc::new(Shared::new(kernel, signal));
                    state.program = Program::Here(Arc::clone(&shared));
                    (state.takers, state.peers) = (Takers::open().ok(), Peers::open().ok());
                    router.watch_forwarding(Arc::clone(&shared) as Arc<_>);
                    return Some(shared);
                }
                Err(error) => {
                    let why = told(&error);
                    tracing::warn!(target: "fast-path", "there is no fast path: {why}");
                    state.program = Program::Failed(why);
                }
            }
        }
        Program::None | Program::Failed(_) => {}
    }
    None
}

/// What is wrong with loading, and what to do.
fn told(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(NO_PROGRAM) => "this program was built without clang: install clang and build it again".to_owned(),
        _ => format!("the kernel does not take the program: {error}"),
    }
}

/// Begins a round where it is time; gives its number then.
fn begin_round(router: &mut Router, shared: &Shared, now: u64) -> Option<u32> {
    let observed = router.graph.is_observed();
    let state: &mut State = router.part_mut()?;
    if now < state.next_round && observed == state.observed {
        return None;
    }
    state.observed = observed;
    // Where no packet can pass there is nothing to do but to look at devices.
    state.next_round = now + if state.is_active() { ROUND } else { ROUND * u64::from(SLOW) };
    let table = shared.table();
    table.kernel.set_on(!observed);
    state.round = table.kernel.begin_round();
    Some(state.round)
}

/// Looks at all interfaces.
fn review(router: &mut Router, shared: &Arc<Shared>) {
    for index in wanted(router) {
        let Some(part) = router.part::<State>().and_then(|state| ports::part(router, index, state)) else {
            leave(router, index);
            continue;
        };
        review_one(router, shared, index, part);
    }
    members(router, shared);
}

/// Has those devices run the program whose packets could leave by another one; the rest gives all to the graph.
fn members(router: &mut Router, shared: &Shared) {
    let Ok(state) = router.state::<State>() else { return };
    let wanted = |index: &IfIndex, port: &Port| {
        let mut others = state.ports.iter().filter(|(other, _)| *other != index);
        port.part.input.is_ok() && port.refused.is_none() && others.any(|(_, other)| other.part.lets_out(&port.part))
    };
    let all: Vec<(IfIndex, u32, bool)> =
        state.ports.iter().map(|(index, port)| (*index, port.number, wanted(index, port))).collect();
    for (index, number, wanted) in all {
        let result = ports::set_member(router, index, wanted.then_some((&shared.table().kernel, number)));
        if let Some(port) = router.part_mut::<State>().and_then(|state| state.ports.get_mut(&index)) {
            port.trouble = port.refused.clone().or(result.err().map(|error| error.to_string()));
        }
    }
}

fn review_one(router: &mut Router, shared: &Arc<Shared>, index: IfIndex, part: Part) {
    let Some(state) = router.part_mut::<State>() else { return };
    let known = state.ports.get(&index);
    // Another device of the same name, or one that has come back: it has neither the program nor the sockets.
    if known.is_some_and(|port| port.part.device != part.device) {
        leave(router, index);
        return review_one(router, shared, index, part);
    }
    let number = known.map(|port| port.number).or_else(|| free_number(state));
    let Some(number) = number else { return };
    let before = known.map(|port| port.part.clone());
    let mut table = shared.table();
    let mut refused = table.kernel.set_device(number, part.device).err().map(|error| error.to_string());
    table.ports.insert(index, (number, part.device));
    table.kernel.set_port(number, &part.as_output());
    match &part.input {
        Ok(input) if refused.is_none() => {
            if !table.kernel.set_input(number, input) {
                refused = Some("another device has its place in the program".to_owned());
            }
        }
        _ => table.kernel.close_input(part.device),
    }
    if before.as_ref() != Some(&part) {
        table.doubt_all();
    }
    let counted = (table.kernel.received(number).unwrap_or_default(), table.kernel.sent(number).unwrap_or_default());
    drop(table);
    let Some(state) = router.part_mut::<State>() else { return };
    match state.ports.get_mut(&index) {
        Some(port) => (port.part, port.refused) = (part, refused),
        None => {
            let port =
                Port { number, part, refused, trouble: None, counted, received: Received::default(), sent: Traffic::default() };
            state.ports.insert(index, port);
        }
    }
}

fn free_number(state: &State) -> Option<u32> {
    (1..PORTS).find(|number| state.ports.values().all(|port| port.number != *number))
}

/// Looks load-balances up again that have changed; `true` where some are left.
pub(crate) fn settle(router: &Router, shared: &Shared) -> bool {
    let mut table = shared.table();
    for _ in 0..STEP {
        let Some(load_balance) = table.take_stale() else { return false };
        let lead = lead(router, load_balance);
        table.lead(load_balance, lead);
    }
    true
}

/// Decides destinations that packets were for; `true` where more may wait.
pub(crate) fn decide(router: &Router, shared: &Shared) -> bool {
    let Ok(state) = router.state::<State>() else { return false };
    let mut table = shared.table();
    for _ in 0..STEP {
        let Ok(Some(question)) = table.kernel.question() else { return false };
        decide_one(router, &mut table, question, state.round);
    }
    true
}

fn decide_one(router: &Router, table: &mut Table, question: Question, round: u32) {
    if table.knows(&question) {
        return;
    }
    let family = if question.address.is_ipv4() { FamilyId::V4 } else { FamilyId::V6 };
    let is_group = match question.address {
        IpAddr::V4(address) => address.octets()[0] >= 224,
        IpAddr::V6(address) => address.is_multicast(),
    };
    let found = router.table_of_fib(family, question.fib).and_then(|id| router.route_lookup(id, question.address));
    let Some(found) = found.filter(|_| !is_group) else { return };
    table.decide(question, found.load_balance, round, || lead(router, found.load_balance));
}

/// Where a load-balance leads, if it leads to one neighbour on the link of a port, by a plain Ethernet header.
fn lead(router: &Router, load_balance: u32) -> Option<Lead> {
    let record = router.data.load_balances.get(load_balance);
    let bucket = record.bucket();
    if record.is_many() || bucket.class() != Class::Rewrite {
        return None;
    }
    let adjacency = router.data.adjacencies.get(bucket.index());
    let port = router.part::<State>()?.ports.get(&adjacency.tx_if)?;
    let sends = port.part.output.as_ref().ok()?;
    let [d0, d1, d2, d3, d4, d5, rest @ ..] = adjacency.link_header() else { return None };
    let is_plain = rest.len() + 6 == ETHERNET && rest.get(..6) == Some(&port.part.mac[..]);
    // A neighbour with a smaller MTU of its own is the graph's.
    let mtu = match rest.get(6..8) {
        Some([0x08, 0x00]) => sends[0],
        Some([0x86, 0xdd]) => sends[1],
        _ => return None,
    };
    let mac = [*d0, *d1, *d2, *d3, *d4, *d5];
    (is_plain && adjacency.next != 0 && mtu != 0 && adjacency.mtu >= mtu).then_some(Lead {
        adjacency: bucket.index(),
        port: port.number,
        mac,
    })
}

/// Brings the router's counters up to date.
fn count(router: &mut Router) {
    count_ports(router);
    let shared = router.part::<State>().and_then(State::shared).cloned();
    if let Some(shared) = shared {
        count_paths(router, &shared);
    }
}

/// Counts what the fast path has forwarded where the graph counts it: at interfaces.
fn count_ports(router: &mut Router) {
    let counters = Arc::clone(router.graph.interfaces());
    let Some(state) = router.part_mut::<State>() else { return };
    let Some(shared) = state.shared().cloned() else { return };
    let kernel = &mut shared.table().kernel;
    for (index, port) in &mut state.ports {
        let (Ok(received), Ok(sent)) = (kernel.received(port.number), kernel.sent(port.number)) else { continue };
        let (r, s) = std::mem::replace(&mut port.counted, (received, sent));
        let [packets4, packets6] = [received.packets4.wrapping_sub(r.packets4), received.packets6.wrapping_sub(r.packets6)];
        let bytes = received.bytes.wrapping_sub(r.bytes);
        let sent = Traffic { packets: sent.packets.wrapping_sub(s.packets), bytes: sent.bytes.wrapping_sub(s.bytes) };
        if packets4 + packets6 > 0 {
            counters.rx.add(0, index.0, packets4 + packets6, bytes);
            counters.ip4.add(0, index.0, packets4);
            counters.ip6.add(0, index.0, packets6);
            port.received.packets4 += packets4;
            port.received.packets6 += packets6;
            port.received.bytes += bytes;
        }
        if sent.packets > 0 {
            counters.tx.add(0, index.0, sent.packets, sent.bytes);
            port.sent.packets += sent.packets;
            port.sent.bytes += sent.bytes;
        }
    }
}

/// The same at load-balances and adjacencies.
fn count_paths(router: &Router, shared: &Shared) {
    let uses = shared.table().take_uses();
    for one in uses {
        router.count_forwarded(one.load_balance, one.adjacency, one.traffic.packets, one.traffic.bytes);
    }
}
