//! Many sessions: what nodes, statistics and keys know of them is what there is, and one more costs what the first one did.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use quiver_net::ip::FamilyId;
use quiver_net::testing::Harness;

use super::{bed, run};
use crate::auth::{Key as AuthKey, Kind, Secret};
use crate::control::{self, AuthRef, SESSIONS_MAX};
use crate::datagram::Key;
use crate::session::Timing;

const TIMING: Timing = Timing { desired_min_tx: 1_000_000, required_min_rx: 1_000_000, detect_mult: 3 };

/// The nth peer: on x0 or x1, or over several hops.
fn key(h: &Harness, n: u32) -> Key {
    let v4 = |a, b, c, d| IpAddr::from(Ipv4Addr::new(a, b, c, d));
    let [x0, x1] = ["x0", "x1"].map(|name| h.router.interfaces.by_name(name).unwrap().index);
    let [high, low] = [(n / 100) as u8, (n % 100 + 10) as u8];
    match n % 4 {
        0 => Key::on(x0, v4(10, 0, 0, 1), v4(10, 0, high, low)),
        1 => Key::on(x1, v4(10, 0, 1, 1), v4(10, 0, high, low)),
        2 => Key::multihop(0, v4(10, 0, 1, 1), v4(192, 0, high, low)),
        _ => {
            let v6 = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
            Key::on(x0, v6(1), v6(n as u16 + 16))
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32, Option<u32>),
    Remove(u32),
    Auth(u32, Option<u32>),
    EchoSource(bool),
    Interface,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let auth = || proptest::option::of(0_u32..3);
    let step = prop_oneof![
        8 => (0_u32..24, auth()).prop_map(|(n, auth)| Step::Add(n, auth)),
        4 => (0_u32..24).prop_map(Step::Remove),
        2 => (0_u32..24, auth()).prop_map(|(n, auth)| Step::Auth(n, auth)),
        1 => any::<bool>().prop_map(Step::EchoSource),
        1 => Just(Step::Interface),
    ];
    proptest::collection::vec(step, 1..60)
}

fn auth_ref(conf_key_id: u32) -> AuthRef {
    AuthRef { conf_key_id, bfd_key_id: 1 }
}

/// Holds the router against what should be there.
fn check(h: &Harness, model: &BTreeMap<u32, Option<u32>>) {
    let bfd = h.router.state::<control::Bfd>().unwrap();
    let index = bfd.reader();
    for n in 0..24 {
        let session = bfd.session(&key(h, n)).ok();
        assert_eq!(session.is_some(), model.contains_key(&n));
        let discriminator = index.discriminator(&key(h, n));
        assert_eq!(discriminator, session.map(|session| session.discriminator));
        assert_eq!(discriminator.and_then(|of| index.owner(of)), session.map(|session| session.owner));
        assert_eq!(index.next_hop(&key(h, n)).is_some(), session.is_some() && n % 4 != 2);
    }
    let mut ids: Vec<u32> = bfd.sessions().map(|(_, session)| session.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), model.len(), "each has a number of its own");
    let count = |wanted: &[u32]| model.keys().filter(|n| wanted.contains(&(**n % 4))).count() as u64;
    let gauge = |name: &str| h.router.graph.stats().gauge(name).get();
    assert_eq!(gauge("/bfd/udp4/sessions"), count(&[0, 1]));
    assert_eq!(gauge("/bfd/udp6/sessions"), count(&[3]));
    assert_eq!([gauge("/bfd/udp4/sessions_mh"), gauge("/bfd/udp6/sessions_mh")], [count(&[2]), 0]);
    for key in control::keys(&h.router).unwrap() {
        assert_eq!(key.uses as usize, model.values().filter(|auth| **auth == Some(key.conf_key_id)).count());
    }
    let ports = |family| h.router.udp_ports(family).into_iter().map(|(port, _)| port).collect::<Vec<_>>();
    let expected = [(&[0, 1][..], 3784), (&[0, 1], 3785), (&[2], 4784)].map(|(kinds, port)| (count(kinds) > 0).then_some(port));
    assert_eq!(ports(FamilyId::V4), expected.into_iter().flatten().collect::<Vec<u16>>());
    assert_eq!(ports(FamilyId::V6), if count(&[3]) > 0 { vec![3784, 3785] } else { vec![] });
}

fn apply(h: &mut Harness, model: &mut BTreeMap<u32, Option<u32>>, step: &Step) {
    let of = |h: &Harness, n: u32| key(h, n);
    match *step {
        Step::Add(n, auth) => {
            let key = of(h, n);
            let added = control::add(&mut h.router, key, TIMING, auth.map(auth_ref));
            assert_eq!(added.is_ok(), !model.contains_key(&n));
            model.entry(n).or_insert(auth);
        }
        Step::Remove(n) => {
            let key = of(h, n);
            assert_eq!(control::remove(&mut h.router, &key).is_ok(), model.remove(&n).is_some());
        }
        Step::Auth(n, auth) => {
            let key = of(h, n);
            let set = control::set_auth(&mut h.router, &key, auth.map(auth_ref), false);
            assert_eq!(set.is_ok(), model.contains_key(&n));
            model.entry(n).and_modify(|uses| *uses = auth);
        }
        Step::EchoSource(set) => {
            let index = set.then(|| h.router.interfaces.by_name("x1").unwrap().index);
            control::set_echo_source(&mut h.router, index).unwrap();
        }
        Step::Interface => {
            let doomed: Vec<Key> = model.keys().filter(|n| *n % 4 == 1).map(|n| of(h, *n)).collect();
            let index = h.router.interfaces.by_name("x1").unwrap().index;
            control::remove_on(&mut h.router, index);
            assert!(doomed.iter().all(|key| h.router.state::<control::Bfd>().unwrap().session(key).is_err()));
            model.retain(|n, _| n % 4 != 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn index_statistics_keys_and_ports_are_those_of_the_sessions_there_are(steps in steps()) {
        let mut h = bed(0);
        for id in 0..3 {
            let key = AuthKey { kind: Kind::MeticulousSha1, secret: Secret::new(b"secret").unwrap() };
            control::set_key(&mut h.router, id, key).unwrap();
        }
        let mut model = BTreeMap::new();
        for step in &steps {
            apply(&mut h, &mut model, step);
            check(&h, &model);
        }
    }
}

/// Prints what a session costs main: `cargo test -p quiver-bfd -- --nocapture one_more_session`.
#[test]
fn one_more_session_costs_main_what_the_first_one_did() {
    let mut h = bed(1);
    run(&mut h, "set interface ip address x0 10.8.0.1/16");
    let x0 = super::x0(&h);
    let peer = |n: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a08_0100 + n));
    let key = |n| Key::on(x0, Ipv4Addr::new(10, 8, 0, 1).into(), peer(n));
    let mut each: Vec<Duration> = Vec::new();
    for n in 0..SESSIONS_MAX {
        let before = Instant::now();
        control::add(&mut h.router, key(n), TIMING, None).unwrap();
        each.push(before.elapsed());
    }
    let refused = control::add(&mut h.router, key(SESSIONS_MAX), TIMING, None).unwrap_err();
    assert!(refused.to_string().contains("already"), "{refused}");
    let median = |some: &[Duration]| {
        let mut some = some.to_vec();
        some.sort_unstable();
        some[some.len() / 2]
    };
    println!("a session: {:?} of the first 100, {:?} of the last 100", median(&each[..100]), median(&each[each.len() - 100..]));
    let before = Instant::now();
    control::remove(&mut h.router, &key(7)).unwrap();
    println!("removing one: {:?}", before.elapsed());
    assert_eq!(control::add(&mut h.router, key(7), TIMING, None).unwrap(), 7, "the number that is free");
    let before = Instant::now();
    control::remove_on(&mut h.router, x0);
    println!("removing {SESSIONS_MAX} at once: {:?}", before.elapsed());
    assert_eq!(h.router.state::<control::Bfd>().unwrap().sessions().count(), 0);
    assert!(h.router.udp_ports(FamilyId::V4).is_empty());
    control::add(&mut h.router, key(1), TIMING, None).unwrap();
}
