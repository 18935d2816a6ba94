//! ARP for IPv4 over Ethernet (RFC 826).

use crate::ethernet::EtherType;
use crate::header::wire_header;
use crate::{MacAddr, U16Be, U32Be};
use core::net::Ipv4Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An ARP message for Ethernet and IPv4.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArpHeader {
    /// Hardware type: 1 for Ethernet
    pub hardware_type: U16Be,
    /// Protocol type: 0x0800 for IPv4
    pub protocol_type: U16Be,
    /// Length of a hardware address: 6
    pub hardware_len: u8,
    /// Length of a protocol address: 4
    pub protocol_len: u8,
    /// Request (1), reply (2) and others
    pub operation: U16Be,
    /// Sender's Ethernet address
    pub sender_mac: MacAddr,
    /// Sender's IPv4 address
    pub sender_ip: U32Be,
    /// Target's Ethernet address; without meaning in a request
    pub target_mac: MacAddr,
    /// Target's IPv4 address
    pub target_ip: U32Be,
}
wire_header!(ArpHeader = 28);

/// ARP operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// Who has the target address?
    pub const REQUEST: ArpOperation = ArpOperation(1);
    /// The sender has it.
    pub const REPLY: ArpOperation = ArpOperation(2);
}

/// Why an ARP message is not one for IPv4 over Ethernet.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArpError {
    /// Fewer than 28 bytes
    TooShort,
    /// Hardware type is not Ethernet, or its address length not 6
    NotEthernet,
    /// Protocol type is not IPv4, or its address length not 4
    NotIpv4,
    /// Sender's Ethernet address is a group or zero
    BadSenderMac,
}

impl ArpHeader {
    /// A message with the fixed fields for Ethernet and IPv4 filled in.
    pub const fn new(operation: ArpOperation, sender: (MacAddr, Ipv4Addr), target: (MacAddr, Ipv4Addr)) -> Self {
        Self {
            hardware_type: U16Be::new(1),
            protocol_type: EtherType::IPV4.to_be(),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16Be::new(operation.0),
            sender_mac: sender.0,
            sender_ip: U32Be::new(sender.1.to_bits()),
            target_mac: target.0,
            target_ip: U32Be::new(target.1.to_bits()),
        }
    }

    /// Request for `target`, to be sent to the broadcast address.
    pub const fn request(sender: (MacAddr, Ipv4Addr), target: Ipv4Addr) -> Self {
        Self::new(ArpOperation::REQUEST, sender, (MacAddr::ZERO, target))
    }

    /// The answer to this request from the station that has `mac` and the address asked for.
    pub const fn reply(&self, mac: MacAddr) -> Self {
        Self::new(ArpOperation::REPLY, (mac, self.target_ip()), (self.sender_mac, self.sender_ip()))
    }

    /// Reads a message and checks the fields that make it one for IPv4 over Ethernet.
    pub fn parse(bytes: &[u8]) -> Result<Self, ArpError> {
        use crate::Header;
        let header = Self::read(bytes).ok_or(ArpError::TooShort)?;
        if header.hardware_type.get() != 1 || header.hardware_len != 6 {
            return Err(ArpError::NotEthernet);
        }
        if header.protocol_type.get() != EtherType::IPV4.0 || header.protocol_len != 4 {
            return Err(ArpError::NotIpv4);
        }
        if !header.sender_mac.is_unicast() {
            return Err(ArpError::BadSenderMac);
        }
        Ok(header)
    }

    /// The operation as a value to match on.
    #[inline(always)]
    pub const fn operation(&self) -> ArpOperation {
        ArpOperation(self.operation.get())
    }

    /// Sender's IPv4 address.
    #[inline(always)]
    pub const fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.sender_ip.get())
    }

    /// Target's IPv4 address.
    #[inline(always)]
    pub const fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.target_ip.get())
    }

    /// Sender and target address are the same: an announcement (RFC 5227, 3).
    #[inline(always)]
    pub fn is_gratuitous(&self) -> bool {
        self.sender_ip == self.target_ip
    }

    /// Request with sender address 0: a duplicate-address probe (RFC 5227, 2.1.1).
    #[inline(always)]
    pub fn is_probe(&self) -> bool {
        self.operation() == ArpOperation::REQUEST && self.sender_ip.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    const ALICE: (MacAddr, Ipv4Addr) = (MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
    const BOB: (MacAddr, Ipv4Addr) = (MacAddr([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_reply_turns_the_request_round() {
        let request = ArpHeader::request(ALICE, BOB.1);
        assert_eq!(ArpHeader::parse(request.as_bytes()), Ok(request));
        assert_eq!(request.operation(), ArpOperation::REQUEST);
        let reply = request.reply(BOB.0);
        assert_eq!(reply, ArpHeader::new(ArpOperation::REPLY, BOB, ALICE));
    }

    #[test]
    fn each_wrong_fixed_field_has_its_reason() {
        let good = ArpHeader::request(ALICE, BOB.1);
        let check = |change: fn(&mut ArpHeader), reason| {
            let mut bad = good;
            change(&mut bad);
            assert_eq!(ArpHeader::parse(bad.as_bytes()), Err(reason));
        };
        check(|h| h.hardware_type = U16Be::new(6), ArpError::NotEthernet);
        check(|h| h.hardware_len = 8, ArpError::NotEthernet);
        check(|h| h.protocol_type = U16Be::new(0x86dd), ArpError::NotIpv4);
        check(|h| h.protocol_len = 16, ArpError::NotIpv4);
        check(|h| h.sender_mac = MacAddr::BROADCAST, ArpError::BadSenderMac);
        check(|h| h.sender_mac = MacAddr::ZERO, ArpError::BadSenderMac);
        assert_eq!(ArpHeader::parse(&good.as_bytes()[..27]), Err(ArpError::TooShort));
    }

    #[test]
    fn announcements_and_probes_are_told_apart() {
        assert!(ArpHeader::request(ALICE, ALICE.1).is_gratuitous());
        let probe = ArpHeader::request((ALICE.0, Ipv4Addr::UNSPECIFIED), ALICE.1);
        assert!(probe.is_probe() && !probe.is_gratuitous());
        assert!(!probe.reply(BOB.0).is_probe());
    }

    #[test]
    fn bytes_are_as_rfc_826_draws_them() {
        let bytes = ArpHeader::new(ArpOperation::REPLY, ALICE, BOB);
        let expected = [0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2];
        assert_eq!(bytes.as_bytes(), expected);
        assert_eq!(ArpHeader::LEN, expected.len());
    }
}
