//! `ip4-arp`, `ip4-glean`, `ip6-discover-neighbor`, `ip6-glean`: packets whose neighbour's MAC address is not known. The
//! neighbour is asked for, the packet waits. One text for both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{DropReasons, IfIndex, NextNodes, Node, NodeCx, Packet, Pkt, Verdict, drop_reasons, flags, next_nodes};

use super::facts::{Fact, FactSender, What};
use super::hold::{Advice, Holds, Key, ThreadHold};
use super::output::ViewSnapshot;
use super::view::View;
use crate::fib::AdjTable;
use crate::ip::{V4, V6, icmp_aux};
use crate::local::header::LocalFamily;
use crate::owner::Owner;
use crate::{arp, nd};

next_nodes! {
    /// Where IPv4 packets and the requests for their neighbours go.
    pub enum Next4 { Output = "neighbor-output", Rewrite = "ip4-rewrite", IcmpError = "ip4-icmp-error" }
}
next_nodes! {
    /// Where IPv6 packets and the requests for their neighbours go.
    pub enum Next6 { Output = "neighbor-output", Rewrite = "ip6-rewrite", IcmpError = "ip6-icmp-error" }
}

drop_reasons! {
    /// What is counted of IPv4 packets whose neighbour is not known.
    pub enum Drop4 {
        /// The router asked for the MAC address of a next hop.
        RequestSent = "ARP requests sent" (info),
        /// The next hop was asked for a moment ago; this packet is not held.
        ///
        /// Causes: many packets for a host that has not answered yet: normal for the first packets of a flow, a scan or a host
        /// that is down otherwise.
        /// Check: `show ip neighbors` for the next hop; ping it from its own link.
        /// See: `show ip neighbors`, `set ip neighbor`.
        Throttled = "ARP requests throttled",
        /// One source wants more unknown neighbors than it may.
        ///
        /// Causes: a host scans a subnet behind the router.
        /// Check: find the source by a capture of drops, and stop the scan or block it.
        /// See: `pcap trace drop`, `show ip neighbor-stats`.
        SourceThrottled = "ARP requests throttled, source wants too many",
        /// More packets wait for the neighbor than are held; this one gave way to a later one.
        ///
        /// Causes: a flow began at full rate before its next hop was known.
        /// Check: nothing, if the neighbor answers: only the first packets are lost. Otherwise see `neighbour does not answer`.
        /// See: `show ip neighbors`, `explain drop neighbour-does-not-answer`.
        Excess = "more packets than are held for a neighbour",
        /// The neighbor did not answer; packets that waited for it are dropped.
        ///
        /// Causes: the next hop is down, has another address, or is on another link or VLAN; the route's next hop is wrong; the
        /// host's firewall drops ARP or neighbor discovery.
        /// Check: `show ip neighbors`, `ping NEXT-HOP`, and `pcap trace tx rx intfc IF` to see requests and answers. A host that
        /// never answers can be entered by hand: `set ip neighbor IF ADDRESS MAC`.
        /// See: `show ip neighbors`, `ping`, `set ip neighbor`.
        Unreachable = "neighbour does not answer",
        /// The interface has no address to ask from.
        ///
        /// Causes: the interface has no address in the subnet of the next hop.
        /// Check: `show interface address`, then `set interface ip address IF ADDRESS/LENGTH`.
        /// See: `show interface address`, `set interface ip address`.
        NoSource = "no source address for ARP request",
        /// No packet buffer was free for the request.
        ///
        /// Causes: the buffer pool is exhausted.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf.
        /// See: `show buffers`.
        NoBuffer = "ARP requests out of buffer",
        /// The next hop is not one that ARP can find.
        NoAdjacency = "ARPs to non-ARP adjacencies",
        /// The main thread has too many events waiting, so nobody asks for the neighbor.
        NotTold = "main thread too busy to be told",
    }
}
drop_reasons! {
    /// What is counted of IPv6 packets whose neighbour is not known; the order is that of [`Drop4`].
    pub enum Drop6 {
        /// The router asked for the MAC address of a next hop.
        RequestSent = "neighbor solicitations sent" (info),
        /// The next hop was asked for a moment ago; this packet is not held.
        ///
        /// Causes: many packets for a host that has not answered yet: normal for the first packets of a flow, a scan or a host
        /// that is down otherwise.
        /// Check: `show ip6 neighbors` for the next hop; ping it from its own link.
        /// See: `show ip6 neighbors`, `set ip neighbor`.
        Throttled = "neighbor solicitations throttled",
        /// One source wants more unknown neighbors than it may.
        ///
        /// Causes: a host scans a subnet behind the router.
        /// Check: find the source by a capture of drops, and stop the scan or block it.
        /// See: `pcap trace drop`, `show ip neighbor-stats`.
        SourceThrottled = "neighbor solicitations throttled, source wants too many",
        /// More packets wait for the neighbor than are held; this one gave way to a later one.
        ///
        /// Causes: a flow began at full rate before its next hop was known.
        /// Check: nothing, if the neighbor answers: only the first packets are lost. Otherwise see `neighbour does not answer`.
        /// See: `show ip neighbors`, `explain drop neighbour-does-not-answer`.
        Excess = "more packets than are held for a neighbour",
        /// The neighbor did not answer; packets that waited for it are dropped.
        ///
        /// Causes: the next hop is down, has another address, or is on another link or VLAN; the route's next hop is wrong; the
        /// host's firewall drops ARP or neighbor discovery.
        /// Check: `show ip neighbors`, `ping NEXT-HOP`, and `pcap trace tx rx intfc IF` to see requests and answers. A host that
        /// never answers can be entered by hand: `set ip neighbor IF ADDRESS MAC`.
        /// See: `show ip neighbors`, `ping`, `set ip neighbor`.
        Unreachable = "neighbour does not answer",
        /// The interface has no address to ask from.
        ///
        /// Causes: IPv6 is not enabled on the interface, or its address is still being checked (DAD).
        /// Check: `show ip6 interface`.
        /// See: `show ip6 interface`.
        NoSource = "no source address for ND solicitation",
        /// No packet buffer was free for the solicitation.
        ///
        /// Causes: the buffer pool is exhausted.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf.
        /// See: `show buffers`.
        NoBuffer = "neighbor solicitations out of buffer",
        /// The next hop is not one that neighbor discovery can find.
        NoAdjacency = "neighbor discovery for other adjacencies",
        /// The main thread has too many events waiting, so nobody asks for the neighbor.
        NotTold = "main thread too busy to be told",
    }
}

/// What differs between the families here.
pub(crate) trait AskFamily: LocalFamily {
    type Next: NextNodes;
    type Drop: DropReasons;
    const OUTPUT: Self::Next;
    const REWRITE: Self::Next;
    const ERROR: Self::Next;
    /// "Destination unreachable" for a neighbour that does not answer: host unreachable (RFC 1812, 5.2.7.1), address
    /// unreachable (RFC 4861, 7.2.2).
    const UNREACHABLE: u32;
    /// The node whose surroundings released packets are sent from.
    const NODE: &'static str;

    fn drop(reason: Drop4) -> Self::Drop;

    /// A request to everybody, as a frame; `None` where the interface has no address to ask from.
    fn request(view: &View, target: Self::Addr) -> Option<Vec<u8>>;

    /// A next hop of the other family, which is asked for by that family's means.
    fn other(next_hop: u128) -> Option<IpAddr>;
}

impl AskFamily for V4 {
    type Next = Next4;
    type Drop = Drop4;
    const OUTPUT: Next4 = Next4::Output;
    const REWRITE: Next4 = Next4::Rewrite;
    const ERROR: Next4 = Next4::IcmpError;
    const UNREACHABLE: u32 = icmp_aux(3, 1, 0);
    const NODE: &'static str = "ip4-arp";

    fn drop(reason: Drop4) -> Drop4 {
        reason
    }

    fn request(view: &View, target: u32) -> Option<Vec<u8>> {
        arp::request(view, target, None)
    }

    fn other(next_hop: u128) -> Option<IpAddr> {
        u32::try_from(next_hop).is_err().then(|| Ipv6Addr::from_bits(next_hop).into())
    }
}

impl AskFamily for V6 {
    type Next = Next6;
    type Drop = Drop6;
    const OUTPUT: Next6 = Next6::Output;
    const REWRITE: Next6 = Next6::Rewrite;
    const ERROR: Next6 = Next6::IcmpError;
    const UNREACHABLE: u32 = icmp_aux(1, 3, 0);
    const NODE: &'static str = "ip6-discover-neighbor";

    fn drop(reason: Drop4) -> Drop6 {
        match reason {
            Drop4::RequestSent => Drop6::RequestSent,
            Drop4::Throttled => Drop6::Throttled,
            Drop4::SourceThrottled => Drop6::SourceThrottled,
            Drop4::Excess => Drop6::Excess,
            Drop4::Unreachable => Drop6::Unreachable,
            Drop4::NoSource => Drop6::NoSource,
            Drop4::NoBuffer => Drop6::NoBuffer,
            Drop4::NoAdjacency => Drop6::NoAdjacency,
            Drop4::NotTold => Drop6::NotTold,
        }
    }

    fn request(view: &View, target: u128) -> Option<Vec<u8>> {
        nd::solicitation(view, target, None)
    }

    fn other(next_hop: u128) -> Option<IpAddr> {
        // No IPv6 neighbour has an address of ::/96, which stood for IPv4 once (RFC 4291, 2.5.5.1).
        u32::try_from(next_hop).ok().filter(|address| *address != 0).map(|address| Ipv4Addr::from_bits(address).into())
    }
}

/// Whom to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The next hop of the adjacency.
    NextHop,
    /// The packet's destination: it is on the link.
    Destination,
}

/// The node. Its packets are few, each of a link or a host that is new.
#[derive(Clone)]
pub(crate) struct Ask<F: AskFamily> {
    pub target: Target,
    pub holds: Holds,
    pub adjacencies: AdjTable,
    pub views: ViewSnapshot,
    /// That of this thread.
    pub hold: Arc<ThreadHold>,
    pub facts: FactSender,
    /// Requests that interfaces have sent.
    pub sent: Arc<SimpleCounters>,
    pub family: std::marker::PhantomData<F>,
}

impl<F: AskFamily> Ask<F> {
    /// `out` gets packets that must give way to this one.
    fn ask(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>, out: &mut Vec<Packet>) -> Verdict {
        let adjacency = self.adjacencies.get(packet.aux());
        let Some(view) = self.views.get().get(adjacency.tx_if) else {
            return packet.drop(F::drop(Drop4::NoAdjacency));
        };
        let other = F::other(adjacency.next_hop).filter(|_| self.target == Target::NextHop);
        if let Some(next_hop) = other {
            self.ask_other(cx, adjacency.tx_if, next_hop, &packet, out);
            return packet.drop(F::drop(Drop4::Throttled));
        }
        let target = match self.target {
            Target::NextHop => F::of_number(adjacency.next_hop),
            Target::Destination => F::destination(&packet),
        };
        let key: Key = (adjacency.tx_if, F::address(target));
        let owner = Owner::of(packet.rx_if(), F::address(F::addresses(&packet).0));
        let mut hold = self.hold.lock();
        match hold.advise(key, owner, cx.now(), out) {
            Advice::Throttled => return packet.drop(F::drop(Drop4::Throttled)),
            Advice::SourceThrottled => return packet.drop(F::drop(Drop4::SourceThrottled)),
            Advice::Wait => {}
            advice @ (Advice::Ask | Advice::AskAgain) => {
                let Some(request) = F::request(view, target) else {
                    hold.end(&key, out);
                    return packet.drop(F::drop(Drop4::NoSource));
                };
                self.send(cx, key, &request, advice);
            }
        }
        let (packet, verdict) = packet.take();
        hold.keep(key, owner, packet, out);
        verdict
    }
}

impl<F: AskFamily> Ask<F> {
    /// Asks for a neighbour of the other family that packets go to (RFC 8950). They are not held: what is held for a neighbour goes out by its own
    /// family's adjacency.
    fn ask_other(&mut self, cx: &mut NodeCx<'_>, interface: IfIndex, next_hop: IpAddr, packet: &Pkt<'_>, out: &mut Vec<Packet>) {
        let Some(view) = self.views.get().get(interface) else { return };
        let key: Key = (interface, next_hop);
        let owner = Owner::of(packet.rx_if(), F::address(F::addresses(packet).0));
        let mut hold = self.hold.lock();
        let advice = hold.advise(key, owner, cx.now(), out);
        if !matches!(advice, Advice::Ask | Advice::AskAgain) {
            return;
        }
        let request = match next_hop {
            IpAddr::V4(a) => arp::request(view, a.to_bits(), None),
            IpAddr::V6(a) => nd::solicitation(view, a.to_bits(), None),
        };
        let Some(request) = request else { return hold.end(&key, out) };
        self.send(cx, key, &request, advice);
    }

    /// Sends a request for a neighbour, and tells main of one that it does not know of yet.
    fn send(&self, cx: &mut NodeCx<'_>, key: Key, request: &[u8], advice: Advice) {
        send::<F>(cx, key.0, request, &self.sent);
        let now = cx.now();
        self.facts.asked.note(&key, now);
        let fact = Fact { interface: key.0, address: key.1, what: What::Wanted };
        if advice == Advice::Ask && !self.facts.tell(fact, now) {
            cx.count(F::drop(Drop4::NotTold), 1);
        }
    }
}

/// Sends a request out of an interface and counts it.
pub(crate) fn send<F: AskFamily>(cx: &mut NodeCx<'_>, interface: IfIndex, frame: &[u8], sent: &SimpleCounters) {
    match cx.alloc_bytes(frame, IfIndex::LOCAL0) {
        Some(mut packet) => {
            let mut view = cx.view(&mut packet);
            view.set_aux(interface.0);
            view.mark(flags::LOCAL);
            cx.emit(F::OUTPUT, packet);
            cx.count(F::drop(Drop4::RequestSent), 1);
            sent.add(cx.thread(), interface.0, 1);
        }
        None => cx.count(F::drop(Drop4::NoBuffer), 1),
    }
}

impl<F: AskFamily> Node for Ask<F> {
    type Next = F::Next;
    type Drop = F::Drop;
    const CONSUMES: bool = true;

    fn start(&mut self, thread: usize) {
        self.hold = self.holds.of(thread);
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.views.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        let mut out = Vec::new();
        let verdict = self.ask(cx, packet, &mut out);
        for packet in out {
            cx.drop_packet(packet, F::drop(Drop4::Excess));
        }
        verdict
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        // The hold is shared by the thread's nodes; whichever goes first gives everything back.
        let mut out = Vec::new();
        self.hold.lock().end_where(|_| true, &mut out);
        give_up::<F>(cx, out);
    }
}

/// Sends a frame out of an interface.
pub(super) fn send_plain(cx: &mut NodeCx<'_>, interface: IfIndex, frame: &[u8]) {
    if let Some(mut packet) = cx.alloc_bytes(frame, IfIndex::LOCAL0) {
        let mut view = cx.view(&mut packet);
        view.set_aux(interface.0);
        view.mark(flags::LOCAL);
        cx.emit(V4::OUTPUT, packet);
    }
}

/// Drops packets whose neighbour will not be known.
pub(super) fn give_up<F: AskFamily>(cx: &mut NodeCx<'_>, packets: Vec<Packet>) {
    for packet in packets {
        cx.drop_packet(packet, F::drop(Drop4::Unreachable));
    }
}

/// What has become of a neighbour that packets may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its MAC address is known: packets go out by this adjacency.
    Found(u32),
    /// It does not answer.
    Silent,
    /// Nobody wants to know any more (interface gone or down, entry pushed out).
    Forgotten,
}

/// Sends or drops what a thread holds for neighbours of one family whose fate is decided. Runs on that thread.
pub(crate) fn settle<F: AskFamily>(cx: &mut NodeCx<'_>, hold: &ThreadHold, outcomes: &[(Key, Outcome)]) {
    let mut out = Vec::new();
    for (key, outcome) in outcomes {
        hold.lock().end(key, &mut out);
        for mut packet in out.drain(..) {
            let mut view = cx.view(&mut packet);
            match outcome {
                Outcome::Found(adjacency) => {
                    view.set_aux(*adjacency);
                    cx.emit(F::REWRITE, packet);
                }
                Outcome::Silent if !view.has(flags::LOCAL) => {
                    view.set_aux(F::UNREACHABLE);
                    cx.emit(F::ERROR, packet);
                }
                Outcome::Silent | Outcome::Forgotten => cx.drop_packet(packet, F::drop(Drop4::Unreachable)),
            }
        }
    }
}
