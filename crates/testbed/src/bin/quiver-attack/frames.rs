//! Mutated frames, from capture files by way of the packet generator, through a router with everything switched on.
//!
//! The generator counts what it sends; the interfaces must have received exactly that, and once reassemblies, waits for neighbours
//! and their like are over, every buffer must be back: then each frame, and each packet made because of one, had one end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use quiver_wire::MacAddr;
use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::tcp::TcpFlags;
use quiver_wire::vlan::Tci;
use serde_json::Value;

use crate::Plan;
use crate::report::Outcome;
use crate::rng::Rng;
use crate::watch::Target;

/// Frames of a capture file, and how often each is sent. There is a file for each port in a round.
const FILE: u64 = 25_000;
const TIMES: u64 = 8;
const PORTS: u8 = 4;
/// How long a round may take without any progress, and the longest life of what may be held.
const HANG: Duration = Duration::from_secs(120);
const HELD: Duration = Duration::from_secs(90);

/// pg0 and pg1 are routed, with tags and NAT44; pg2 and pg3 are ports of a bridge domain with a BVI.
const SETUP: &str = "
    create packet-generator interface pg0 hw-addr 02:aa:00:00:00:00
    create packet-generator interface pg1 hw-addr 02:aa:00:00:00:01
    create packet-generator interface pg2 hw-addr 02:aa:00:00:00:02
    create packet-generator interface pg3 hw-addr 02:aa:00:00:00:03
    create loopback interface
    create sub-interfaces pg0 100
    create sub-interfaces pg1 200 dot1ad 200 inner-dot1q 300 exact-match
    create sub-interfaces pg2 100
    set interface state pg0 up
    set interface state pg1 up
    set interface state pg2 up
    set interface state pg3 up
    set interface state loop0 up
    set interface state pg0.100 up
    set interface state pg1.200 up
    set interface state pg2.100 up
    set interface ip address pg0 10.0.0.1/24
    set interface ip address pg1 10.0.1.1/24
    set interface ip address loop0 10.0.2.1/24
    set interface ip address pg0.100 10.1.0.1/16
    set interface ip address pg1.200 10.2.0.1/16
    set interface ip address pg0 2001:db8:0::1/64
    set interface ip address pg1 2001:db8:1::1/64
    set interface ip address loop0 2001:db8:2::1/64
    set interface l2 bridge loop0 1 bvi
    set interface l2 bridge pg2 1
    set interface l2 bridge pg3 1
    set interface l2 bridge pg2.100 2
    set interface l2 tag-rewrite pg2.100 pop 1
    ip route add 10.9.0.0/16 via 10.0.1.2
    ip route add 2001:db8:9::/48 via 2001:db8:1::2
    set ip neighbor pg1 10.0.1.2 02:bb:00:00:00:01
    set ip neighbor pg1 2001:db8:1::2 02:bb:00:00:00:01
    nat44 plugin enable
    set interface nat44 in pg0 out pg1
    nat44 add interface address pg1
    set ip4-full-reassembly timeout 2000
    set ip6-full-reassembly timeout 2000
    trace add pg-input 200";

/// A host behind a port.
fn host(port: u8) -> MacAddr {
    MacAddr([2, 0xbb, 0, 0, 0, port])
}

fn router(port: u8) -> MacAddr {
    MacAddr([2, 0xaa, 0, 0, 0, port])
}

/// Frames as they should be, for a port.
fn templates(port: u8) -> Vec<Vec<u8>> {
    let net = port.min(2);
    let four = |n: u8| std::net::Ipv4Addr::new(10, 0, net, n);
    let six = |n: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, n);
    let far4 = std::net::Ipv4Addr::new(10, 9, 1, 1);
    let far6 = std::net::Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
    let to_router = || Packet::ethernet(host(port), router(port));
    let to_all = || Packet::ethernet(host(port), MacAddr::BROADCAST);
    let to_host = || Packet::ethernet(host(port), host(port ^ 1));
    let tagged = || to_router().vlan(100);
    let twice = || to_router().tag(EtherType::QINQ, Tci::new(0, false, 200)).vlan(300);
    let arp = |operation| ArpHeader::new(operation, (host(port), four(9)), (router(port), four(1)));
    let mut all = vec![
        to_router().ipv4(four(9), four(1)).echo_request(1, 2).payload_len(56),
        to_router().ipv4(four(9), far4).udp(1000, 2000).payload_len(100),
        to_router().ipv4(four(9), far4).tcp(1000, 80, TcpFlags::SYN).payload_len(20),
        to_router().ipv4(four(9), four(77)).udp(5, 6).payload_len(10),
        to_router().ipv4(four(9), far4).ttl(1).udp(1, 2).payload_len(40),
        to_router().ipv4(four(9), far4).options(&[7, 7, 4, 0, 0, 0, 0, 0]).udp(1, 2).payload_len(40),
        to_router().ipv4(four(9), far4).udp(1, 2).payload_len(1900),
        to_router().ipv6(six(9), six(1)).echo_request(1, 2).payload_len(56),
        to_router().ipv6(six(9), far6).udp(1000, 2000).payload_len(100),
        to_router().ipv6(six(9), far6).tcp(1000, 80, TcpFlags::SYN).payload_len(20),
        to_router().ipv6(six(9), six(0x77)).udp(5, 6).payload_len(10),
        to_router()
            .ipv6(six(9), far6)
            .hop_by_hop(&[5, 2, 0, 0, 0, 0])
            .destination_options(&[1, 4, 0, 0, 0, 0])
            .udp(1, 2)
            .payload_len(9),
        to_router().ipv6(six(9), six(1)).neighbor_solicitation(six(1)),
        to_router().ipv6(six(9), six(1)).neighbor_advertisement(six(9), 0x6000_0000),
        to_router().ipv6(six(9), six(1)).router_solicitation(),
        tagged().ipv4([10, 1, 0, 9], [10, 1, 0, 1]).echo_request(3, 4).payload_len(56),
        tagged().ipv4([10, 1, 0, 9], far4).udp(1, 2).payload_len(30),
        twice().ipv4([10, 2, 0, 9], [10, 2, 0, 1]).echo_request(3, 4).payload_len(56),
        twice().arp(arp(ArpOperation::REQUEST)),
        to_all().arp(arp(ArpOperation::REQUEST)),
        to_router().arp(arp(ArpOperation::REPLY)),
        to_all().ipv4(four(9), [255, 255, 255, 255]).udp(68, 67).payload_len(200),
        to_host().ipv4(four(9), four(8)).udp(1, 2).payload_len(60),
        Packet::ethernet(host(port), MacAddr([1, 0, 0x5e, 0, 0, 5])).ipv4(four(9), [224, 0, 0, 5]).next(89).payload_len(44),
        // An ICMP error about a packet of the router's own.
        to_router().ipv4(four(9), four(1)).next(1).payload(&[
            3, 4, 0, 0, 0, 0, 2, 0, 0x45, 0, 0, 60, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 1, 1, 0, 1, 0, 2, 0, 8, 0, 0,
        ]),
        to_router().ipv6(six(9), six(1)).next(58).payload(&[2, 0, 0, 0, 0, 0, 5, 0, 0x60, 0, 0, 0, 0, 8, 17, 64]),
    ];
    for (offset, more, len) in [(0, true, 64), (64, true, 64), (128, false, 30), (65_528, true, 64), (0, false, 8), (8, true, 7)] {
        all.push(to_router().ipv4(four(9), four(1)).fragment(77, offset, more).next(17).payload_len(len));
        all.push(to_router().ipv4(four(9), far4).fragment(78, offset, more).next(6).payload_len(len));
        all.push(to_router().ipv6(six(9), six(1)).fragment(77, offset, more).next(17).payload_len(len));
        all.push(
            to_router()
                .ipv6(six(9), six(1))
                .extension(IpProtocol::FRAGMENT, &[0; 6])
                .fragment(5, offset, more)
                .next(17)
                .payload_len(len),
        );
    }
    all.iter().map(Packet::build).collect()
}

/// Changes a frame a little; one in eight stays.
fn mutate(rng: &mut Rng, frame: &mut Vec<u8>, others: &[Vec<u8>]) {
    if rng.one_in(8) {
        return;
    }
    for _ in 0..1 + rng.below(3) {
        let len = frame.len().max(1);
        // Mostly in the headers.
        let at = if rng.one_in(4) { rng.below(len) } else { rng.below(len.min(74)) };
        match rng.below(9) {
            0..=2 => {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            3 => {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = rng.odd() as u8;
                }
            }
            4 => {
                let word = (rng.odd() as u16).to_be_bytes();
                if let Some(bytes) = frame.get_mut(at & !1..(at & !1) + 2) {
                    bytes.copy_from_slice(&word);
                }
            }
            5 => {
                let word = (rng.odd() as u32).to_be_bytes();
                if let Some(bytes) = frame.get_mut(at & !1..(at & !1) + 4) {
                    bytes.copy_from_slice(&word);
                }
            }
            6 => frame.truncate(rng.below(len + 1).max(1)),
            7 => {
                let most = if rng.one_in(10) { 1800 } else { 60 };
                let more = rng.below(most);
                let fill = rng.next() as u8;
                frame.resize(frame.len() + more, fill);
            }
            _ => {
                let other = &others[rng.below(others.len())];
                frame.truncate(at.max(1));
                frame.extend_from_slice(other.get(at.max(1)..).unwrap_or(&[]));
            }
        }
    }
    frame.truncate(2000);
}

/// A capture file of mutated frames.
fn write(path: &Path, rng: &mut Rng, port: u8, count: u64) -> std::io::Result<()> {
    let templates = templates(port);
    let mut out = Vec::new();
    out.extend(0xa1b2_c3d4_u32.to_le_bytes());
    for half in [2_u16, 4] {
        out.extend(half.to_le_bytes());
    }
    for word in [0_u32, 0, 65_535, 1] {
        out.extend(word.to_le_bytes());
    }
    for n in 0..count as u32 {
        let mut frame = templates[rng.below(templates.len())].clone();
        mutate(rng, &mut frame, &templates);
        if rng.one_in(50) {
            // Another sender, as a flood has.
            let sender = rng.next().to_be_bytes();
            frame.iter_mut().skip(7).take(5).zip(sender).for_each(|(byte, new)| *byte = new);
        }
        for word in [n, 0, frame.len() as u32, frame.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend(frame);
    }
    fs::write(path, out)
}

fn json(target: &Target, line: &str) -> Result<Value, String> {
    serde_json::from_str(&target.router.cli_json(line)?).map_err(|e| format!("{line}: {e}"))
}

/// Packets that a port says it has received.
fn received(target: &Target, port: u8) -> Result<u64, String> {
    let answer = json(target, &format!("show interface pg{port}"))?;
    let counters = answer["interfaces"][0]["counters"].as_array().ok_or("no counters")?.clone();
    let rx = counters.iter().find(|c| c[0] == "rx packets").and_then(|c| c[1].as_u64());
    Ok(rx.unwrap_or(0))
}

fn round(outcome: &mut Outcome, target: &mut Target, seed: u64, plan: &Plan) -> Result<(), String> {
    target.router.script(SETUP)?;
    let file = target.router.file("attack.pcap");
    let _ = target.router.cli("pcap trace rx tx max 100000 max-bytes-per-pkt 128 intfc any");
    let mut expected = [0; PORTS as usize];
    let each = FILE.min((plan.count - outcome.count).div_ceil(u64::from(PORTS) * TIMES)).max(256);
    for port in 0..PORTS {
        let mut rng = Rng::new(seed.wrapping_mul(4).wrapping_add(port.into()));
        write(&file, &mut rng, port, each).map_err(|e| e.to_string())?;
        let limit = each * TIMES;
        let stream = format!("name s{port} limit {limit} interface pg{port} node ethernet-input pcap {}", file.display());
        target.router.cli(&format!("packet-generator new {{ {stream} }}"))?;
        expected[usize::from(port)] = limit;
    }
    let total: u64 = expected.iter().sum();
    target.router.cli("packet-generator enable-stream")?;
    let mut moved = (0, Instant::now());
    loop {
        let answer = json(target, "show packet-generator")?;
        let streams = answer["streams"].as_array().ok_or("no streams")?;
        let sent: u64 = streams.iter().filter_map(|s| s["sent"].as_u64()).sum();
        if streams.iter().all(|s| s["enabled"] == false) {
            if sent != total {
                return Err(format!("{sent} frames sent of {total}"));
            }
            break;
        }
        if sent != moved.0 {
            moved = (sent, Instant::now());
        }
        if moved.1.elapsed() > HANG {
            return Err(format!("no progress for {HANG:?} after {sent} frames"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    outcome.count += total;
    for port in 0..PORTS {
        let (got, wanted) = (received(target, port)?, expected[usize::from(port)]);
        if got != wanted {
            return Err(format!("pg{port} counts {got} received of {wanted}"));
        }
    }
    let _ = target.router.cli("pcap trace off");
    target.router.cli("clear trace")?;
    match target.buffers_left(HELD)? {
        0 => Ok(()),
        left => Err(format!("{left} buffers are not back after {HELD:?}")),
    }
}

/// Plays the part.
pub fn run(plan: &Plan) -> Outcome {
    let mut outcome = Outcome::new("frames", false);
    while plan.goes_on(outcome.count) && !outcome.has_enough() {
        let seed = plan.seed.wrapping_add(outcome.rounds);
        let mut target = match Target::start((outcome.rounds % 2) as u32) {
            Ok(target) => target,
            Err(error) => {
                outcome.find(seed, error);
                break;
            }
        };
        let result = round(&mut outcome, &mut target, seed, plan);
        outcome.end_round(seed, &mut target, result);
    }
    outcome
}
