//! Scenarios over the whole graph: hosts that answer and hosts that do not, frame by frame.

use std::net::Ipv4Addr;

use quiver_graph::IfIndex;
use quiver_wire::Header;
use quiver_wire::arp::{ArpHeader, ArpOperation};
use quiver_wire::build::Packet;
use quiver_wire::ethernet::{EtherType, EthernetHeader};
use quiver_wire::ipv4::Ipv4Header;

use super::state::SECOND;
use super::*;
use crate::testing::{Harness, host_mac, router_mac};

mod arp;
mod attached;
mod limits;
mod links;

/// Address of host number `n` on interface number `x`.
fn host(x: u8, n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, x, n)
}

/// A router with interfaces x0, x1, …: 10.0.N.1/24, up, whose announcements have left.
fn bed(workers: usize, interfaces: u8) -> (Harness, Vec<IfIndex>) {
    let mut h = Harness::with_workers(workers);
    let all: Vec<IfIndex> = (0..interfaces).map(|n| h.interface(n)).collect();
    for (n, index) in (0..).zip(&all) {
        h.router.add_address(*index, host(n, 1).into(), 24).unwrap();
    }
    Time::new(&h).settle(&mut h);
    (h, all)
}

/// Time of the router's clock, moved on by hand.
struct Time(u64);

impl Time {
    fn new(h: &Harness) -> Self {
        Self(h.router.graph.clock().timer_now())
    }

    /// Lets seconds pass in tenths and gives what left meanwhile.
    fn pass(&mut self, h: &mut Harness, seconds: u64) -> Vec<(IfIndex, Vec<u8>)> {
        let mut out = Vec::new();
        for _ in 0..seconds * 10 {
            self.0 += SECOND / 10;
            out.extend(self.settle(h));
        }
        out
    }

    /// Lets main take in what it was told.
    fn settle(&self, h: &mut Harness) -> Vec<(IfIndex, Vec<u8>)> {
        while h.router.run_processes(self.0).is_some_and(|due| due <= self.0) {}
        h.run()
    }
}

/// An IPv4 packet from host 10.0.0.2 behind x0, with a number in it.
fn packet(dst: Ipv4Addr, number: u16) -> Vec<u8> {
    Packet::ethernet(host_mac(0), router_mac(0))
        .ipv4(host(0, 2), dst)
        .identification(number)
        .udp(1000, 2000)
        .payload(&number.to_be_bytes())
        .build()
}

/// An ARP message in a frame from its sender.
fn arp(dst: MacAddr, message: ArpHeader) -> Vec<u8> {
    Packet::ethernet(message.sender_mac, dst).arp(message).build()
}

fn arp_reply(x: u8, sender: (MacAddr, Ipv4Addr)) -> Vec<u8> {
    arp(router_mac(x), ArpHeader::new(ArpOperation::REPLY, sender, (router_mac(x), host(x, 1))))
}

fn arp_request(sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    arp(MacAddr::BROADCAST, ArpHeader::request(sender, target))
}

/// The ARP message in a frame, and whom the frame is for.
fn arp_in(frame: &[u8]) -> Option<(MacAddr, ArpHeader)> {
    let ethernet = EthernetHeader::read(frame)?;
    (ethernet.ether_type() == EtherType::ARP).then(|| ArpHeader::parse(&frame[14..]).ok())?.map(|a| (ethernet.dst, a))
}

type Request = (IfIndex, MacAddr, ArpHeader);

fn all_requests(out: &[(IfIndex, Vec<u8>)]) -> impl Iterator<Item = Request> + '_ {
    let asks = |(i, f): &(IfIndex, Vec<u8>)| arp_in(f).map(|(dst, a)| (*i, dst, a));
    out.iter().filter_map(asks).filter(|(.., a)| a.operation() == ArpOperation::REQUEST)
}

/// Frames with ARP requests that ask for somebody.
fn requests(out: &[(IfIndex, Vec<u8>)]) -> Vec<Request> {
    all_requests(out).filter(|(.., a)| !a.is_gratuitous()).collect()
}

/// Frames with ARP announcements.
fn announcements(out: &[(IfIndex, Vec<u8>)]) -> Vec<Request> {
    all_requests(out).filter(|(.., a)| a.is_gratuitous()).collect()
}

/// Identifications of the IPv4 packets that left, in order, and the MAC address they went to.
fn packets(out: &[(IfIndex, Vec<u8>)]) -> Vec<(MacAddr, u16)> {
    let ip = |(_, f): &(IfIndex, Vec<u8>)| {
        let ethernet = EthernetHeader::read(f)?;
        let ip = (ethernet.ether_type() == EtherType::IPV4).then(|| Ipv4Header::parse(&f[14..]).ok())??;
        Some((ethernet.dst, ip.identification.get()))
    };
    out.iter().filter_map(ip).collect()
}
