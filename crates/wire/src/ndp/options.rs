//! Options of neighbour-discovery messages (RFC 4861, 4.6).

use super::*;

/// One option.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// The sender's Ethernet address
    SourceLinkAddress(MacAddr),
    /// The target's Ethernet address
    TargetLinkAddress(MacAddr),
    /// A prefix of the link
    Prefix(PrefixInfo),
    /// The packet that a redirect is about
    RedirectedHeader(&'a [u8]),
    /// The link's MTU
    Mtu(u32),
    /// Any other, or one of those with an unusual length
    Other {
        /// Option type
        kind: u8,
        /// What follows type and length
        data: &'a [u8],
    },
}

/// The prefix information option.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PrefixInfo {
    /// 3
    pub kind: u8,
    /// 4 units of 8 bytes
    pub len: u8,
    /// How many bits of the prefix count
    pub prefix_len: u8,
    /// On-link (top bit), autonomous address configuration
    pub flags: u8,
    /// Seconds for which the prefix is on-link
    pub valid_lifetime: U32Be,
    /// Seconds for which addresses from it are preferred
    pub preferred_lifetime: U32Be,
    /// Reserved
    pub reserved: U32Be,
    /// The prefix
    pub prefix: U128Be,
}

/// An option that holds an Ethernet address.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone)]
struct LinkAddress {
    kind: u8,
    len: u8,
    mac: MacAddr,
}

/// The MTU option.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone)]
struct Mtu {
    kind: u8,
    len: u8,
    reserved: U16Be,
    mtu: U32Be,
}
wire_header!(PrefixInfo = 32, LinkAddress = 8, Mtu = 8);

impl PrefixInfo {
    /// On-link flag in [`flags`](Self::flags).
    pub const ON_LINK: u8 = 0x80;
    /// Autonomous flag in [`flags`](Self::flags).
    pub const AUTONOMOUS: u8 = 0x40;

    /// On-link and autonomous, with lifetimes in seconds.
    pub const fn new(prefix: Ipv6Prefix, valid: u32, preferred: u32) -> Self {
        Self {
            kind: 3,
            len: 4,
            prefix_len: prefix.len(),
            flags: Self::ON_LINK | Self::AUTONOMOUS,
            valid_lifetime: U32Be::new(valid),
            preferred_lifetime: U32Be::new(preferred),
            reserved: U32Be::ZERO,
            prefix: U128Be::new(prefix.network().to_bits()),
        }
    }

    /// The prefix, unless its length is impossible.
    pub fn prefix(&self) -> Option<Ipv6Prefix> {
        Ipv6Prefix::new(Ipv6Addr::from_bits(self.prefix.get()), self.prefix_len).ok()
    }
}

impl NdpOption<'_> {
    /// Length on the wire, padded to whole units of 8 bytes.
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::SourceLinkAddress(_) | Self::TargetLinkAddress(_) | Self::Mtu(_) => 8,
            Self::Prefix(_) => 32,
            Self::RedirectedHeader(quoted) => (8 + quoted.len()).next_multiple_of(8),
            Self::Other { data, .. } => (2 + data.len()).next_multiple_of(8),
        }
    }

    /// Writes the option to the start of `bytes` and returns its length; `None` if they are too few or the option is too
    /// long to have a length byte.
    pub fn write(&self, bytes: &mut [u8]) -> Option<usize> {
        let wire_len = self.wire_len();
        let len = u8::try_from(wire_len / 8).ok()?;
        let bytes = bytes.get_mut(..wire_len)?;
        bytes.fill(0);
        match *self {
            Self::SourceLinkAddress(mac) => LinkAddress { kind: 1, len, mac }.write(bytes)?,
            Self::TargetLinkAddress(mac) => LinkAddress { kind: 2, len, mac }.write(bytes)?,
            Self::Prefix(info) => PrefixInfo { kind: 3, len, ..info }.write(bytes)?,
            Self::RedirectedHeader(quoted) => {
                bytes[..2].copy_from_slice(&[4, len]);
                bytes[8..8 + quoted.len()].copy_from_slice(quoted);
            }
            Self::Mtu(mtu) => {
                Mtu { kind: 5, len, reserved: U16Be::ZERO, mtu: U32Be::new(mtu) }.write(bytes)?;
            }
            Self::Other { kind, data } => {
                bytes[..2].copy_from_slice(&[kind, len]);
                bytes[2..2 + data.len()].copy_from_slice(data);
            }
        }
        Some(wire_len)
    }
}

/// The options of a message; a malformed one is `None` and the last.
#[derive(Clone, Debug)]
pub struct NdpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> NdpOptions<'a> {
    /// Over the bytes after the message's fixed part.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Over the options of a whole message, or `None` if it is shorter than its fixed part or no neighbour discovery.
    pub fn of_message(message: &'a [u8]) -> Option<Self> {
        let fixed = match Icmp6Type(*message.first()?) {
            Icmp6Type::ROUTER_SOLICITATION => Icmp6Header::LEN,
            Icmp6Type::ROUTER_ADVERTISEMENT => RouterAdvertisement::LEN,
            Icmp6Type::NEIGHBOR_SOLICITATION | Icmp6Type::NEIGHBOR_ADVERTISEMENT => NeighborMessage::LEN,
            Icmp6Type::REDIRECT => Redirect::LEN,
            _ => return None,
        };
        message.get(fixed..).map(Self::new)
    }

    /// The first source link-layer address.
    pub fn source_link_address(self) -> Option<MacAddr> {
        self.flatten().find_map(|option| match option {
            NdpOption::SourceLinkAddress(mac) => Some(mac),
            _ => None,
        })
    }

    /// The first target link-layer address.
    pub fn target_link_address(self) -> Option<MacAddr> {
        self.flatten().find_map(|option| match option {
            NdpOption::TargetLinkAddress(mac) => Some(mac),
            _ => None,
        })
    }
}

impl<'a> Iterator for NdpOptions<'a> {
    type Item = Option<NdpOption<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, after) = self.rest.split_first()?;
        let len = after.first().map_or(0, |&units| usize::from(units) * 8);
        if len == 0 || len > self.rest.len() {
            self.rest = &[];
            return Some(None);
        }
        let (option, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(Some(match (kind, len) {
            (1, 8) => NdpOption::SourceLinkAddress(LinkAddress::read(option)?.mac),
            (2, 8) => NdpOption::TargetLinkAddress(LinkAddress::read(option)?.mac),
            (3, 32) => NdpOption::Prefix(PrefixInfo::read(option)?),
            (4, _) => NdpOption::RedirectedHeader(&option[8..]),
            (5, 8) => NdpOption::Mtu(Mtu::read(option)?.mtu.get()),
            _ => NdpOption::Other { kind, data: &option[2..] },
        }))
    }
}
