//! Clients as the router knows them: what each wants to be told, and events on their way to it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Waker;

use quiver_api::defs::{
    IfStatusFlags, InterfaceIndex, IpNeighbor, IpNeighborEvent, IpNeighborEventFlags, IpNeighborEventV2, IpNeighborFlags,
    MacAddress, SwInterfaceEvent,
};
use quiver_command::operation::retval;
use quiver_graph::TraceRecord;

use super::convert::address;
use super::table::Table;
use super::trace::Trace;
use crate::interface::IfEvent;
use crate::neighbor::{NeighborEvent, NeighborInfo};
use crate::{IfIndex, Router};

/// Bytes of events that wait for a client which does not read; then it loses events, and the log says so.
const EVENTS_MAX: usize = 1 << 20;
/// VPP sets this bit in the numbers of clients on sockets.
const ON_SOCKET: u32 = 1 << 31;

/// What a client asked to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// What the client calls itself, given back in each event.
    pub pid: u32,
    /// Only this interface.
    pub interface: Option<IfIndex>,
    /// Only this address.
    pub address: Option<IpAddr>,
}

#[derive(Default)]
struct Client {
    name: String,
    interfaces: Option<Wish>,
    neighbors: Vec<Wish>,
    neighbors_v2: Vec<Wish>,
    /// What plugins tell it, by the event's name, with what the client calls itself.
    others: BTreeMap<&'static str, u32>,
    events: Vec<u8>,
    lost: u64,
    /// Packets' traces that it reads, by thread, as they were when it began.
    traces: Option<Vec<Vec<TraceRecord>>>,
    waker: Option<Waker>,
    requests: u64,
}

impl Client {
    /// Puts an event where the client's task takes it from.
    fn take<M: quiver_api::Message>(&mut self, table: &Table, index: u32, event: &M) {
        if self.events.len() > EVENTS_MAX {
            if self.lost == 0 {
                tracing::warn!(target: "api", "client {} does not read: events to it are lost", self.name);
            }
            self.lost += 1;
            return;
        }
        table.push(&mut self.events, index, 0, event);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A client, as `show api clients` lists it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ClientInfo {
    /// Number.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Messages that it has sent.
    pub requests: u64,
    /// Events that it did not read in time.
    pub lost_events: u64,
    /// Whether interfaces' events are sent to it.
    pub interface_events: bool,
    /// Whether neighbours' events are sent to it.
    pub neighbor_events: bool,
}

/// All clients; a part of the router.
pub struct Clients {
    table: Rc<Table>,
    by_index: BTreeMap<u32, Client>,
    /// What was asked, for `api trace`.
    pub trace: Trace,
}

/// Makes the part, and has the router tell it what happens.
pub fn install(router: &mut Router, table: &Rc<Table>, trace: Trace) {
    router.add_part(Clients { table: Rc::clone(table), by_index: BTreeMap::new(), trace });
    router.listen(on_interface);
    router.listen_neighbors(on_neighbor);
}

impl Clients {
    /// Takes a client in; gives its number.
    pub fn join(&mut self, name: &str) -> u32 {
        let index = (1..ON_SOCKET).map(|n| ON_SOCKET | n).find(|n| !self.by_index.contains_key(n)).unwrap_or(ON_SOCKET);
        self.by_index.insert(index, Client { name: name.to_owned(), ..Client::default() });
        index
    }

    /// What a client calls itself.
    pub fn name(&self, index: u32) -> &str {
        self.by_index.get(&index).map_or("", |client| &client.name)
    }

    /// Forgets a client.
    pub fn leave(&mut self, index: u32) {
        self.by_index.remove(&index);
    }

    /// Counts a message.
    pub fn count(&mut self, index: u32) {
        if let Some(client) = self.by_index.get_mut(&index) {
            client.requests += 1;
        }
    }

    /// Name of a message, for people.
    pub fn name_of(&self, message: &[u8]) -> &'static str {
        let id = message.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        self.table.catalog().get(id).map_or("unknown", |entry| entry.info.name)
    }

    /// All of them.
    pub fn list(&self) -> Vec<ClientInfo> {
        let info = |(index, client): (&u32, &Client)| ClientInfo {
            index: *index,
            name: client.name.clone(),
            requests: client.requests,
            lost_events: client.lost,
            interface_events: client.interfaces.is_some(),
            neighbor_events: !client.neighbors.is_empty() || !client.neighbors_v2.is_empty(),
        };
        self.by_index.iter().map(info).collect()
    }

    /// Takes the events that wait for a client; where there are none, `waker` is woken by the next.
    pub fn take_events(&mut self, index: u32, waker: &Waker) -> Vec<u8> {
        let Some(client) = self.by_index.get_mut(&index) else { return Vec::new() };
        client.waker = Some(waker.clone());
        std::mem::take(&mut client.events)
    }

    /// Whether events wait for a client.
    pub fn has_events(&self, index: u32) -> bool {
        self.by_index.get(&index).is_some_and(|client| !client.events.is_empty())
    }

    /// Begins or ends to tell a client about interfaces; gives VPP's code.
    pub fn want_interfaces(&mut self, index: u32, on: bool, pid: u32) -> i32 {
        let Some(client) = self.by_index.get_mut(&index) else { return retval::INVALID_REGISTRATION };
        if on == client.interfaces.is_some() {
            return retval::INVALID_REGISTRATION;
        }
        client.interfaces = on.then_some(Wish { pid, interface: None, address: None });
        0
    }

    /// Begins or ends to tell a client about neighbours.
    pub fn want_neighbors(&mut self, index: u32, v2: bool, on: bool, wish: Wish) {
        let Some(client) = self.by_index.get_mut(&index) else { return };
        let wishes = if v2 { &mut client.neighbors_v2 } else { &mut client.neighbors };
        wishes.retain(|old| (old.interface, old.address) != (wish.interface, wish.address));
        if on {
            wishes.push(wish);
        }
    }

    /// Begins or ends to send a client a plugin's events of type `M`; gives VPP's code.
    pub fn want<M: quiver_api::Message>(&mut self, index: u32, on: bool, pid: u32) -> i32 {
        let Some(client) = self.by_index.get_mut(&index) else { return retval::INVALID_REGISTRATION };
        let had = client.others.remove(M::INFO.name).is_some();
        if on {
            client.others.insert(M::INFO.name, pid);
        }
        // As with interfaces: what is asked for twice, or ended without having begun, is refused and changes nothing.
        if on == had { retval::INVALID_REGISTRATION } else { 0 }
    }

    /// The first client that wants events of type `M`.
    pub fn wanting<M: quiver_api::Message>(&self) -> Option<u32> {
        self.by_index.iter().find(|(_, client)| client.others.contains_key(M::INFO.name)).map(|(index, _)| *index)
    }

    /// Sends a plugin's event to all clients that want those of its type: `event` makes it of a client's number and of what the
    /// client calls itself.
    pub fn tell_wanting<M: quiver_api::Message>(&mut self, event: impl Fn(u32, u32) -> M) {
        self.tell(|client, index| client.others.get(M::INFO.name).map(|pid| event(index, *pid)).into_iter().collect());
    }

    /// The place of a client's copy of packets' traces.
    pub fn traces(&mut self, index: u32) -> Option<&mut Option<Vec<Vec<TraceRecord>>>> {
        self.by_index.get_mut(&index).map(|client| &mut client.traces)
    }

    /// Sends an event to one client.
    pub fn send<M: quiver_api::Message>(&mut self, index: u32, event: &M) {
        if let Some(client) = self.by_index.get_mut(&index) {
            client.take(&self.table, index, event);
        }
    }

    /// What clients want to be told about neighbours, with their names.
    pub fn neighbor_wishes(&self) -> Vec<(String, Wish)> {
        let both = |client: &Client| client.neighbors.iter().chain(&client.neighbors_v2).cloned().collect::<Vec<_>>();
        self.by_index.values().flat_map(|client| both(client).into_iter().map(|wish| (client.name.clone(), wish))).collect()
    }

    fn tell<M: quiver_api::Message>(&mut self, message: impl Fn(&mut Client, u32) -> Vec<M>) {
        for (index, client) in &mut self.by_index {
            for message in message(client, *index) {
                client.take(&self.table, *index, &message);
            }
        }
    }
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    let (index, deleted) = match event {
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) => (*index, false),
        IfEvent::Deleted(index) => (*index, true),
        _ => return,
    };
    let flags = router.interfaces.get(index).filter(|_| !deleted).map_or(0, flags);
    let Some(clients) = router.part_mut::<Clients>() else { return };
    clients.tell(|client, client_index| {
        let event = |wish: &Wish| SwInterfaceEvent {
            client_index,
            pid: wish.pid,
            sw_if_index: InterfaceIndex(index.0),
            flags: IfStatusFlags(flags),
            deleted,
        };
        client.interfaces.iter().map(event).collect()
    });
}

/// `if_status_flags` of an interface.
pub fn flags(interface: &crate::Interface) -> u32 {
    let up = |on: bool, flag: IfStatusFlags| if on { flag.0 } else { 0 };
    up(interface.admin_up, IfStatusFlags::IF_STATUS_API_FLAG_ADMIN_UP)
        | up(interface.link.up, IfStatusFlags::IF_STATUS_API_FLAG_LINK_UP)
}

/// A neighbour as messages have it.
pub fn neighbor(info: &NeighborInfo) -> IpNeighbor {
    let permanent = info.state == crate::neighbor::State::Permanent;
    let mut flags = 0;
    if permanent {
        flags |= IpNeighborFlags::IP_API_NEIGHBOR_FLAG_STATIC.0;
    }
    if info.no_fib_entry {
        flags |= IpNeighborFlags::IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY.0;
    }
    IpNeighbor {
        sw_if_index: InterfaceIndex(info.interface.0),
        flags: IpNeighborFlags(flags),
        mac_address: MacAddress(info.mac.map_or([0; 6], |mac| mac.0)),
        ip_address: address(info.address),
    }
}

fn on_neighbor(router: &mut Router, event: &NeighborEvent) {
    let (info, added) = match event {
        NeighborEvent::Added(info) | NeighborEvent::Changed(info) => (info, true),
        NeighborEvent::Removed(info) => (info, false),
        NeighborEvent::Conflict { .. } => return,
    };
    let Some(clients) = router.part_mut::<Clients>() else { return };
    let concerns = |wish: &&Wish| {
        wish.interface.is_none_or(|index| index == info.interface) && wish.address.is_none_or(|address| address == info.address)
    };
    // The first version tells only of those that come.
    if added {
        clients.tell(|client, client_index| {
            let event = |wish: &Wish| IpNeighborEvent { client_index, pid: wish.pid, neighbor: neighbor(info) };
            client.neighbors.iter().filter(concerns).map(event).collect()
        });
    }
    let what = match added {
        true => IpNeighborEventFlags::IP_NEIGHBOR_API_EVENT_FLAG_ADDED,
        false => IpNeighborEventFlags::IP_NEIGHBOR_API_EVENT_FLAG_REMOVED,
    };
    clients.tell(|client, client_index| {
        let event = |wish: &Wish| IpNeighborEventV2 { client_index, pid: wish.pid, flags: what.clone(), neighbor: neighbor(info) };
        client.neighbors_v2.iter().filter(concerns).map(event).collect()
    });
}
