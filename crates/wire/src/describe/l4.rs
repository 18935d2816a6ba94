//! Transport headers and ICMP messages as text.

use crate::Header;
use crate::icmp4::{Icmp4Header, Icmp4Type};
use crate::icmp6::{Icmp6Header, Icmp6Type};
use crate::ipv4::IpProtocol;
use crate::ndp::{NdpOption, NdpOptions, NeighborMessage};
use crate::tcp::{TcpHeader, TcpOption, TcpOptions};
use crate::udp::UdpHeader;
use core::fmt::{Formatter, Result};

/// Lines about the L4 header that `bytes` begin with; nothing for a protocol without a description here.
pub(super) fn describe(f: &mut Formatter<'_>, protocol: IpProtocol, bytes: &[u8]) -> Result {
    let described = match protocol {
        IpProtocol::TCP => TcpHeader::read(bytes).map(|header| tcp(f, &header, bytes)),
        IpProtocol::UDP => UdpHeader::read(bytes).map(|header| udp(f, &header)),
        IpProtocol::ICMP => Icmp4Header::read(bytes).map(|header| icmp4(f, &header)),
        IpProtocol::ICMPV6 => Icmp6Header::read(bytes).map(|header| icmp6(f, &header, bytes)),
        _ => return Ok(()),
    };
    described.unwrap_or_else(|| write!(f, "\n{protocol} header truncated: {} bytes", bytes.len()))
}

/// The name of an ICMP message type in either family.
pub(super) fn icmp_name(protocol: IpProtocol, icmp_type: u8) -> Option<&'static str> {
    match protocol {
        IpProtocol::ICMP => Icmp4Type(icmp_type).name(),
        IpProtocol::ICMPV6 => Icmp6Type(icmp_type).name(),
        _ => None,
    }
}

fn udp(f: &mut Formatter<'_>, header: &UdpHeader) -> Result {
    write!(f, "\nUDP: {} -> {}", header.src_port, header.dst_port)?;
    write!(f, "\n  length {}, checksum 0x{:04x}", header.length, header.checksum)
}

fn tcp(f: &mut Formatter<'_>, header: &TcpHeader, bytes: &[u8]) -> Result {
    write!(f, "\nTCP: {} -> {}", header.src_port, header.dst_port)?;
    let (sequence, acknowledgment) = (header.sequence, header.acknowledgment);
    write!(f, "\n  seq. tx 0x{sequence:08x} rx 0x{acknowledgment:08x}")?;
    let (flags, len) = (header.flags, header.header_len());
    write!(f, "\n  flags 0x{:02x} {flags}, tcp header: {len} bytes", flags.0)?;
    write!(f, "\n  window {}, checksum 0x{:04x}", header.window, header.checksum)?;
    for option in TcpOptions::of_segment(bytes) {
        match option {
            Ok((_, TcpOption::Mss(mss))) => write!(f, ", mss {mss}")?,
            Ok((_, TcpOption::WindowScale(scale))) => write!(f, ", window scale {scale}")?,
            Ok((_, TcpOption::SackPermitted)) => f.write_str(", sack permitted")?,
            Ok(_) => {}
            Err(_) => f.write_str(", options malformed")?,
        }
    }
    Ok(())
}

fn icmp4(f: &mut Formatter<'_>, header: &Icmp4Header) -> Result {
    match header.icmp_type.name() {
        Some(name) => write!(f, "\nICMP {name}")?,
        None => write!(f, "\nICMP type {}", header.icmp_type.0)?,
    }
    if header.code != 0 || header.icmp_type.is_error() {
        write!(f, " code {}", header.code)?;
    }
    write!(f, " checksum 0x{:04x}", header.checksum)?;
    match (header.icmp_type, header.code) {
        (Icmp4Type::ECHO_REQUEST | Icmp4Type::ECHO_REPLY, _) => {
            write!(f, " id {} seq {}", header.identifier(), header.sequence())
        }
        (Icmp4Type::DESTINATION_UNREACHABLE, 4) => write!(f, " mtu {}", header.next_hop_mtu()),
        _ => Ok(()),
    }
}

fn icmp6(f: &mut Formatter<'_>, header: &Icmp6Header, bytes: &[u8]) -> Result {
    match header.icmp_type.name() {
        Some(name) => write!(f, "\nICMP {name}")?,
        None => write!(f, "\nICMP type {}", header.icmp_type.0)?,
    }
    if header.code != 0 || header.icmp_type.is_error() {
        write!(f, " code {}", header.code)?;
    }
    write!(f, " checksum 0x{:04x}", header.checksum)?;
    match header.icmp_type {
        Icmp6Type::ECHO_REQUEST | Icmp6Type::ECHO_REPLY => {
            write!(f, " id {} seq {}", header.identifier(), header.sequence())?;
        }
        Icmp6Type::PACKET_TOO_BIG => write!(f, " mtu {}", header.mtu())?,
        Icmp6Type::NEIGHBOR_SOLICITATION | Icmp6Type::NEIGHBOR_ADVERTISEMENT => match NeighborMessage::read(bytes) {
            Some(message) => write!(f, "\n  target address {}", message.target_addr())?,
            None => f.write_str("\n  truncated")?,
        },
        _ => {}
    }
    for option in NdpOptions::of_message(bytes).into_iter().flatten() {
        match option {
            Some(NdpOption::SourceLinkAddress(mac)) => {
                write!(f, "\n  source_link_layer_address {mac}")?;
            }
            Some(NdpOption::TargetLinkAddress(mac)) => {
                write!(f, "\n  target_link_layer_address {mac}")?;
            }
            Some(NdpOption::Prefix(info)) => match info.prefix() {
                Some(prefix) => write!(f, "\n  prefix_information {prefix}")?,
                None => write!(f, "\n  prefix_information length {}", info.prefix_len)?,
            },
            Some(NdpOption::Mtu(mtu)) => write!(f, "\n  mtu {mtu}")?,
            Some(NdpOption::RedirectedHeader(quoted)) => {
                write!(f, "\n  redirected_header {} bytes", quoted.len())?;
            }
            Some(NdpOption::Other { kind, .. }) => write!(f, "\n  option {kind}")?,
            None => f.write_str("\n  option malformed")?,
        }
    }
    Ok(())
}
