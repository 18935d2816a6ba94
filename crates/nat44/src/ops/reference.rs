//! What the reference says of the plugin's commands: their messages, and the arguments whose parsers are written by hand.

use quiver_command::operation::Argument;

const VRF: Argument = ("[vrf <id>]", "vrf", "Table of the inside; 0 unless given");
const TAG: Argument = ("[tag <s>]", "tag", "Text of your own");
const DEL: Argument = ("[del]", "remove", "Takes it out");
const TWICE: Argument = (
    "[twice-nat|self-twice-nat]",
    "twice_nat",
    "Sources from outside are translated too: `always`, or `to-self`, where a host speaks to itself",
);
const OUT2IN: Argument = ("[out2in-only]", "out2in_only", "Sessions begin outside only");

/// Arguments, by command.
pub(super) const ARGUMENTS: &[(&str, &[Argument])] = &[
    (
        "nat44 add identity mapping",
        &[
            ("<ip4>", "external", "Address that stays as it is"),
            ("external <if>", "external_interface", "The address of an interface stays as it is"),
            ("[<proto> <port>]", "external_port", "One port only: `tcp`, `udp` or `icmp` (`proto`, as its number), and 1 to 65535"),
            VRF,
            TAG,
            DEL,
        ],
    ),
    (
        "nat44 add load-balancing back-end",
        &[
            ("protocol tcp|udp", "proto", "Protocol of the mapping, in a request its number"),
            ("external <ip4>:<port>", "external", "Address of the mapping, and its port (`external_port`), 1 to 65535"),
            ("local <ip4>:<port>", "local", "Address and port inside"),
            VRF,
            ("probability <n>", "local.weight", "Share of the sessions, against those of the others; 1 to 1000000"),
            DEL,
        ],
    ),
    (
        "nat44 add load-balancing static mapping",
        &[
            ("protocol tcp|udp", "proto", "Protocol, in a request its number"),
            ("external <ip4>:<port>", "external", "Address outside, and its port (`external_port`), 1 to 65535"),
            ("local <ip4>:<port> ...", "locals[]", "Address and port inside, several times"),
            VRF,
            ("probability <n>", "locals[].weight", "Share of the sessions of the endpoint before it; 1 to 1000000, 1 unless given"),
            TWICE,
            OUT2IN,
            (
                "[affinity <s>]",
                "affinity",
                "So many seconds after its last session has ended a remote host still comes back to the same host inside; 0: not at all",
            ),
            TAG,
            DEL,
        ],
    ),
    (
        "nat44 add static mapping",
        &[
            ("[tcp|udp|icmp]", "proto", "Protocol, in a request its number; without, addresses are mapped with all their ports"),
            ("local <ip4> [<port>]", "locals[]", "Address inside, and its port, 1 to 65535"),
            ("external <ip4> [<port>]", "external", "Address outside, and its port (`external_port`), 1 to 65535"),
            ("external <if> [<port>]", "external_interface", "The address of an interface"),
            VRF,
            TWICE,
            OUT2IN,
            TAG,
            DEL,
        ],
    ),
    (
        "nat44 del session",
        &[
            ("in|out", "outside", "By its endpoint inside, or by the one outside"),
            ("<ip4>:<port>", "address", "The endpoint's address, and its port (`port`)"),
            ("tcp|udp|icmp", "proto", "Protocol, in a request its number"),
            VRF,
            ("[external-host <ip4>:<port>]", "external_host", "The session with this remote host"),
        ],
    ),
    (
        "nat44 logging",
        &[
            ("collector <ip4>", "collector", "Where datagrams go"),
            ("[port <n>]", "port", "UDP port, 0 to 65535; 514 unless given"),
            (
                "[source <ip4>]",
                "source",
                "Datagrams are packets of the router from this address; without it the host's network carries them",
            ),
            ("[table <id>]", "table", "With a source: table that the collector is looked up in; 0 unless given"),
            ("disable", "", "No log: `collector` is absent"),
        ],
    ),
    (
        "set syslog filter",
        &[(
            "severity <severity>",
            "severity",
            "`emerg`, `alert`, `crit`, `err`, `warn`, `notice`, `info` or `debug`; in a request 0 to 7",
        )],
    ),
    (
        "show nat44 sessions",
        &[
            ("[filter i2o|o2i]", "outside", "Only those whose packets from inside, or from outside, look like this"),
            ("[saddr <ip4>]", "saddr", "Source address"),
            ("[sport <port>]", "sport", "Source port, 0 to 65535"),
            ("[daddr <ip4>]", "daddr", "Destination address"),
            ("[dport <port>]", "dport", "Destination port, 0 to 65535"),
            ("[proto <proto>]", "proto", "`tcp`, `udp`, `icmp` or a number, 0 to 255"),
        ],
    ),
];

/// Messages, by command.
pub(super) const MESSAGES: &[(&str, &[&str])] = &[
    ("nat mss-clamping", &["nat_set_mss_clamping"]),
    ("nat44 add address", &["nat44_add_del_address_range"]),
    ("nat44 add identity mapping", &["nat44_add_del_identity_mapping"]),
    ("nat44 add interface address", &["nat44_add_del_interface_addr"]),
    ("nat44 add load-balancing back-end", &["nat44_lb_static_mapping_add_del_local"]),
    ("nat44 add load-balancing static mapping", &["nat44_add_del_lb_static_mapping"]),
    ("nat44 add static mapping", &["nat44_add_del_static_mapping_v2", "nat44_add_del_static_mapping"]),
    ("nat44 del session", &["nat44_del_session"]),
    ("nat44 forwarding", &["nat44_forwarding_enable_disable"]),
    ("nat44 logging", &["syslog_set_sender"]),
    ("nat44 plugin disable", &["nat44_ed_plugin_enable_disable"]),
    ("nat44 plugin enable", &["nat44_ed_plugin_enable_disable"]),
    ("set interface nat44", &["nat44_interface_add_del_feature", "nat44_ed_add_del_output_interface"]),
    ("set nat timeout", &["nat_set_timeouts"]),
    ("nat ipfix logging", &["nat_ipfix_enable_disable"]),
    ("set nat workers", &["nat_set_workers"]),
    ("set nat44 session limit", &["nat44_set_session_limit"]),
    ("set syslog filter", &["syslog_set_filter"]),
    ("show nat mss-clamping", &["nat_get_mss_clamping"]),
    ("show nat timeouts", &["nat44_show_running_config"]),
    ("show nat workers", &["nat_worker_dump"]),
    ("show nat44 addresses", &["nat44_address_dump"]),
    ("show nat44 interface address", &["nat44_interface_addr_dump"]),
    ("show nat44 interfaces", &["nat44_interface_dump", "nat44_ed_output_interface_get"]),
    ("show nat44 logging", &["syslog_get_sender", "syslog_get_filter"]),
    (
        "show nat44 sessions",
        &["nat44_user_dump", "nat44_user_session_v3_dump", "nat44_user_session_v2_dump", "nat44_user_session_dump"],
    ),
    ("show nat44 static mappings", &["nat44_static_mapping_dump", "nat44_identity_mapping_dump", "nat44_lb_static_mapping_dump"]),
    ("show nat44 summary", &["nat44_show_running_config"]),
];
