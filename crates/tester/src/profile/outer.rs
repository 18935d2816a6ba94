//! What stands around a stream's own headers: labels of MPLS, a tunnel, and the payload that it begins with.

use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::IpProtocol;
use serde::Deserialize;

use super::{Lit, Side, Stream};

/// Most labels of a frame.
const LABELS: usize = 8;
/// UDP port of VXLAN (RFC 7348, section 5).
const VXLAN_PORT: u16 = 4789;
/// Source port of VXLAN where none is given: the first of those that RFC 7348, section 5, recommends.
const SOURCE_PORT: u16 = 49_152;
/// Addresses of the frame within VXLAN where none are given.
const INNER: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 1, 2])];

/// A label of MPLS (RFC 3032, section 2.1; RFC 5462).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Its value, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits.
    #[serde(default)]
    pub tc: u8,
    /// Time to live.
    #[serde(default = "super::ttl")]
    pub ttl: u8,
}

impl Label {
    /// As on the wire; `last` of the stack or not.
    fn bytes(self, last: bool) -> [u8; 4] {
        (self.label << 12 | u32::from(self.tc) << 9 | u32::from(last) << 8 | u32::from(self.ttl)).to_be_bytes()
    }
}

/// How a tunnel wraps packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wrap {
    /// IP in IP (RFC 2003, 2473, 4213).
    Ip,
    /// GRE (RFC 2784, 2890).
    Gre,
    /// VXLAN (RFC 7348).
    Vxlan,
}

/// The outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OuterIp<T> {
    /// Source; the side's usual address where there is none.
    #[serde(default = "nothing")]
    pub src: Option<T>,
    /// Destination; the other side's usual address where there is none.
    #[serde(default = "nothing")]
    pub dst: Option<T>,
    /// TTL or hop limit.
    #[serde(default = "super::ttl")]
    pub ttl: u8,
    /// Differentiated services code point.
    #[serde(default)]
    pub dscp: u8,
}

fn nothing<T>() -> Option<T> {
    None
}

/// Addresses of the frame within VXLAN.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inner {
    /// Source.
    #[serde(default)]
    pub src: Option<Lit<MacAddr>>,
    /// Destination.
    #[serde(default)]
    pub dst: Option<Lit<MacAddr>>,
}

/// A tunnel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tunnel {
    /// How it wraps packets.
    pub kind: Wrap,
    /// Its IPv4 header.
    #[serde(default)]
    pub ipv4: Option<OuterIp<Ipv4Addr>>,
    /// Its IPv6 header.
    #[serde(default)]
    pub ipv6: Option<OuterIp<Ipv6Addr>>,
    /// Key of GRE.
    #[serde(default)]
    pub key: Option<u32>,
    /// Network identifier of VXLAN, 24 bits.
    #[serde(default)]
    pub vni: Option<u32>,
    /// Source port of VXLAN.
    #[serde(default)]
    pub source_port: Option<u16>,
    /// Addresses of the frame within VXLAN.
    #[serde(default)]
    pub ethernet: Option<Inner>,
}

impl Tunnel {
    /// Bytes of its headers.
    pub fn headers(&self) -> usize {
        let ip = if self.ipv4.is_some() { 20 } else { 40 };
        ip + match self.kind {
            Wrap::Ip => 0,
            Wrap::Gre => 4 + if self.key.is_some() { 4 } else { 0 },
            Wrap::Vxlan => 8 + 8 + 14,
        }
    }

    /// Whether it says what can be; else where and what.
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        let wrong = |path: &str, error: &str| Err((format!(".tunnel{path}"), error.to_owned()));
        if self.ipv4.is_some() == self.ipv6.is_some() {
            return wrong("", "it has one of ipv4 and ipv6: `ipv4: {}' for the usual addresses");
        }
        let dscp = [(".ipv4.dscp", self.ipv4.map(|h| h.dscp)), (".ipv6.dscp", self.ipv6.map(|h| h.dscp))];
        for (at, dscp) in dscp {
            if dscp.is_some_and(|d| d > 63) {
                return wrong(at, "a code point is 0 to 63");
            }
        }
        if self.key.is_some() && self.kind != Wrap::Gre {
            return wrong(".key", "of `kind: gre' only");
        }
        let of_vxlan =
            [(".vni", self.vni.is_some()), (".source-port", self.source_port.is_some()), (".ethernet", self.ethernet.is_some())];
        match self.kind {
            Wrap::Vxlan if self.vni.is_none_or(|n| n >= 1 << 24) => {
                wrong(".vni", "vxlan has a network identifier of 0 to 16777215")
            }
            Wrap::Vxlan => Ok(()),
            _ => match of_vxlan.iter().find(|(_, given)| *given) {
                Some((at, _)) => wrong(at, "of `kind: vxlan' only"),
                None => Ok(()),
            },
        }
    }

    /// Puts its headers behind what is there. `inner` is what it carries.
    fn wrap(&self, packet: Packet, from: Side, inner: EtherType) -> Packet {
        let packet = match (&self.ipv4, &self.ipv6) {
            (Some(ip), _) => {
                let usual = [from, from.other()].map(super::super::maker::default_v4);
                packet.ipv4(ip.src.unwrap_or(usual[0]), ip.dst.unwrap_or(usual[1])).ttl(ip.ttl).tos(ip.dscp << 2)
            }
            (None, Some(ip)) => {
                let usual = [from, from.other()].map(super::super::maker::default_v6);
                packet.ipv6(ip.src.unwrap_or(usual[0]), ip.dst.unwrap_or(usual[1])).ttl(ip.ttl).tos(ip.dscp << 2)
            }
            (None, None) => packet,
        };
        match self.kind {
            Wrap::Ip => packet,
            Wrap::Gre => {
                // A bit for the key, version 0, and what follows.
                let flags: u16 = if self.key.is_some() { 0x2000 } else { 0 };
                let mut header = [flags.to_be_bytes(), inner.0.to_be_bytes()].concat();
                header.extend(self.key.iter().flat_map(|key| key.to_be_bytes()));
                packet.next(IpProtocol::GRE.0.into()).payload(&header)
            }
            Wrap::Vxlan => {
                let given = self.ethernet.unwrap_or_default();
                let usual = if from == Side::Left { INNER } else { [INNER[1], INNER[0]] };
                let [src, dst] = [given.src.map_or(usual[0], |m| m.0), given.dst.map_or(usual[1], |m| m.0)];
                let mut header = vec![0x08, 0, 0, 0];
                header.extend((self.vni.unwrap_or(0) << 8).to_be_bytes());
                header.extend(dst.0);
                header.extend(src.0);
                header.extend(inner.0.to_be_bytes());
                // Without a checksum of its own (RFC 7348, section 4.1; RFC 6935).
                packet.udp(self.source_port.unwrap_or(SOURCE_PORT), VXLAN_PORT).checksum(0).payload(&header)
            }
        }
    }

    fn mirrored(&mut self) {
        if let Some(ip) = &mut self.ipv4 {
            std::mem::swap(&mut ip.src, &mut ip.dst);
        }
        if let Some(ip) = &mut self.ipv6 {
            std::mem::swap(&mut ip.src, &mut ip.dst);
        }
        if let Some(inner) = &mut self.ethernet {
            std::mem::swap(&mut inner.src, &mut inner.dst);
        }
    }
}

/// Bytes in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload(pub Vec<u8>);

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("bytes are written in hexadecimal, two digits each, such as `68656c6c6f'");
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() || pairs.is_empty() {
            return Err(wrong());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|n| n as u8);
        let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        pairs.iter().map(byte).collect::<Option<_>>().map(Self).ok_or_else(wrong)
    }
}

impl Stream {
    /// Bytes of labels and tunnel, between the link layer and the stream's own headers.
    pub fn around(&self) -> usize {
        4 * self.mpls.len() + self.tunnel.as_ref().map_or(0, Tunnel::headers)
    }

    /// Puts labels and tunnel behind the link layer.
    pub(crate) fn wrap(&self, mut packet: Packet) -> Packet {
        if !self.mpls.is_empty() {
            let last = self.mpls.len() - 1;
            let stack: Vec<u8> = self.mpls.iter().enumerate().flat_map(|(i, label)| label.bytes(i == last)).collect();
            packet = packet.next(EtherType::MPLS.0).payload(&stack);
        }
        let inner = if self.ipv4.is_some() { EtherType::IPV4 } else { EtherType::IPV6 };
        self.tunnel.iter().fold(packet, |packet, tunnel| tunnel.wrap(packet, self.from, inner))
    }

    /// The other way: outer addresses are exchanged, too.
    pub(super) fn mirror_around(&mut self) {
        self.tunnel.iter_mut().for_each(Tunnel::mirrored);
    }

    /// Whether labels and tunnel say what can be; else where and what.
    pub(super) fn check_around(&self) -> Result<(), (String, String)> {
        let wrong = |path: String, error: &str| Err((path, error.to_owned()));
        let ip = self.ipv4.is_some() || self.ipv6.is_some();
        if !ip && self.around() > 0 {
            return wrong(String::new(), "labels and tunnels carry ipv4 or ipv6: add `ipv4: {}' for the usual addresses");
        }
        if self.mpls.len() > LABELS {
            return wrong(".mpls".to_owned(), "a frame has at most eight labels");
        }
        for (i, label) in self.mpls.iter().enumerate() {
            if label.label >= 1 << 20 {
                return wrong(format!(".mpls[{i}].label"), "a label is 0 to 1048575");
            }
            if label.tc > 7 {
                return wrong(format!(".mpls[{i}].tc"), "a traffic class is 0 to 7");
            }
        }
        self.tunnel.as_ref().map_or(Ok(()), Tunnel::check)
    }
}
