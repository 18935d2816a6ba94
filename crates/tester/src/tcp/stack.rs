//! The connections of one end: smoltcp's TCP, a socket each, found by four-tuple.
//!
//! smoltcp looks through all sockets of a set for each packet. So each connection has a set with one socket, and a packet goes to the
//! set of its connection: the work for a packet does not grow with the number of connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use quiver_wire::tcp::TcpFlags;
use slab::Slab;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint};

use super::profile::Congestion;
use super::segment::Segment;
use crate::stateful::connections::FourTuple;

/// How long the end that closed first still answers, ns: long enough for a copy of the last segment, much shorter than the minutes of RFC
/// 9293 (3.6.1), since four-tuples do not come again before all have had their turn.
const LINGER: u64 = 500_000_000;
/// Least time until a connection is looked at again, ns.
const SOON: u64 = 50_000;
/// Sockets that are kept for the next connections, with their buffers.
const SPARE: usize = 4096;

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both sides have closed it, or nobody answered any more: who uses it knows.
    Closed,
    /// The other side, or somebody on the way, has reset it.
    Reset,
}

/// What uses a connection.
pub trait App {
    /// Where it tells what happens.
    type Account;

    /// Reads and writes what can be. When it wants to be asked again though nothing comes, ns.
    fn turn(&mut self, socket: &mut Socket<'static>, now: u64, account: &mut Self::Account) -> Option<u64>;

    /// The connection is over; `state` is where it ended.
    fn ended(&mut self, how: Ending, state: State, now: u64, account: &mut Self::Account);
}

/// What all connections of an end have in common.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// Bytes that a socket holds in each direction.
    pub window: usize,
    /// How it adapts to losses.
    pub congestion: Congestion,
    /// Largest IP packet.
    pub mtu: usize,
    /// How long it waits for an answer before it gives up, ns.
    pub timeout: u64,
}

/// Segments of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Segments {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// Sent again.
    pub retransmitted: u64,
    /// Received of no connection that there is.
    pub strange: u64,
}

/// A set with one socket.
struct Own {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

struct Connection<A> {
    own: Own,
    app: A,
    tuple: FourTuple,
    /// When it is looked at again; entries of the clock that say otherwise are old.
    wake: u64,
    /// Number behind the last byte that was sent.
    reached: Option<u32>,
    reset: bool,
    over: bool,
}

/// The connections of an end.
pub struct Stack<A: App> {
    interface: Interface,
    manners: Manners,
    connections: Slab<Connection<A>>,
    /// By four-tuple as this end writes it.
    by_tuple: HashMap<FourTuple, usize>,
    clock: BinaryHeap<Reverse<(u64, usize)>>,
    spare: Vec<Own>,
    nobody: SocketSet<'static>,
    outgoing: VecDeque<Vec<u8>>,
    segments: Segments,
    open: usize,
}

/// The wire of one poll: at most one packet that has come, and those that go.
struct Wire<'a> {
    incoming: Option<&'a [u8]>,
    outgoing: &'a mut VecDeque<Vec<u8>>,
    mtu: usize,
}

struct Received<'a>(&'a [u8]);

struct Leaving<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for Wire<'_> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Leaving<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Leaving<'_>)> {
        Some((Received(self.incoming.take()?), Leaving(self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_>> {
        Some(Leaving(self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, self.mtu);
        capabilities
    }
}

fn instant(ns: u64) -> Instant {
    Instant::from_micros((ns / 1000) as i64)
}

impl<A: App> Stack<A> {
    /// Without connections. `address`: any of this end's; packets to all others are taken, too.
    pub fn new(address: std::net::IpAddr, manners: Manners, seed: u64) -> Self {
        let mut outgoing = VecDeque::new();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut wire = Wire { incoming: None, outgoing: &mut outgoing, mtu: manners.mtu };
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let own = IpAddress::from(address);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        // There is room for one address and one route.
        interface.update_ip_addrs(|all| {
            let _ = all.push(IpCidr::new(own, bits));
        });
        let _ = match address {
            std::net::IpAddr::V4(own) => interface.routes_mut().add_default_ipv4_route(own),
            std::net::IpAddr::V6(own) => interface.routes_mut().add_default_ipv6_route(own),
        };
        interface.set_any_ip(true);
        Self {
            interface,
            manners,
            connections: Slab::new(),
            by_tuple: HashMap::new(),
            clock: BinaryHeap::new(),
            spare: Vec::new(),
            nobody: SocketSet::new(Vec::new()),
            outgoing,
            segments: Segments::default(),
            open: 0,
        }
    }

    /// Packets to be sent.
    pub fn outgoing(&mut self) -> &mut VecDeque<Vec<u8>> {
        &mut self.outgoing
    }

    /// Connections that are not over.
    pub fn open(&self) -> usize {
        self.open
    }

    /// What was sent and received.
    pub fn segments(&self) -> Segments {
        self.segments
    }

    /// Whether there is a connection of a four-tuple, over or not.
    pub fn has(&self, tuple: &FourTuple) -> bool {
        self.by_tuple.contains_key(tuple)
    }

    fn socket(&mut self) -> Own {
        let mut own = self.spare.pop().unwrap_or_else(|| {
            let buffer = || SocketBuffer::new(vec![0; self.manners.window]);
            let mut sockets = SocketSet::new(Vec::new());
            let handle = sockets.add(Socket::new(buffer(), buffer()));
            Own { sockets, handle }
        });
        let socket = own.sockets.get_mut::<Socket<'static>>(own.handle);
        socket.set_timeout(Some(Duration::from_micros(self.manners.timeout / 1000)));
        // Who waits for what never comes must find out.
        socket.set_keep_alive(Some(Duration::from_micros(self.manners.timeout / 2000)));
        // Windows begin with a segment: an acknowledgment that waits for a second one would be late by milliseconds.
        socket.set_ack_delay(None);
        // What is written is a whole message as a rule: its end must not wait for an acknowledgment.
        socket.set_nagle_enabled(false);
        socket.set_congestion_control(match self.manners.congestion {
            Congestion::Cubic => CongestionControl::Cubic,
            Congestion::Reno => CongestionControl::Reno,
            Congestion::None => CongestionControl::None,
        });
        own
    }

    fn insert(&mut self, own: Own, tuple: FourTuple, app: A) -> usize {
        let connection = Connection { own, app, tuple, wake: u64::MAX, reached: None, reset: false, over: false };
        let at = self.connections.insert(connection);
        self.by_tuple.insert(tuple, at);
        self.open += 1;
        at
    }

    /// Opens a connection; `tuple` as this end writes it. Nothing where there is one of that four-tuple.
    pub fn connect(&mut self, tuple: FourTuple, app: A, now: u64, account: &mut A::Account) -> bool {
        if self.has(&tuple) {
            return false;
        }
        let mut own = self.socket();
        let socket = own.sockets.get_mut::<Socket<'static>>(own.handle);
        let (remote, local) = (endpoint(tuple.dst, tuple.dst_port), endpoint(tuple.src, tuple.src_port));
        if socket.connect(self.interface.context(), remote, local).is_err() {
            return false;
        }
        let at = self.insert(own, tuple, app);
        self.attend(at, now, account);
        true
    }

    /// Takes a packet that has come; `accept` says who uses a connection that somebody opens, if anybody does. Whether it was a segment.
    pub fn take(
        &mut self,
        packet: &[u8],
        now: u64,
        account: &mut A::Account,
        accept: impl FnOnce(&FourTuple) -> Option<A>,
    ) -> bool {
        let Some(segment) = Segment::read(packet) else { return false };
        self.segments.received += 1;
        let tuple = segment.tuple.reversed();
        let known = self.by_tuple.get(&tuple).copied();
        let at = known.or_else(|| {
            let app = accept(&tuple).filter(|_| segment.opens())?;
            let mut own = self.socket();
            own.sockets.get_mut::<Socket<'static>>(own.handle).listen(endpoint(tuple.src, tuple.src_port)).ok()?;
            Some(self.insert(own, tuple, app))
        });
        let mut wire = Wire { incoming: Some(packet), outgoing: &mut self.outgoing, mtu: self.manners.mtu };
        let Some((at, connection)) = at.and_then(|at| Some((at, self.connections.get_mut(at)?))) else {
            // As a host does: it refuses what belongs to nothing.
            self.segments.strange += 1;
            let before = wire.outgoing.len();
            self.interface.poll_ingress_single(instant(now), &mut wire, &mut self.nobody);
            self.segments.sent += (self.outgoing.len() - before) as u64;
            return true;
        };
        let before = wire.outgoing.len();
        self.interface.poll_ingress_single(instant(now), &mut wire, &mut connection.own.sockets);
        let state = connection.own.sockets.get::<Socket<'static>>(connection.own.handle).state();
        connection.reset |= segment.flags.contains(TcpFlags::RST) && matches!(state, State::Closed | State::Listen);
        self.attend_from(at, before, now, account);
        true
    }

    /// Looks after connections whose time has come, `most` at once; how many there were.
    pub fn tick(&mut self, now: u64, most: usize, account: &mut A::Account) -> usize {
        let mut done = 0;
        while done < most
            && let Some(Reverse((time, at))) = self.clock.peek().copied()
            && time <= now
        {
            self.clock.pop();
            if self.connections.get(at).is_some_and(|c| c.wake == time) {
                self.attend(at, now, account);
                done += 1;
            }
        }
        done
    }

    /// Resets all connections that are not over.
    pub fn abort(&mut self, now: u64, account: &mut A::Account) {
        let all: Vec<usize> = self.connections.iter().filter(|(_, c)| !c.over).map(|(at, _)| at).collect();
        for at in all {
            if let Some(connection) = self.connections.get_mut(at) {
                connection.own.sockets.get_mut::<Socket<'static>>(connection.own.handle).abort();
            }
            self.attend(at, now, account);
        }
    }

    fn attend(&mut self, at: usize, now: u64, account: &mut A::Account) {
        self.attend_from(at, self.outgoing.len(), now, account);
    }

    /// Has a connection's user read and write, sends what that gives, and sees when it is to be looked at again. Packets from `before` on
    /// are its own.
    fn attend_from(&mut self, at: usize, before: usize, now: u64, account: &mut A::Account) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let Connection { own: Own { sockets, handle }, app, .. } = connection;
        let mut wire = Wire { incoming: None, outgoing: &mut self.outgoing, mtu: self.manners.mtu };
        let wants = loop {
            let wants = if connection.over { None } else { app.turn(sockets.get_mut(*handle), now, account) };
            let sent = wire.outgoing.len();
            while self.interface.poll_egress(instant(now), &mut wire, sockets) != PollResult::None {}
            // What was sent has made no room: only acknowledgments do.
            if wire.outgoing.len() == sent {
                break wants;
            }
        };
        for packet in self.outgoing.range(before..) {
            self.segments.sent += 1;
            let Some(segment) = Segment::read(packet).filter(|s| s.length > 0) else { continue };
            let end = segment.end();
            match &mut connection.reached {
                Some(reached) if end.wrapping_sub(*reached) as i32 <= 0 => self.segments.retransmitted += 1,
                reached => *reached = Some(end),
            }
        }
        let state = sockets.get::<Socket<'static>>(*handle).state();
        // A socket that listened goes back to it where the client takes its word back.
        let gone = matches!(state, State::Closed | State::Listen);
        if !connection.over && (gone || state == State::TimeWait) {
            connection.over = true;
            self.open -= 1;
            app.ended(if connection.reset { Ending::Reset } else { Ending::Closed }, state, now, account);
            connection.wake = if gone { now } else { now + LINGER };
        } else if connection.over {
            connection.wake = connection.wake.min(now + LINGER);
        } else {
            let due = self.interface.poll_at(instant(now), sockets).map(|t| t.total_micros().max(0) as u64 * 1000);
            let due = [due, wants].into_iter().flatten().min().unwrap_or(u64::MAX);
            connection.wake = due.max(now + SOON);
        }
        if connection.over && connection.wake <= now {
            self.remove(at);
        } else if connection.wake != u64::MAX {
            self.clock.push(Reverse((connection.wake, at)));
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(mut connection) = self.connections.try_remove(at) else { return };
        self.by_tuple.remove(&connection.tuple);
        if self.spare.len() < SPARE {
            connection.own.sockets.get_mut::<Socket<'static>>(connection.own.handle).abort();
            self.spare.push(connection.own);
        }
    }
}

fn endpoint(address: std::net::IpAddr, port: u16) -> IpEndpoint {
    IpEndpoint::new(address.into(), port)
}
