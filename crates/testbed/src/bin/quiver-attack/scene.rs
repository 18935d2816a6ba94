//! What frames are played against: a router with everything switched on, and frames that it should nearly understand.

use quiver_testbed::Router;
use quiver_wire::MacAddr;
use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::tcp::TcpFlags;
use quiver_wire::vlan::Tci;

use crate::rng::Rng;
use crate::watch::Target;

/// Interfaces that frames come in on.
pub const PORTS: u8 = 4;

/// The kind of these interfaces.
pub struct Ports {
    /// Their names, without the number.
    pub name: &'static str,
    /// The command that makes number `@`.
    pub create: &'static str,
    /// The node that traces are to start at.
    pub input: &'static str,
}

/// Ports 0 and 1 are routed, with tags and NAT44; ports 2 and 3 are in a bridge domain with a BVI. `@` is the name of a port without
/// its number.
const SETUP: &str = "
    create loopback interface
    create sub-interfaces @0 100
    create sub-interfaces @1 200 dot1ad 200 inner-dot1q 300 exact-match
    create sub-interfaces @2 100
    set interface state @0 up
    set interface state @1 up
    set interface state @2 up
    set interface state @3 up
    set interface state loop0 up
    set interface state @0.100 up
    set interface state @1.200 up
    set interface state @2.100 up
    set interface ip address @0 10.0.0.1/24
    set interface ip address @1 10.0.1.1/24
    set interface ip address loop0 10.0.2.1/24
    set interface ip address @0.100 10.1.0.1/16
    set interface ip address @1.200 10.2.0.1/16
    set interface ip address @0 2001:db8:0::1/64
    set interface ip address @1 2001:db8:1::1/64
    set interface ip address loop0 2001:db8:2::1/64
    set interface l2 bridge loop0 1 bvi
    set interface l2 bridge @2 1
    set interface l2 bridge @3 1
    set interface l2 bridge @2.100 2
    set interface l2 tag-rewrite @2.100 pop 1
    ip route add 10.9.0.0/16 via 10.0.1.2
    ip route add 2001:db8:9::/48 via 2001:db8:1::2
    set ip neighbor @1 10.0.1.2 02:bb:00:00:00:01
    set ip neighbor @1 2001:db8:1::2 02:bb:00:00:00:01
    nat44 plugin enable
    set interface nat44 in @0 out @1
    nat44 add interface address @1
    set ip4-full-reassembly timeout 2000
    set ip6-full-reassembly timeout 2000
    trace add @input 200";

impl Ports {
    /// Makes the ports, and switches everything on.
    pub fn set_up(&self, router: &Router) -> Result<(), String> {
        for port in 0..PORTS {
            let create = self.create.replace('@', &port.to_string());
            router.cli(&format!("{create} hw-addr 02:aa:00:00:00:0{port}"))?;
        }
        router.script(&SETUP.replace("@input", self.input).replace('@', self.name))
    }

    /// A counter of a port.
    pub fn counter(&self, target: &Target, port: u8, name: &str) -> Result<u64, String> {
        target.counter(&format!("{}{port}", self.name), name)
    }
}

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

/// Frames of a port without end, each different.
pub struct Mutants {
    rng: Rng,
    templates: Vec<Vec<u8>>,
}

impl Mutants {
    pub fn new(seed: u64, port: u8) -> Self {
        let rng = Rng::new(seed.wrapping_mul(PORTS.into()).wrapping_add(port.into()));
        Self { rng, templates: templates(port) }
    }

    /// Writes the next one into an empty vector.
    pub fn next(&mut self, frame: &mut Vec<u8>) {
        let rng = &mut self.rng;
        frame.extend_from_slice(&self.templates[rng.below(self.templates.len())]);
        mutate(rng, frame, &self.templates);
        if rng.one_in(50) {
            // Another sender, as a flood has.
            let sender = rng.next().to_be_bytes();
            frame.iter_mut().skip(7).take(5).zip(sender).for_each(|(byte, new)| *byte = new);
        }
    }
}
