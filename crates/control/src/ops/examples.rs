//! Lines that `help` and the reference show as examples. Plugins add those of their own commands.

/// The examples, in order of their words. Names in them agree: `host-eth1` is a port, 10 a bridge domain, 5 a table.
pub const EXAMPLES: &[&str] = &[
    "adjacency counters enable",
    "api trace on",
    "api trace save calls.trace",
    "apply router.yaml plan",
    "clear hardware-interfaces memif0/0",
    "clear interfaces memif0/0",
    "clear session 3",
    "configuration checkpoint monday comment \"before the new uplink\"",
    "create bridge-domain 10 learn 1 mac-age 5",
    "create host-interface name eth1",
    "create interface af_xdp host-if eth1 num-rx-queues 2",
    "create interface memif id 0 master",
    "create loopback interface instance 0",
    "create memif socket id 1 filename /run/quiver/peer.sock",
    "create packet-generator interface pg0",
    "create pcap-interface name replay rx in.pcap tx out.pcap timing max",
    "create sub-interfaces host-eth1 100",
    "create tap id 0 host-if-name tap0 host-ip4-addr 10.0.0.2/24",
    "define UPLINK host-eth1",
    "delete host-interface name eth1",
    "delete interface af_xdp eth1/0",
    "delete interface memif memif0/0",
    "delete loopback interface intfc loop0",
    "delete memif socket id 1",
    "delete packet-generator interface pg0",
    "delete pcap-interface replay",
    "delete sub-interface host-eth1.100",
    "delete tap tap0",
    "disable ip6 interface host-eth1",
    "enable ip6 interface host-eth1",
    "event-logger save events.elog",
    "exec setup.cli",
    "explain drop no route",
    "ip neighbor host-eth1 10.0.0.2 02:00:00:00:00:02 static",
    "ip punt redirect add rx host-eth1 via 10.0.0.2 tap0",
    "ip route add 192.0.2.0/24 via 10.0.0.2 host-eth1",
    "ip table add 5 name blue",
    "ip6 nd host-eth1 prefix 2001:db8:1::/64",
    "ip6 punt redirect add rx all via 2001:db8::2 tap0",
    "ip6 table add 5 name blue",
    "l2fib add 02:00:00:00:00:02 10 host-eth1 static",
    "l2fib del 02:00:00:00:00:02 10",
    "l2fib flush-mac bridge-domain 10",
    "l2fib flush-mac interface host-eth1",
    "packet-generator capture pg0 pcap out.pcap count 100",
    "packet-generator configure x rate 1000",
    "packet-generator delete x",
    "packet-generator disable-stream x",
    "packet-generator enable-stream x",
    "packet-generator new name x limit 100 interface pg0 pcap in.pcap",
    "pcap trace rx tx max 1000 file ports.pcap",
    "perfmon start",
    "ping 10.0.0.2 repeat 3",
    "rollback monday",
    "save router.cli",
    "set arp proxy start 10.0.0.10 end 10.0.0.20",
    "set bridge-domain arp entry 10 10.0.0.2 02:00:00:00:00:02",
    "set bridge-domain arp term 10",
    "set bridge-domain arp-ufwd 10",
    "set bridge-domain flood 10 disable",
    "set bridge-domain forward 10",
    "set bridge-domain learn 10 disable",
    "set bridge-domain learn-limit 10 1000",
    "set bridge-domain mac-age 10 5",
    "set bridge-domain uu-flood 10 disable",
    "set clock adjust 0.5",
    "set fusion off",
    "set interface default rx-mode interrupt",
    "set interface feature host-eth1 rss arc device-input",
    "set interface handoff host-eth1 workers 0-1",
    "set interface ip address host-eth1 10.0.0.1/24",
    "set interface ip directed-broadcast host-eth1 enable",
    "set interface ip table host-eth1 5",
    "set interface ip6 table host-eth1 5",
    "set interface l2 bridge host-eth1 10",
    "set interface l2 flood host-eth1 disable",
    "set interface l2 forward host-eth1",
    "set interface l2 learn host-eth1 disable",
    "set interface l2 learn-limit host-eth1 100",
    "set interface l2 tag-rewrite host-eth1.100 pop 1",
    "set interface l2 xconnect host-eth1 host-eth2",
    "set interface l3 host-eth1",
    "set interface mac address host-eth1 02:00:00:00:00:01",
    "set interface mtu 1400 host-eth1",
    "set interface name host-eth1 uplink",
    "set interface promiscuous on host-eth1",
    "set interface proxy-arp host-eth1 enable",
    "set interface rss host-eth1 workers 0-1 symmetric",
    "set interface rx-mode host-eth1 polling",
    "set interface rx-placement host-eth1 queue 0 worker 1",
    "set interface state host-eth1 up",
    "set interface tag host-eth1 customer-7",
    "set interface unnumbered tap0 use host-eth1",
    "set ip flow-hash table 0 src dst proto",
    "set ip icmp-rate-limit ip4 total 1000",
    "set ip neighbor host-eth1 10.0.0.2 02:00:00:00:00:02 static",
    "set ip neighbor-config ip4 age 300",
    "set ip pmtu 10.0.0.2 1400",
    "set ip4-full-reassembly timeout 500",
    "set ip6 dad enable transmits 2",
    "set ip6 flow-hash table 0 src dst flowlabel",
    "set ip6-full-reassembly timeout 500",
    "set logging class interface level debug",
    "set logging size 1000",
    "set logging unthrottle-time 10",
    "set node ip4-lookup multi-loop 8 prefetch 4",
    "set node function ip4-lookup v3",
    "set punt ip4 udp 4500",
    "set terminal pager off",
    "set trace timestamp-format datetime",
    "set vector-size 64",
    "set workers 2",
    "show adj 4",
    "show bridge-domain 10 detail",
    "show configuration diff monday",
    "show errors verbose",
    "show hardware-interfaces host-eth1",
    "show interface host-eth1",
    "show interface features host-eth1",
    "show interface rss host-eth1",
    "show interface rx-placement host-eth1",
    "show ip fib 192.0.2.1",
    "show ip neighbors host-eth1",
    "show ip6 fib 2001:db8::1",
    "show l2fib verbose",
    "show memif memif0/0",
    "show node ip4-lookup",
    "show runtime verbose",
    "show trace max 10",
    "show vlib graph ip4-lookup",
    "show vlib graph svg file graph.svg",
    "show vlib graphviz file graph.dot",
    "test interface link-state pg0 down",
    "trace add af-packet-input 10",
    "trace filter include ip4-drop 10",
    "undefine UPLINK",
];

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    use crate::ops::testing::{registry, run};

    #[test]
    fn every_example_can_be_read() {
        let (mut h, registry) = (Harness::new(), registry());
        // Parsers that are written by hand know what is no interface.
        run(&mut h.router, "create loopback interface");
        run(&mut h.router, "set interface name loop0 host-eth1");
        let wrong = registry.wrong_examples(&h.router);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_command_that_needs_arguments_has_an_example() {
        let registry = registry();
        let lacks = |command: &quiver_command::grammar::CommandHelp| {
            let optional = command.syntax.is_empty() || command.syntax.starts_with('[') || command.path.starts_with("show ");
            command.example.is_none() && !optional
        };
        let missing: Vec<_> = registry.commands().filter(lacks).map(|command| command.path).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
