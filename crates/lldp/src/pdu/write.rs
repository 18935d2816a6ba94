//! Data units of this router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;

use super::{ID_MAX, LARGEST_FRAME, NEAREST_BRIDGE, OID_MAX, TEXT_MAX, family, kind, subtype};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of the end mark.
const END: usize = 2;
/// Interfaces are numbered by `ifIndex` (table 8-5).
const BY_IF_INDEX: u8 = 2;

/// What this router says on one of its ports.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// The router.
    pub chassis: MacAddr,
    /// Name of the port.
    pub port: String,
    /// Seconds that it holds for.
    pub ttl: u16,
    /// Description of the port.
    pub port_description: Option<String>,
    /// Name of the router.
    pub system_name: Option<String>,
    /// Description of the router.
    pub system_description: Option<String>,
    /// What it can be, and what it is.
    pub capabilities: (u16, u16),
    /// Where it is managed.
    pub ip4: Option<Ipv4Addr>,
    /// The same over IPv6.
    pub ip6: Option<Ipv6Addr>,
    /// What is named where there is no IP address.
    pub mac: MacAddr,
    /// Number of the interface.
    pub interface: u32,
    /// Object that the addresses belong to, encoded.
    pub oid: Vec<u8>,
    /// Largest frame of the port, bytes with FCS.
    pub largest_frame: Option<u16>,
}

/// A frame, and how many of its optional TLVs had no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
    /// TLVs left out.
    pub omitted: u32,
}

struct Writer {
    frame: Vec<u8>,
    most: usize,
    omitted: u32,
}

impl Writer {
    fn new(src: MacAddr, most: usize) -> Self {
        let mut frame = Vec::with_capacity(256);
        frame.extend(NEAREST_BRIDGE.0);
        frame.extend(src.0);
        frame.extend(EtherType::LLDP.0.to_be_bytes());
        Self { frame, most, omitted: 0 }
    }

    fn tlv(&mut self, kind: u8, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        // The field has nine bits.
        if length > 0x1ff || self.frame.len() + 2 + length + END > self.most {
            self.omitted += 1;
            return;
        }
        self.frame.extend([kind << 1 | (length >> 8) as u8, length as u8]);
        parts.iter().for_each(|part| self.frame.extend(*part));
    }

    fn text(&mut self, kind: u8, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.tlv(kind, &[cut(text, TEXT_MAX).as_bytes()]);
        }
    }

    fn end(mut self) -> Written {
        self.frame.extend([0; END]);
        Written { frame: self.frame, omitted: self.omitted }
    }
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Local {
    fn mandatory(&self, src: MacAddr, most: usize, ttl: u16) -> Writer {
        // These three always go: without them it is no unit.
        let mut writer = Writer::new(src, ETHERNET + super::UNIT_MAX);
        writer.tlv(kind::CHASSIS, &[&[subtype::CHASSIS_MAC], &self.chassis.0]);
        writer.tlv(kind::PORT, &[&[subtype::PORT_NAME], cut(&self.port, ID_MAX).as_bytes()]);
        writer.tlv(kind::TTL, &[&ttl.to_be_bytes()]);
        writer.most = most.min(writer.most);
        writer
    }

    /// What it says, in a frame of at most `most` bytes without FCS.
    pub fn frame(&self, src: MacAddr, most: usize) -> Written {
        let mut writer = self.mandatory(src, most, self.ttl);
        writer.text(kind::PORT_DESCRIPTION, self.port_description.as_deref());
        writer.text(kind::SYSTEM_NAME, self.system_name.as_deref());
        writer.text(kind::SYSTEM_DESCRIPTION, self.system_description.as_deref());
        let (can, is) = self.capabilities;
        writer.tlv(kind::CAPABILITIES, &[&can.to_be_bytes(), &is.to_be_bytes()]);
        for (family, address) in self.addresses() {
            let oid = &self.oid[..self.oid.len().min(OID_MAX)];
            let interface = self.interface.to_be_bytes();
            let head = [address.len() as u8 + 1, family];
            writer.tlv(kind::MANAGEMENT, &[&head, &address, &[BY_IF_INDEX], &interface, &[oid.len() as u8], oid]);
        }
        if let Some(largest) = self.largest_frame {
            writer.tlv(kind::ORGANIZATION, &[&LARGEST_FRAME, &largest.to_be_bytes()]);
        }
        writer.end()
    }

    /// That it speaks no more.
    pub fn last_frame(&self, src: MacAddr) -> Vec<u8> {
        self.mandatory(src, usize::MAX, 0).end().frame
    }

    /// Addresses where it is managed: one at least (8.5.9).
    fn addresses(&self) -> Vec<(u8, Vec<u8>)> {
        let ip4 = self.ip4.map(|address| (family::IP4, address.octets().to_vec()));
        let ip6 = self.ip6.map(|address| (family::IP6, address.octets().to_vec()));
        let ip: Vec<_> = ip4.into_iter().chain(ip6).collect();
        if ip.is_empty() { vec![(family::MAC, self.mac.0.to_vec())] } else { ip }
    }
}

/// An OID in the encoding of ASN.1 (ITU-T X.690, 8.19), without type and length. `None`: the text is no OID in dotted numbers.
pub fn encoded(text: &str) -> Option<Vec<u8>> {
    let arcs: Vec<u32> = text.split('.').map(|arc| arc.parse().ok()).collect::<Option<_>>()?;
    let &[first, second, ref rest @ ..] = arcs.as_slice() else { return None };
    // X.660: below 0 and 1 there are 40.
    if first > 2 || first < 2 && second >= 40 {
        return None;
    }
    let mut bytes = Vec::new();
    for arc in std::iter::once(second.checked_add(first * 40)?).chain(rest.iter().copied()) {
        let groups = (0..5).rev().map(|group| (arc >> (7 * group)) as u8 & 0x7f).skip_while(|bits| *bits == 0);
        let groups: Vec<u8> = groups.collect();
        match groups.split_last() {
            Some((last, before)) => {
                bytes.extend(before.iter().map(|bits| bits | 0x80));
                bytes.push(*last);
            }
            None => bytes.push(0),
        }
    }
    Some(bytes)
}

/// An encoded OID in dotted numbers. `None`: the bytes are none.
pub fn dotted(bytes: &[u8]) -> Option<String> {
    let mut arcs: Vec<u32> = Vec::new();
    let mut arc = 0_u32;
    for (at, byte) in bytes.iter().enumerate() {
        if arc == 0 && *byte == 0x80 {
            return None;
        }
        arc = arc.checked_mul(128)? | u32::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            if at + 1 == bytes.len() {
                return None;
            }
            continue;
        }
        if arcs.is_empty() {
            let first = (arc / 40).min(2);
            arcs.extend([first, arc - first * 40]);
        } else {
            arcs.push(arc);
        }
        arc = 0;
    }
    let words: Vec<String> = arcs.iter().map(u32::to_string).collect();
    (!words.is_empty()).then(|| words.join("."))
}

/// Management addresses as they are configured: unspecified ones are none.
pub fn given<A: Into<IpAddr> + Copy>(address: Option<A>) -> Option<A> {
    address.filter(|address| !(*address).into().is_unspecified())
}
