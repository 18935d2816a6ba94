//! Extension headers: a bounded walk from the fixed header to the upper layer (RFC 8200, 4).
//!
//! All offsets count from the start of the fixed header, as the pointer of ICMPv6 parameter problem does.

use super::Ipv6Header;
use crate::header::wire_header;
use crate::ipv4::IpProtocol;
use crate::{Header, U16Be, U32Be};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How many extension headers a packet may have: RFC 8200 recommends each at most once and destination options twice,
/// which with AH makes 6. A longer chain is only work for the router and is refused.
pub const MAX_EXTENSIONS: usize = 8;

/// The fragment extension header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FragmentHeader {
    /// Type of what follows in the first fragment
    pub next_header: IpProtocol,
    /// Reserved
    pub reserved: u8,
    /// Offset in units of 8 bytes (upper 13 bits), reserved (2), more fragments (1)
    pub offset_flags: U16Be,
    /// Identifies the fragments of one datagram
    pub identification: U32Be,
}

/// The fixed part of a routing header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoutingHeader {
    /// Type of what follows
    pub next_header: IpProtocol,
    /// Length in units of 8 bytes, without the first 8
    pub len: u8,
    /// Routing type: 0 is deprecated (RFC 5095), 4 is segment routing (RFC 8754)
    pub routing_type: u8,
    /// How many nodes are yet to be visited
    pub segments_left: u8,
}
wire_header!(FragmentHeader = 8, RoutingHeader = 4);

impl FragmentHeader {
    /// A header for the part of a datagram at `offset` bytes (a multiple of 8).
    pub const fn new(next_header: IpProtocol, offset: u16, more: bool, identification: u32) -> Self {
        Self {
            next_header,
            reserved: 0,
            offset_flags: U16Be::new(offset & !7 | more as u16),
            identification: U32Be::new(identification),
        }
    }

    /// The parts that reassembly needs.
    #[inline(always)]
    pub const fn info(&self) -> FragmentInfo {
        FragmentInfo {
            identification: self.identification.get(),
            offset: self.offset_flags.get() & !7,
            more: self.offset_flags.get() & 1 != 0,
        }
    }
}

/// Which part of which datagram a fragment is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct FragmentInfo {
    /// Same in all fragments of a datagram
    pub identification: u32,
    /// Place in the datagram's fragmentable part, in bytes
    pub offset: u16,
    /// More fragments follow
    pub more: bool,
}

impl FragmentInfo {
    /// The whole datagram in one fragment (RFC 6946); to be handled apart from others of its identification.
    #[inline(always)]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// One extension header of a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// What it is
    pub kind: IpProtocol,
    /// Its bytes, the next-header byte first
    pub bytes: &'a [u8],
    /// Where it begins
    pub offset: usize,
    /// Type of what follows it
    pub next_header: IpProtocol,
}

/// Why the chain of extension headers cannot be followed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExtensionError {
    /// A header reaches past the end of the packet; where it begins
    Truncated(u16),
    /// Hop-by-hop options stand elsewhere than first; where the next-header byte that says so lies
    HopByHopNotFirst(u16),
    /// More than [`MAX_EXTENSIONS`]; where the first too many begins
    TooMany(u16),
}

/// The extension headers of a packet in their order. Ends at the upper layer, at ESP, after the fragment header of a later
/// fragment, and after the first error.
#[derive(Copy, Clone, Debug)]
pub struct Extensions<'a> {
    packet: &'a [u8],
    next: IpProtocol,
    /// Where the header of type `next` begins
    offset: usize,
    /// Where the byte that holds `next` lies
    pointer: usize,
    left: usize,
    done: bool,
}

impl<'a> Extensions<'a> {
    /// Over the packet that begins with `header`; what lies past its payload length is not looked at.
    #[inline(always)]
    pub fn new(header: &Ipv6Header, packet: &'a [u8]) -> Self {
        let end = Ipv6Header::LEN + usize::from(header.payload_len.get());
        let packet = &packet[..end.min(packet.len())];
        Self { packet, next: header.next_header, offset: Ipv6Header::LEN, pointer: 6, left: MAX_EXTENSIONS, done: false }
    }

    /// Length in bytes of the extension header at the current place, or `None` for the upper layer.
    #[inline(always)]
    fn current_len(&self) -> Option<usize> {
        let len_byte = || usize::from(self.packet.get(self.offset + 1).copied().unwrap_or(0));
        match self.next {
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION_OPTIONS => Some(8 + 8 * len_byte()),
            IpProtocol::FRAGMENT => Some(FragmentHeader::LEN),
            IpProtocol::AH => Some(8 + 4 * len_byte()),
            _ => None,
        }
    }

    fn step(&mut self, len: usize) -> Result<Extension<'a>, ExtensionError> {
        if self.next == IpProtocol::HOP_BY_HOP && self.pointer != 6 {
            return Err(ExtensionError::HopByHopNotFirst(self.pointer as u16));
        }
        if self.left == 0 {
            return Err(ExtensionError::TooMany(self.offset as u16));
        }
        let bytes = self.packet.get(self.offset..self.offset + len);
        let Some(bytes @ [next_header, ..]) = bytes else {
            return Err(ExtensionError::Truncated(self.offset as u16));
        };
        let extension = Extension { kind: self.next, bytes, offset: self.offset, next_header: IpProtocol(*next_header) };
        self.left -= 1;
        self.pointer = self.offset;
        self.offset += len;
        self.next = extension.next_header;
        Ok(extension)
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, ExtensionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let len = self.current_len()?;
        let result = self.step(len);
        self.done = match &result {
            Ok(extension) => extension.fragment().is_some_and(|fragment| fragment.offset != 0),
            Err(_) => true,
        };
        Some(result)
    }
}

impl Extension<'_> {
    /// The fragment's place, if this is a fragment header.
    pub fn fragment(&self) -> Option<FragmentInfo> {
        if self.kind != IpProtocol::FRAGMENT {
            return None;
        }
        FragmentHeader::read(self.bytes).map(|header| header.info())
    }

    /// The routing header, if this is one.
    pub fn routing(&self) -> Option<RoutingHeader> {
        if self.kind != IpProtocol::ROUTING {
            return None;
        }
        RoutingHeader::read(self.bytes)
    }
}

/// Where the upper layer of a packet is, and what was met on the way.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// What it is: TCP, UDP, ICMPv6, ESP, [`IpProtocol::NO_NEXT_HEADER`], anything not an extension header. In a later
    /// fragment, what the fragment header names.
    pub protocol: IpProtocol,
    /// Where it begins, at most the packet's length
    pub offset: u16,
    /// Where the next-header byte that names it lies
    pub pointer: u16,
    /// The fragment header's content
    pub fragment: Option<FragmentInfo>,
    /// Where the fragment header begins, 0 for none
    pub fragment_offset: u16,
    /// Where the last routing header with segments left begins, 0 for none
    pub routing_offset: u16,
    /// The packet has hop-by-hop options; they follow the fixed header
    pub hop_by_hop: bool,
}

/// Walks the extension headers of a packet that passed [`Ipv6Header::parse`].
#[inline]
pub fn upper_layer(header: &Ipv6Header, packet: &[u8]) -> Result<UpperLayer, ExtensionError> {
    let mut walk = Extensions::new(header, packet);
    let mut upper = UpperLayer {
        protocol: header.next_header,
        offset: Ipv6Header::LEN as u16,
        pointer: 6,
        fragment: None,
        fragment_offset: 0,
        routing_offset: 0,
        hop_by_hop: false,
    };
    for extension in walk.by_ref() {
        let extension = extension?;
        if let Some(fragment) = extension.fragment() {
            upper.fragment = Some(fragment);
            upper.fragment_offset = extension.offset as u16;
        }
        if extension.routing().is_some_and(|routing| routing.segments_left != 0) {
            upper.routing_offset = extension.offset as u16;
        }
        upper.hop_by_hop |= extension.kind == IpProtocol::HOP_BY_HOP;
    }
    upper.protocol = walk.next;
    upper.offset = walk.offset as u16;
    upper.pointer = walk.pointer as u16;
    Ok(upper)
}
