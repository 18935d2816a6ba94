//! The options of hop-by-hop and destination-options headers.

/// One option; padding does not appear.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Action bits, change bit and number in one byte
    pub kind: u8,
    /// What follows kind and length
    pub data: &'a [u8],
    /// Where the kind byte lies in the extension header
    pub offset: usize,
}

/// What to do with a packet whose option is not known (RFC 8200, 4.2).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum UnknownOptionAction {
    /// Go on with the next option
    Skip,
    /// Drop the packet
    Discard,
    /// Drop it and send parameter problem, code 2
    DiscardAndReport,
    /// The same, unless the destination is multicast
    DiscardAndReportUnlessMulticast,
}

impl Ipv6Option<'_> {
    /// One byte of padding
    pub const PAD1: u8 = 0;
    /// Two or more bytes of padding
    pub const PADN: u8 = 1;
    /// Router alert (RFC 2711)
    pub const ROUTER_ALERT: u8 = 5;
    /// Jumbo payload (RFC 2675)
    pub const JUMBO_PAYLOAD: u8 = 0xc2;

    /// What to do if the kind is not known.
    pub const fn action(&self) -> UnknownOptionAction {
        match self.kind >> 6 {
            0 => UnknownOptionAction::Skip,
            1 => UnknownOptionAction::Discard,
            2 => UnknownOptionAction::DiscardAndReport,
            _ => UnknownOptionAction::DiscardAndReportUnlessMulticast,
        }
    }
}

/// An option that reaches past its header; holds the offset of its kind byte in the extension header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ipv6OptionError(pub usize);

/// The options of one extension header; ends after the first malformed one.
#[derive(Copy, Clone, Debug)]
pub struct Ipv6Options<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Ipv6Options<'a> {
    /// Over the bytes of the whole extension header, next-header and length byte included.
    pub const fn new(header: &'a [u8]) -> Self {
        Self { header, at: 2 }
    }
}

impl<'a> Iterator for Ipv6Options<'a> {
    type Item = Result<Ipv6Option<'a>, Ipv6OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let offset = self.at;
            let rest = self.header.get(offset..)?;
            let (&kind, after) = rest.split_first()?;
            if kind == Ipv6Option::PAD1 {
                self.at += 1;
                continue;
            }
            let data = after.split_first().and_then(|(&len, data)| data.get(..usize::from(len)));
            let Some(data) = data else {
                self.at = self.header.len();
                return Some(Err(Ipv6OptionError(offset)));
            };
            self.at = offset + 2 + data.len();
            if kind != Ipv6Option::PADN {
                return Some(Ok(Ipv6Option { kind, data, offset }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_is_passed_over() {
        let header = [58, 1, 0, 1, 2, 9, 9, 5, 2, 0, 0, 0, 0xc2, 0, 1, 0];
        let options: Vec<_> = Ipv6Options::new(&header).map(Result::unwrap).collect();
        assert_eq!(
            options,
            [
                Ipv6Option { kind: Ipv6Option::ROUTER_ALERT, data: &[0, 0], offset: 7 },
                Ipv6Option { kind: Ipv6Option::JUMBO_PAYLOAD, data: &[], offset: 12 },
            ]
        );
        assert_eq!(options[0].action(), UnknownOptionAction::Skip);
        assert_eq!(options[1].action(), UnknownOptionAction::DiscardAndReportUnlessMulticast);
    }

    #[test]
    fn an_option_past_the_end_is_reported_once_with_its_place() {
        for header in [&[58, 0, 0, 5][..], &[58, 0, 0, 5, 1], &[58, 0, 0, 1, 1]] {
            let options: Vec<_> = Ipv6Options::new(header).collect();
            assert_eq!(options, [Err(Ipv6OptionError(3))]);
        }
    }

    proptest! {
        #[test]
        fn random_bytes_end_within_one_step_per_byte(bytes: Vec<u8>) {
            prop_assert!(Ipv6Options::new(&bytes).count() <= bytes.len());
        }
    }
}
