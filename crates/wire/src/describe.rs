//! Packet headers as text, in the style of VPP's packet traces.
//!
//! ```text
//!  IP4: 02:fe:00:00:00:01 -> 02:fe:00:00:00:02 802.1q vlan 100      Ethernet
//!  ICMP: 10.0.0.1 -> 10.0.0.2                                       Ip4
//!    tos 0x00, ttl 64, length 84, checksum 0x1234 dscp CS0 ecn NON_ECN
//!    fragment id 0x0000
//!  ICMP echo_request checksum 0x5678 id 1 seq 2
//! ```
//!
//! Each type wraps the bytes that begin with its header and shows them by `Display`. Truncated or senseless bytes show as far
//! as they go, with a word about where they end. Nothing ends with a line break: the caller indents and joins.

use crate::arp::{ArpHeader, ArpOperation};
use crate::ethernet::{EtherType, EthernetHeader, skip_tags};
use crate::ipv4::Ipv4Header;
use crate::ipv6::{Ipv6Header, upper_layer};
use crate::vlan::VlanHeader;
use crate::{Header, U16Be};
use core::fmt;

mod l4;

/// How many tags are shown; deeper ones show as a type.
const MAX_TAGS: usize = 4;

/// One line about an Ethernet header and its tags.
#[derive(Copy, Clone, Debug)]
pub struct Ethernet<'a>(pub &'a [u8]);

/// An IPv4 packet down to its L4 header.
#[derive(Copy, Clone, Debug)]
pub struct Ip4<'a>(pub &'a [u8]);

/// An IPv6 packet down to its L4 header.
#[derive(Copy, Clone, Debug)]
pub struct Ip6<'a>(pub &'a [u8]);

/// An ARP message.
#[derive(Copy, Clone, Debug)]
pub struct Arp<'a>(pub &'a [u8]);

/// A whole frame: [`Ethernet`], then what it carries.
#[derive(Copy, Clone, Debug)]
pub struct Frame<'a>(pub &'a [u8]);

/// A whole frame in one short line: `10.0.0.1 -> 10.0.0.2 UDP 1000 -> 2000 length 60`.
#[derive(Copy, Clone, Debug)]
pub struct Summary<'a>(pub &'a [u8]);

impl fmt::Display for Ethernet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(header) = EthernetHeader::read(self.0) else {
            return write!(f, "Ethernet header truncated: {} bytes", self.0.len());
        };
        let inner = skip_tags(self.0, MAX_TAGS).map_or(header.ether_type(), |(_, kind)| kind);
        write!(f, "{inner}: {} -> {}", header.src, header.dst)?;
        let mut kind = header.ether_type();
        for i in 0..MAX_TAGS {
            if !kind.is_vlan() {
                break;
            }
            let Some(tag) = VlanHeader::read_at(self.0, EthernetHeader::LEN + i * VlanHeader::LEN) else {
                return f.write_str(" tag truncated");
            };
            let name = if kind == EtherType::QINQ { "802.1ad" } else { "802.1q" };
            write!(f, " {name} vlan {}", tag.tci().vlan_id())?;
            if tag.tci().priority() != 0 {
                write!(f, " priority {}", tag.tci().priority())?;
            }
            if tag.tci().drop_eligible() {
                f.write_str(" dei")?;
            }
            kind = tag.ether_type();
        }
        Ok(())
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ethernet(self.0))?;
        let Some((offset, kind)) = skip_tags(self.0, MAX_TAGS) else {
            return Ok(());
        };
        let rest = self.0.get(offset..).unwrap_or_default();
        match kind {
            EtherType::IPV4 => write!(f, "\n{}", Ip4(rest)),
            EtherType::IPV6 => write!(f, "\n{}", Ip6(rest)),
            EtherType::ARP => write!(f, "\n{}", Arp(rest)),
            _ => Ok(()),
        }
    }
}

/// Names of the class selectors and the assured and expedited forwarding code points (RFC 4594), else the number.
struct Dscp(u8);

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, drop) = (self.0 >> 3, self.0 >> 1 & 3);
        match self.0 {
            46 => f.write_str("EF"),
            44 => f.write_str("VA"),
            value if value & 7 == 0 => write!(f, "CS{class}"),
            value if value & 1 == 0 && (1..=4).contains(&class) => write!(f, "AF{class}{drop}"),
            value => write!(f, "{value}"),
        }
    }
}

const fn ecn_name(ecn: u8) -> &'static str {
    match ecn & 3 {
        0 => "NON_ECN",
        1 => "ECT_1",
        2 => "ECT_0",
        _ => "CE",
    }
}

impl fmt::Display for Ip4<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(header) = Ipv4Header::read(self.0) else {
            return write!(f, "IP4 header truncated: {} bytes", self.0.len());
        };
        write!(f, "{}: {} -> {}", header.protocol, header.src_addr(), header.dst_addr())?;
        if header.version() != 4 || header.header_len() < Ipv4Header::LEN {
            let (version, len) = (header.version(), header.header_len());
            write!(f, "\n  version {version}, header length {len}")?;
        }
        write!(
            f,
            "\n  tos 0x{:02x}, ttl {}, length {}, checksum 0x{:04x}",
            header.tos, header.ttl, header.total_len, header.checksum
        )?;
        let options = self.0.get(..header.header_len()).filter(|_| header.has_options());
        let mut right = header;
        right.fill_checksum_with_options(options.map_or(&[], |bytes| &bytes[Ipv4Header::LEN..]));
        if right.checksum != header.checksum {
            write!(f, " (should be 0x{:04x})", right.checksum)?;
        }
        write!(f, " dscp {} ecn {}", Dscp(header.dscp()), ecn_name(header.ecn()))?;
        write!(f, "\n  fragment id 0x{:04x}", header.identification)?;
        if header.fragment_offset() != 0 {
            write!(f, " offset {}", header.fragment_offset())?;
        }
        match (header.dont_fragment(), header.more_fragments()) {
            (true, true) => f.write_str(", flags MORE_FRAGMENTS DONT_FRAGMENT")?,
            (true, false) => f.write_str(", flags DONT_FRAGMENT")?,
            (false, true) => f.write_str(", flags MORE_FRAGMENTS")?,
            (false, false) => {}
        }
        if header.has_options() {
            write!(f, "\n  options {} bytes", header.header_len() - Ipv4Header::LEN)?;
        }
        if header.is_later_fragment() {
            return Ok(());
        }
        let end = usize::from(header.total_len.get()).clamp(header.header_len(), usize::MAX);
        let packet = &self.0[..end.min(self.0.len())];
        let l4 = packet.get(header.header_len().max(Ipv4Header::LEN)..).unwrap_or_default();
        l4::describe(f, header.protocol, l4)
    }
}

impl fmt::Display for Ip6<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(header) = Ipv6Header::read(self.0) else {
            return write!(f, "IP6 header truncated: {} bytes", self.0.len());
        };
        let (src, dst) = (header.src_addr(), header.dst_addr());
        write!(f, "{}: {src} -> {dst}", header.next_header)?;
        if header.version() != 6 {
            write!(f, "\n  version {}", header.version())?;
        }
        write!(
            f,
            "\n  tos 0x{:02x}, flow label 0x{:x}, hop limit {}, payload length {}",
            header.traffic_class(),
            header.flow_label(),
            header.hop_limit,
            header.payload_len
        )?;
        let upper = match upper_layer(&header, self.0) {
            Ok(upper) => upper,
            Err(error) => return write!(f, "\n  extension headers malformed: {error:?}"),
        };
        if let Some(fragment) = upper.fragment {
            let (id, offset) = (fragment.identification, fragment.offset);
            let more = if fragment.more { ", more" } else { "" };
            write!(f, "\n  fragment id 0x{id:08x} offset {offset}{more}")?;
            if offset != 0 {
                return Ok(());
            }
        }
        if upper.offset != Ipv6Header::LEN as u16 {
            write!(f, "\n  {} after {} bytes of headers", upper.protocol, upper.offset)?;
        }
        let end = Ipv6Header::LEN + usize::from(header.payload_len.get());
        let packet = &self.0[..end.min(self.0.len())];
        l4::describe(f, upper.protocol, packet.get(upper.offset.into()..).unwrap_or_default())
    }
}

impl fmt::Display for Arp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(header) = ArpHeader::read(self.0) else {
            return write!(f, "ARP truncated: {} bytes", self.0.len());
        };
        match header.operation() {
            ArpOperation::REQUEST => f.write_str("request")?,
            ArpOperation::REPLY => f.write_str("reply")?,
            ArpOperation(other) => write!(f, "operation {other}")?,
        }
        let kind = EtherType(header.protocol_type.get());
        match header.hardware_type.get() {
            1 => write!(f, ", type ethernet/{kind}")?,
            other => write!(f, ", type {other}/{kind}")?,
        }
        write!(f, ", address size {}/{}", header.hardware_len, header.protocol_len)?;
        let (sender, target) = (header.sender_ip(), header.target_ip());
        write!(f, "\n{}/{sender} -> {}/{target}", header.sender_mac, header.target_mac)
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.len();
        let Some((offset, kind)) = skip_tags(self.0, MAX_TAGS) else {
            return write!(f, "{} length {len}", Ethernet(self.0));
        };
        let packet = self.0.get(offset..).unwrap_or_default();
        let (protocol, l4) = match kind {
            EtherType::IPV4 => {
                let Some(header) = Ipv4Header::read(packet) else {
                    return write!(f, "{} length {len}", Ip4(packet));
                };
                write!(f, "{} -> {}", header.src_addr(), header.dst_addr())?;
                (header.protocol, (!header.is_later_fragment()).then_some(header.header_len()))
            }
            EtherType::IPV6 => {
                let Some(header) = Ipv6Header::read(packet) else {
                    return write!(f, "{} length {len}", Ip6(packet));
                };
                write!(f, "{} -> {}", header.src_addr(), header.dst_addr())?;
                match upper_layer(&header, packet) {
                    Ok(upper) => {
                        let later = upper.fragment.is_some_and(|fragment| fragment.offset != 0);
                        (upper.protocol, (!later).then_some(usize::from(upper.offset)))
                    }
                    Err(_) => (header.next_header, None),
                }
            }
            _ => return write!(f, "{} length {len}", Ethernet(self.0)),
        };
        write!(f, " {protocol}")?;
        match l4 {
            None => f.write_str(" fragment")?,
            Some(l4) if protocol.has_ports() => {
                if let (Some(src), Some(dst)) = (U16Be::read_at(packet, l4), U16Be::read_at(packet, l4.saturating_add(2))) {
                    write!(f, " {src} -> {dst}")?;
                }
            }
            Some(l4) => {
                let icmp_type = packet.get(l4).copied().unwrap_or(u8::MAX);
                if let Some(name) = l4::icmp_name(protocol, icmp_type) {
                    write!(f, " {name}")?;
                }
            }
        }
        write!(f, " length {len}")
    }
}

#[cfg(test)]
mod tests;
