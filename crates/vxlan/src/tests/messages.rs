//! The messages of the binary API.

use std::net::IpAddr;

use quiver_api::defs::InterfaceIndex;
use quiver_net::api::address;
use quiver_net::api::testing::{ask, read, table};

use super::scene;
use crate::api::*;

#[test]
fn tunnels_are_made_shown_and_removed_by_messages() {
    let table = table(add);
    let mut s = scene();
    let ip = |text: &str| address(text.parse::<IpAddr>().unwrap());
    let none = || InterfaceIndex(u32::MAX);
    let make = |is_add, vni, is_l3| VxlanAddDelTunnelV3 {
        is_add,
        instance: u32::MAX,
        src_address: ip("10.0.0.1"),
        dst_address: ip("10.0.0.2"),
        src_port: 0,
        dst_port: 0,
        mcast_sw_if_index: none(),
        encap_vrf_id: 0,
        decap_next_index: u32::MAX,
        vni,
        is_l3,
    };
    let mut change = |message: &VxlanAddDelTunnelV3| -> VxlanAddDelTunnelV3Reply { read(&ask(&mut s.h, &table, 1, message)[0]) };
    let made = change(&make(true, 13, false));
    assert_eq!((made.retval, made.sw_if_index.0), (0, 4));
    assert_eq!(change(&make(true, 13, false)).retval, -75);
    assert_eq!(change(&make(true, 14, true)).retval, -126, "frames only");
    assert_eq!(change(&make(false, 14, false)).retval, -6);
    let all: Vec<VxlanTunnelV2Details> =
        ask(&mut s.h, &table, 1, &VxlanTunnelV2Dump { sw_if_index: none() }).iter().map(|answer| read(answer)).collect();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].vni, all[0].src_port, all[0].dst_port, all[0].decap_next_index), (13, 4789, 4789, 1));
    assert_eq!(ask(&mut s.h, &table, 1, &VxlanTunnelDump { sw_if_index: InterfaceIndex(4) }).len(), 1);
    assert!(ask(&mut s.h, &table, 1, &VxlanTunnelDump { sw_if_index: InterfaceIndex(3) }).is_empty());
    let gone: VxlanAddDelTunnelV3Reply = read(&ask(&mut s.h, &table, 1, &make(false, 13, false))[0]);
    assert_eq!(gone.retval, 0);
    assert!(ask(&mut s.h, &table, 1, &VxlanTunnelV2Dump { sw_if_index: none() }).is_empty());
}
