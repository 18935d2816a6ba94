//! Tagged frames in batches: as the same frames one by one, and as by the rules for any frame.

use proptest::prelude::*;
use quiver_graph::{IfIndex, flags};
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::vlan::Tci;

use crate::interface::{L2Mode, SubMatch, VlanId};
use crate::testing::{Harness, host_mac, router_mac, run};

const Q: u16 = 0x8100;
const AD: u16 = 0x88a8;

/// The sub-interfaces of x0, by number: what they match, and whether they are up, down, or layer 2.
fn sub_interfaces() -> Vec<(u32, SubMatch, char)> {
    let tagged = |dot1ad, outer, inner, exact| SubMatch::Tagged { dot1ad, outer, inner, exact };
    let id = VlanId::Exactly;
    vec![
        (1, tagged(false, id(10), None, true), 'u'),
        (2, tagged(false, id(10), Some(id(20)), true), 'u'),
        (3, tagged(true, id(10), Some(id(20)), true), 'u'),
        (4, tagged(true, id(10), Some(VlanId::Any), false), 'u'),
        (5, tagged(false, id(11), None, false), 'u'),
        (6, tagged(false, id(12), None, true), 'd'),
        (7, tagged(false, id(13), None, true), 'l'),
    ]
}

/// A router with these, and all that is routed leaves by x1.
fn bed() -> (Harness, IfIndex, Vec<IfIndex>) {
    let mut h = Harness::new().silent();
    let (a, b) = (h.interface(0), h.interface(1));
    run(
        &mut h,
        "set interface ip address x0 10.0.0.1/24\nset interface ip address x1 10.0.1.1/24\nset interface ip address x0 2001:db8::1/64\n\
         set interface ip address x1 2001:db8:1::1/64\nset ip neighbor x1 10.0.1.2 02:00:00:00:10:01\n\
         set ip neighbor x1 2001:db8:1::2 02:00:00:00:10:01",
    );
    let mut subs = vec![a];
    for (n, matching, state) in sub_interfaces() {
        let sub = h.router.create_sub_interface(a, n, matching).unwrap();
        h.router.set_interface_up(sub, state != 'd').unwrap();
        run(
            &mut h,
            &format!("set interface ip address x0.{n} 10.1.{n}.1/24\nset interface ip address x0.{n} 2001:db8:2:{n}::1/64"),
        );
        if state == 'l' {
            h.router.set_l2(sub, L2Mode::CrossConnect(b)).unwrap();
        }
        subs.push(sub);
    }
    (h, a, subs)
}

/// What tells frames apart: tags, destination, what is inside, and length.
type Pick = (u8, u8, u8, u8);

fn frame((tags, to, inside, cut): Pick) -> Vec<u8> {
    let all: &[&[(u16, u16)]] = &[
        &[(Q, 10)],
        // Priority and drop eligibility are not of the number.
        &[(Q, 0xf00a)],
        &[(Q, 10), (Q, 20)],
        &[(AD, 10), (Q, 20)],
        &[(AD, 10), (Q, 21)],
        &[(AD, 10), (Q, 20), (Q, 1)],
        &[(Q, 11), (Q, 9)],
        &[(Q, 11)],
        &[(Q, 12)],
        &[(Q, 13)],
        &[(Q, 14)],
        &[(Q, 0)],
        &[(Q, 0), (Q, 10)],
        &[],
    ];
    let to = match to {
        0 => router_mac(9),
        1 => MacAddr([0xff; 6]),
        _ => router_mac(0),
    };
    let start = Packet::ethernet(host_mac(0), to);
    let packet = all[usize::from(tags) % all.len()].iter().fold(start, |p, (tpid, tci)| p.tag(EtherType(*tpid), Tci(*tci)));
    let mut bytes = match inside {
        0 => packet.ipv6([0x2001, 0xdb8, 9, 0, 0, 0, 0, 2], [0x2001, 0xdb8, 1, 0, 0, 0, 0, 2]).udp(1, 2).payload_len(20).build(),
        1 => packet.payload(&[0x88, 0xb5, 1, 2]).build(),
        _ => packet.ipv4([10, 0, 9, 2], [10, 0, 1, 2]).udp(1, 2).payload_len(20).build(),
    };
    if cut < 4 {
        bytes.truncate(14 + 4 * usize::from(cut));
    }
    bytes
}

fn picks() -> impl Strategy<Value = Vec<(Pick, usize)>> {
    let rare = || prop_oneof![5 => Just(9_u8), 1 => 0..4_u8];
    proptest::collection::vec(((any::<u8>(), rare(), rare(), rare()), 1..14_usize), 1..30)
}

/// What came out, but for what a hop changes; drops; and what interfaces counted.
type Seen = (Vec<(IfIndex, Vec<u8>)>, Vec<(String, u64)>, Vec<(u64, u64)>);

fn seen(frames: &[Vec<u8>], width: u8, by_rules: bool) -> Seen {
    let (mut h, a, subs) = bed();
    h.router.graph.set_fusion(false);
    for node in ["ethernet-input", "ethernet-vlan"] {
        h.router.graph.set_loop(node, Some(width), None, None).unwrap();
    }
    // Frames that this router made are in no batch of these nodes.
    h.inject_marked(a, frames, 0, move |_, packet| packet.mark(if by_rules { flags::LOCAL } else { 0 }));
    let mut out = h.run();
    for (_, frame) in &mut out {
        // Time to live and checksum, hop limit.
        let changed = if frame[12] == 8 { vec![22, 24, 25] } else { vec![21] };
        changed.into_iter().filter_map(|at| frame.get_mut(at).map(|byte| *byte = 0)).for_each(drop);
    }
    out.sort();
    let counts = h.counts().into_iter().filter(|(name, _)| name.starts_with("ethernet-")).collect();
    let rx = subs.iter().map(|sub| h.router.graph.interfaces().rx.sum(sub.0)).collect();
    h.assert_buffers_held(0);
    (out, counts, rx)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn tagged_frames_are_sorted_in_batches_as_by_the_rules(picks in picks()) {
        let frames: Vec<_> = picks.into_iter().flat_map(|(pick, run)| std::iter::repeat_n(frame(pick), run)).collect();
        let expected = seen(&frames, 1, true);
        for width in [1, 2, 4, 8] {
            prop_assert_eq!(&seen(&frames, width, false), &expected, "{} at a time", width);
        }
    }
}

#[test]
fn two_tags_lead_to_their_sub_interface_and_count_there() {
    let frames = vec![frame((3, 9, 9, 9)); 9];
    let (out, counts, rx) = seen(&frames, 4, false);
    assert_eq!((out.len(), counts), (9, Vec::new()));
    let bytes = 9 * frames[0].len() as u64;
    assert_eq!(rx[3], (9, bytes), "{rx:?}");
    assert!(out.iter().all(|(_, frame)| frame[12..14] == [8, 0]));
}

#[test]
fn frames_of_a_layer_2_sub_interface_pass_whole() {
    for to in 0..10 {
        let frames = vec![frame((9, to, 9, 9)); 13];
        // `seen` takes out what would be the hop limit.
        let mut whole = frames[0].clone();
        whole[21] = 0;
        for width in [1, 4] {
            let (out, counts, rx) = seen(&frames, width, false);
            assert_eq!((out.len(), counts), (13, Vec::new()), "{to}");
            assert!(out.iter().all(|(_, out)| *out == whole), "{to}");
            assert_eq!(rx[7], (13, 13 * frames[0].len() as u64), "{rx:?}");
        }
    }
}

/// Packets of both families in one vector, by turns out of an untagged interface, behind one tag, and behind two.
#[test]
fn tags_are_put_in_front_of_packets_that_leave_in_one_vector() {
    for (width, marked) in [(1, false), (4, false), (8, false), (8, true)] {
        let (mut h, a, _) = bed();
        run(
            &mut h,
            "create sub-interfaces x1 30 dot1q 30 exact-match\ncreate sub-interfaces x1 40 dot1ad 40 inner-dot1q 41 exact-match\n\
             set interface state x1.30 up\nset interface state x1.40 up\nset interface ip address x1.30 10.30.0.1/24\n\
             set interface ip address x1.40 2001:db8:40::1/64\nset ip neighbor x1.30 10.30.0.2 02:00:00:00:10:30\n\
             set ip neighbor x1.40 2001:db8:40::2 02:00:00:00:10:40",
        );
        for node in ["ip4-rewrite", "ip6-rewrite"] {
            h.router.graph.set_loop(node, Some(width), None, None).unwrap();
        }
        let start = || Packet::ethernet(host_mac(0), router_mac(0));
        let four = |to: [u8; 4]| start().ipv4([10, 0, 9, 2], to).udp(1, 2).payload_len(20).build();
        let six = |net: u16| {
            start().ipv6([0x2001, 0xdb8, 9, 0, 0, 0, 0, 2], [0x2001, 0xdb8, net, 0, 0, 0, 0, 2]).udp(1, 2).payload_len(20).build()
        };
        // Runs of one way, then all ways by turns.
        let (plain, one, two) = (four([10, 0, 1, 2]), four([10, 30, 0, 2]), six(0x40));
        let mut frames: Vec<_> =
            [&plain, &one, &two].into_iter().flat_map(|frame| std::iter::repeat_n(frame.clone(), 13)).collect();
        frames.extend([&plain, &one, &two].into_iter().cycle().take(39).cloned());
        // A flow hash changes nothing here, but its metadata goes along.
        h.inject_marked(a, &frames, 0, move |_, packet| {
            if marked {
                packet.set_flow_hash(7)
            }
        });
        let out = h.run();
        assert_eq!(out.len(), frames.len());
        let expected = |frame: &[u8], mac: MacAddr, tags: &[u8]| {
            let mut wanted = [&mac.0[..], &router_mac(1).0, tags, &frame[12..]].concat();
            let ip = 14 + tags.len();
            if frame[12] == 8 {
                wanted[ip + 8] -= 1;
                // RFC 1624: the checksum's word grows by what the other one shrinks.
                let sum = u32::from(u16::from_be_bytes([wanted[ip + 10], wanted[ip + 11]])) + 0x100;
                wanted[ip + 10..ip + 12].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
            } else {
                wanted[ip + 7] -= 1;
            }
            wanted
        };
        let ways = [
            expected(&plain, host_mac(1), &[]),
            expected(&one, MacAddr([2, 0, 0, 0, 0x10, 0x30]), &[0x81, 0, 0, 30]),
            expected(&two, MacAddr([2, 0, 0, 0, 0x10, 0x40]), &[0x88, 0xa8, 0, 40, 0x81, 0, 0, 41]),
        ];
        for way in &ways {
            let count = out.iter().filter(|(_, frame)| frame == way).count();
            assert_eq!(
                count,
                26,
                "{width} at a time: {way:x?} of {:x?}",
                out.iter().map(|(_, f)| &f[..34.min(f.len())]).collect::<Vec<_>>()
            );
        }
        h.assert_buffers_held(0);
    }
}

/// Look-ups are cached; what tags belong to changes between two vectors.
#[test]
fn the_cache_is_cleared_when_sub_interfaces_change() {
    let (mut h, a, subs) = bed();
    let tagged = |outer| {
        Packet::ethernet(host_mac(0), router_mac(0))
            .tag(EtherType::VLAN, Tci(outer))
            .ipv4([10, 0, 9, 2], [10, 0, 1, 2])
            .udp(1, 2)
            .build()
    };
    let counted = |h: &Harness, sub: IfIndex| h.router.graph.interfaces().rx.sum(sub.0).0;
    let send = |h: &mut Harness, outer| {
        h.inject_many(a, &vec![tagged(outer); 13], 0);
        h.run().len()
    };
    assert_eq!((send(&mut h, 10), counted(&h, subs[1])), (13, 13));
    h.router.delete_interface(subs[1]).unwrap();
    assert_eq!(send(&mut h, 10), 0, "nobody's any more");
    let exactly = |id, inner| SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(id), inner, exact: true };
    let again = h.router.create_sub_interface(a, 90, exactly(10, None)).unwrap();
    assert_eq!(send(&mut h, 10), 0, "a sub-interface begins down");
    h.router.set_interface_up(again, true).unwrap();
    run(&mut h, "set interface ip address x0.90 10.1.90.1/24");
    assert_eq!((send(&mut h, 10), counted(&h, again)), (13, 13));
    // One that takes any frame, until there is one for these tags alone.
    let any = h.router.create_sub_interface(a, 91, SubMatch::Default).unwrap();
    h.router.set_interface_up(any, true).unwrap();
    run(&mut h, "set interface ip address x0.91 10.1.91.1/24");
    assert_eq!((send(&mut h, 700), counted(&h, any)), (13, 13));
    let own = h.router.create_sub_interface(a, 700, exactly(700, None)).unwrap();
    h.router.set_interface_up(own, true).unwrap();
    run(&mut h, "set interface ip address x0.700 10.1.92.1/24");
    assert_eq!((send(&mut h, 700), counted(&h, own), counted(&h, any)), (13, 13, 13));
    h.assert_buffers_held(0);
}

/// More pairs of tags than a thread's cache has entries, in turns, so that some take the place of others.
#[test]
fn more_customers_than_are_cached_all_come_by_their_own_sub_interfaces() {
    let (mut h, a, _) = bed();
    let customers: Vec<(u16, u16)> = (100..150).flat_map(|outer| (1..101).map(move |inner| (outer, inner))).collect();
    let mut subs = Vec::new();
    for (n, (outer, inner)) in customers.iter().enumerate() {
        let inner = Some(VlanId::Exactly(*inner));
        let tags = SubMatch::Tagged { dot1ad: true, outer: VlanId::Exactly(*outer), inner, exact: true };
        let sub = h.router.create_sub_interface(a, 1000 + n as u32, tags).unwrap();
        h.router.set_interface_up(sub, true).unwrap();
        h.router.add_address(sub, std::net::Ipv4Addr::from_bits(0x6440_0001 + 4 * n as u32).into(), 30).unwrap();
        subs.push(sub);
    }
    let frames: Vec<Vec<u8>> = customers
        .iter()
        .map(|(outer, inner)| {
            let start = Packet::ethernet(host_mac(0), router_mac(0));
            let tagged = start.tag(EtherType(AD), Tci(*outer)).tag(EtherType(Q), Tci(*inner));
            tagged.ipv4([10, 0, 9, 2], [10, 0, 1, 2]).udp(1, 2).build()
        })
        .collect();
    for _ in 0..2 {
        for vector in frames.chunks(250) {
            h.inject_many(a, vector, 0);
            assert_eq!(h.run().len(), vector.len());
        }
    }
    assert!(subs.iter().all(|sub| h.router.graph.interfaces().rx.sum(sub.0).0 == 2));
    h.assert_buffers_held(0);
}
