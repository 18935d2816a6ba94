//! IPv4 header options.

/// One option. The two that are a single byte long do not appear: the iterator passes over no-operation and ends at the
/// end of the list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number in one byte
    pub kind: u8,
    /// What follows kind and length
    pub data: &'a [u8],
    /// Where the kind byte lies in the options
    pub offset: usize,
}

impl Ipv4Option<'_> {
    /// End of option list
    pub const END: u8 = 0;
    /// No operation
    pub const NOP: u8 = 1;
    /// Record route (RFC 791)
    pub const RECORD_ROUTE: u8 = 7;
    /// Internet timestamp (RFC 791)
    pub const TIMESTAMP: u8 = 68;
    /// Loose source and record route (RFC 791)
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source and record route (RFC 791)
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router alert (RFC 2113)
    pub const ROUTER_ALERT: u8 = 148;

    /// The option goes into every fragment (RFC 791, 3.1).
    pub const fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// An option whose length byte is missing, under 2 or reaches past the options; holds the offset of its kind byte in the
/// options (20 more for the pointer of ICMP parameter problem).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ipv4OptionError(pub usize);

/// The options in the bytes after the fixed header; ends after the first malformed one.
#[derive(Copy, Clone, Debug)]
pub struct Ipv4Options<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Ipv4Options<'a> {
    /// Over `bytes`, those between the fixed header and the payload.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Over the options of a whole packet; none if its header length is impossible.
    pub fn of_packet(packet: &'a [u8]) -> Self {
        let header_len = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
        Self::new(packet.get(20..header_len).unwrap_or_default())
    }
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Result<Ipv4Option<'a>, Ipv4OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = loop {
            match *self.bytes.get(self.at)? {
                Ipv4Option::END => return None,
                Ipv4Option::NOP => self.at += 1,
                _ => break self.at,
            }
        };
        let rest = &self.bytes[offset..];
        let option = match *rest {
            [kind, len, ..] if len >= 2 => rest.get(2..usize::from(len)).map(|data| Ipv4Option { kind, data, offset }),
            _ => None,
        };
        // A malformed option hides where the next one begins
        self.at = option.map_or(self.bytes.len(), |option| offset + 2 + option.data.len());
        Some(option.ok_or(Ipv4OptionError(offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_operation_is_passed_over_and_end_ends() {
        let bytes = [1, 1, 7, 3, 4, 1, 148, 4, 0, 0, 0, 7, 3, 4];
        let options: Vec<_> = Ipv4Options::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                Ipv4Option { kind: Ipv4Option::RECORD_ROUTE, data: &[4], offset: 2 },
                Ipv4Option { kind: Ipv4Option::ROUTER_ALERT, data: &[0, 0], offset: 6 },
            ]
        );
        assert!(!options[0].is_copied() && options[1].is_copied());
    }

    #[test]
    fn a_malformed_option_is_reported_once_with_its_place() {
        for bytes in [&[1, 7][..], &[1, 7, 0, 0], &[1, 7, 1, 0], &[1, 7, 4, 0]] {
            let options: Vec<_> = Ipv4Options::new(bytes).collect();
            assert_eq!(options, [Err(Ipv4OptionError(1))], "{bytes:?}");
        }
    }

    #[test]
    fn an_impossible_header_length_has_no_options() {
        assert_eq!(Ipv4Options::of_packet(&[]).count(), 0);
        assert_eq!(Ipv4Options::of_packet(&[0x4f; 30]).count(), 0);
        assert_eq!(Ipv4Options::of_packet(&[0x42; 30]).count(), 0);
    }

    proptest! {
        #[test]
        fn random_bytes_end_within_one_step_per_byte(bytes: Vec<u8>) {
            prop_assert!(Ipv4Options::new(&bytes).count() <= bytes.len());
        }
    }
}
