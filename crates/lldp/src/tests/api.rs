//! The messages of the binary API.

use std::rc::Rc;

use quiver_api::defs::{InterfaceIndex, Ip4Address, Ip6Address};
use quiver_api::{Bytes, Catalog};
use quiver_net::api::testing::{ask, assert_names, read, table};
use quiver_net::api::{Clients, Trace, install};

use super::{bed, index, pass, ports, said, settle};
use crate::api::*;

#[test]
fn numbers_of_messages_are_those_of_vpp() {
    let names = [
        "lldp_config_c14445df",
        "lldp_config_reply_e8d4e804",
        "sw_interface_set_lldp_57afbcd4",
        "sw_interface_set_lldp_reply_e8d4e804",
        "lldp_dump_f75ba505",
        "lldp_dump_reply_53b48f5d",
        "lldp_details_c2d226cd",
    ];
    assert_names(&Catalog::of([lldp()]), &names);
}

#[test]
fn lldp_is_set_told_and_ended() {
    let mut h = bed(0);
    let table = Rc::new(table(add));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    let config = LldpConfig { tx_hold: 8, tx_interval: 15, system_name: "lldp-test".into() };
    assert_eq!(read::<LldpConfigReply>(&ask(&mut h, &table, client, &config)[0]).retval, 0);
    let keep = LldpConfig { tx_hold: 0, tx_interval: 0, system_name: String::new() };
    assert_eq!(read::<LldpConfigReply>(&ask(&mut h, &table, client, &keep)[0]).retval, 0);
    let wrong = LldpConfig { tx_hold: 101, ..keep };
    assert!(read::<LldpConfigReply>(&ask(&mut h, &table, client, &wrong)[0]).retval < 0);

    let x0 = index(&h, "x0");
    let on = SwInterfaceSetLldp {
        sw_if_index: InterfaceIndex(x0.0),
        mgmt_ip4: Ip4Address([111, 222, 44, 88]),
        mgmt_ip6: Ip6Address("fd01:2::1".parse::<std::net::Ipv6Addr>().unwrap().octets()),
        mgmt_oid: Bytes::from(&b"1.2.4.0.1"[..]),
        enable: true,
        port_desc: "port 1".into(),
    };
    let set = |h: &mut _, m: &SwInterfaceSetLldp| read::<SwInterfaceSetLldpReply>(&ask(h, &table, client, m)[0]).retval;
    assert_eq!(set(&mut h, &SwInterfaceSetLldp { enable: false, ..on.clone() }), 0, "it was off");
    assert_eq!(set(&mut h, &SwInterfaceSetLldp { sw_if_index: InterfaceIndex(99), ..on.clone() }), -2);
    assert_eq!(set(&mut h, &on), 0);
    let bare = SwInterfaceSetLldp { sw_if_index: InterfaceIndex(index(&h, "x1").0), enable: true, ..Default::default() };
    assert_eq!(set(&mut h, &bare), 0);
    assert_eq!(ports(&h)[1].mgmt_ip4, None);

    let all = ask(&mut h, &table, client, &LldpDump { cursor: 0 });
    assert_eq!(all.len(), 3);
    let details: LldpDetails = read(&all[0]);
    assert_eq!((details.sw_if_index.0, details.ttl, details.chassis_id_len, details.last_heard), (x0.0, 0, 0, 0.0));
    let port = &ports(&h)[0];
    assert_eq!((port.mgmt_ip4, port.mgmt_ip6), (Some([111, 222, 44, 88].into()), Some("fd01:2::1".parse().unwrap())));
    assert_eq!((port.mgmt_oid.as_deref(), port.port_desc.as_deref()), (Some("1.2.4.0.1"), Some("port 1")));
    let settings = crate::ops::shown(&h.router, false).unwrap();
    assert_eq!((settings.system_name.as_deref(), settings.tx_hold, settings.tx_interval), (Some("lldp-test"), 8, 15));
    assert_eq!(read::<LldpDumpReply>(&all[2]), LldpDumpReply { retval: 0, cursor: u32::MAX });

    settle(&mut h);
    h.inject_many(x0, &[said(1, 121), said(2, 121)], 0);
    settle(&mut h);
    pass(&mut h, 3_000);
    let all = ask(&mut h, &table, client, &LldpDump { cursor: 0 });
    assert_eq!(all.len(), 4, "one for each neighbour");
    let details: LldpDetails = read(&all[1]);
    assert_eq!(details.ttl, 121);
    assert_eq!((details.chassis_id_subtype, details.port_id_subtype), (ChassisIdSubtype(4), PortIdSubtype(5)));
    assert_eq!((&details.chassis_id.0[..6], details.chassis_id_len), (&[2, 0, 0, 0, 0x20, 2][..], 6));
    assert_eq!(&details.port_id.0[..usize::from(details.port_id_len)], b"port2");
    assert!(details.last_heard > 0.0 && details.last_sent > details.last_heard, "the router has answered since");

    assert_eq!(set(&mut h, &SwInterfaceSetLldp { enable: false, ..on }), 0);
    assert_eq!(ask(&mut h, &table, client, &LldpDump { cursor: 0 }).len(), 2);
}
