//! A group of frames is decided as the same frames one by one: same frames out by each port, in the same order, same counters, same
//! addresses learned.

use proptest::prelude::*;
use quiver_graph::Level;

use super::*;

const PORTS: usize = 5;

/// Stations 0 to 5; 6 is a group, 7 is nobody.
fn station(n: u8) -> MacAddr {
    match n {
        6 => MacAddr::BROADCAST,
        7 => MacAddr([0; 6]),
        n => mac(n.into()),
    }
}

/// A port, and runs of frames that come in there as one vector: source, destination, how many.
type Vector = (usize, Vec<(u8, u8, usize)>);

fn vectors() -> impl Strategy<Value = Vec<Vector>> {
    let run = (0..8_u8, 0..8_u8, prop_oneof![1..4_usize, 8..40_usize]);
    proptest::collection::vec((0..PORTS, proptest::collection::vec(run, 1..8)), 1..12)
}

/// Two ports of each split-horizon group in a domain, one in another; a configured station and a filtered one.
fn domains(width: u8, age: u8) -> (Harness, Vec<IfIndex>) {
    let mut h = Harness::new();
    let x: Vec<IfIndex> = (0..PORTS as u8).map(|n| h.interface(n)).collect();
    for (port, domain, group) in [(0, 10, 0), (1, 10, 0), (2, 10, 1), (3, 10, 1), (4, 20, 0)] {
        h.router.set_bridge(x[port], domain, PortKind::Normal, group).unwrap();
    }
    h.router.set_mac_age(10, age).unwrap();
    h.router.add_mac(10, mac(4), MacKind::Static(x[2])).unwrap();
    h.router.add_mac(10, mac(5), MacKind::Filter).unwrap();
    for node in ["ethernet-input", "l2-input", "l2-bridge"] {
        h.router.graph.set_loop(node, Some(width), None, Some(Level::best())).unwrap();
    }
    (h, x)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn groups_decide_as_single_frames_do(vectors in vectors(), age in 0..2_u8) {
        let mut first = None;
        for width in [1, 2, 4, 8] {
            let (mut h, x) = domains(width, age);
            let mut out = Vec::new();
            let mut number = 0_u16;
            for (port, runs) in &vectors {
                let mut frames = Vec::new();
                for (src, dst, count) in runs {
                    for _ in 0..*count {
                        let mut frame = frame(station(*src), station(*dst));
                        number += 1;
                        frame[58..60].copy_from_slice(&number.to_be_bytes());
                        frames.push(frame);
                    }
                }
                h.inject_many(x[*port], &frames, 0);
                let mut left = h.run();
                // Which port is served first is not the bridge's promise; that each port's frames keep their order is.
                left.sort_by_key(|(port, _)| port.0);
                out.extend(left);
                settle(&mut h);
            }
            let macs: Vec<_> = h.router.macs().into_iter().map(|entry| (entry.domain, entry.mac, entry.kind)).collect();
            let all = (out, h.counts(), macs);
            let expected = first.get_or_insert_with(|| all.clone());
            prop_assert_eq!(&all, expected, "width {}", width);
            h.assert_buffers_held(0);
        }
    }
}
