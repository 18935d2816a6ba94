//! Cutting an IPv4 packet.

use super::FragmentError;
use crate::ipv4::{Ipv4Header, Ipv4Option, Ipv4Options, MORE_FRAGMENTS};
use crate::{Header, U16Be};
use core::ops::Range;
use zerocopy::IntoBytes;

/// Longest options of a header.
const MAX_OPTIONS: usize = 40;

/// The plan for one packet: an iterator over its fragments.
#[derive(Clone, Debug)]
pub struct Ipv4Fragments<'a> {
    header: Ipv4Header,
    options: &'a [u8],
    /// Options of the fragments after the first: those whose copied flag is set
    copied: [u8; MAX_OPTIONS],
    copied_len: usize,
    mtu: usize,
    /// Payload yet to be sent, in the packet
    rest: Range<usize>,
    /// Offset in the datagram of the payload yet to be sent
    offset: usize,
    done: bool,
}

/// One fragment: a header, with its checksum filled in, and a range of the packet's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv4Fragment {
    /// The fixed header
    pub header: Ipv4Header,
    options: [u8; MAX_OPTIONS],
    /// Where its payload lies in the packet
    pub payload: Range<usize>,
}

impl<'a> Ipv4Fragments<'a> {
    /// Plans the cutting of `packet`, which has passed [`Ipv4Header::parse`], into fragments of at most `mtu` bytes. A packet
    /// that is itself a fragment is cut further. One that fits comes out whole.
    pub fn new(packet: &'a [u8], mtu: usize) -> Result<Self, FragmentError> {
        let header = Ipv4Header::read(packet).ok_or(FragmentError::BadHeader)?;
        let (header_len, total) = (header.header_len(), usize::from(header.total_len.get()));
        if header_len < Ipv4Header::LEN || header_len > total || total > packet.len() {
            return Err(FragmentError::BadHeader);
        }
        let options = &packet[Ipv4Header::LEN..header_len];
        let fits = total <= mtu;
        if !fits && header.dont_fragment() {
            return Err(FragmentError::DontFragment);
        }
        if !fits && header_len + 8 > mtu {
            return Err(FragmentError::MtuTooSmall);
        }
        let (copied, copied_len) = if fits { ([0; 40], 0) } else { copied_options(options)? };
        Ok(Self {
            header,
            options,
            copied,
            copied_len,
            mtu,
            rest: header_len..total,
            offset: header.fragment_offset(),
            done: false,
        })
    }
}

/// The options that go into every fragment, padded to whole words.
fn copied_options(options: &[u8]) -> Result<([u8; MAX_OPTIONS], usize), FragmentError> {
    let mut copied = [Ipv4Option::END; MAX_OPTIONS];
    let mut len = 0;
    for option in Ipv4Options::new(options) {
        let option = option.map_err(|_| FragmentError::BadOption)?;
        if option.is_copied() {
            let bytes = &options[option.offset..option.offset + 2 + option.data.len()];
            copied[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        }
    }
    Ok((copied, len.next_multiple_of(4)))
}

impl Iterator for Ipv4Fragments<'_> {
    type Item = Ipv4Fragment;

    fn next(&mut self) -> Option<Ipv4Fragment> {
        if self.done {
            return None;
        }
        let is_first_piece = self.rest.start == self.header.header_len();
        let mut options = [0; MAX_OPTIONS];
        let options_len = if is_first_piece { self.options.len() } else { self.copied_len };
        let from = if is_first_piece { self.options } else { &self.copied[..options_len] };
        options[..options_len].copy_from_slice(from);
        let header_len = Ipv4Header::LEN + options_len;
        let is_last = header_len + self.rest.len() <= self.mtu;
        // `new` has seen to it that at least 8 bytes fit
        let size = if is_last { self.rest.len() } else { (self.mtu - header_len) & !7 };
        let payload = self.rest.start..self.rest.start + size;

        let mut header = self.header;
        header.set_header_len(header_len);
        header.total_len = U16Be::new((header_len + size) as u16);
        let flags = header.fragment.get() & !crate::ipv4::FRAGMENT_OFFSET_MASK;
        let more = if is_last { 0 } else { MORE_FRAGMENTS };
        header.fragment = U16Be::new(flags | more | (self.offset / 8) as u16 & 0x1fff);
        header.fill_checksum_with_options(&options[..options_len]);

        self.rest.start = payload.end;
        self.offset += size;
        self.done = is_last;
        Some(Ipv4Fragment { header, options, payload })
    }
}

impl Ipv4Fragment {
    /// Length of header and options.
    pub const fn header_len(&self) -> usize {
        self.header.header_len()
    }

    /// Writes header and options to the start of `out` and returns their length; `None` if they do not fit.
    pub fn write_header(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.header_len();
        let (fixed, options) = out.get_mut(..len)?.split_at_mut_checked(Ipv4Header::LEN)?;
        fixed.copy_from_slice(self.header.as_bytes());
        options.copy_from_slice(self.options.get(..options.len())?);
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::{DONT_FRAGMENT, IpProtocol};
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn packet(options: &[u8], payload: usize, fragment: u16) -> Vec<u8> {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut header = Ipv4Header::new(src, dst, IpProtocol::UDP);
        header.set_header_len(20 + options.len());
        header.total_len = U16Be::new((20 + options.len() + payload) as u16);
        header.fragment = U16Be::new(fragment);
        header.fill_checksum_with_options(options);
        let data = (0..payload).map(|i| ((i * 31) >> 3) as u8);
        header.as_bytes().iter().copied().chain(options.iter().copied()).chain(data).collect()
    }

    fn cut(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        Ipv4Fragments::new(packet, mtu)
            .unwrap()
            .map(|fragment| {
                let mut bytes = vec![0xa5; fragment.header_len()];
                fragment.write_header(&mut bytes).unwrap();
                bytes.extend(&packet[fragment.payload]);
                bytes
            })
            .collect()
    }

    #[test]
    fn a_packet_that_fits_comes_out_as_it_is() {
        let whole = packet(&[148, 4, 0, 0], 100, DONT_FRAGMENT);
        assert_eq!(cut(&whole, 124), [whole]);
    }

    #[test]
    fn dont_fragment_and_impossible_mtus_are_refused() {
        let error = |packet: &[u8], mtu| Ipv4Fragments::new(packet, mtu).unwrap_err();
        assert_eq!(error(&packet(&[], 100, DONT_FRAGMENT), 119), FragmentError::DontFragment);
        assert_eq!(error(&packet(&[], 100, 0), 27), FragmentError::MtuTooSmall);
        assert_eq!(error(&packet(&[7, 9, 0, 0], 100, 0), 60), FragmentError::BadOption);
        assert_eq!(error(&packet(&[], 100, 0)[..119], 60), FragmentError::BadHeader);
        assert!(Ipv4Fragments::new(&packet(&[], 100, 0), 28).is_ok());
    }

    #[test]
    fn only_options_with_the_copied_flag_go_into_later_fragments() {
        let packet = packet(&[7, 3, 4, 148, 4, 0, 0, 0], 64, 0);
        let fragments = cut(&packet, 60);
        assert_eq!(fragments[0][20..28], [7, 3, 4, 148, 4, 0, 0, 0]);
        assert_eq!(fragments[1][0], 0x46);
        assert_eq!(fragments[1][20..24], [148, 4, 0, 0]);
    }

    proptest! {
        #[test]
        fn fragments_are_valid_and_join_to_the_packet(
            payload in 0usize..3000, mtu in 36usize..1600, start in 0u16..100, more: bool, copied: bool,
        ) {
            let options = if copied { &[148u8, 4, 0, 0, 7, 3, 4, 0][..] } else { &[] };
            // what another router had cut already is cut in multiples of 8
            let payload = if more { payload & !7 } else { payload };
            let packet = packet(options, payload, start | u16::from(more) << 13);
            let fragments = cut(&packet, mtu);
            let mut joined: Vec<u8> = Vec::new();
            for (i, bytes) in fragments.iter().enumerate() {
                let header = Ipv4Header::parse(bytes).unwrap();
                prop_assert!(bytes.len() <= mtu);
                prop_assert_eq!(header.fragment_offset(), usize::from(start) * 8 + joined.len());
                let is_last = i + 1 == fragments.len();
                prop_assert_eq!(header.more_fragments(), !is_last || more);
                prop_assert!(is_last || header.payload_len().is_multiple_of(8));
                joined.extend(&bytes[header.header_len()..]);
            }
            prop_assert_eq!(&joined[..], &packet[20 + options.len()..]);
        }

        #[test]
        fn random_bytes_never_panic(mut bytes: Vec<u8>, mtu in 0usize..100) {
            if bytes.len() > 4 {
                bytes[2] = 0;
            }
            let count = Ipv4Fragments::new(&bytes, mtu).map_or(0, Iterator::count);
            prop_assert!(count <= bytes.len() / 8 + 1);
        }
    }
}
