//! `nat44-log`: datagrams of the mapping log as packets of this router. The first worker sends them from here; no packet comes to it.

use quiver_graph::{Node, NodeCx, NodeSpec, Pkt, Verdict, drop_reasons};
use quiver_net::Router;
use quiver_net::local::datagram::{Lookup, UdpPath};

drop_reasons! {
    /// What is counted where datagrams are sent.
    pub enum Event {
        /// A datagram left for the lookup.
        Sent = "datagrams sent" (info),
        /// Buffers had run out: the datagram is lost.
        NoBuffer = "datagrams lost: no buffers",
    }
}

const NODE: &str = "nat44-log";

#[derive(Clone)]
struct Log;

impl Node for Log {
    type Next = Lookup;
    type Drop = Event;

    fn packet(&mut self, _cx: &mut NodeCx<'_>, _packet: Pkt<'_>) -> Verdict {
        Lookup::V4.into()
    }
}

pub(super) fn node() -> NodeSpec {
    NodeSpec::node(NODE, Log)
}

/// Sends datagrams; gives how many left.
pub(crate) fn send(router: &mut Router, path: UdpPath, datagrams: Vec<Vec<u8>>) -> u64 {
    let Some(node) = router.graph.node(NODE) else { return 0 };
    let send = move |cx: &mut NodeCx<'_>| {
        let mut packet = Vec::new();
        let sent = datagrams.iter().filter(|datagram| path.send(cx, datagram, &mut packet)).count() as u64;
        cx.count(Event::Sent, sent);
        cx.count(Event::NoBuffer, datagrams.len() as u64 - sent);
        sent
    };
    let thread = router.staying_workers()[0];
    router.graph.fleet().on(thread, move |worker| worker.at_node(node, send)).flatten().unwrap_or_default()
}
