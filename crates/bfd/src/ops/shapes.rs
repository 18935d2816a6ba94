//! Where BFD stands in a document.

use quiver_command::document::Shape;

/// Keys.
pub(super) const KEYS: &[Shape] =
    &[Shape::new("bfd/keys/{conf_key_id#}", r#"{"*":"*"}"#, "bfd_auth_key_set", r#"{"conf_key_id":"{conf_key_id#}","*":"*"}"#)
        .doc("A key, under its number in the configuration.")];

/// Sessions.
pub(super) const SESSIONS: &[Shape] = &[
    Shape::new(
        "bfd/sessions/{interface}/{local_addr}/{peer_addr}",
        r#"{"*":"*"}"#,
        "bfd_udp_session_add",
        r#"{"multihop":false,"interface":"{interface}","table":0,"local_addr":"{local_addr}","peer_addr":"{peer_addr}","*":"*"}"#,
    )
    .doc("A BFD session, under its interface, own address and peer."),
    Shape::new(
        "bfd/sessions/{interface}/{local_addr}/{peer_addr}/auth",
        r#"{"conf_key_id":"{conf_key_id#}","bfd_key_id":"{bfd_key_id#}"}"#,
        "bfd_udp_auth_activate",
        r#"{"multihop":false,"interface":"{interface}","table":0,"local_addr":"{local_addr}","peer_addr":"{peer_addr}","conf_key_id":"{conf_key_id#}","bfd_key_id":"{bfd_key_id#}","delayed":null}"#,
    )
    .doc("The key that authenticates its packets, and its number there."),
    Shape::new(
        "bfd/sessions/{interface}/{local_addr}/{peer_addr}/admin_down",
        "true",
        "bfd_udp_session_flags_set",
        r#"{"multihop":false,"interface":"{interface}","table":0,"local_addr":"{local_addr}","peer_addr":"{peer_addr}","admin":"down"}"#,
    )
    .doc("The session is held down."),
    Shape::new(
        "bfd/multihop/{table#}/{local_addr}/{peer_addr}",
        r#"{"*":"*"}"#,
        "bfd_udp_session_add",
        r#"{"multihop":true,"interface":null,"table":"{table#}","local_addr":"{local_addr}","peer_addr":"{peer_addr}","*":"*"}"#,
    )
    .doc("A BFD session, over several hops, under its table, own address and peer."),
    Shape::new(
        "bfd/multihop/{table#}/{local_addr}/{peer_addr}/auth",
        r#"{"conf_key_id":"{conf_key_id#}","bfd_key_id":"{bfd_key_id#}"}"#,
        "bfd_udp_auth_activate",
        r#"{"multihop":true,"interface":null,"table":"{table#}","local_addr":"{local_addr}","peer_addr":"{peer_addr}","conf_key_id":"{conf_key_id#}","bfd_key_id":"{bfd_key_id#}","delayed":null}"#,
    )
    .doc("The key that authenticates its packets, and its number there."),
    Shape::new(
        "bfd/multihop/{table#}/{local_addr}/{peer_addr}/admin_down",
        "true",
        "bfd_udp_session_flags_set",
        r#"{"multihop":true,"interface":null,"table":"{table#}","local_addr":"{local_addr}","peer_addr":"{peer_addr}","admin":"down"}"#,
    )
    .doc("The session is held down."),
];

/// What holds for all sessions.
pub(super) const GENERAL: &[Shape] = &[
    Shape::new("bfd/echo_source", r#""{interface}""#, "bfd_udp_echo_source_set", r#"{"interface":"{interface}"}"#)
        .doc("Interface whose subnets give the source addresses of echoes."),
    Shape::new("bfd/tos", r#""{tos#}""#, "bfd_udp_tos_set", r#"{"tos":"{tos#}"}"#).doc("The byte of the IP header."),
];
