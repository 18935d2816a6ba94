//! Random and damaged frames through a fully configured router: nothing panics, every frame has an account, every buffer
//! comes back.
//!
//! A frame starts as a right one of some kind (IPv4 and IPv6 with options, extension headers and fragments, ARP, neighbour
//! discovery, nested tags, jumbo) and is then mutated; some are noise from the first byte on. The account:
//!
//! ```text
//!   put in + made (fragments, ARP requests, solicitations, answers to packets without a route) = left + dropped with a reason + taken in (replies, joined parts)
//! ```
//!
//! `QUIVER_GARBAGE_FRAMES=1000000` runs the whole million; without it a sample runs. `QUIVER_GARBAGE_SEED` repeats a run.

use std::net::IpAddr;

use quiver_net::fib::{Hop, Path, Source};
use quiver_net::interface::{L2Mode, Mtu, SubMatch, VlanId};
use quiver_net::ip::FamilyId;
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_net::{IfIndex, Router};
use quiver_wire::MacAddr;
use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::fragment::{Ipv4Fragments, Ipv6Fragments};
use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::tcp::TcpFlags;
use quiver_wire::vlan::Tci;

/// Interfaces x0 and x1 route, x2 and x3 are cross-connected, x0 has sub-interfaces.
const INTERFACES: u8 = 4;

/// xorshift64*: the same frames for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn four(random: &mut Random) -> [u8; 4] {
    let last = random.pick(&[0, 1, 2, 3, 77, 255]);
    let net = random.pick(&[0, 1, 10, 20]);
    match random.below(10) {
        0 => random.pick(&[[0, 0, 0, 0], [255, 255, 255, 255], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [0, 0, 0, 9]]),
        1 => [198, 51, 100, last],
        2 => [203, 0, 113, last],
        3 => [random.next() as u8, 9, 9, 9],
        _ => [10, 0, net, last],
    }
}

fn six(random: &mut Random) -> [u16; 8] {
    let last = random.pick(&[0, 1, 2, 3, 77, 0xffff]);
    let net = random.pick(&[0, 1, 10, 20]);
    match random.below(10) {
        0 => random.pick(&[
            [0; 8],
            [0, 0, 0, 0, 0, 0, 0, 1],
            [0xff02, 0, 0, 0, 0, 0, 0, 1],
            [0xff02, 0, 0, 0, 0, 1, 0xff00, 1],
            [0xff01, 0, 0, 0, 0, 0, 0, 1],
        ]),
        1 => [0xfe80, 0, 0, 0, 0, 0, 0, last],
        2 => [0x2001, 0xdb8, 0xaa, 0, 0, 0, 0, last],
        3 => [0x2001, 0xdb8, random.next() as u16, 0, 0, 0, 0, last],
        _ => [0x2001, 0xdb8, net, 0, 0, 0, 0, last],
    }
}

fn payload(random: &mut Random) -> Vec<u8> {
    let len = match random.below(20) {
        0 => 9000 + random.below(600),
        1 => 1400 + random.below(200),
        2 => 2000 + random.below(100),
        _ => random.below(200),
    };
    random.bytes(len)
}

fn network(random: &mut Random, mut packet: Packet, is_v4: bool) -> Packet {
    let known = !random.chance(4);
    packet = if is_v4 {
        let src = if known { [10, 0, 0, 2] } else { four(random) };
        packet.ipv4(src, four(random))
    } else {
        let src = if known { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2] } else { six(random) };
        packet.ipv6(src, six(random))
    };
    packet = packet.ttl(random.pick(&[0, 1, 2, 64, 255])).tos(random.next() as u8);
    if is_v4 && random.chance(4) {
        let options: &[u8] = random.pick(&[
            &[7, 7, 4, 0, 0, 0, 0, 0][..],
            &[148, 4, 0, 0],
            &[131, 7, 4, 1, 2, 3, 4, 0],
            &[68, 8, 5, 0, 1, 2, 3, 4],
            &[7, 0, 0, 0],
            &[255, 255, 255, 255],
        ]);
        packet = packet.options(options);
    }
    if is_v4 && random.chance(4) {
        packet = packet.dont_fragment();
    }
    for _ in 0..if is_v4 { 0 } else { random.pick(&[0, 0, 0, 1, 1, 2, 3, 12]) } {
        packet = match random.below(4) {
            0 => packet.hop_by_hop(&[random.pick(&[5, 1, 0x1e, 0x5e, 0x9e, 0xde]), 2, 0, 0]),
            1 => packet.destination_options(&[random.pick(&[0, 1, 0x1e, 0xde]), random.pick(&[2, 9]), 0, 0]),
            2 => packet.extension(IpProtocol::ROUTING, &[random.next() as u8, random.pick(&[0, 0, 1]), 0, 0, 0, 0]),
            _ => packet.extension(IpProtocol::AH, &random.bytes(6)),
        };
    }
    if random.chance(4) {
        let offset = random.pick(&[0, 0, 8, 64, 1480, 65_528]);
        packet = packet.fragment(random.below(8) as u32, offset, random.chance(2));
    }
    packet
}

fn transport(random: &mut Random, packet: Packet, is_v4: bool) -> Packet {
    let ports = (random.pick(&[1, 67, 4789]), random.pick(&[53, 67, 68, 4789, 33_434]));
    let packet = match random.below(9) {
        0 => packet.tcp(ports.0, ports.1, TcpFlags::SYN),
        1..=3 => packet.udp(ports.0, ports.1),
        4 => return packet.next(random.next() as u8 as u16).payload(&payload(random)),
        5 | 6 => packet.echo_request(random.next() as u16, random.next() as u16),
        _ if is_v4 => {
            let quoted = Packet::new().ipv4(four(random), four(random)).echo_request(1, 2).payload(&[7; 40]).build();
            let kind = Icmp4Type(random.pick(&[0, 3, 4, 5, 8, 11, 12, 13, 40]));
            return packet.icmp4(Icmp4Header::new(kind, random.below(6) as u8, random.next() as u32)).payload(&quoted);
        }
        7 => {
            let target = six(random);
            return packet.ttl(255).neighbor_solicitation(target);
        }
        _ => {
            let quoted = Packet::new().ipv6(six(random), six(random)).echo_request(1, 2).payload(&[7; 40]).build();
            let kind = Icmp6Type(random.pick(&[1, 2, 3, 4, 128, 129, 130, 133, 134, 136, 137, 200]));
            return packet.icmp6(Icmp6Header::new(kind, random.below(6) as u8, random.next() as u32)).payload(&quoted);
        }
    };
    packet.payload(&payload(random))
}

/// A frame for the interface, right in itself.
fn right_frame(random: &mut Random, interface: u8) -> Vec<u8> {
    let dst = match random.below(20) {
        0 => MacAddr::BROADCAST,
        1 => MacAddr([0x33, 0x33, 0, 0, 0, 1]),
        2 => host_mac(9),
        _ => router_mac(interface),
    };
    let mut packet = Packet::ethernet(host_mac(interface), dst);
    for _ in 0..random.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 6]) {
        let tpid = random.pick(&[EtherType::VLAN, EtherType::QINQ]);
        let id = random.pick(&[10, 10, 10, 20, 20, 30, 0, 4095]);
        packet = packet.tag(tpid, Tci::new(random.below(8) as u8, random.chance(2), id));
    }
    if random.chance(12) {
        let operation = random.pick(&[ArpOperation::REQUEST, ArpOperation::REPLY, ArpOperation(9)]);
        let message = ArpHeader::new(operation, (host_mac(interface), four(random).into()), (MacAddr::ZERO, four(random).into()));
        return packet.arp(message).build();
    }
    let is_v4 = random.chance(2);
    let packet = network(random, packet, is_v4);
    transport(random, packet, is_v4).build()
}

/// An echo request to the router in pieces, some of which may be missing, doubled, damaged or in another order.
fn pieces(random: &mut Random) -> Vec<Vec<u8>> {
    let (data, mtu) = (pattern(random), 600 + random.below(900));
    let mut packets: Vec<Vec<u8>> = Vec::new();
    if random.chance(2) {
        let id = random.next() as u16;
        let whole = Packet::new().ipv4([10, 0, 0, 2], [10, 0, 0, 1]).identification(id).echo_request(1, 2).payload(&data).build();
        for fragment in Ipv4Fragments::new(&whole, mtu).expect("a right packet") {
            let mut bytes = vec![0; fragment.header_len()];
            fragment.write_header(&mut bytes);
            bytes.extend(&whole[fragment.payload]);
            packets.push(bytes);
        }
    } else {
        let (src, dst) = ([0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, 2], [0x2001_u16, 0xdb8, 0, 0, 0, 0, 0, 1]);
        let whole = Packet::new().ipv6(src, dst).echo_request(1, 2).payload(&data).build();
        for fragment in Ipv6Fragments::new(&whole, mtu, random.next() as u32).expect("a right packet") {
            let mut bytes = vec![0; fragment.header_len()];
            fragment.write_header(&mut bytes);
            bytes.extend(&whole[fragment.payload]);
            packets.push(bytes);
        }
    }
    let at = random.below(packets.len());
    match random.below(8) {
        0 => drop(packets.remove(at)),
        1 => packets.push(packets[at].clone()),
        2 => packets.reverse(),
        3 => {
            let byte = random.below(packets[at].len().min(60));
            packets[at][byte] ^= 0xff;
        }
        _ => {}
    }
    let kind = |packet: &[u8]| if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    packets.iter().map(|p| [&router_mac(0).0[..], &host_mac(0).0, &kind(p), p].concat()).collect()
}

fn pattern(random: &mut Random) -> Vec<u8> {
    let len = random.pick(&[1500, 3000, 9000, 30_000]);
    random.bytes(len)
}

/// A frame, right or not.
fn any_frame(random: &mut Random, interface: u8) -> Vec<u8> {
    if random.chance(40) {
        let len = random.pick(&[0, 1, 13, 14, 15, 33, 60, 600, 3000]);
        return random.bytes(len);
    }
    let mut frame = right_frame(random, interface);
    for _ in 0..random.pick(&[0, 0, 0, 0, 1, 1, 2, 5]) {
        let at = random.below(frame.len().clamp(1, 120));
        match random.below(6) {
            0 => frame.truncate(random.below(frame.len() + 1)),
            1 => frame.extend(random.bytes(40)),
            2 if frame.len() > 20 => {
                // A length, wherever it may be: small, huge, or off by one.
                let at = 12 + random.below(frame.len().min(70) - 14);
                let value = random.pick(&[0, 1, 19, 20, 1500, 0xffff]);
                frame[at..at + 2].copy_from_slice(&u16::to_be_bytes(value));
            }
            _ if at < frame.len() => frame[at] ^= random.pick(&[1, 0x80, 0xff, 0x0f]),
            _ => {}
        }
    }
    frame
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Everything that the router has, switched on.
fn configure(h: &mut Harness) -> Vec<IfIndex> {
    let x: Vec<IfIndex> = (0..INTERFACES).map(|n| h.interface(n)).collect();
    let r: &mut Router = &mut h.router;
    r.set_l2(x[2], L2Mode::CrossConnect(x[3])).expect("cross-connect");
    r.set_l2(x[3], L2Mode::CrossConnect(x[2])).expect("cross-connect");
    let tagged = |outer, inner, exact| SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(outer), inner, exact };
    let ten = r.create_sub_interface(x[0], 10, tagged(10, None, true)).expect("sub-interface");
    let twenty = r.create_sub_interface(x[0], 20, tagged(20, Some(VlanId::Exactly(30)), true)).expect("sub-interface");
    for (n, index) in [(0, x[0]), (1, x[1]), (10, ten), (20, twenty)] {
        r.set_interface_up(index, true).expect("up");
        r.add_address(index, IpAddr::from([10, 0, n, 1]), 24).expect("address");
        r.add_address(index, ip(&format!("2001:db8:{n:x}::1")), 64).expect("address");
        let known = [IpAddr::from([10, 0, n, 2]), ip(&format!("2001:db8:{n:x}::2")), ip("fe80::2")];
        for host in known {
            r.neighbor_update(index, host, Some(host_mac(n))).expect("neighbour");
        }
    }
    r.set_mtu(x[1], Mtu { l3: 1300, ip4: 600, ip6: 0, mpls: 0 }).expect("mtu");
    let mut route =
        |prefix: &str, hops: Vec<Path>| r.add_route(0, prefix.parse().expect("a prefix"), Source::Cli, hops).expect("route");
    let (left, right) = (Path::neighbor(x[1], ip("10.0.1.2")), Path::neighbor(ten, ip("10.0.10.2")));
    route("198.51.100.0/24", vec![left, right]);
    route("203.0.113.0/24", vec![Path::new(Hop::Unreachable)]);
    route("203.0.113.128/25", vec![Path::new(Hop::Prohibited)]);
    route("2001:db8:aa::/48", vec![Path::recursive(ip("2001:db8:1::2"))]);
    route("2001:db8::/32", vec![Path::new(Hop::Unreachable)]);
    for (family, node) in [(FamilyId::V4, "ip4-drop"), (FamilyId::V6, "ip6-drop")] {
        r.register_udp_port(family, 4789, node).expect("port");
    }
    x
}

/// Counted packets that the router made, that it took in, and that it dropped.
fn account(h: &Harness) -> (u64, u64, u64) {
    let count =
        |text: &str| h.router.graph.error_counts().iter().filter(|(_, e, _)| e.text == text).map(|(_, _, n)| n).sum::<u64>();
    let fragments = count("number of sent fragments") - count("packet fragmented");
    // Frames of ARP and neighbour discovery that do not turn a message round in its own buffer.
    let answers = count("ARP replies sent") + count("Proxy ARP replies sent") + count("neighbor advertisements sent");
    let unreachable = count("destination unreachable asked for");
    let made = fragments + unreachable + packets_through(h, "neighbor-output") - answers;
    let joined = count("fragments reassembled") - count("successful reassemblies");
    let taken = joined + count("echo replies received") + count("error messages received");
    let drops = &h.router.graph.interfaces().drops;
    let dropped = (0..h.router.interfaces.end()).map(|i| drops.sum(i)).sum();
    (made, taken, dropped)
}

/// Packets that a node has been called with.
fn packets_through(h: &Harness, node: &str) -> u64 {
    let graph = &h.router.graph;
    graph.node(node).map_or(0, |id| (0..8).map(|thread| graph.figures(id, thread).vectors).sum())
}

fn run(workers: usize, frames: usize, seed: u64) {
    let mut random = Random(seed | 1);
    let mut h = Harness::with_workers(workers);
    let x = configure(&mut h);
    // What waits for a neighbour or for further fragments, and what configuring made, is let go before counting begins.
    settle(&mut h);
    let before = account(&h);
    let (mut put_in, mut left) = (0_u64, 0_u64);
    while put_in < frames as u64 {
        let at = random.below(x.len());
        let n = random.pick(&[1, 3, 4, 5, 64, 100]);
        let batch: Vec<Vec<u8>> = (0..n).map(|_| any_frame(&mut random, at as u8)).collect();
        let thread = random.below(4);
        put_in += n as u64;
        h.inject_many(x[at], &batch, thread);
        if random.chance(8) {
            for piece in pieces(&mut random) {
                put_in += 1;
                h.inject_many(x[0], &[piece], random.below(4));
            }
        }
        left += h.run().len() as u64;
    }
    left += settle(&mut h);
    let after = account(&h);
    let (made, taken, dropped) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
    assert_eq!(
        put_in + made,
        left + taken + dropped,
        "seed {seed}, {workers} workers: {put_in} in, {made} made, {left} left, {taken} taken, {dropped} dropped: {:#?}",
        h.counts()
    );
    assert!(left > put_in / 5 && made > 0 && taken > 0, "the frames are too bad to show anything: {:#?}", h.counts());
    h.assert_buffers_held(0);
}

/// Lets minutes pass, second by second, so that nothing waits any more; frames that left meanwhile.
fn settle(h: &mut Harness) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    let mut left = 0;
    for _ in 0..150 {
        h.router.graph.clock().adjust(SECOND as i64);
        let now = h.router.graph.clock().timer_now();
        while h.router.run_processes(now).is_some_and(|due| due <= now) {}
        left += h.run().len() as u64;
    }
    left
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_comes_in_is_accounted_for() {
    let frames = variable("QUIVER_GARBAGE_FRAMES").unwrap_or(40_000) as usize;
    let seed = variable("QUIVER_GARBAGE_SEED").unwrap_or(0x5eed);
    for (n, workers) in [0, 1, 2, 4].into_iter().enumerate() {
        run(workers, frames / 4, seed + n as u64);
    }
}
