//! Tag rewrite, both ways.

use quiver_wire::ethernet::EtherType;
use quiver_wire::vlan::Tci;

use super::*;
use crate::interface::{L2Mode, SubMatch, VlanId};

type Tags<'a> = &'a [(u16, u16)];

fn tagged(src: MacAddr, dst: MacAddr, tags: Tags<'_>) -> Vec<u8> {
    let start = Packet::ethernet(src, dst);
    let packet = tags.iter().fold(start, |p, (tpid, tci)| p.tag(EtherType(*tpid), Tci(*tci)));
    packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[0x77; 40]).build()
}

fn exactly(outer: u16, inner: Option<u16>) -> SubMatch {
    SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(outer), inner: inner.map(VlanId::Exactly), exact: true }
}

/// x0.1 with these tags and x1, in one domain.
fn sub_bed(matching: SubMatch) -> (Harness, IfIndex, IfIndex, IfIndex) {
    let (mut h, x) = bed(1, 2);
    h.router.set_l2(x[0], L2Mode::L3).unwrap();
    let sub = h.router.create_sub_interface(x[0], 1, matching).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.set_bridge(sub, 10, PortKind::Normal, 0).unwrap();
    (h, x[0], sub, x[1])
}

#[test]
fn every_rewrite_is_done_on_the_way_in_and_undone_on_the_way_out() {
    const Q: u16 = 0x8100;
    const AD: u16 = 0x88a8;
    // Priority 5 of the outer tag goes along.
    let p = |id: u16| 5 << 13 | id;
    type Case<'a> = (Option<u16>, u8, &'a [Tag], Tags<'a>, Tags<'a>, Tags<'a>);
    let cases: &[Case<'_>] = &[
        // inner id of the sub-interface, pop, push | frame on the wire | in the domain | back on the wire
        (None, 1, &[], &[(Q, p(10))], &[], &[(Q, 10)]),
        (Some(20), 2, &[], &[(Q, p(10)), (Q, 20)], &[], &[(Q, 10), (Q, 20)]),
        (Some(20), 1, &[], &[(Q, p(10)), (Q, 20)], &[(Q, 20)], &[(Q, 10), (Q, 20)]),
        (None, 0, &[(Q, 30)], &[(Q, 10)], &[(Q, 30), (Q, 10)], &[(Q, 10)]),
        (None, 0, &[(AD, 30), (Q, 31)], &[(Q, 10)], &[(AD, 30), (Q, 31), (Q, 10)], &[(Q, 10)]),
        (None, 1, &[(AD, 40)], &[(Q, p(10))], &[(AD, p(40))], &[(Q, p(10))]),
        (None, 1, &[(AD, 40), (Q, 41)], &[(Q, p(10))], &[(AD, p(40)), (Q, p(41))], &[(Q, p(10))]),
        (Some(20), 2, &[(Q, 50)], &[(Q, p(10)), (Q, 20)], &[(Q, p(50))], &[(Q, p(10)), (Q, p(20))]),
        (Some(20), 2, &[(AD, 50), (Q, 51)], &[(Q, 10), (Q, 20)], &[(AD, 50), (Q, 51)], &[(Q, 10), (Q, 20)]),
    ];
    for (inner, pop, push, wire, inside, back) in cases {
        let (mut h, x0, sub, x1) = sub_bed(exactly(10, *inner));
        let rewrite = TagRewrite { pop: *pop, push: push.to_vec() };
        h.router.set_tag_rewrite(sub, Some(rewrite.clone())).unwrap();
        assert_eq!(h.router.tag_rewrite(sub), Some(&rewrite));
        let got = h.exchange(x0, &tagged(mac(1), mac(2), wire));
        assert_eq!(got, [(x1, tagged(mac(1), mac(2), inside))], "{rewrite}: in");
        settle(&mut h);
        let got = h.exchange(x1, &tagged(mac(2), mac(1), inside));
        assert_eq!(got, [(x0, tagged(mac(2), mac(1), back))], "{rewrite}: out");
        h.router.set_tag_rewrite(sub, None).unwrap();
        let got = h.exchange(x0, &tagged(mac(1), mac(2), wire));
        assert_eq!(got, [(x1, tagged(mac(1), mac(2), wire))], "{rewrite}: taken back");
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_cross_connect_rewrites_too_at_both_ends() {
    let (mut h, x0, sub, x1) = sub_bed(exactly(10, None));
    h.router.set_l2(x1, L2Mode::CrossConnect(sub)).unwrap();
    h.router.set_l2(sub, L2Mode::CrossConnect(x1)).unwrap();
    h.router.set_tag_rewrite(sub, Some(TagRewrite { pop: 1, push: Vec::new() })).unwrap();
    h.router.set_tag_rewrite(x1, Some(TagRewrite { pop: 0, push: vec![(0x8100, 7)] })).unwrap();
    let got = h.exchange(x0, &tagged(mac(1), mac(2), &[(0x8100, 10), (0x8100, 7)]));
    assert_eq!(got, [], "exact: one tag only");
    let got = h.exchange(x0, &tagged(mac(1), mac(2), &[(0x8100, 10)]));
    assert_eq!(got, [], "x1 takes a tag off that is not there");
    assert_eq!(h.count("l2-output-vtr", "frame has not the tags to take off"), 1);
    let got = h.exchange(x1, &tagged(mac(2), mac(1), &[]));
    assert_eq!(got, [(x0, tagged(mac(2), mac(1), &[(0x8100, 10), (0x8100, 7)]))]);
    h.router.delete_interface(sub).unwrap();
    assert_eq!(h.exchange(x1, &tagged(mac(2), mac(1), &[])), []);
    h.assert_buffers_held(0);
}

#[test]
fn rewrites_that_cannot_be_are_refused() {
    let (mut h, x0, sub, x1) = sub_bed(exactly(10, None));
    let pop = |pop| Some(TagRewrite { pop, push: Vec::new() });
    assert!(h.router.set_tag_rewrite(sub, pop(2)).is_err(), "known by one tag");
    assert!(h.router.set_tag_rewrite(x1, pop(1)).is_err(), "known by none");
    assert!(h.router.set_tag_rewrite(x0, pop(1)).is_err(), "known by none, and routed");
    assert!(h.router.set_tag_rewrite(sub, Some(TagRewrite { pop: 0, push: vec![(0x8100, 4096)] })).is_err());
    h.router.set_tag_rewrite(sub, pop(1)).unwrap();
    h.router.set_l2(sub, L2Mode::L3).unwrap();
    assert_eq!(h.router.tag_rewrite(sub), None, "ends with layer 2");
}

#[test]
fn a_rewrite_that_is_set_before_the_port_is_bridged_holds_from_then_on() {
    let (mut h, x) = bed(1, 2);
    h.router.set_l2(x[0], L2Mode::L3).unwrap();
    let sub = h.router.create_sub_interface(x[0], 1, exactly(10, None)).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.set_tag_rewrite(sub, Some(TagRewrite { pop: 1, push: Vec::new() })).unwrap();
    h.router.set_bridge(sub, 10, PortKind::Normal, 0).unwrap();
    let got = h.exchange(x[0], &tagged(mac(1), mac(2), &[(0x8100, 10)]));
    assert_eq!(got, [(x[1], tagged(mac(1), mac(2), &[]))]);
    settle(&mut h);
    let got = h.exchange(x[1], &tagged(mac(2), mac(1), &[]));
    assert_eq!(got, [(x[0], tagged(mac(2), mac(1), &[(0x8100, 10)]))]);
    h.assert_buffers_held(0);
}

#[test]
fn a_bridged_trunk_takes_what_no_sub_interface_claims() {
    let frames = |tags: Tags<'_>| [tagged(mac(1), mac(2), tags), tagged(mac(1), MacAddr::BROADCAST, tags)];
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 3);
        let sub = h.router.create_sub_interface(x[0], 1, exactly(10, None)).unwrap();
        h.router.set_interface_up(sub, true).unwrap();
        h.router.set_bridge(x[2], 20, PortKind::Normal, 0).unwrap();
        h.router.set_bridge(sub, 20, PortKind::Normal, 0).unwrap();
        let others: [Tags<'_>; 5] = [&[], &[(0x8100, 11)], &[(0x88a8, 10)], &[(0x8100, 10), (0x8100, 1)], &[(0x8100, 0)]];
        for tags in others {
            for frame in frames(tags) {
                assert_eq!(h.exchange(x[0], &frame), [(x[1], frame)], "{tags:?}: {:?}", h.counts());
            }
        }
        for frame in frames(&[(0x8100, 10)]) {
            assert_eq!(h.exchange(x[0], &frame), [(x[2], frame)], "the sub-interface's own");
        }
        // Routed again, it knows no other tags.
        h.router.set_l2(x[0], L2Mode::L3).unwrap();
        assert!(h.exchange(x[0], &frames(&[(0x8100, 11)])[0]).is_empty());
        assert_eq!(h.count("ethernet-vlan", "unknown vlan"), 1);
        h.assert_buffers_held(0);
    }
}
