//! Packets and settings, in a router with made-up interfaces: `x0`, `x1` and `x2` with 10.0.n.1/24 and 2001:db8:n::1/64.

mod layer2;
mod messages;
mod model;
mod rules;
mod sessions;

use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, Scene, host_mac, router_mac};
use quiver_wire::build::Packet;

fn bare() -> Harness {
    Harness::with_plugin(&crate::plugin(), 0, 3)
}

fn scene() -> Scene {
    Scene { h: bare().with_hosts() }
}

/// The host of an interface in IPv6.
fn six(net: u16) -> std::net::Ipv6Addr {
    std::net::Ipv6Addr::from([0x2001, 0xdb8, net, 0, 0, 0, 0, 2])
}

/// The beginning of a frame from the host of an interface to that of another one.
fn ip(is_six: bool, from: u8, to: u8) -> Packet {
    let packet = Packet::ethernet(host_mac(from), router_mac(from));
    if is_six { packet.ipv6(six(from.into()), six(to.into())) } else { packet.ipv4([10, 0, from, 2], [10, 0, to, 2]) }
}

/// A datagram from the host of an interface to that of another one.
fn udp(is_six: bool, from: u8, to: u8, sport: u16, dport: u16) -> Vec<u8> {
    ip(is_six, from, to).udp(sport, dport).payload(&[0xa5; 32]).build()
}

/// Frames that leave after one came in from a host.
fn out(s: &mut Scene, from: u8, frame: &[u8]) -> usize {
    let interface = s.interface(&format!("x{from}"));
    s.h.exchange(interface, frame).len()
}

/// Whether a frame gets through, alone and among others.
fn passes(s: &mut Scene, from: u8, frame: &[u8]) -> bool {
    let interface = s.interface(&format!("x{from}"));
    let alone = s.h.exchange(interface, frame).len();
    s.h.inject_many(interface, &vec![frame.to_vec(); 37], 0);
    let many = s.h.run().len();
    s.h.assert_buffers_held(0);
    assert_eq!(many, 37 * alone, "one packet as many");
    alone == 1
}
