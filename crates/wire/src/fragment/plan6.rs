//! Cutting an IPv6 packet at its source (RFC 8200, 4.5).
//!
//! ```text
//!  | fixed header, per-fragment extension headers | fragment header | part of the rest |
//! ```

use super::FragmentError;
use crate::ipv4::IpProtocol;
use crate::ipv6::{Extensions, FragmentHeader, Ipv6Header};
use crate::{Header, U16Be};
use core::ops::Range;

/// The plan for one packet: an iterator over its fragments. A packet that fits comes out as one atomic fragment; whether it
/// needs cutting at all is for the caller to ask.
#[derive(Clone, Debug)]
pub struct Ipv6Fragments<'a> {
    /// Fixed header and the extension headers that every fragment repeats
    per_fragment: &'a [u8],
    /// Where the next-header byte that will name the fragment header lies
    pointer: usize,
    next_header: IpProtocol,
    identification: u32,
    /// Largest payload of a fragment but the last, a multiple of 8
    size: usize,
    /// Payload yet to be sent, in the packet
    rest: Range<usize>,
    offset: usize,
    done: bool,
}

/// One fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6Fragment<'a> {
    per_fragment: &'a [u8],
    pointer: usize,
    /// The fragment header
    pub header: FragmentHeader,
    /// Where its payload lies in the packet
    pub payload: Range<usize>,
}

impl<'a> Ipv6Fragments<'a> {
    /// Plans the cutting of `packet`, which has passed [`Ipv6Header::parse`] and is no fragment, for `mtu`.
    pub fn new(packet: &'a [u8], mtu: usize, identification: u32) -> Result<Self, FragmentError> {
        let header = Ipv6Header::parse(packet).map_err(|_| FragmentError::BadHeader)?;
        let packet = &packet[..Ipv6Header::LEN + usize::from(header.payload_len.get())];
        // Per-fragment headers end with the last hop-by-hop or routing header
        let (mut at, mut pointer, mut next_header) = (Ipv6Header::LEN, 6, header.next_header);
        for extension in Extensions::new(&header, packet) {
            let extension = extension.map_err(|_| FragmentError::BadOption)?;
            match extension.kind {
                IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING => {
                    at = extension.offset + extension.bytes.len();
                    pointer = extension.offset;
                    next_header = extension.next_header;
                }
                IpProtocol::FRAGMENT => return Err(FragmentError::BadHeader),
                _ => {}
            }
        }
        let size = mtu.saturating_sub(at + FragmentHeader::LEN) & !7;
        if size == 0 {
            return Err(FragmentError::MtuTooSmall);
        }
        Ok(Self {
            per_fragment: &packet[..at],
            pointer,
            next_header,
            identification,
            size,
            rest: at..packet.len(),
            offset: 0,
            done: false,
        })
    }
}

impl<'a> Iterator for Ipv6Fragments<'a> {
    type Item = Ipv6Fragment<'a>;

    fn next(&mut self) -> Option<Ipv6Fragment<'a>> {
        if self.done {
            return None;
        }
        let size = self.rest.len().min(self.size);
        let payload = self.rest.start..self.rest.start + size;
        self.done = payload.end == self.rest.end;
        let header = FragmentHeader::new(self.next_header, self.offset as u16, !self.done, self.identification);
        self.rest.start = payload.end;
        self.offset += size;
        let (per_fragment, pointer) = (self.per_fragment, self.pointer);
        Some(Ipv6Fragment { per_fragment, pointer, header, payload })
    }
}

impl Ipv6Fragment<'_> {
    /// Length of all headers, the fragment header included.
    pub const fn header_len(&self) -> usize {
        self.per_fragment.len() + FragmentHeader::LEN
    }

    /// Writes the headers to the start of `out` and returns their length; `None` if they do not fit.
    pub fn write_header(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.header_len();
        let out = out.get_mut(..len)?;
        let at = self.per_fragment.len();
        out[..at].copy_from_slice(self.per_fragment);
        *out.get_mut(self.pointer)? = IpProtocol::FRAGMENT.0;
        let payload_len = len - Ipv6Header::LEN + self.payload.len();
        U16Be::new(payload_len as u16).write_at(out, 4)?;
        self.header.write_at(out, at)?;
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6::upper_layer;
    use core::net::Ipv6Addr;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn packet(next: IpProtocol, rest: &[u8]) -> Vec<u8> {
        let mut header = Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, next);
        header.payload_len = U16Be::new(rest.len() as u16);
        [header.as_bytes(), rest].concat()
    }

    proptest! {
        #[test]
        fn fragments_are_valid_and_join_to_the_packet(
            data in prop::collection::vec(any::<u8>(), 0..3000), mtu in 64usize..1600, hop_by_hop: bool,
        ) {
            let (packet, at) = if hop_by_hop {
                let rest = [&[17, 0, 5, 2, 0, 0, 1, 0], &data[..]].concat();
                (packet(IpProtocol::HOP_BY_HOP, &rest), 48)
            } else {
                (packet(IpProtocol::UDP, &data), 40)
            };
            let mut joined: Vec<u8> = Vec::new();
            for fragment in Ipv6Fragments::new(&packet, mtu, 9).unwrap() {
                let mut bytes = vec![0xa5; fragment.header_len()];
                fragment.write_header(&mut bytes).unwrap();
                bytes.extend(&packet[fragment.payload]);
                prop_assert!(bytes.len() <= mtu);
                let header = Ipv6Header::parse(&bytes).unwrap();
                let upper = upper_layer(&header, &bytes).unwrap();
                prop_assert_eq!(upper.protocol, IpProtocol::UDP);
                prop_assert_eq!(upper.hop_by_hop, hop_by_hop);
                let info = upper.fragment.unwrap();
                prop_assert_eq!((usize::from(info.offset), info.identification), (joined.len(), 9));
                joined.extend(&bytes[usize::from(upper.offset)..]);
                prop_assert_eq!(info.more, joined.len() != data.len());
            }
            prop_assert_eq!(&joined[..], &packet[at..]);
        }

        #[test]
        fn random_bytes_never_panic(next: u8, bytes: Vec<u8>, mtu in 0usize..200) {
            let packet = packet(IpProtocol(next), &bytes);
            let count = Ipv6Fragments::new(&packet, mtu, 0).map_or(0, Iterator::count);
            prop_assert!(count <= bytes.len() / 8 + 1);
        }
    }

    #[test]
    fn fragments_and_impossible_mtus_are_refused() {
        let error = |packet: &[u8], mtu| Ipv6Fragments::new(packet, mtu, 0).unwrap_err();
        let fragment = packet(IpProtocol::FRAGMENT, &[17, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(error(&fragment, 1280), FragmentError::BadHeader);
        assert_eq!(error(&packet(IpProtocol::UDP, &[0; 8]), 55), FragmentError::MtuTooSmall);
        assert_eq!(error(&packet(IpProtocol::UDP, &[0; 8])[..47], 1280), FragmentError::BadHeader);
        let cut_off = packet(IpProtocol::ROUTING, &[17, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(error(&cut_off, 1280), FragmentError::BadOption);
    }
}
