//! The messages of the binary API.

use std::rc::Rc;
use std::task::Waker;

use quiver_api::Catalog;
use quiver_api::defs::*;
use quiver_net::api::testing::{ask, assert_names, read, split};
use quiver_net::api::{Clients, Handlers, Table, Trace, address, install};
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
    ];
    assert_names(&Catalog::default(), &names);
}

#[test]
fn sessions_are_added_changed_told_of_and_removed() {
    let mut h = bed(1);
    let mut handlers = Handlers::default();
    crate::api::add(&mut handlers);
    let table = Rc::new(Table::new(handlers));
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
    assert_eq!(added(&mut h, &BfdUdpAdd { is_authenticated: true, ..add.clone() }), -104);
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

/// Events have the client's number where replies have their context's, which `split` has taken off.
fn event_of(event: &[u8]) -> BfdUdpSessionEvent {
    let mut bytes = vec![0; 4];
    bytes.extend(event);
    read(&bytes)
}
