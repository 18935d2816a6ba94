//! Descriptions of arguments that hand-written parsers take, for the reference. Plugins describe the arguments of their own commands.

use quiver_command::operation::Argument;

/// Arguments of [`delete`](DELETE) commands by a name.
const DELETE: &[Argument] = &[("<if>", "interface", "Interface; `kind` in a request is the word for its kind, which must agree")];

const NEIGHBOR: &[Argument] = &[
    ("[del]", "remove", "Removes instead of adding"),
    ("<if>", "interface", "Interface"),
    ("[<ip>]", "address", "Address, IPv4 or IPv6; the first where there are several"),
    ("[<mac>]", "mac", "MAC address; not needed for removal"),
    ("[static]", "permanent", "Never aged and never asked for, whatever is heard"),
    ("[no-fib-entry]", "no_fib_entry", "Without a host route"),
    ("[count <n>]", "count", "Neighbors in a row, both addresses counting up; 1 to 4294967295; 1 unless given"),
    ("[flush]", "", "Forgets all neighbors of the interface instead: operation `ip_neighbor_flush`"),
];

const PUNT_FAMILY: Argument = ("[ip4|ipv4|ip6|ipv6]", "family", "Family; IPv4 unless given");
const PUNT_LAYER: Argument = ("[udp|tcp]", "protocol", "Upper layer of the port; UDP unless given");
const PUNT_PORT: Argument = ("<port>", "port", "Port, 0 to 65535");
const PUNT_PROTOCOL: Argument = ("protocol <n>", "ip_protocol", "All packets of an IP protocol that no node takes, by its number");
const PUNT_REASON: Argument = (
    "reason <reason>",
    "reason",
    "Packets punted for a reason: `ipsec4-no-such-tunnel`, `ipsec6-no-such-tunnel`, `ipsec4-spi-o-udp-0`",
);
const PUNT_SOCKET: Argument = ("socket <path>", "socket", "Path of the program's socket");

const REDIRECT: &[Argument] = &[
    ("[add|del]", "remove", "`add` unless given, in place of another redirect of the interface; `del` needs no path"),
    ("rx <if>|all", "rx", "Receiving interface; `all`: every interface without a redirect of its own"),
    ("via [<next-hop>]", "paths[].next_hop", "Neighbour; without it the one with the packet's own destination"),
    ("<tx-if>", "paths[].interface", "Interface that packets leave by"),
    ("[via ...]", "paths[]", "Further paths, over which packets spread by their addresses"),
];

const ROUTES: &[Argument] = &[
    ("[summary]", "summary", "Only how many routes there are, by length"),
    ("[table <id>]", "table", "One table, 0 to 4294967295; all where absent"),
    ("[<addr>]", "address", "The route that decides about this address"),
    ("[<prefix>]", "prefix", "The route of exactly this prefix"),
    ("[detail]", "detail", "Paths and sources too"),
    ("[memory]", "memory", "Only how much memory tables take"),
];

const ERRORS: &[Argument] =
    &[("[verbose]", "verbose", "By thread too"), ("[<n>]", "zeros", "2 and more: counters that are zero too")];

const FLOW_HASH: &[Argument] = &[
    ("table <id>", "table", "Table, 0 to 4294967295; 0 unless given"),
    ("[src] [dst] [sport] [dport] [proto]", "take[]", "Parts of the packet that count; at least one"),
    ("[reverse]", "take[]", "Source and destination change places in the hash"),
    ("[gtpv1teid]", "take[]", "The tunnel's number, of GTP-U"),
    ("[symmetric]", "take[]", "Both directions of a flow take the same path"),
];

const FLOW_HASH_6: &[Argument] =
    &[FLOW_HASH[0], FLOW_HASH[1], FLOW_HASH[2], FLOW_HASH[3], ("[flowlabel]", "take[]", "The flow label"), FLOW_HASH[4]];

const STREAM: [Argument; 5] = [
    ("[limit <n>]", "limit", "Packets to send; 0: without end. A capture is sent once unless given"),
    ("[rate <pps>]", "rate", "Packets a second; 0: as fast as possible"),
    ("[size <range>]", "size", "Bytes without FCS, 1 to 65535: `64`, `64-1518` (counted up) or `64+1518` (drawn at random)"),
    ("[maxframe <n>]", "max_frame", "Largest vector; 1 to 1024"),
    ("[worker <n>]", "worker", "Worker that sends, from 0"),
];

const WORKERS: Argument = ("workers <list>", "workers", "Workers, numbered from 0, such as `0-2,5`");
const NO_WORKERS: Argument = ("disable", "", "Packets stay with the worker that polls the queue: an empty list of workers");

/// The arguments, by command.
pub const ARGUMENTS: &[(&str, &[Argument])] = &[
    ("adjacency counters", &[("enable", "enable", "On; they cannot be switched off")]),
    ("bvi delete", &[("<if>", "interface", "A BVI")]),
    (
        "create packet-generator interface",
        &[
            ("<pg>", "number", "`pg` and a number, 0 to 4294967295"),
            ("[hw-addr <mac>]", "mac", "MAC address; made from the name unless given"),
            ("[mode ethernet|ip4|ip6]", "mode", "What its packets begin with; `ethernet` unless given"),
        ],
    ),
    (
        "create sub-interfaces",
        &[
            ("<if>", "interface", "Main interface"),
            ("<id>", "first", "Number in the name; the VLAN id too where no tag is named. `last` is the same in a request"),
            ("<min>-<max>", "last", "One sub-interface for each of these numbers"),
            ("[default]", "matching", "Takes what no other sub-interface takes"),
            ("[untagged]", "matching", "Takes frames without a tag"),
            ("[dot1q|dot1ad <vlan>|any]", "matching.tagged.outer", "Outer tag, 802.1Q or 802.1ad; VLAN id 0 to 4095, or any"),
            ("[inner-dot1q <vlan>|any]", "matching.tagged.inner", "Inner tag, 802.1Q; VLAN id 0 to 4095, or any"),
            ("[exact-match]", "matching.tagged.exact", "No further tags; needed to route"),
        ],
    ),
    ("define", &[("<name>", "name", "Name"), ("<text>", "value", "Text that it stands for: the rest of the line")]),
    ("delete host-interface", &[("name <linux-if>", "interface", "Device of the kernel; in a request the interface, `host-eth1`")]),
    ("delete interface af_xdp", DELETE),
    ("delete interface memif", &[DELETE[0], ("sw_if_index <n>", "interface", "The same by its number")]),
    ("delete loopback interface", &[("intfc <if>", "interface", "A loopback interface")]),
    ("delete packet-generator interface", DELETE),
    ("delete pcap-interface", DELETE),
    ("delete sub-interface", DELETE),
    ("delete tap", DELETE),
    (
        "exec",
        &[
            ("<file>", "file", "File of commands, one a line"),
            ("[atomic]", "atomic", "All of it or nothing: where a command fails, what was configured before comes back"),
        ],
    ),
    (
        "explain drop",
        &[(
            "[<reason>]",
            "reason",
            "Reason, as `show errors` prints it or with dashes for blanks, or a part of it; NODE.REASON: of one node; all that were counted unless given",
        )],
    ),
    ("ip neighbor", NEIGHBOR),
    ("set ip neighbor", NEIGHBOR),
    (
        "ip route",
        &[
            ("[add|del]", "remove", "`add` unless given: adds paths to those there are. `del` without paths removes the route"),
            ("[count <n>]", "count", "Prefixes in a row; 1 unless given"),
            (
                "[source cli|api]",
                "source",
                "For whom the route stands: those of commands and of the binary API can stand side by side",
            ),
            ("<prefix>/<len>", "prefix", "Prefix; an address alone is a host route"),
            ("[table <id>]", "table", "Table, 0 to 4294967295; 0 unless given"),
            ("via [<nh>]", "paths[].next_hop", "Next hop; without an interface it is looked up (a recursive route)"),
            ("[<if>]", "paths[].interface", "Interface; without a next hop every destination is resolved there"),
            ("[next-hop-table <id>]", "paths[].table", "Table that a recursive next hop is looked up in"),
            ("[drop|null]", "paths[].kind", "`drop`: packets are dropped"),
            ("[null-send-unreach]", "paths[].kind", "`unreach`: dropped, and answered by \"destination unreachable\""),
            ("[null-send-prohibit]", "paths[].kind", "`prohibit`: dropped, and answered by \"administratively prohibited\""),
            ("[local]", "paths[].kind", "`local`: for this router"),
            ("[punt]", "paths[].kind", "`punt`: handed to the host"),
            ("[gone]", "paths[].kind", "`gone`: its interface is gone; dropped, unless there are other paths"),
            ("[ip4-lookup-in-table <id>]", "paths[].kind", "`lookup`: looked up again, in another table"),
            ("[ip6-lookup-in-table <id>]", "paths[].kind", "The same"),
            ("[lookup in table <id>]", "paths[].kind", "The same"),
            (
                "[src-lookup]",
                "paths[].kind",
                "`source-lookup`: behind one of these, not the destination but the source is looked up",
            ),
            ("[rx-ip4 <if>]", "paths[].kind", "`rx`: taken as if it had come in on the interface"),
            ("[rx-ip6 <if>]", "paths[].kind", "The same"),
            ("[weight <n>]", "paths[].weight", "Share of the traffic against other paths; 0 to 255, 0 stands for 1"),
            ("[preference <n>]", "paths[].preference", "Of all paths the lowest is used; 0 to 255"),
            ("[resolve-via-host]", "paths[].resolve_via_host", "Only a host route may resolve the next hop"),
            ("[resolve-via-attached]", "paths[].resolve_via_attached", "Only a connected subnet may resolve the next hop"),
            ("[via ...]", "paths[]", "Further paths"),
        ],
    ),
    (
        "ip mroute",
        &[
            ("[add|del]", "remove", "`add` unless given; `del` without paths removes the route"),
            ("[source cli|api]", "source", "For whom the route stands; `cli` unless given"),
            ("[table <id>]", "table", "Table, 0 unless given"),
            ("[<source>]", "route", "Only packets of this source"),
            ("<group>[/<len>]", "route", "Group, or all groups of a prefix"),
            (
                "via [<nh>] <if>|local",
                "paths[]",
                "Interface, and on it one neighbour instead of the group's hosts; `local`: this router",
            ),
            ("[Accept]", "paths[].accept", "Packets are taken from the interface"),
            ("[Forward]", "paths[].forward", "Packets go there"),
            ("[Accept-all-itf]", "accept_all", "Packets are taken from any interface"),
            ("[Drop]", "drop", "Packets are dropped"),
        ],
    ),
    ("ip punt redirect", REDIRECT),
    ("ip6 punt redirect", REDIRECT),
    (
        "ip6 nd",
        &[
            ("<if>", "interface", "Interface"),
            ("[no]", "no", "Takes the option back"),
            ("ra-suppress", "option", "`suppress`: no advertisements"),
            ("ra-suppress-link-layer", "option", "`suppress_link_layer`: without the MAC address"),
            ("ra-managed-config-flag", "option", "`managed`: hosts get addresses from DHCPv6"),
            ("ra-other-config-flag", "option", "`other`: hosts get other settings from DHCPv6"),
            ("ra-send-unicast", "option", "`send_unicast`: a host that asks is answered alone"),
            ("ra-cease", "option", "`cease`: hosts learn that the router is no longer their default router"),
            (
                "ra-lifetime [<value> ...]",
                "option.lifetime.seconds",
                "How long hosts use this router, in seconds; 0 to 9000, 0: not at all",
            ),
            (
                "ra-initial [<value> ...]",
                "option.initial.count",
                "How many come faster at first, and every how many seconds; 0 to 255 each",
            ),
            ("ra-interval [<value> ...]", "option.interval.max", "Most and least seconds between two of them; 0 to 65535"),
            (
                "prefix [<value> ...]",
                "option.prefix.address",
                "Prefix of the link, then its valid and its preferred lifetime in seconds",
            ),
            ("[default]", "option.prefix.valid", "The usual lifetimes"),
            ("[infinite]", "option.prefix.valid", "Lifetimes without end"),
            ("[no-advertise]", "option.prefix.advertise", "Not in advertisements"),
            ("[off-link]", "option.prefix.on_link", "Hosts reach it by the router only"),
            ("[no-onlink]", "option.prefix.on_link", "The same"),
            ("[no-autoconfig]", "option.prefix.autoconfig", "Hosts make no addresses from it"),
        ],
    ),
    (
        "l2fib add",
        &[
            ("<mac>", "mac", "MAC address"),
            ("<bd-id>", "domain", "Bridge domain, 0 to 4294967295"),
            ("filter", "kind", "Frames to it are dropped"),
            ("<if>", "interface", "Interface that it is behind"),
            ("[static]", "kind", "It neither moves nor grows old; without, it is as if learned"),
            ("[bvi]", "kind", "It is the BVI's"),
        ],
    ),
    ("packet-generator configure", &[("<stream>", "name", "Stream"), STREAM[0], STREAM[1], STREAM[2], STREAM[3], STREAM[4]]),
    (
        "packet-generator new",
        &[
            ("[name <s>]", "name", "Name; made up unless given"),
            STREAM[0],
            STREAM[1],
            STREAM[2],
            ("[interface <if>]", "interface", "Interface that the packets come in on; `local0` unless given"),
            ("[source <if>]", "interface", "The same"),
            ("[tx-interface <if>]", "", "Accepted, without effect"),
            ("[node <n>]", "node", "Node that the packets go to; `ethernet-input` unless given"),
            STREAM[4],
            STREAM[3],
            ("[seed <n>]", "seed", "Seed of what is drawn; 1 unless given"),
            (
                "[data {...}]",
                "data",
                "Headers and payload, such as `{ UDP: 10.0.0.1 -> 10.0.0.2 UDP: 1 -> 2 incrementing 60 }` behind an `IP4:` line",
            ),
            ("[pcap <file>]", "pcap", "Capture file to send, in place of data"),
            ("[buffer-flags <f>]", "", "Accepted, without effect"),
            ("[buffer-offload-flags <f>]", "", "Accepted, without effect"),
        ],
    ),
    (
        "pcap trace",
        &[
            ("[rx]", "rx", "Packets as received"),
            ("[tx]", "tx", "Packets as sent"),
            ("[drop]", "drop", "Packets that are dropped"),
            ("[node <node>]...", "nodes", "Packets as they come to this node"),
            ("[off]", "", "Ends the capture: operation `pcap_trace_off`"),
            ("[status]", "", "Shows how far it is: operation `pcap_trace_status`"),
            ("[max <n>]", "max", "Packets; 1 to 1000000000, 1000 unless given"),
            ("[max-bytes-per-pkt <n>]", "max_bytes", "Bytes of each; 1 to 9216, 512 unless given"),
            ("[intfc <if>|any]", "interface", "One interface; all unless given"),
            ("[file <name>]", "file", "Name of a file, or its path; `rx.pcap` and the like unless given"),
            ("[error <node.reason>]", "error", "Only packets dropped for this reason"),
            ("[filter]", "filter", "Only packets that `classify filter` chooses for captures; none while nothing is chosen"),
            ("[bpf <program>]", "bpf", "Only packets that this program chooses, as `tcpdump -ddd` prints it"),
        ],
    ),
    (
        "arping",
        &[
            ("[gratuitous]", "gratuitous", "Announces the address, which is an own one, and asks nobody"),
            ("<addr>", "address", "The address"),
            ("<if>", "interface", "Interface whose link is asked"),
            ("[repeat <1>]", "repeat", "Requests; 1 to 4294967295"),
            ("[interval <1.0>]", "interval", "Seconds between two requests"),
        ],
    ),
    (
        "ping",
        &[
            ("[ipv4|ipv6] <addr>", "address", "Destination"),
            ("[source <if>]", "source", "Interface to send from; the one that the route leads to unless given"),
            ("[size <60>]", "size", "Bytes of data behind the 8 that hold the time; 0 to 65499"),
            ("[interval <1.0>]", "interval", "Seconds between two requests"),
            ("[repeat <5>]", "repeat", "Requests; 1 to 4294967295"),
            ("[table-id <0>]", "table_id", "Table that the destination is looked up in"),
            ("[burst <1>]", "burst", "Copies of each request; 1 to 256"),
            ("[verbose]", "verbose", "Shows the source address too"),
        ],
    ),
    (
        "set bridge-domain arp entry",
        &[
            ("<bd-id>", "id", "Bridge domain"),
            ("<ip>", "change.neighbor.ip", "Address, IPv4 or IPv6"),
            ("<mac>", "change.neighbor.mac", "Its MAC address"),
            ("[del]", "", "Removes the entry: `mac` is absent"),
        ],
    ),
    (
        "set interface handoff",
        &[
            ("<if>", "interface", "Interface"),
            WORKERS,
            ("[symmetrical|asymmetrical]", "symmetric", "Both directions of a flow go to the same worker, or need not"),
            ("[l4]", "l4", "Ports count too"),
            NO_WORKERS,
        ],
    ),
    (
        "set interface rss",
        &[
            ("<if>", "interface", "Interface"),
            WORKERS,
            ("[symmetric]", "symmetric", "Both directions of a flow go to the same worker"),
            NO_WORKERS,
        ],
    ),
    (
        "set interface ip address",
        &[
            ("[del]", "remove", "Removes instead of adding"),
            ("<if>", "interface", "Interface"),
            ("[<addr>/<len>]", "address", "Address, IPv4 or IPv6, with the length of its subnet's prefix (`len`)"),
            ("[all]", "all", "With `del`: all addresses"),
        ],
    ),
    (
        "set interface l2 tag-rewrite",
        &[
            ("<if>", "interface", "Interface"),
            ("disable", "", "Tags stay as they are: `pop` 0 and nothing in `push`"),
            ("pop 1|2", "pop", "Takes one or two tags off"),
            ("push dot1q|dot1ad <tag> [<tag>]", "push", "Puts tags on, VLAN ids 0 to 4094; the second one is 802.1Q"),
            ("translate 1-1|2-1 dot1q|dot1ad <tag>", "push", "Takes one or two tags off (`pop`) and puts one on"),
            ("translate 1-2|2-2 dot1q|dot1ad <tag> <tag>", "push", "Takes one or two tags off (`pop`) and puts two on"),
        ],
    ),
    (
        "set interface mtu",
        &[
            (
                "[packet|ip4|ip6|mpls]",
                "change.mtu.which",
                "Protocol; without it, or with `packet`, all protocols that have no MTU of their own",
            ),
            (
                "<n>",
                "change.mtu.bytes",
                "Bytes without the Ethernet header, as many as the device can; 0 takes a protocol's own value back",
            ),
            ("<if>", "interface", "Interface"),
        ],
    ),
    (
        "set interface promiscuous",
        &[("on|off", "change.promiscuous.on", "Accepts frames to any MAC address"), ("<if>", "interface", "Interface")],
    ),
    (
        "set interface rx-placement",
        &[
            ("<if>", "interface", "Interface"),
            ("[queue <n>]", "queue", "Receive queue, from 0; 0 unless given"),
            ("worker <n>", "worker", "Worker that polls it, from 0"),
            ("main", "", "The main thread polls it: `worker` is absent"),
        ],
    ),
    (
        "set interface tag",
        &[("<if>", "interface", "Interface"), ("<text>", "change.tag.text", "Text: the rest of the line; empty removes it")],
    ),
    (
        "set interface unnumbered",
        &[
            ("[del]", "", "The interface has addresses of its own again: `lender` is absent"),
            ("<if>", "interface", "Interface"),
            ("[use <if>]", "lender", "Interface whose addresses it uses"),
        ],
    ),
    ("set ip flow-hash", FLOW_HASH),
    ("set ip6 flow-hash", FLOW_HASH_6),
    (
        "set ip icmp-rate-limit",
        &[
            ("[ip4|ip6]", "family", "One family; both unless given"),
            ("[total <n>|unlimited]", "total", "ICMP errors a second of all workers; 1 to 1000000000, or 0: no limit"),
            (
                "[per-worker <n>|unlimited]",
                "per_worker",
                "ICMP errors a second of each worker; 1 to 1000000000, or 0: no limit of its own",
            ),
            ("[burst <n>]", "burst", "How many at once; 1 to 1000000"),
        ],
    ),
    (
        "set ip6 dad",
        &[
            ("enable|disable", "", "Whether addresses are checked before they are used; `transmits` is 0 where they are not"),
            ("[transmits <n>]", "transmits", "How often it is asked; 1 to 10, 1 unless given"),
            ("[delay <seconds>]", "delay_ms", "Time between two questions and after the last; 0.1 to 10 seconds, 1 unless given"),
        ],
    ),
    (
        "set logging class",
        &[
            ("<class>", "class", "Class, as `show logging configuration` lists them"),
            ("[rate-limit <n>]", "rate_limit", "Lines a second; 0 to 4294967295"),
            ("[level <level>]", "level", "Least important level that is logged: `emerg` to `debug`, or `disabled`"),
            ("[syslog-level <level>]", "", "Accepted, without effect: there is one log"),
            ("[kmsg-level <level>]", "", "Accepted, without effect: there is one log"),
        ],
    ),
    ("punt socket register", &[PUNT_FAMILY, PUNT_LAYER, PUNT_PORT, PUNT_PROTOCOL, PUNT_REASON, PUNT_SOCKET]),
    ("punt socket deregister", &[PUNT_FAMILY, PUNT_LAYER, PUNT_PORT, PUNT_PROTOCOL, PUNT_REASON]),
    (
        "set punt",
        &[
            ("[ip4|ipv4|ip6|ipv6]", "family", "Family; IPv4 unless given"),
            ("[udp|tcp]", "protocol", "Upper layer; UDP unless given"),
            ("[del]", "remove", "Ends it"),
            ("all|<port>", "port", "Port, 0 to 65535; `all`: all ports, each of which can be punted by itself too"),
        ],
    ),
    ("set node function", &[("<node>", "node", "Node"), ("<variant>", "variant", "Instruction set, as `show node` lists them")]),
    (
        "set terminal",
        &[
            ("ansi on|off", "", "Colours and cursor movements"),
            ("pager on|off|limit <n>", "", "Stops after each screen; lines that are kept for it"),
            ("history on|off|limit <n>", "", "Remembers lines; how many"),
        ],
    ),
    (
        "show adj",
        &[
            ("[<n>]", "index", "One adjacency, by its number"),
            ("[<if>]", "interface", "Those on an interface"),
            ("[nbr]", "neighbors", "Those of neighbors"),
            ("[summary]", "summary", "Only how many there are"),
        ],
    ),
    ("show errors", ERRORS),
    ("show node counters", ERRORS),
    ("show event-logger", &[("[all]", "limit", "All events"), ("[<n>]", "limit", "The newest so many; 250 unless given")]),
    (
        "show interface",
        &[
            ("[<if> ...]", "interfaces", "Which ones; all unless given"),
            ("[address|addr]", "what", "Addresses and layer-2 use in place of counters"),
            ("[features|feat]", "what", "Features in place of counters"),
            ("[tag]", "what", "Tags in place of counters"),
            ("[verbose]", "verbose", "Counters that are zero too"),
        ],
    ),
    ("show ip fib", ROUTES),
    ("show ip6 fib", ROUTES),
    (
        "show l2fib",
        &[
            ("[all|verbose|raw]", "all", "Each address, not only how many there are"),
            ("[bd_id <n>]", "domain", "Those of a bridge domain, by its number"),
            ("[bd_index <n>]", "index", "Those of a bridge domain, by its index"),
            ("[learn|add]", "learned", "Only learned ones, or only configured ones"),
        ],
    ),
    (
        "show memory",
        &[
            ("[main-heap|stats-segment|map|api-segment]", "part", "Which memory; the main heap unless given"),
            ("[verbose]", "", "Accepted, without effect"),
        ],
    ),
    ("show node", &[("[index]", "", "A number follows"), ("<node>", "node", "Name of a node, or its number")]),
    (
        "show runtime",
        &[
            ("[<node>]", "node", "One node"),
            ("[time]", "by_time", "The most expensive nodes first, not by name"),
            ("[brief|verbose]", "verbose", "Nodes that did nothing too, or not"),
            ("[max]", "max", "The most expensive calls in place of sums"),
            ("[summary]", "summary", "Threads only"),
            ("[absences]", "absences", "How long threads did not look at their devices, in place of the nodes"),
        ],
    ),
    (
        "show vlib graph svg",
        &[("[all]", "active", "Nodes that saw no packets too"), ("[file <name>]", "file", "Writes a file in place of printing")],
    ),
    (
        "show vlib graphviz",
        &[("[filter]", "active", "Only nodes that saw packets"), ("[file <name>]", "file", "Writes a file in place of printing")],
    ),
    (
        "trace filter",
        &[
            ("none", "filter", "`show trace` shows all packets"),
            ("include <node> <n>", "filter.include", "Only those that came through a node, this many at most"),
            ("exclude <node> <n>", "filter.exclude", "Only those that did not come through a node, this many at most"),
        ],
    ),
    ("undefine", &[("<name>", "name", "Name that `define` gave")]),
];
