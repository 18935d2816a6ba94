//! Messages of duplicate detection, and its times.

use std::net::Ipv6Addr;
use std::rc::Rc;
use std::task::Waker;

use quiver_api::Catalog;
use quiver_api::defs::*;

use super::{DadConfig, dad};
use crate::api::testing::{ask, assert_names, read, split};
use crate::api::{Clients, Handlers, Table, Trace, install};
use crate::testing::{Harness, host_mac};

const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const MILLISECOND: u64 = 1_000_000;

fn bed() -> (Harness, Rc<Table>, u32) {
    let mut h = Harness::new();
    h.interface(0);
    let mut handlers = Handlers::default();
    super::api::add(&mut handlers);
    let table = Rc::new(Table::new(handlers));
    install(&mut h.router, &table, Trace::new(false, None));
    let client = h.router.part_mut::<Clients>().unwrap().join("test");
    (h, table, client)
}

/// State, questions asked, questions to ask: of each event about [`OWN`].
fn events(h: &mut Harness, client: u32) -> Vec<(u8, u8, u8)> {
    let bytes = h.router.part_mut::<Clients>().unwrap().take_events(client, Waker::noop());
    let events = split(&bytes).into_iter().map(|event| event_of(&event));
    events.filter(|e| e.address.0 == OWN.octets()).map(|e| (e.state.0, e.dad_count, e.dad_transmits)).collect()
}

#[test]
fn duplicate_detection_is_set_and_told_by_messages() {
    let (mut h, table, client) = bed();
    let set = |h: &mut Harness, enable, dad_transmits, dad_retransmit_delay| {
        let m = Ip6DadEnableDisable { enable, dad_transmits, dad_retransmit_delay };
        read::<Ip6DadEnableDisableReply>(&ask(h, &table, client, &m)[0]).retval
    };
    assert_eq!(set(&mut h, true, 3, 0.5), 0);
    assert_eq!(h.router.dad_config(), DadConfig { transmits: 3, delay_ms: 500 });
    assert_eq!(set(&mut h, true, 0, 0.0), 0);
    let details = read::<Ip6DadDetails>(&ask(&mut h, &table, client, &Ip6DadDump::default())[0]);
    assert_eq!((details.enabled, details.dad_transmits, details.dad_retransmit_delay), (true, 3, 0.5), "0 leaves them");
    for (transmits, delay, code) in [(11, 1.0, -7), (1, 10.5, -8), (1, 0.05, -8), (1, f64::NAN, -8), (1, -1.0, -8)] {
        assert_eq!(set(&mut h, true, transmits, delay), code, "{transmits} {delay}");
    }
    assert_eq!(set(&mut h, false, 0, 0.0), 0);
    assert_eq!(h.router.dad_config().transmits, 0);
    assert_names(&Catalog::default(), &["ip6_dad_enable_disable_reply_e8d4e804", "want_ip6_dad_events_reply_e8d4e804"]);
}

#[test]
fn clients_are_told_of_each_question_and_of_its_outcome() {
    let (mut h, table, client) = bed();
    let x = h.router.interfaces.find("x0").unwrap();
    let want = |h: &mut Harness, enable_disable| {
        let m = WantIp6DadEvents { enable_disable, pid: 5 };
        read::<WantIp6DadEventsReply>(&ask(h, &table, client, &m)[0]).retval
    };
    assert_eq!([want(&mut h, true), want(&mut h, true)], [0, -31]);
    h.router.set_dad_config(DadConfig { transmits: 2, delay_ms: 200 });
    h.router.add_address(x, OWN.into(), 64).unwrap();
    assert_eq!(events(&mut h, client), [(1, 0, 2)]);
    let now = h.router.graph.clock().timer_now();
    dad::run(&mut h.router, now);
    dad::run(&mut h.router, now + 199 * MILLISECOND);
    assert_eq!(events(&mut h, client), [(1, 1, 2)]);
    dad::run(&mut h.router, now + 200 * MILLISECOND);
    assert_eq!(events(&mut h, client), [(1, 2, 2)]);
    dad::run(&mut h.router, now + 400 * MILLISECOND);
    assert_eq!(events(&mut h, client), [(2, 2, 2)]);
    h.router.link_changed(x);
    let _ = events(&mut h, client);
    assert!(dad::duplicate(&mut h.router, x, OWN, host_mac(0)));
    assert_eq!(events(&mut h, client), [(3, 0, 2)]);
    assert_eq!(want(&mut h, false), 0);
    h.router.remove_address(x, OWN.into(), 64).unwrap();
    h.router.add_address(x, OWN.into(), 64).unwrap();
    assert_eq!(events(&mut h, client), []);
}

#[test]
fn an_address_that_somebody_has_is_taken_off_where_that_is_asked_for() {
    for autoremove in [false, true] {
        let mut h = Harness::new();
        let x = h.interface(0);
        let has =
            |h: &Harness| h.router.interfaces.get(x).unwrap().addresses.iter().any(|(a, _)| *a == std::net::IpAddr::from(OWN));
        h.router.set_dad_config(DadConfig { transmits: 0, delay_ms: 200 });
        h.router.set_dad_autoremove(autoremove);
        assert_eq!(h.router.dad_config(), DadConfig { transmits: u8::from(autoremove), delay_ms: 200 }, "it needs checks");
        h.router.set_dad_config(DadConfig { transmits: 1, delay_ms: 200 });
        h.router.add_address(x, OWN.into(), 64).unwrap();
        assert!(has(&h));
        assert!(dad::duplicate(&mut h.router, x, OWN, host_mac(0)));
        assert_eq!((has(&h), h.router.dad_autoremove()), (!autoremove, (autoremove, u64::from(autoremove))));
        // It can be given again.
        if autoremove {
            h.router.add_address(x, OWN.into(), 64).unwrap();
            assert!(has(&h));
        }
    }
}

/// An event has no context, so that what is taken for one is its client's number.
fn event_of(event: &[u8]) -> Ip6DadEvent {
    let mut bytes = vec![0; 4];
    bytes.extend(event);
    read(&bytes)
}
