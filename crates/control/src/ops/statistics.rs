//! `show statistics segment`: what readers of the statistics find there.

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowStatistics>();
}

/// What entries mean, by name. `<x>` is one part of a name, or its end.
pub const MEANINGS: &[(&str, &str)] = &[
    ("/acl/<acl>/matches", "Packets and bytes that rules of an access list decided on, by rule"),
    ("/bfd/rx-session-echo-counters", "Packets and bytes of own BFD echo packets that came back, by session"),
    ("/bfd/rx-session-counters", "Packets and bytes of BFD received, by session"),
    ("/bfd/tx-session-counters", "Packets and bytes of BFD sent, by session"),
    ("/bfd/tx-session-echo-counters", "Packets and bytes of BFD echo packets sent, by session"),
    ("/bfd/udp4/sessions_mh", "Multihop BFD sessions between IPv4 addresses"),
    ("/bfd/udp4/sessions", "BFD sessions between IPv4 addresses"),
    ("/bfd/udp6/sessions_mh", "Multihop BFD sessions between IPv6 addresses"),
    ("/bfd/udp6/sessions", "BFD sessions between IPv6 addresses"),
    ("/buffer-pools/<pool>/available", "Buffers that are free"),
    ("/buffer-pools/<pool>/cached", "Buffers that are free and in the cache of a thread"),
    ("/buffer-pools/<pool>/used", "Buffers with packets in them"),
    ("/err/<node>/<reason>", "One drop reason or event of a node, a link to `/node/errors`"),
    ("/if/drops", "Packets that were received here and dropped"),
    ("/if/ip4", "IPv4 packets received"),
    ("/if/ip6", "IPv6 packets received"),
    ("/if/names", "Names of interfaces, by index"),
    ("/if/punt", "Packets that were received here and handed to the host"),
    ("/if/rx", "Packets and bytes received"),
    ("/if/rx-broadcast", "Frames for all received"),
    ("/if/rx-error", "Packets that arrived damaged"),
    ("/if/rx-miss", "Packets that the device lost before the router saw them"),
    ("/if/rx-multicast", "Frames for groups received"),
    ("/if/rx-no-buf", "Packets for which there was no buffer"),
    ("/if/rx-unicast", "Frames for one host received"),
    ("/if/tx", "Packets and bytes sent"),
    ("/if/tx-broadcast", "Frames for all sent"),
    ("/if/tx-error", "Packets that could not be sent"),
    ("/if/tx-multicast", "Frames for groups sent"),
    ("/if/tx-unicast", "Frames for one host sent"),
    ("/interfaces/<if>/<counter>", "One counter of one interface, a link to `/if/<counter>`"),
    ("/nat44-ed/<direction>/<path>/drops", "Packets that NAT44 dropped, by interface"),
    ("/nat44-ed/<direction>/<path>/icmp", "ICMP messages translated, by interface"),
    ("/nat44-ed/<direction>/<path>/other", "Packets of other protocols translated, by interface"),
    ("/nat44-ed/<direction>/<path>/tcp", "TCP segments translated, by interface"),
    ("/nat44-ed/<direction>/<path>/udp", "UDP datagrams translated, by interface"),
    ("/nat44-ed/max-cfg-sessions", "Sessions that NAT44 may have"),
    ("/nat44-ed/total-sessions", "Sessions that NAT44 has, by thread"),
    ("/net/adjacency", "Packets and bytes to each neighbor, by adjacency"),
    ("/net/arp/<direction>/gratuitous", "Gratuitous ARP messages, by interface"),
    ("/net/arp/<direction>/replies", "ARP replies, by interface"),
    ("/net/arp/<direction>/requests", "ARP requests, by interface"),
    ("/net/ip4/fib/memory", "Memory of IPv4 routing tables, bytes"),
    ("/net/ip4/fib/routes", "Prefixes in IPv4 routing tables"),
    ("/net/ip4/fib/tables", "IPv4 routing tables"),
    ("/net/ip4/neighbors", "IPv4 neighbors"),
    ("/net/ip6-nd/<direction>/<message>", "Messages of neighbor discovery, by interface"),
    ("/net/ip6/fib/memory", "Memory of IPv6 routing tables, bytes"),
    ("/net/ip6/fib/routes", "Prefixes in IPv6 routing tables"),
    ("/net/ip6/fib/tables", "IPv6 routing tables"),
    ("/net/ip6/neighbors", "IPv6 neighbors"),
    ("/net/mroute", "Packets and bytes by multicast route"),
    ("/net/policer/conform", "Packets and bytes that conform, by policer"),
    ("/net/policer/exceed", "Packets and bytes that exceed, by policer"),
    ("/net/policer/violate", "Packets and bytes that violate, by policer"),
    ("/net/route/to", "Packets and bytes by route; routes with the same paths count together"),
    ("/node/errors", "All drop reasons and events of nodes; `/err` names them"),
    ("/nodes/<node>/<counter>", "One counter of one node, a link to `/sys/node/<counter>`"),
    ("/sys/boottime", "When the router was started, Unix time"),
    ("/sys/heartbeat", "Goes up with each update of the gauges"),
    ("/sys/input_rate", "Packets received a second"),
    ("/sys/last_stats_clear", "When all counters were cleared, which is never"),
    ("/sys/last_update", "Seconds from the start to the last update of the gauges"),
    ("/sys/loops_per_worker", "Poll iterations a second, by thread"),
    ("/sys/node/calls", "Calls of each node"),
    ("/sys/node/clocks", "Processor clocks spent in each node"),
    ("/sys/node/names", "Names of nodes, by index"),
    ("/sys/node/suspends", "How often each process node waited"),
    ("/sys/node/vectors", "Packets that each node has handled"),
    ("/sys/num_worker_threads", "Number of workers"),
    ("/sys/vector_rate", "Packets a call of a node, mean over threads"),
    ("/sys/vector_rate_per_worker", "Packets a call of a node, by thread"),
    ("/vrrp/ip4/routers", "Virtual routers of IPv4"),
    ("/vrrp/ip6/routers", "Virtual routers of IPv6"),
];

/// What an entry means.
pub fn meaning(name: &str) -> Option<&'static str> {
    MEANINGS.iter().find(|(pattern, _)| fits(pattern, name)).map(|(_, meaning)| *meaning)
}

/// Whether a name is of this form: the last `<x>` may stand for several parts.
fn fits(pattern: &str, name: &str) -> bool {
    let (mut parts, mut words) = (name.split('/'), pattern.split('/').peekable());
    while let Some(word) = words.next() {
        let Some(part) = parts.next() else { return false };
        match word.starts_with('<') {
            true if words.peek().is_none() => return true,
            true => {}
            false if word != part => return false,
            false => {}
        }
    }
    parts.next().is_none()
}

request! {
    /// Lists the entries of the statistics segment, without the links to them, and what they mean.
    pub read ShowStatistics "statistics_segment_show" ["show statistics segment"] {
        /// Also the links, one for each interface, node and reason.
        pub verbose: bool = "verbose",
    }
}

/// An entry of the statistics segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its kind: `counters`, `packets and bytes`, `names`, `number`, `gauge` or `link`.
    pub kind: &'static str,
    /// What it means.
    pub meaning: Option<&'static str>,
}

/// The answer of [`ShowStatistics`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Rows(pub Vec<Row>);

impl Execute<Router> for ShowStatistics {
    type Reply = Rows;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Rows>, OpError> {
        let rows = router.graph.stats().entries().into_iter().filter(|(_, kind)| self.verbose || *kind != "link");
        let rows = rows.map(|(name, kind)| Row { meaning: meaning(&name), name, kind });
        Ok(Outcome::Done(Rows(rows.collect())))
    }
}

impl Text for Rows {
    fn text(&self, out: &mut String, _view: &View) {
        let table = TextTable::new()
            .column("Name", 40, Align::Left)
            .column("Kind", 20, Align::Left)
            .column("Meaning", 0, Align::Left)
            .trim();
        table.heading(out);
        self.0.iter().for_each(|row| table.row(out, &[&row.name, &row.kind, &row.meaning.unwrap_or_default()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::run;
    use quiver_net::testing::Harness;

    #[test]
    fn a_pattern_stands_for_names_of_its_form() {
        assert!(fits("/if/rx", "/if/rx") && !fits("/if/rx", "/if/rx-miss") && !fits("/if/rx", "/if/rx/x"));
        assert!(fits("/buffer-pools/<pool>/used", "/buffer-pools/default-numa-0/used"));
        assert!(!fits("/buffer-pools/<pool>/used", "/buffer-pools/default-numa-0/cached"));
        assert!(fits("/err/<node>/<reason>", "/err/arp-reply/a reason with / in it") && !fits("/err/<node>/<reason>", "/err/x"));
    }

    #[test]
    fn entries_are_listed_and_links_only_where_they_are_asked_for() {
        let mut h = Harness::new();
        let short = run(&mut h.router, "show statistics segment");
        assert!(
            short.contains("/if/rx-miss") && short.contains("the router saw them") && !short.contains("/interfaces/"),
            "{short}"
        );
        assert!(run(&mut h.router, "show statistics segment verbose").contains("/interfaces/local0/rx"));
    }
}
