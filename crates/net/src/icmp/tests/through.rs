//! Reassembly as a feature of an interface: packets on their way through.

use super::*;
use crate::local::reassembly::{feature_arc, feature_node};

/// [`bed`] with two interfaces, the first with the feature.
fn through_bed(workers: usize, family: FamilyId, through: Through) -> (Harness, Vec<IfIndex>) {
    let (mut h, x) = bed(workers, 2);
    h.router.graph.set_feature(feature_arc(family), feature_node(family, through), x[0], true).unwrap();
    (h, x)
}

/// A packet of host 2 on x0 for host 2 on x1.
fn passing(family: FamilyId, sequence: u16, data: usize) -> Vec<u8> {
    echo(family, address(family, 1, 2), sequence, data)
}

#[test]
fn packets_that_pass_are_joined_in_any_order_on_any_workers() {
    for workers in WORKERS {
        for family in FAMILIES {
            let (mut h, x) = through_bed(workers, family, Through::Full);
            for (n, order) in [[0, 1, 2], [2, 1, 0], [1, 0, 2]].into_iter().enumerate() {
                let packet = passing(family, n as u16, 1400);
                let pieces = cut(&packet, 600);
                for (thread, at) in order.into_iter().enumerate() {
                    h.inject_many(x[0], &[frame(0, &pieces[at])], thread);
                }
                let got = packets(h.run(), x[1], 1);
                assert_eq!(got.len(), 1, "{workers} {family}: {:?}", h.counts());
                assert_eq!(join(&got)[8..], pattern(1400));
            }
            let node = feature_node(family, Through::Full);
            assert_eq!((h.count(node, "successful reassemblies"), h.count(node, "fragments reassembled")), (3, 9));
            // What is no fragment passes untouched.
            h.inject(x[0], &frame(0, &passing(family, 9, 40)));
            assert_eq!(packets(h.run(), x[1], 1).len(), 1);
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn only_a_lost_packet_of_ipv6_is_told_to_its_sender() {
    for family in FAMILIES {
        let (mut h, x) = through_bed(0, family, Through::Full);
        let pieces = cut(&passing(family, 1, 1400), 600);
        h.inject(x[0], &frame(0, &pieces[0]));
        h.inject(x[0], &frame(0, &pieces[1]));
        assert!(h.run().is_empty());
        h.router.graph.clock().adjust(Limits::default_of(family, Through::Full).timeout.as_nanos() as i64 + 1);
        let got = packets(h.run(), x[0], 0);
        let node = feature_node(family, Through::Full);
        match family {
            FamilyId::V4 => assert!(got.is_empty()),
            FamilyId::V6 => assert_eq!(
                {
                    let (kind, code, ..) = error(&got[0], family, 0);
                    (kind, code)
                },
                (3, 1)
            ),
        }
        let dropped = if family == FamilyId::V4 { 2 } else { 1 };
        assert_eq!(h.count(node, "fragments dropped due to reassembly timeout"), dropped);
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_chain_that_is_too_long_counts_once_and_the_rest_apart() {
    for family in FAMILIES {
        let (mut h, x) = through_bed(0, family, Through::Full);
        h.router.set_reassembly_limits(family, Through::Full, Limits { fragments: 2, ..Limits::default_of(family, Through::Full) });
        for piece in cut(&passing(family, 1, 1400), 600) {
            h.inject(x[0], &frame(0, &piece));
        }
        assert!(packets(h.run(), x[1], 1).is_empty());
        let node = feature_node(family, Through::Full);
        let counts = ["fragment chain too long (drop)", "fragments of condemned packets"].map(|text| h.count(node, text));
        assert_eq!(counts, [1, 2]);
        h.assert_buffers_held(0);
    }
}

#[test]
fn no_time_and_no_room_mean_that_no_packet_is_joined() {
    for family in FAMILIES {
        let usual = Limits::default_of(family, Through::Full);
        for limits in [Limits { timeout: Duration::ZERO, ..usual }, Limits { datagrams: 0, ..usual }] {
            let (mut h, x) = through_bed(0, family, Through::Full);
            h.router.set_reassembly_limits(family, Through::Full, limits);
            for piece in cut(&passing(family, 1, 1400), 600) {
                h.inject(x[0], &frame(0, &piece));
            }
            // An IPv6 sender may be told of it.
            assert!(h.run().iter().all(|(interface, _)| *interface == x[0]));
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn later_fragments_wait_for_the_first_and_pass_as_they_are() {
    for workers in WORKERS {
        for family in FAMILIES {
            let (mut h, x) = through_bed(workers, family, Through::Shallow);
            let packet = passing(family, 1, 1400);
            let pieces = cut(&packet, 600);
            h.inject(x[0], &frame(0, &pieces[1]));
            assert!(h.run().is_empty());
            h.inject(x[0], &frame(0, &pieces[0]));
            let mut got = packets(h.run(), x[1], 1);
            assert_eq!(got.len(), 2, "{:?}", h.counts());
            assert_eq!(got[0].len(), pieces[0].len(), "the first comes first");
            h.inject(x[0], &frame(0, &pieces[2]));
            got.extend(packets(h.run(), x[1], 1));
            assert_eq!(join(&got)[8..], pattern(1400));
            let node = feature_node(family, Through::Shallow);
            assert_eq!((h.count(node, "successful reassemblies"), h.count(node, "fragments reassembled")), (0, 3));
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn a_first_fragment_is_forgotten_in_time() {
    for family in FAMILIES {
        let (mut h, x) = through_bed(0, family, Through::Shallow);
        let pieces = cut(&passing(family, 1, 1400), 600);
        h.inject(x[0], &frame(0, &pieces[0]));
        assert_eq!(packets(h.run(), x[1], 1).len(), 1);
        h.router.graph.clock().adjust(Limits::default_of(family, Through::Shallow).timeout.as_nanos() as i64 + 1);
        h.inject(x[0], &frame(0, &pieces[1]));
        assert!(h.run().is_empty());
        h.assert_buffers_held(1);
        h.router.graph.clock().adjust(Limits::default_of(family, Through::Shallow).timeout.as_nanos() as i64 + 1);
        assert!(h.run().is_empty());
        let node = feature_node(family, Through::Shallow);
        assert_eq!(h.count(node, "fragments dropped due to reassembly timeout"), 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn the_router_itself_joins_nothing_where_that_is_off() {
    for family in FAMILIES {
        let (mut h, x) = bed(0, 1);
        h.router.set_joins_local(family, false);
        for piece in cut(&echo(family, address(family, 0, 1), 1, 1400), 600) {
            h.inject(x[0], &frame(0, &piece));
        }
        assert!(h.run().is_empty());
        let node = format!("{}-local-full-reassembly", family.node_prefix());
        assert_eq!(h.count(&node, "local reassembly is off"), 3);
        h.assert_buffers_held(0);
    }
}
