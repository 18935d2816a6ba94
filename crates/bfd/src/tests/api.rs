//! The messages of the binary API.

use std::rc::Rc;
use std::task::Waker;

use quiver_api::Catalog;
use quiver_api::defs::*;
use quiver_net::api::testing::{ask, assert_names, read, split, table};
use quiver_net::api::{Clients, Trace, address, install};
use quiver_net::testing::Harness;

use super::{LOCAL, PEER, bed, come_up, sessions, x0};

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "bfd_udp_add_939cd26a",
        "bfd_udp_add_reply_e8d4e804",
        "bfd_udp_upd_939cd26a",
        "bfd_udp_upd_reply_1992deab",
        "bfd_udp_mod_913df085",
        "bfd_udp_mod_reply_e8d4e804",
        "bfd_udp_del_dcb13a89",
        "bfd_udp_del_reply_e8d4e804",
        "bfd_udp_session_dump_51077d14",
        "bfd_udp_session_details_09fb2f2d",
        "bfd_udp_session_set_flags_04b4bdfd",
        "bfd_udp_session_set_flags_reply_e8d4e804",
        "want_bfd_events_c5e2af94",
        "want_bfd_events_reply_e8d4e804",
        "bfd_udp_session_event_8eaaf062",
        "bfd_auth_set_key_690b8877",
        "bfd_auth_set_key_reply_e8d4e804",
        "bfd_auth_del_key_65310b22",
        "bfd_auth_del_key_reply_e8d4e804",
        "bfd_auth_keys_dump_51077d14",
        "bfd_auth_keys_details_84130e9f",
        "bfd_udp_auth_activate_21fd1bdb",
        "bfd_udp_auth_activate_reply_e8d4e804",
        "bfd_udp_auth_deactivate_9a05e2e0",
        "bfd_udp_auth_deactivate_reply_e8d4e804",
        "bfd_udp_set_echo_source_f9e6675e",
        "bfd_udp_set_echo_source_reply_e8d4e804",
        "bfd_udp_del_echo_source_51077d14",
        "bfd_udp_del_echo_source_reply_e8d4e804",
        "bfd_udp_get_echo_source_51077d14",
        "bfd_udp_get_echo_source_reply_e3d736a1",
        "bfd_udp_enable_multihop_51077d14",
        "bfd_udp_enable_multihop_reply_e8d4e804",
        "bfd_udp_set_tos_00fe25ce",
        "bfd_udp_set_tos_reply_e8d4e804",
        "bfd_udp_get_tos_51077d14",
        "bfd_udp_get_tos_reply_d8931abf",
    ];
    assert_names(&Catalog::default(), &names);
}

#[test]
fn sessions_are_added_changed_told_of_and_removed() {
    let mut h = bed(1);
    let table = Rc::new(table(crate::api::add));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    let sw_if_index = InterfaceIndex(x0(&h).0);
    let (local_addr, peer_addr) = (address(LOCAL[0]), address(PEER[0]));
    let add = BfdUdpAdd {
        sw_if_index: sw_if_index.clone(),
        desired_min_tx: 20_000,
        required_min_rx: 20_000,
        local_addr: local_addr.clone(),
        peer_addr: peer_addr.clone(),
        detect_mult: 3,
        ..Default::default()
    };
    let want = |enable_disable| WantBfdEvents { enable_disable, pid: 5 };
    let wanted = |h: &mut Harness, on| read::<WantBfdEventsReply>(&ask(h, &table, client, &want(on))[0]).retval;
    assert_eq!([wanted(&mut h, true), wanted(&mut h, true), wanted(&mut h, false), wanted(&mut h, true)], [0, -31, 0, 0]);
    let added = |h: &mut Harness, add: &BfdUdpAdd| read::<BfdUdpAddReply>(&ask(h, &table, client, add)[0]).retval;
    assert_eq!(added(&mut h, &BfdUdpAdd { is_authenticated: true, ..add.clone() }), -102, "no such key");
    assert_eq!(added(&mut h, &BfdUdpAdd { local_addr: address(PEER[0]), ..add.clone() }), -60);
    assert_eq!([added(&mut h, &add), added(&mut h, &add)], [0, -101]);

    come_up(&mut h, 0, 0);
    let mut states = Vec::new();
    h.until("the event of up", |h| {
        let now = h.router.graph.clock().timer_now();
        h.router.run_processes(now);
        let bytes = h.router.part_mut::<Clients>().unwrap().take_events(client, Waker::noop());
        let events: Vec<BfdUdpSessionEvent> = split(&bytes).iter().map(|event| event_of(event)).collect();
        assert!(events.iter().all(|event| event.pid == 5 && event.peer_addr == peer_addr && event.desired_min_tx == 20_000));
        states.extend(events.into_iter().map(|event| event.state));
        states.contains(&BfdState::BFD_STATE_API_UP)
    });
    assert_eq!(states[..2], [BfdState::BFD_STATE_API_INIT, BfdState::BFD_STATE_API_UP]);

    let upd = BfdUdpUpd {
        sw_if_index: sw_if_index.clone(),
        desired_min_tx: 30_000,
        required_min_rx: 40_000,
        local_addr: local_addr.clone(),
        peer_addr: peer_addr.clone(),
        detect_mult: 5,
        ..Default::default()
    };
    assert_eq!(read::<BfdUdpUpdReply>(&ask(&mut h, &table, client, &upd)[0]), BfdUdpUpdReply { retval: 0, stats_index: 0 });
    let all = ask(&mut h, &table, client, &BfdUdpSessionDump {});
    let details: BfdUdpSessionDetails = read(&all[0]);
    assert_eq!((all.len(), details.desired_min_tx, details.required_min_rx, details.detect_mult), (1, 30_000, 40_000, 5));

    let flags = BfdUdpSessionSetFlags {
        sw_if_index: sw_if_index.clone(),
        local_addr: local_addr.clone(),
        peer_addr: peer_addr.clone(),
        flags: IfStatusFlags(0),
    };
    assert_eq!(read::<BfdUdpSessionSetFlagsReply>(&ask(&mut h, &table, client, &flags)[0]).retval, 0);
    assert_eq!(sessions(&mut h)[0].state, crate::packet::State::AdminDown);
    let del = BfdUdpDel { sw_if_index, local_addr, peer_addr };
    let deleted = |h: &mut Harness| read::<BfdUdpDelReply>(&ask(h, &table, client, &del)[0]).retval;
    assert_eq!([deleted(&mut h), deleted(&mut h)], [0, -102]);
    assert!(ask(&mut h, &table, client, &BfdUdpSessionDump {}).is_empty());
}

#[test]
fn keys_authentication_echo_source_and_tos_are_set_and_asked_for() {
    let mut h = bed(0);
    let table = Rc::new(table(crate::api::add));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    macro_rules! retval {
        ($reply:ident, $message:expr) => {
            read::<$reply>(&ask(&mut h, &table, client, &$message)[0]).retval
        };
    }
    let set = |key_len, auth_type| BfdAuthSetKey { conf_key_id: 7, key_len, auth_type, key: [0x5a; 20] };
    assert_eq!(retval!(BfdAuthSetKeyReply, set(20, 4)), 0);
    assert_eq!(retval!(BfdAuthSetKeyReply, set(20, 6)), -104, "no such type");
    assert!(retval!(BfdAuthSetKeyReply, set(0, 4)) < 0 && retval!(BfdAuthSetKeyReply, set(21, 4)) < 0);
    let any = InterfaceIndex(u32::MAX);
    let (local_addr, peer_addr) = (address(LOCAL[0]), address("192.0.2.9".parse().unwrap()));
    let add = BfdUdpAdd {
        sw_if_index: any.clone(),
        desired_min_tx: 20_000,
        required_min_rx: 20_000,
        local_addr: local_addr.clone(),
        peer_addr: peer_addr.clone(),
        detect_mult: 3,
        is_authenticated: true,
        bfd_key_id: 9,
        conf_key_id: 7,
    };
    assert_eq!(retval!(BfdUdpEnableMultihopReply, BfdUdpEnableMultihop {}), 0);
    assert_eq!(retval!(BfdUdpAddReply, add), 0);
    let details: BfdUdpSessionDetails = read(&ask(&mut h, &table, client, &BfdUdpSessionDump {})[0]);
    assert_eq!((details.sw_if_index, details.peer_addr), (any.clone(), peer_addr.clone()));
    assert_eq!((details.is_authenticated, details.bfd_key_id, details.conf_key_id), (true, 9, 7));
    let key: BfdAuthKeysDetails = read(&ask(&mut h, &table, client, &BfdAuthKeysDump {})[0]);
    assert_eq!(key, BfdAuthKeysDetails { conf_key_id: 7, use_count: 1, auth_type: 4 });
    assert_eq!(retval!(BfdAuthDelKeyReply, BfdAuthDelKey { conf_key_id: 7 }), -103);
    let off = BfdUdpAuthDeactivate {
        sw_if_index: any.clone(),
        local_addr: local_addr.clone(),
        peer_addr: peer_addr.clone(),
        is_delayed: true,
    };
    assert_eq!(retval!(BfdUdpAuthDeactivateReply, off), 0);
    let on = BfdUdpAuthActivate { sw_if_index: any, local_addr, peer_addr, is_delayed: false, bfd_key_id: 1, conf_key_id: 8 };
    assert_eq!(retval!(BfdUdpAuthActivateReply, on), -102, "no such key");
    assert_eq!(retval!(BfdAuthDelKeyReply, BfdAuthDelKey { conf_key_id: 7 }), 0);

    let source = |h: &mut Harness| read::<BfdUdpGetEchoSourceReply>(&ask(h, &table, client, &BfdUdpGetEchoSource {})[0]);
    assert!(!source(&mut h).is_set && !source(&mut h).have_usable_ip4);
    let sw_if_index = InterfaceIndex(x0(&h).0);
    assert_eq!(retval!(BfdUdpSetEchoSourceReply, BfdUdpSetEchoSource { sw_if_index: sw_if_index.clone() }), 0);
    let set = source(&mut h);
    assert_eq!((set.sw_if_index, set.is_set, set.ip4_addr), (sw_if_index, true, Ip4Address([10, 0, 0, 0])));
    assert!(set.have_usable_ip4 && set.have_usable_ip6);
    assert_eq!(retval!(BfdUdpDelEchoSourceReply, BfdUdpDelEchoSource {}), 0);
    assert!(!source(&mut h).is_set);

    let tos = |h: &mut Harness| read::<BfdUdpGetTosReply>(&ask(h, &table, client, &BfdUdpGetTos {})[0]).tos;
    assert_eq!(tos(&mut h), 192);
    assert_eq!(retval!(BfdUdpSetTosReply, BfdUdpSetTos { tos: 112 }), 0);
    assert_eq!(tos(&mut h), 112);
}

/// Events have the client's number where replies have their context's, which `split` has taken off.
fn event_of(event: &[u8]) -> BfdUdpSessionEvent {
    let mut bytes = vec![0; 4];
    bytes.extend(event);
    read(&bytes)
}
