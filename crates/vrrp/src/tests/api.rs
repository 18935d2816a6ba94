//! The messages of the binary API.

use std::rc::Rc;
use std::task::Waker;

use quiver_api::Catalog;
use quiver_api::defs::*;
use quiver_net::api::testing::{ask, assert_names, read, split, table};
use quiver_net::api::{Clients, Trace, address, install};
use quiver_net::ip::FamilyId;
use quiver_net::testing::Harness;

use super::{VIRTUAL, bed, info, routers, until, x0};
use crate::machine::State;

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "vrrp_vr_add_del_c5cf15aa",
        "vrrp_vr_add_del_reply_e8d4e804",
        "vrrp_vr_del_6029baa1",
        "vrrp_vr_del_reply_e8d4e804",
        "vrrp_vr_details_46edcebd",
        "vrrp_vr_dump_f9e6675e",
        "vrrp_vr_event_c1fea6a5",
        "vrrp_vr_peer_details_3d99c108",
        "vrrp_vr_peer_dump_6fa3f7c4",
        "vrrp_vr_set_peers_20bec71f",
        "vrrp_vr_set_peers_reply_e8d4e804",
        "vrrp_vr_start_stop_0662a3b7",
        "vrrp_vr_start_stop_reply_e8d4e804",
        "vrrp_vr_track_if_add_del_d67df299",
        "vrrp_vr_track_if_add_del_reply_e8d4e804",
        "vrrp_vr_track_if_details_73c36f81",
        "vrrp_vr_track_if_dump_a34dfc6d",
        "vrrp_vr_update_0b51e2f4",
        "vrrp_vr_update_reply_5317d608",
        "want_vrrp_vr_events_c5e2af94",
        "want_vrrp_vr_events_reply_e8d4e804",
    ];
    assert_names(&Catalog::default(), &names);
}

#[test]
fn virtual_routers_are_added_changed_told_of_and_removed() {
    let mut h = bed(1);
    let table = Rc::new(table(crate::api::add));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    let (sw_if_index, addrs) = (InterfaceIndex(x0(&h).0), vec![address(VIRTUAL[0])]);
    let add = VrrpVrAddDel {
        is_add: 1,
        sw_if_index: sw_if_index.clone(),
        vr_id: 7,
        priority: 120,
        interval: 1,
        flags: VrrpVrFlags(1),
        addrs: addrs.clone(),
        ..Default::default()
    };
    let want = WantVrrpVrEvents { enable_disable: true, pid: 5 };
    assert_eq!(read::<WantVrrpVrEventsReply>(&ask(&mut h, &table, client, &want)[0]).retval, 0);
    let added = |h: &mut Harness, add: &VrrpVrAddDel| read::<VrrpVrAddDelReply>(&ask(h, &table, client, add)[0]).retval;
    assert_eq!(added(&mut h, &VrrpVrAddDel { priority: 255, ..add.clone() }), -60);
    assert_eq!(added(&mut h, &VrrpVrAddDel { addrs: Vec::new(), ..add.clone() }), -57);
    assert_eq!([added(&mut h, &add), added(&mut h, &add)], [0, -116]);
    let start = VrrpVrStartStop { sw_if_index: sw_if_index.clone(), vr_id: 7, is_ipv6: 0, is_start: 1 };
    assert_eq!(read::<VrrpVrStartStopReply>(&ask(&mut h, &table, client, &start)[0]).retval, 0);
    until(&mut h, FamilyId::V4, State::Master);
    let bytes = h.router.part_mut::<Clients>().unwrap().take_events(client, Waker::noop());
    let states: Vec<_> = split(&bytes)
        .iter()
        .map(|event| {
            let event = event_of(event);
            assert_eq!((event.pid, event.vr.vr_id, event.vr.is_ipv6, &event.vr.sw_if_index), (5, 7, 0, &sw_if_index));
            (event.old_state, event.new_state)
        })
        .collect();
    use VrrpVrState as S;
    assert_eq!(
        states,
        [(S::VRRP_API_VR_STATE_INIT, S::VRRP_API_VR_STATE_BACKUP), (S::VRRP_API_VR_STATE_BACKUP, S::VRRP_API_VR_STATE_MASTER)]
    );

    let tracked = VrrpVrTrackIfAddDel {
        sw_if_index: sw_if_index.clone(),
        vr_id: 7,
        is_add: 1,
        ifs: vec![VrrpVrTrackIf { sw_if_index: InterfaceIndex(2), priority: 20 }],
        ..Default::default()
    };
    assert_eq!(read::<VrrpVrTrackIfAddDelReply>(&ask(&mut h, &table, client, &tracked)[0]).retval, 0);
    let all = ask(&mut h, &table, client, &VrrpVrTrackIfDump { dump_all: 1, ..Default::default() });
    // In this message and in that of peers the client's number stands in front of the context.
    assert_eq!(read::<VrrpVrTrackIfDetails>(&all[0][4..]).ifs, tracked.ifs);

    // Other settings of the same one, by its number.
    let update = VrrpVrUpdate {
        vrrp_index: 0,
        sw_if_index: sw_if_index.clone(),
        vr_id: 7,
        priority: 130,
        interval: 100,
        flags: VrrpVrFlags(3),
        addrs: addrs.clone(),
        ..Default::default()
    };
    let updated = |h: &mut Harness, update: &VrrpVrUpdate| read::<VrrpVrUpdateReply>(&ask(h, &table, client, update)[0]);
    assert_eq!(updated(&mut h, &update), VrrpVrUpdateReply { retval: 0, vrrp_index: 0 });
    assert_eq!(updated(&mut h, &VrrpVrUpdate { vrrp_index: 9, ..update.clone() }).retval, -6);
    let second = VrrpVrUpdate {
        vrrp_index: u32::MAX,
        vr_id: 8,
        flags: VrrpVrFlags(5),
        addrs: vec![address("10.0.0.108".parse().unwrap())],
        ..update.clone()
    };
    assert_eq!(updated(&mut h, &second), VrrpVrUpdateReply { retval: 0, vrrp_index: 1 });
    let peers = VrrpVrSetPeers {
        sw_if_index: sw_if_index.clone(),
        vr_id: 8,
        addrs: vec![address("10.0.0.2".parse().unwrap())],
        ..Default::default()
    };
    assert_eq!(read::<VrrpVrSetPeersReply>(&ask(&mut h, &table, client, &peers)[0]).retval, 0);
    let all = ask(&mut h, &table, client, &VrrpVrPeerDump { sw_if_index: InterfaceIndex(u32::MAX), ..Default::default() });
    assert_eq!((all.len(), read::<VrrpVrPeerDetails>(&all[0][4..]).peer_addrs), (1, peers.addrs));

    assert_eq!(info(&mut h, FamilyId::V4).state, State::Master, "no new election");
    let all = ask(&mut h, &table, client, &VrrpVrDump { sw_if_index });
    let details: VrrpVrDetails = read(&all[0]);
    assert_eq!((all.len(), details.config.priority, details.config.interval, details.config.flags.0), (2, 130, 100, 3));
    assert_eq!(
        (details.runtime.state, details.runtime.mac.0, details.addrs),
        (S::VRRP_API_VR_STATE_MASTER, [0, 0, 0x5e, 0, 1, 7], addrs)
    );
    let deleted =
        |h: &mut Harness, vrrp_index| read::<VrrpVrDelReply>(&ask(h, &table, client, &VrrpVrDel { vrrp_index })[0]).retval;
    assert_eq!([deleted(&mut h, 1), deleted(&mut h, 1), deleted(&mut h, 0)], [0, -6, 0]);
    assert!(routers(&mut h).is_empty());
}

/// Events have the client's number where replies have their context's, which `split` has taken off.
fn event_of(event: &[u8]) -> VrrpVrEvent {
    let mut bytes = vec![0; 4];
    bytes.extend(event);
    read(&bytes)
}
