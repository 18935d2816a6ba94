//! Commands that VPP's users know and that this router has not, for an error that says so. `docs/coming-from-vpp.md` has the same
//! list for readers; whoever builds one of these takes it from both.

use quiver_command::operation::Absent;

/// The commands, by what they are about.
pub const ABSENT: &[Absent] = &[
    absent("abf", "policy routes (ABF)"),
    absent("show abf", "policy routes (ABF)"),
    absent("app", "application namespaces of the host stack"),
    absent("show app", "application namespaces of the host stack"),
    absent("bier", "BIER tables"),
    absent("show bier", "BIER tables"),
    absent("set interface l2 input classify", "classifier tables that choose the next node of a frame")
        .use_instead("`set interface input acl'"),
    absent("set interface l2 output classify", "classifier tables that choose the next node of a frame")
        .use_instead("`set interface output acl'"),
    absent("cnat", "services of CNAT"),
    absent("show cnat", "services of CNAT"),
    absent("create geneve", "tunnels"),
    absent("create gre", "tunnels"),
    absent("create gtpu", "tunnels"),
    absent("create ipip", "tunnels"),
    absent("create 6rd", "tunnels"),
    absent("create vxlan-gpe", "tunnels"),
    absent("create teib", "tunnels"),
    absent("delete ipip", "tunnels"),
    absent("show geneve", "tunnels"),
    absent("show gre", "tunnels"),
    absent("show gtpu", "tunnels"),
    absent("show ipip", "tunnels"),
    absent("show teib", "tunnels"),
    absent("show vxlan-gpe", "tunnels"),
    absent("set interface ip vxlan-bypass", "a shorter path of VXLAN packets past the routes"),
    absent("create interface rdma", "devices of RDMA, other than through DPDK,"),
    absent("delete interface rdma", "devices of RDMA, other than through DPDK,"),
    absent("show rdma", "devices of RDMA, other than through DPDK,"),
    absent("create interface virtio", "devices of virtio, other than through DPDK,"),
    absent("delete interface virtio", "devices of virtio, other than through DPDK,"),
    absent("create interface vmxnet3", "devices of vmxnet3, other than through DPDK,"),
    absent("delete interface vmxnet3", "devices of vmxnet3, other than through DPDK,"),
    absent("show vmxnet3", "devices of vmxnet3, other than through DPDK,"),
    absent("device", "devices of VPP's own drivers")
        .use_instead("`dpdk { dev ... }' in startup.conf, or `create interface af_xdp'"),
    absent("show device", "devices of VPP's own drivers")
        .use_instead("`dpdk { dev ... }' in startup.conf, or `create interface af_xdp'"),
    absent("create interface avf", "devices of VPP's own drivers")
        .use_instead("`dpdk { dev ... }' in startup.conf, or `create interface af_xdp'"),
    absent("create vhost-user", "vhost-user interfaces"),
    absent("delete vhost-user", "vhost-user interfaces"),
    absent("show vhost-user", "vhost-user interfaces"),
    absent("create pppoe", "PPPoE sessions"),
    absent("show pppoe", "PPPoE sessions"),
    absent("create l2tpv3", "L2TPv3 tunnels"),
    absent("show l2tpv3", "L2TPv3 tunnels"),
    absent("det44", "deterministic NAT and other translations but NAT44"),
    absent("dslite", "deterministic NAT and other translations but NAT44"),
    absent("map", "deterministic NAT and other translations but NAT44"),
    absent("nat64", "deterministic NAT and other translations but NAT44"),
    absent("nat66", "deterministic NAT and other translations but NAT44"),
    absent("pnat", "deterministic NAT and other translations but NAT44"),
    absent("nat44 ei", "deterministic NAT and other translations but NAT44"),
    absent("show det44", "deterministic NAT and other translations but NAT44"),
    absent("show dslite", "deterministic NAT and other translations but NAT44"),
    absent("show map", "deterministic NAT and other translations but NAT44"),
    absent("show nat64", "deterministic NAT and other translations but NAT44"),
    absent("show nat66", "deterministic NAT and other translations but NAT44"),
    absent("dhcp", "DHCP clients and relays"),
    absent("dhcp6", "DHCP clients and relays"),
    absent("set dhcp", "DHCP clients and relays"),
    absent("set dhcp6", "DHCP clients and relays"),
    absent("show dhcp", "DHCP clients and relays"),
    absent("show dhcp6", "DHCP clients and relays"),
    absent("dns", "DNS resolvers"),
    absent("show dns", "DNS resolvers"),
    absent("flow", "flow rules of devices"),
    absent("test flow", "flow rules of devices"),
    absent("show flow", "flow rules of devices"),
    absent("http", "servers of the host stack"),
    absent("quic", "servers of the host stack"),
    absent("session", "servers of the host stack"),
    absent("srtp", "servers of the host stack"),
    absent("tcp", "servers of the host stack"),
    absent("tls", "servers of the host stack"),
    absent("udp", "servers of the host stack"),
    absent("show http", "servers of the host stack"),
    absent("show quic", "servers of the host stack"),
    absent("show session verbose", "servers of the host stack"),
    absent("show tcp", "servers of the host stack"),
    absent("show tls", "servers of the host stack"),
    absent("igmp", "IGMP for programs and as a router").use_instead("`show ip groups'"),
    absent("mfib", "signals of multicast packets"),
    absent("show igmp", "IGMP for programs and as a router").use_instead("`show ip groups'"),
    absent("clear ipsec", "IPsec and WireGuard"),
    absent("ikev2", "IPsec and WireGuard"),
    absent("ipsec", "IPsec and WireGuard"),
    absent("set interface ipsec", "IPsec and WireGuard"),
    absent("set ipsec", "IPsec and WireGuard"),
    absent("show crypto", "IPsec and WireGuard"),
    absent("show ikev2", "IPsec and WireGuard"),
    absent("show ipsec", "IPsec and WireGuard"),
    absent("show wireguard", "IPsec and WireGuard"),
    absent("wireguard", "IPsec and WireGuard"),
    absent("ioam", "records of OAM in packets"),
    absent("set ioam", "records of OAM in packets"),
    absent("show ioam", "records of OAM in packets"),
    absent("lb", "load balancers"),
    absent("show lb", "load balancers"),
    absent("gpe", "LISP mappings"),
    absent("lisp", "LISP mappings"),
    absent("one", "LISP mappings"),
    absent("show gpe", "LISP mappings"),
    absent("show lisp", "LISP mappings"),
    absent("show one", "LISP mappings"),
    absent("mpls", "MPLS labels"),
    absent("set interface mpls", "MPLS labels"),
    absent("set mpls", "MPLS labels"),
    absent("show mpls", "MPLS labels"),
    absent("create nsh", "NSH chains"),
    absent("nsh", "NSH chains"),
    absent("show nsh", "NSH chains"),
    absent("set sr", "SRv6 policies"),
    absent("show sr", "SRv6 policies"),
    absent("sr", "SRv6 policies"),
    absent("nsim", "network simulators"),
    absent("set nsim", "network simulators"),
    absent("show nsim", "network simulators"),
    absent("mactime", "limits by MAC address"),
    absent("show mactime", "limits by MAC address"),
    absent("create p2p_ethernet", "interfaces between two MAC addresses (P2P)"),
    absent("qos", "QoS maps"),
    absent("show qos", "QoS maps"),
    absent("prom", "Prometheus exporters").use_instead("`quiver-metrics' (docs/metrics.md)"),
    absent("delete acl-plugin macip", "access lists by MAC and IP address (MACIP)").use_instead("`set interface input acl'"),
    absent("set acl-plugin macip", "access lists by MAC and IP address (MACIP)").use_instead("`set interface input acl'"),
    absent("show acl-plugin macip", "access lists by MAC and IP address (MACIP)").use_instead("`set interface input acl'"),
    absent("show acl-plugin decode", "views of VPP's lookup structures of access lists"),
    absent("show acl-plugin lookup", "views of VPP's lookup structures of access lists"),
    absent("show acl-plugin tables", "views of VPP's lookup structures of access lists"),
    absent("snort", "filters by Snort"),
    absent("show snort", "filters by Snort"),
    absent("set interface secondary-mac-address", "second MAC addresses"),
    absent("set interface tcp-mss-clamp", "clamps of TCP segments on interfaces")
        .use_instead("`nat mss-clamping' on interfaces of NAT44"),
    absent("set interface tx-queue", "choices of transmit queues"),
    absent("test l2patch", "cross-patches of interfaces").use_instead("`set interface l2 xconnect'"),
    absent("show svs", "tables that are chosen by source address (SVS)"),
    absent("svs", "tables that are chosen by source address (SVS)"),
    absent("lcp osi-proto", "protocols of OSI in the Linux control plane"),
    absent("lcp param", "routes of Linux that outlive their link"),
    absent("lcp lcp-sync-unnumbered", "unnumbered interfaces in the Linux control plane"),
];

const fn absent(words: &'static str, subject: &'static str) -> Absent {
    Absent { words, subject, instead: None }
}

#[cfg(test)]
mod tests {
    use quiver_net::testing::Harness;

    use crate::ops::testing::error;

    /// The first words of the commands of VPP 26.06 and of its plugins, of which a router with all of ours has others.
    const VPP: &[&str] = &[
        "abf",
        "app",
        "bier",
        "cnat",
        "det44",
        "device",
        "dhcp",
        "dhcp6",
        "dns",
        "dslite",
        "flow",
        "gpe",
        "http",
        "igmp",
        "ikev2",
        "ioam",
        "ipsec",
        "lb",
        "lisp",
        "mactime",
        "map",
        "mfib",
        "mpls",
        "nat64",
        "nat66",
        "nsh",
        "nsim",
        "one",
        "pnat",
        "prom",
        "qos",
        "quic",
        "session",
        "snort",
        "sr",
        "srtp",
        "svs",
        "tcp",
        "tls",
        "udp",
        "wireguard",
    ];

    #[test]
    fn a_command_of_vpp_that_is_not_there_says_so() {
        let mut h = Harness::new();
        for &word in VPP {
            for line in [word.to_owned(), format!("{word} add x 1"), format!("help {word}"), format!("{word} ?")] {
                let error = error(&mut h.router, &line);
                assert!(error.contains("are not built yet; "), "{line}: {error}");
            }
        }
    }

    #[test]
    fn what_does_it_instead_is_named() {
        let mut h = Harness::new();
        let said = error(&mut h.router, "set interface l2 input classify intfc x0");
        assert!(said.contains("set interface input acl"), "{said}");
        assert!(error(&mut h.router, "show acl-plugin tables acl").contains("see docs/coming-from-vpp.md"));
    }
}
