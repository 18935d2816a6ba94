//! Header stacks of a capture: packets with the same headers (tags, family, protocol, flags, TTL, class) become a stream, whose frames
//! have addresses, ports and sizes of these packets by turns, in the order of the capture. Payloads are the tester's own.

use std::net::IpAddr;

use quiver_wire::Header;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ethernet::EthernetHeader;
use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::pcapfile::{CapturedPacket, LinkType, Reader};
use quiver_wire::tcp::{TcpFlags, TcpHeader};
use quiver_wire::udp::UdpHeader;
use quiver_wire::vlan::VlanHeader;
use serde_json::{Value, json};

use super::{ImportError, text};
use crate::profile::{Stream, size};

/// Most streams that a capture gives.
const STREAMS: usize = 64;

/// What packets of a stream share.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stack {
    /// VLAN number, priority, service tag.
    tags: Vec<(u16, u8, bool)>,
    v4: bool,
    ttl: u8,
    dscp: u8,
    l4: Option<Layer4>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer4 {
    Udp,
    Tcp(u8),
    Echo(u16),
}

/// What each packet has for itself.
#[derive(Clone, Debug)]
struct Each {
    src: IpAddr,
    dst: IpAddr,
    ports: Option<(u16, u16)>,
    /// With FCS.
    size: u16,
}

/// A packet's headers; `None` for what a stream cannot have: other protocols, options, fragments, extension headers.
fn stack(packet: &CapturedPacket) -> Option<(Stack, Each)> {
    let bytes = &packet.bytes[..];
    let (mut tags, mut at) = (Vec::new(), 0);
    let ethernet = packet.link_type == LinkType::ETHERNET;
    if ethernet {
        let mut ether_type = EthernetHeader::read(bytes)?.ether_type();
        at = EthernetHeader::LEN;
        while ether_type.is_vlan() && tags.len() < 2 {
            let tag = VlanHeader::read_at(bytes, at)?;
            tags.push((tag.tci().vlan_id(), tag.tci().priority(), ether_type != EtherType::VLAN));
            ether_type = tag.ether_type();
            at += VlanHeader::LEN;
        }
        if ether_type != EtherType::IPV4 && ether_type != EtherType::IPV6 {
            return None;
        }
    } else if packet.link_type != LinkType::RAW_IP {
        return None;
    }
    let ip = bytes.get(at..)?;
    let (v4, ttl, tos, protocol, src, dst, l4): (_, _, _, _, IpAddr, IpAddr, _) = if ip.first()? >> 4 == 4 {
        let header = Ipv4Header::parse(ip).ok().filter(|h| h.version_ihl == 0x45 && h.fragment.get() & 0x3fff == 0)?;
        (true, header.ttl, header.tos, header.protocol, header.src_addr().into(), header.dst_addr().into(), ip.get(20..)?)
    } else {
        let header = Ipv6Header::parse(ip).ok()?;
        let class = (header.version_class_flow.get() >> 20) as u8;
        (false, header.hop_limit, class, header.next_header, header.src_addr().into(), header.dst_addr().into(), ip.get(40..)?)
    };
    let (l4, ports) = match protocol {
        IpProtocol::UDP => {
            let udp = UdpHeader::read(l4)?;
            (Some(Layer4::Udp), Some((udp.src_port.get(), udp.dst_port.get())))
        }
        IpProtocol::TCP => {
            let tcp = TcpHeader::read(l4)?;
            (Some(Layer4::Tcp(tcp.flags.0 & 0x3f)), Some((tcp.src_port.get(), tcp.dst_port.get())))
        }
        IpProtocol::ICMP if v4 => {
            let echo = Icmp4Header::read(l4).filter(|h| h.icmp_type == Icmp4Type::ECHO_REQUEST)?;
            (Some(Layer4::Echo((echo.rest.get() >> 16) as u16)), None)
        }
        IpProtocol::ICMPV6 if !v4 => {
            let echo = Icmp6Header::read(l4).filter(|h| h.icmp_type == Icmp6Type::ECHO_REQUEST)?;
            (Some(Layer4::Echo((echo.rest.get() >> 16) as u16)), None)
        }
        _ => return None,
    };
    let frame = packet.original_len as usize + 4 + if ethernet { 0 } else { EthernetHeader::LEN };
    let size = frame.clamp(usize::from(size::MIN), usize::from(size::MAX)) as u16;
    Some((Stack { tags, v4, ttl, dscp: tos >> 2, l4 }, Each { src, dst, ports, size }))
}

impl Stack {
    fn keys(&self, number: usize, packets: &[Each]) -> Vec<(&'static str, Value)> {
        let mut keys = vec![("name", json!(format!("stack-{number}"))), ("share", json!(packets.len()))];
        let tag = |&(id, priority, service): &(u16, u8, bool)| json!({ "id": id, "priority": priority, "service": service });
        if !self.tags.is_empty() {
            keys.push(("vlan", self.tags.iter().map(tag).collect()));
        }
        keys.push((if self.v4 { "ipv4" } else { "ipv6" }, json!({ "ttl": self.ttl, "dscp": self.dscp })));
        match self.l4 {
            Some(Layer4::Udp) => keys.push(("udp", json!({}))),
            Some(Layer4::Tcp(flags)) => {
                let names = [
                    (TcpFlags::FIN, "fin"),
                    (TcpFlags::SYN, "syn"),
                    (TcpFlags::RST, "rst"),
                    (TcpFlags::PSH, "psh"),
                    (TcpFlags::ACK, "ack"),
                    (TcpFlags::URG, "urg"),
                ];
                let set: Vec<_> = names.iter().filter(|(f, _)| TcpFlags(flags).contains(*f)).map(|(_, name)| *name).collect();
                keys.push(("tcp", json!({ "flags": set })));
            }
            Some(Layer4::Echo(id)) => keys.push(("icmp", json!({ "id": id }))),
            None => {}
        }
        let smallest = self.smallest();
        let sizes: Vec<u16> = packets.iter().map(|p| p.size.max(smallest)).collect();
        keys.push(("size", if sizes.iter().all(|s| *s == sizes[0]) { json!(sizes[0]) } else { json!(sizes) }));
        let tuples = packets.iter().map(|p| match p.ports {
            Some((src, dst)) => json!({ "src": p.src, "dst": p.dst, "src_port": src, "dst_port": dst }),
            None => json!({ "src": p.src, "dst": p.dst }),
        });
        keys.push(("tuples", json!({ "values": tuples.collect::<Vec<_>>() })));
        keys
    }

    /// Smallest frame that holds the headers and a signature.
    fn smallest(&self) -> u16 {
        let l4 = if matches!(self.l4, Some(Layer4::Tcp(_))) { 20 } else { 8 };
        let headers = 14 + 4 * self.tags.len() + if self.v4 { 20 } else { 40 } + l4;
        Stream::smallest_for(headers)
    }
}

/// The profile that a capture's first `most` packets give; `file` is what messages call it.
///
/// # Errors
/// It is no capture, or has no packet that a stream could have.
pub fn profile(file: &str, bytes: &[u8], most: usize) -> Result<String, ImportError> {
    let capture = |error| ImportError::Capture { file: file.to_owned(), error };
    let mut stacks: Vec<(Stack, Vec<Each>)> = Vec::new();
    let (mut other, mut raised, mut beyond) = (0_u64, 0_u64, 0_u64);
    for packet in Reader::new(bytes).map_err(capture)?.take(most) {
        let Some((stack, each)) = stack(&packet.map_err(capture)?) else {
            other += 1;
            continue;
        };
        raised += u64::from(each.size < stack.smallest());
        match stacks.iter().position(|(s, _)| *s == stack) {
            Some(at) => stacks[at].1.push(each),
            None if stacks.len() == STREAMS => beyond += 1,
            None => stacks.push((stack, vec![each])),
        }
    }
    if stacks.is_empty() {
        let error = format!("no packet that a stream could have; {other} others");
        return Err(ImportError::Content { file: file.to_owned(), error });
    }
    let mut comments =
        vec!["Imported from a capture: headers and sizes of its packets by turns, payloads the tester's own.".to_owned()];
    for (n, what) in [
        (other, "packets are left out: other protocols, IP options, fragments, extension headers"),
        (beyond, "packets are left out: too many different header stacks"),
        (raised, "packets are made longer: a signature has no room in them"),
    ] {
        if n > 0 {
            comments.push(format!("{n} {what}."));
        }
    }
    let streams: Vec<_> = stacks.iter().enumerate().map(|(n, (stack, packets))| stack.keys(n, packets)).collect();
    Ok(text::profile(&comments, "capture", &streams))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::{Maker, Surroundings};
    use crate::profile::Profile;
    use quiver_wire::MacAddr;
    use quiver_wire::pcapfile::Writer;

    const AROUND: Surroundings = Surroundings {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: Some(MacAddr([2, 0, 0, 0, 0, 2])),
        ethernet: true,
        id: 0,
        tag: 1,
        seed: 1,
    };

    fn frames(profile: &str, n: usize) -> Vec<Vec<u8>> {
        let profile = Profile::of_yaml("p", profile).unwrap();
        let makers = profile.streams.iter().map(|s| Maker::new(s, None, &AROUND).unwrap());
        makers.flat_map(|mut maker| (0..n).map(move |_| maker.make_bytes(0)).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn what_a_profile_sends_is_imported_as_what_it_was() {
        let given = "
name: p
streams:
- { name: a, size: [100, 200, 300], ipv4: { src: { increment: { first: 10.0.0.1, count: 3 } }, ttl: 9, dscp: 10 }, udp: {} }
- { name: b, size: 120, vlan: [ { id: 7, priority: 2 } ], ipv6: {}, tcp: { flags: [ syn ] } }
- { name: c, size: 90, ipv4: {}, icmp: { id: 77 } }
";
        let sent = frames(given, 6);
        let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
        for (n, frame) in sent.iter().enumerate() {
            writer.write(n as u64, frame, frame.len()).unwrap();
        }
        // Nothing that a stream could have.
        writer.write(100, &[0xff; 60], 60).unwrap();
        let text = profile("c.pcap", &writer.finish().unwrap(), usize::MAX).unwrap();
        assert!(text.contains("# 1 packets are left out"), "{text}");
        let again = frames(&text, 6);
        assert_eq!(again.len(), sent.len(), "{text}");
        for (a, b) in again.iter().zip(&sent) {
            // Headers without layer-4 checksum; what follows has other signatures.
            let headers = |f: &[u8]| (f.len(), f[..38].to_vec());
            assert_eq!(headers(a), headers(b), "{text}");
        }
    }

    #[test]
    fn a_capture_without_packets_of_use_is_refused() {
        let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET).unwrap();
        writer.write(0, &[0; 60], 60).unwrap();
        let error = profile("c.pcap", &writer.finish().unwrap(), 10).unwrap_err().to_string();
        assert_eq!(error, "c.pcap: no packet that a stream could have; 1 others");
        assert!(profile("c.pcap", b"\xd4\xc3\xb2\xa1", 10).unwrap_err().to_string().starts_with("c.pcap: "));
    }
}
