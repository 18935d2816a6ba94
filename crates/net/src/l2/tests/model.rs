//! Random configurations and frames against a slow, obviously right bridge: it never loops, leaks between domains, or learns
//! a group address.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const PORTS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Join { port: usize, domain: u32, group: u8 },
    Leave { port: usize },
    Frame { port: usize, src: u8, dst: u8 },
    Flush { domain: u32 },
    Switch { domain: u32, which: BdSwitch, on: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..PORTS;
    let switches = [BdSwitch::Learn, BdSwitch::Forward, BdSwitch::UnknownFlood, BdSwitch::Flood];
    prop_oneof![
        2 => (port.clone(), 1..4_u32, 0..3_u8).prop_map(|(port, domain, group)| Step::Join { port, domain, group }),
        1 => port.clone().prop_map(|port| Step::Leave { port }),
        12 => (port, 0..8_u8, 0..8_u8).prop_map(|(port, src, dst)| Step::Frame { port, src, dst }),
        1 => (1..4_u32).prop_map(|domain| Step::Flush { domain }),
        1 => (1..4_u32, proptest::sample::select(switches.to_vec()), any::<bool>())
            .prop_map(|(domain, which, on)| Step::Switch { domain, which, on }),
    ]
}

/// Stations 0 to 5; 6 is a group, 7 is everybody.
fn station(n: u8) -> MacAddr {
    match n {
        6 => MacAddr([1, 0, 0x5e, 1, 2, 3]),
        7 => MacAddr::BROADCAST,
        n => mac(n.into()),
    }
}

#[derive(Default)]
struct Model {
    ports: BTreeMap<usize, (u32, u8)>,
    off: BTreeSet<(u32, u8)>,
    known: BTreeMap<(u32, u8), usize>,
}

impl Model {
    fn on(&self, domain: u32, which: BdSwitch) -> bool {
        !self.off.contains(&(domain, which as u8))
    }

    fn frame(&mut self, port: usize, src: u8, dst: u8) -> Vec<usize> {
        let Some((domain, group)) = self.ports.get(&port).copied() else { return Vec::new() };
        if src >= 6 {
            return Vec::new();
        }
        let to = self.known.get(&(domain, dst)).copied();
        if self.on(domain, BdSwitch::Learn) {
            self.known.insert((domain, src), port);
        }
        let apart =
            |other: usize| other != port && self.ports.get(&other).is_some_and(|(d, g)| *d == domain && (*g == 0 || *g != group));
        match to {
            Some(to) if !self.on(domain, BdSwitch::Forward) || !apart(to) => Vec::new(),
            Some(to) => vec![to],
            None if !self.on(domain, if dst >= 6 { BdSwitch::Flood } else { BdSwitch::UnknownFlood }) => Vec::new(),
            None => (0..PORTS).filter(|p| apart(*p)).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_bridge_agrees_with_the_model(workers in 0..3_usize, steps in proptest::collection::vec(step(), 1..60)) {
        let mut h = Harness::with_workers(workers);
        let x: Vec<IfIndex> = (0..PORTS as u8).map(|n| h.interface(n)).collect();
        for domain in 1..4 {
            h.router.create_bridge_domain(Some(domain)).unwrap();
        }
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Join { port, domain, group } => {
                    h.router.set_bridge(x[port], domain, PortKind::Normal, group).unwrap();
                    model.known.retain(|_, at| *at != port);
                    model.ports.insert(port, (domain, group));
                }
                Step::Leave { port } => {
                    h.router.set_l2(x[port], crate::interface::L2Mode::L3).unwrap();
                    model.known.retain(|_, at| *at != port);
                    model.ports.remove(&port);
                }
                Step::Flush { domain } => {
                    h.router.flush_macs(Flush::Domain(domain)).unwrap();
                    model.known.retain(|(d, _), _| *d != domain);
                }
                Step::Switch { domain, which, on } => {
                    h.router.set_bridge_switch(domain, which, on).unwrap();
                    if on { model.off.remove(&(domain, which as u8)) } else { model.off.insert((domain, which as u8)) };
                }
                Step::Frame { port, src, dst } => {
                    let sent = send(&mut h, x[port], &frame(station(src), station(dst)));
                    let expected: Vec<IfIndex> = model.frame(port, src, dst).into_iter().map(|p| x[p]).collect();
                    prop_assert_eq!(sent, expected, "from {} to {} on port {}", src, dst, port);
                }
            }
        }
        let known: BTreeSet<(u32, MacAddr)> = h.router.macs().iter().map(|m| (m.domain.0, m.mac)).collect();
        let expected: BTreeSet<_> = model.known.keys().map(|(d, s)| (*d, station(*s))).collect();
        prop_assert_eq!(&known, &expected);
        prop_assert!(known.iter().all(|(_, mac)| !mac.is_multicast()));
        h.assert_buffers_held(0);
    }
}
