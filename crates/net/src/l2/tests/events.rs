//! Events of MAC addresses, and flags of ports, by messages.

use std::rc::Rc;
use std::task::Waker;

use quiver_api::Catalog;
use quiver_api::defs::*;

use zerocopy::IntoBytes;

use super::*;
use crate::api::testing::{ask, assert_names, read, split};
use crate::api::{Clients, Handlers, Table, Trace, install};

fn api(h: &mut Harness) -> (Rc<Table>, [u32; 2]) {
    let mut handlers = Handlers::default();
    api::add(&mut handlers);
    let table = Rc::new(Table::new(handlers));
    install(&mut h.router, &table, Trace::new(false, None));
    let clients = h.router.part_mut::<Clients>().unwrap();
    (table, [clients.join("one"), clients.join("two")])
}

/// Interface, last byte of the address, action: of each event after another scan delay; and the events' sizes.
fn events(h: &mut Harness, client: u32, now: &mut u64) -> (Vec<(u32, u8, u32)>, Vec<usize>) {
    settle_at(h, *now);
    *now += 200_000_000;
    settle_at(h, *now);
    let bytes = h.router.part_mut::<Clients>().unwrap().take_events(client, Waker::noop());
    let events: Vec<L2MacsEvent> = split(&bytes).into_iter().map(|event| event_of(&event)).collect();
    let each = events.iter().flat_map(|e| &e.mac).map(|e| (e.sw_if_index.0, e.mac_addr.0[5], e.action.0)).collect();
    (each, events.iter().map(|e| e.mac.len()).collect())
}

/// An event has no context, so that what is taken for one is its client's number.
fn event_of(event: &[u8]) -> L2MacsEvent {
    let mut bytes = vec![0; 4];
    bytes.extend(event);
    read(&bytes)
}

fn want(h: &mut Harness, table: &Rc<Table>, client: u32, on: bool, tens: u8) -> i32 {
    let m = WantL2MacsEvents2 { max_macs_in_event: tens, enable_disable: on, pid: 7 };
    read::<WantL2MacsEvents2Reply>(&ask(h, table, client, &m)[0]).retval
}

#[test]
fn one_client_is_told_what_is_learned_moved_and_forgotten() {
    let (mut h, x) = bed(0, 3);
    let (table, [one, two]) = api(&mut h);
    let mut now = h.router.graph.clock().timer_now();
    send(&mut h, x[0], &frame(mac(99), MacAddr::BROADCAST));
    assert_eq!([want(&mut h, &table, one, true, 0), want(&mut h, &table, one, true, 1)], [-7, 0]);
    assert_eq!(h.router.mac_counts(), (0, 0), "the client is to know all of them");
    assert_eq!([want(&mut h, &table, two, true, 1), want(&mut h, &table, two, false, 1)], [-124, 0]);
    for n in 0..12 {
        send(&mut h, x[0], &frame(mac(n), MacAddr::BROADCAST));
    }
    let (each, sizes) = events(&mut h, one, &mut now);
    assert_eq!(each, (0..12).map(|n| (x[0].0, n, 0)).collect::<Vec<_>>());
    assert_eq!(sizes, [10, 2]);
    send(&mut h, x[1], &frame(mac(3), MacAddr::BROADCAST));
    assert_eq!(events(&mut h, one, &mut now).0, [(x[1].0, 3, 2)]);
    h.router.flush_macs(Flush::Interface(x[1])).unwrap();
    assert_eq!(events(&mut h, one, &mut now).0, [(x[1].0, 3, 1)]);
    // What was configured is no news.
    h.router.add_mac(10, mac(50), MacKind::Static(x[2])).unwrap();
    assert_eq!(events(&mut h, one, &mut now).0, []);
    // The end of the client is the end of its subscription.
    h.router.part_mut::<Clients>().unwrap().leave(one);
    assert_eq!(want(&mut h, &table, two, true, 1), 0);
    send(&mut h, x[0], &frame(mac(1), MacAddr::BROADCAST));
    assert_eq!(events(&mut h, two, &mut now).0, [(x[0].0, 1, 0)]);
    assert_eq!(want(&mut h, &table, two, false, 1), 0);
    send(&mut h, x[0], &frame(mac(2), MacAddr::BROADCAST));
    assert_eq!(events(&mut h, two, &mut now).0, []);
}

#[test]
fn the_first_version_limits_what_is_learned_and_sets_the_delay() {
    let (mut h, x) = bed(0, 2);
    let (table, [one, _]) = api(&mut h);
    let ask_for = |h: &mut Harness, learn_limit, scan_delay| {
        let m = WantL2MacsEvents { learn_limit, scan_delay, max_macs_in_event: 1, enable_disable: true, pid: 7 };
        read::<WantL2MacsEventsReply>(&ask(h, &table, one, &m)[0]).retval
    };
    assert_eq!([ask_for(&mut h, 0, 1), ask_for(&mut h, 2, 0), ask_for(&mut h, 2, 5)], [-7, -7, 0]);
    assert_eq!(h.router.l2_scan_delay(), 5);
    for n in 0..5 {
        send(&mut h, x[0], &frame(mac(n), MacAddr::BROADCAST));
    }
    assert_eq!(h.router.mac_counts(), (2, 2));
    let set = |h: &mut Harness, scan_delay| {
        read::<L2fibSetScanDelayReply>(&ask(h, &table, one, &L2fibSetScanDelay { scan_delay })[0]).retval
    };
    assert_eq!([set(&mut h, 0), set(&mut h, 30)], [-7, 0]);
    assert_eq!(h.router.l2_scan_delay(), 30);
    let names = [
        "bvi_create_f5398559",
        "l2_flags_fc41cfe8",
        "l2_macs_event_44b8fd64",
        "want_l2_macs_events_9aabdfde",
        "want_l2_macs_events2_cc1377b0",
        "l2fib_set_scan_delay_a3b968a4",
    ];
    assert_names(&Catalog::default(), &names);
}

#[test]
fn flags_of_a_port_are_set_by_message() {
    let (mut h, x) = bed(0, 3);
    let (table, [one, _]) = api(&mut h);
    let set = |h: &mut Harness, port: IfIndex, is_set, feature_bitmap| {
        let m = L2Flags { sw_if_index: InterfaceIndex(port.0), is_set, feature_bitmap };
        let reply = read::<L2FlagsReply>(&ask(h, &table, one, &m)[0]);
        (reply.retval, reply.resulting_feature_bitmap)
    };
    // Learning, forwarding, flooding of both sorts, ARP termination: as VPP's input features have them.
    assert_eq!(set(&mut h, x[0], true, 0), (0, 1 << 9 | 1 << 7 | 1 << 2 | 1 << 5 | 1 << 4));
    assert_eq!(set(&mut h, x[0], false, 1 | 8), (0, 1 << 7 | 1 << 2 | 1 << 4));
    assert_eq!(send(&mut h, x[0], &frame(mac(1), mac(2))), []);
    assert_eq!(h.count("l2-bridge", "L2 unknown unicast, flooding is off"), 1);
    assert_eq!(h.router.mac_counts(), (0, 0));
    assert_eq!(send(&mut h, x[1], &frame(mac(1), mac(2))), [x[0], x[2]], "other ports flood");
    set(&mut h, x[0], true, 1 | 8);
    assert_eq!(send(&mut h, x[0], &frame(mac(1), mac(2))), [x[1], x[2]]);
}

#[test]
fn clients_are_told_which_hosts_arp_termination_hears() {
    let (mut h, x) = bed(0, 2);
    let (table, [one, two]) = api(&mut h);
    for port in &x {
        h.router.set_port_switch(*port, PortSwitch::ArpTerm, true).unwrap();
    }
    h.router.set_bridge_switch(10, BdSwitch::ArpTerm, true).unwrap();
    let want = |h: &mut Harness, client, enable| {
        read::<WantL2ArpTermEventsReply>(&ask(h, &table, client, &WantL2ArpTermEvents { enable, pid: 9 })[0]).retval
    };
    let hosts = |h: &mut Harness, client| -> Vec<(String, u8, u32)> {
        let now = h.router.graph.clock().timer_now();
        settle_at(h, now);
        let bytes = h.router.part_mut::<Clients>().unwrap().take_events(client, Waker::noop());
        let event = |event: &Vec<u8>| {
            let mut bytes = vec![0; 4];
            bytes.extend(event);
            read::<L2ArpTermEvent>(&bytes)
        };
        let events: Vec<L2ArpTermEvent> = split(&bytes).iter().map(event).collect();
        events.iter().map(|e| (crate::api::from_address(&e.ip).to_string(), e.mac.0[5], e.sw_if_index.0)).collect()
    };
    let asks = |n: u32, ip: [u8; 4]| {
        let request = quiver_wire::arp::ArpHeader::new(
            quiver_wire::arp::ArpOperation::REQUEST,
            (mac(n), ip.into()),
            (MacAddr([0; 6]), [10, 0, 0, 99].into()),
        );
        let mut bytes =
            quiver_wire::ethernet::EthernetHeader::new(MacAddr::BROADCAST, mac(n), quiver_wire::ethernet::EtherType::ARP)
                .as_bytes()
                .to_vec();
        bytes.extend(request.as_bytes());
        bytes.resize(60, 0);
        bytes
    };
    send(&mut h, x[0], &asks(1, [10, 0, 0, 1]));
    assert_eq!(hosts(&mut h, one), [], "nobody has asked");
    assert_eq!([want(&mut h, one, false), want(&mut h, one, true), want(&mut h, one, true)], [-31, 0, -31]);
    for _ in 0..3 {
        send(&mut h, x[0], &asks(1, [10, 0, 0, 1]));
    }
    send(&mut h, x[1], &asks(1, [10, 0, 0, 1]));
    // A probe says nothing.
    send(&mut h, x[1], &asks(2, [0; 4]));
    let moved = [("10.0.0.1".to_owned(), 1, x[0].0), ("10.0.0.1".to_owned(), 1, x[1].0)];
    assert_eq!(hosts(&mut h, one), moved);
    // Another client is told of all hosts anew, and the first one with it.
    assert_eq!(want(&mut h, two, true), 0);
    send(&mut h, x[1], &asks(1, [10, 0, 0, 1]));
    assert_eq!([hosts(&mut h, one).len(), hosts(&mut h, two).len()], [1, 1]);
    assert_eq!([want(&mut h, one, false), want(&mut h, two, false)], [0, 0]);
    send(&mut h, x[0], &asks(3, [10, 0, 0, 3]));
    assert_eq!([hosts(&mut h, one).len(), hosts(&mut h, two).len()], [0, 0]);
    assert_names(&Catalog::default(), &["want_l2_arp_term_events_3ec6d6c2", "l2_arp_term_event_6963e07a"]);
}
