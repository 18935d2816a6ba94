//! Packets for scenarios: only what matters is named.

use std::net::IpAddr;

use quiver_wire::MacAddr;
use quiver_wire::checksum::checksum;

/// An address from its text.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A UDP packet in either family. Its payload starts at 0xa5, not zero.
#[derive(Clone, Debug)]
pub struct Packet {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub ttl: u8,
    pub tos: u8,
    pub ports: (u16, u16),
    /// Bytes of UDP payload.
    pub len: usize,
    pub dont_fragment: bool,
    /// IPv4 options, padded to words by the caller.
    pub options: Vec<u8>,
}

impl Packet {
    pub fn new(src: &str, dst: &str) -> Self {
        let (src, dst) = (ip(src), ip(dst));
        Self { src, dst, ttl: 64, tos: 0, ports: (1234, 5678), len: 32, dont_fragment: false, options: Vec::new() }
    }

    /// From its IP header on.
    pub fn bytes(&self) -> Vec<u8> {
        let udp_len = (8 + self.len) as u16;
        let mut udp = Vec::new();
        udp.extend(self.ports.0.to_be_bytes());
        udp.extend(self.ports.1.to_be_bytes());
        udp.extend(udp_len.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend((0..self.len).map(|i| 0xa5 ^ i as u8));
        let mut bytes = Vec::new();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header_len = 20 + self.options.len();
                bytes.extend([0x40 | (header_len / 4) as u8, self.tos]);
                bytes.extend((header_len as u16 + udp_len).to_be_bytes());
                bytes.extend([0x12, 0x34, if self.dont_fragment { 0x40 } else { 0 }, 0]);
                bytes.extend([self.ttl, 17, 0, 0]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
                bytes.extend(&self.options);
                let sum = checksum(&bytes);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                bytes.extend([0x60 | self.tos >> 4, self.tos << 4 | 0x0a, 0xbc, 0xde]);
                bytes.extend(udp_len.to_be_bytes());
                bytes.extend([17, self.ttl]);
                bytes.extend(src.octets());
                bytes.extend(dst.octets());
            }
            _ => panic!("two families in one packet"),
        }
        bytes.extend(udp);
        bytes
    }

    /// In an Ethernet frame, padded to 60 bytes.
    pub fn frame(&self, src: MacAddr, dst: MacAddr) -> Vec<u8> {
        let mut frame = dst.0.to_vec();
        frame.extend(src.0);
        frame.extend(if self.src.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(self.bytes());
        frame.resize(frame.len().max(60), 0x5a);
        frame
    }
}

/// What a router makes of an untagged frame: one hop less, checksum computed anew, other MAC addresses, no padding.
pub fn forwarded(frame: &[u8], src: MacAddr, dst: MacAddr) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&dst.0);
    frame[6..12].copy_from_slice(&src.0);
    if frame[14] >> 4 == 4 {
        frame.truncate(14 + usize::from(u16::from_be_bytes([frame[16], frame[17]])));
        frame[22] -= 1;
        frame[24..26].fill(0);
        let header = 14 + usize::from(frame[14] & 0xf) * 4;
        let sum = checksum(&frame[14..header]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame.truncate(54 + usize::from(u16::from_be_bytes([frame[18], frame[19]])));
        frame[21] -= 1;
    }
    frame
}
