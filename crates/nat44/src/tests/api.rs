//! The messages of the binary API.

use quiver_api::Message;
use quiver_api::defs::*;
use quiver_net::api::testing::{ask, read};
use quiver_net::api::{Handlers, Table};

use super::*;

fn table() -> Table {
    let mut handlers = quiver_net::api::handlers();
    crate::api::add(&mut handlers);
    Table::new(handlers)
}

fn all<M: Message, D: Message>(h: &mut Harness, table: &Table, message: &M) -> Vec<D> {
    ask(h, table, 1, message).iter().map(|answer| read(answer)).collect()
}

/// The code of the one answer.
fn code<M: Message>(h: &mut Harness, table: &Table, message: &M) -> i32 {
    let answers = ask(h, table, 1, message);
    assert_eq!(answers.len(), 1, "{}", M::INFO.name);
    i32::from_be_bytes(*answers[0].first_chunk().unwrap())
}

fn ip(address: [u8; 4]) -> Ip4Address {
    Ip4Address(address)
}

const NONE: InterfaceIndex = InterfaceIndex(u32::MAX);

#[test]
fn what_is_not_enabled_is_unsupported_and_switching_twice_is_refused() {
    let mut h = Harness::with_plugin(&crate::plugin(), 0, 0);
    let table = table();
    let range = Nat44AddDelAddressRange { is_add: true, vrf_id: u32::MAX, ..Default::default() };
    assert_eq!(code(&mut h, &table, &range), -126);
    let plugin = |enable, flags| Nat44EdPluginEnableDisable { enable, flags, ..Default::default() };
    let usual = Nat44ConfigFlags::default();
    assert_eq!(code(&mut h, &table, &plugin(false, usual.clone())), -169);
    assert_eq!(code(&mut h, &table, &plugin(true, Nat44ConfigFlags::NAT44_IS_STATIC_MAPPING_ONLY)), -126);
    assert_eq!([code(&mut h, &table, &plugin(true, usual.clone())), code(&mut h, &table, &plugin(true, usual.clone()))], [0, -170]);
    assert_eq!(code(&mut h, &table, &NatSetWorkers { worker_mask: 1 }), -30);
    assert_eq!(code(&mut h, &table, &NatSetTimeouts { udp: 0, ..Default::default() }), -7);
    let timeouts = NatSetTimeouts { udp: 1, tcp_established: 2, tcp_transitory: 3, icmp: 4 };
    assert_eq!(code(&mut h, &table, &timeouts), 0);
    let config: Vec<Nat44ShowRunningConfigReply> = all(&mut h, &table, &Nat44ShowRunningConfig {});
    assert_eq!((config[0].timeouts.tcp_transitory, config[0].sessions), (3, crate::control::SESSIONS_DEFAULT));
    assert_eq!(code(&mut h, &table, &plugin(false, usual)), 0);
}

#[test]
fn the_log_is_set_and_asked_for_by_the_messages_of_syslog() {
    let mut bed = Bed::usual(0);
    let (h, table) = (&mut bed.h, table());
    let sender: Vec<SyslogGetSenderReply> = all(h, &table, &SyslogGetSender {});
    assert_eq!((sender[0].collector_port, sender[0].max_msg_size), (0, 480), "there is none");
    let set = SyslogSetSender {
        src_address: ip([10, 0, 0, 1]),
        collector_address: ip([10, 0, 0, 9]),
        collector_port: 5140,
        ..Default::default()
    };
    assert_eq!(code(h, &table, &SyslogSetSender { vrf_id: 9, ..set.clone() }), -3, "no such table");
    assert_eq!(code(h, &table, &set), 0);
    let sender: Vec<SyslogGetSenderReply> = all(h, &table, &SyslogGetSender {});
    assert_eq!((&sender[0].collector_address, sender[0].collector_port), (&ip([10, 0, 0, 9]), 5140));
    let filter = |h: &mut Harness| all::<_, SyslogGetFilterReply>(h, &table, &SyslogGetFilter {})[0].severity.0;
    assert_eq!(filter(h), 6);
    assert_eq!(code(h, &table, &SyslogSetFilter { severity: SyslogSeverity::SYSLOG_API_SEVERITY_ERR }), 0);
    assert_eq!(filter(h), 3);
}

#[test]
fn what_is_added_is_dumped_and_removed() {
    let mut bed = Bed::new(0, "");
    let (h, table) = (&mut bed.h, table());
    let sides: Vec<Nat44InterfaceDetails> = all(h, &table, &Nat44InterfaceDump {});
    let sides: Vec<_> = sides.iter().map(|side| (side.sw_if_index.0, side.flags.0)).collect();
    assert_eq!(sides, [(bed.inside.0, 32), (bed.outside.0, 16)]);
    let range = |is_add, last| Nat44AddDelAddressRange {
        first_ip_address: ip([198, 51, 100, 10]),
        last_ip_address: ip([198, 51, 100, last]),
        vrf_id: u32::MAX,
        is_add,
        ..Default::default()
    };
    assert_eq!([code(h, &table, &range(true, 12)), code(h, &table, &range(true, 12))], [0, -81]);
    let pool: Vec<Nat44AddressDetails> = all(h, &table, &Nat44AddressDump {});
    assert_eq!(pool.iter().map(|one| (one.ip_address.0[3], one.vrf_id)).collect::<Vec<_>>(), [10, 11, 12].map(|n| (n, u32::MAX)));
    assert_eq!([code(h, &table, &range(false, 12)), code(h, &table, &range(false, 12))], [0, -6]);

    let mapping = |is_add| Nat44AddDelStaticMapping {
        is_add,
        local_ip_address: ip([10, 0, 0, 2]),
        external_ip_address: ip([198, 51, 100, 20]),
        protocol: 6,
        local_port: 80,
        external_port: 8080,
        external_sw_if_index: NONE,
        tag: "web".into(),
        ..Default::default()
    };
    assert_eq!([code(h, &table, &mapping(true)), code(h, &table, &mapping(true))], [0, -81]);
    let identity = Nat44AddDelIdentityMapping {
        is_add: true,
        ip_address: ip([198, 51, 100, 21]),
        sw_if_index: NONE,
        flags: NatConfigFlags::NAT_IS_ADDR_ONLY,
        ..Default::default()
    };
    assert_eq!(code(h, &table, &identity), 0);
    let local = |last, probability| Nat44LbAddrPort { addr: ip([10, 0, 0, last]), port: 53, probability, vrf_id: 0 };
    let balanced = |locals: Vec<Nat44LbAddrPort>| Nat44AddDelLbStaticMapping {
        is_add: true,
        external_addr: ip([198, 51, 100, 22]),
        external_port: 53,
        protocol: 17,
        local_num: locals.len() as u32,
        locals,
        ..Default::default()
    };
    assert_eq!(code(h, &table, &balanced(vec![local(3, 70)])), -7);
    assert_eq!(code(h, &table, &balanced(vec![local(3, 70), local(4, 30)])), 0);

    let statics: Vec<Nat44StaticMappingDetails> = all(h, &table, &Nat44StaticMappingDump {});
    let [one] = statics.as_slice() else { panic!("{statics:?}") };
    assert_eq!((one.local_port, one.external_port, one.external_ip_address.0[3], one.tag.as_str()), (80, 8080, 20, "web"));
    let identities: Vec<Nat44IdentityMappingDetails> = all(h, &table, &Nat44IdentityMappingDump {});
    assert_eq!(identities.iter().map(|one| (one.ip_address.0[3], one.flags.0)).collect::<Vec<_>>(), [(21, 8)]);
    let balanced: Vec<Nat44LbStaticMappingDetails> = all(h, &table, &Nat44LbStaticMappingDump {});
    assert_eq!(balanced[0].locals, [local(3, 70), local(4, 30)]);
    assert_eq!([code(h, &table, &mapping(false)), code(h, &table, &mapping(false))], [0, -6]);
}

#[test]
fn users_and_their_sessions_are_told_and_ended() {
    let mut bed = Bed::usual(0);
    let table = table();
    bed.out(from_inside(2).udp(5000, 53));
    let users: Vec<Nat44UserDetails> = all(&mut bed.h, &table, &Nat44UserDump {});
    let [user] = users.as_slice() else { panic!("{users:?}") };
    assert_eq!((user.ip_address.0, user.nsessions, user.nstaticsessions), ([10, 0, 0, 2], 1, 0));
    let dump = Nat44UserSessionV3Dump { ip_address: ip([10, 0, 0, 2]), vrf_id: 0 };
    let sessions: Vec<Nat44UserSessionV3Details> = all(&mut bed.h, &table, &dump);
    let [session] = sessions.as_slice() else { panic!("{sessions:?}") };
    assert_eq!((session.inside_port, session.protocol, session.total_pkts, session.is_timed_out), (5000, 17, 1, false));
    assert_eq!((session.outside_ip_address.0, session.ext_host_address.0, session.ext_host_port), ([198, 51, 100, 10], REMOTE, 53));
    let first = Nat44UserSessionDump { ip_address: ip([10, 0, 0, 2]), vrf_id: 0 };
    let sessions: Vec<Nat44UserSessionDetails> = all(&mut bed.h, &table, &first);
    assert_eq!(sessions[0].outside_port, session.outside_port);
    let end = Nat44DelSession {
        address: ip([10, 0, 0, 2]),
        protocol: 17,
        port: 5000,
        flags: NatConfigFlags::NAT_IS_INSIDE,
        ..Default::default()
    };
    assert_eq!([code(&mut bed.h, &table, &end), code(&mut bed.h, &table, &end)], [0, -6]);
}

#[test]
fn every_operation_and_message_is_declared_to_read_or_to_change() {
    use quiver_command::operation::{Access, Registry};
    let mut registry = Registry::new();
    crate::ops::register(&mut registry);
    for (name, access) in registry.accesses() {
        assert_eq!(access, if name.ends_with("_show") { Access::Read } else { Access::Change }, "{name}");
    }
    let mut handlers = Handlers::default();
    crate::api::add(&mut handlers);
    for (name, access) in Table::new(handlers).accesses() {
        let reads = ["_dump", "_get"].iter().any(|end| name.ends_with(end)) || name.contains("_get_") || name.contains("_show_");
        assert_eq!(access, if reads { Access::Read } else { Access::Change }, "{name}");
    }
}
