//! Header descriptions in VPP's notation, put into a [`Template`].
//!
//! ```text
//!   IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02     Ethernet: type, source, destination; also `vlan 10`
//!   UDP: 10.0.0.1 - 10.0.0.255 -> 10.1.0.1          IP: protocol, source, destination; also ttl, tos, …
//!   UDP: 1234 -> 2345                               ports; also length, checksum
//!   incrementing 30                                 payload
//! ```
//!
//! Every address and number may vary: `a - b` counts up from a to b, `a + b` is drawn at random between them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::IpProtocol;

use super::field::{Field, Vary};
use super::stream::Template;

/// Longest template, bytes.
const MOST: usize = 65_535;

/// Where a description starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With an Ethernet header.
    Ethernet,
    /// With an IPv4 header.
    Ip4,
    /// With an IPv6 header.
    Ip6,
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// Something else was expected.
    #[error("unknown input `{found}', expected {expected}")]
    Expected {
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A range that ends before it starts.
    #[error("range `{0}' ends before it starts")]
    Backwards(String),
    /// It would not fit a packet.
    #[error("description is longer than {MOST} bytes")]
    TooLong,
}

/// A field's value as described.
struct Value {
    low: u128,
    high: u128,
    vary: Vary,
}

struct Parser<'a> {
    words: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
    template: Template,
}

/// Puts a description into bytes.
///
/// # Errors
/// The word that was not understood, and what was expected.
pub fn template(text: &str, start: Start) -> Result<Template, DescriptionError> {
    let mut parser = Parser { words: text.split_whitespace().peekable(), template: Template::default() };
    let inner = match start {
        Start::Ethernet => parser.ethernet()?,
        Start::Ip4 => Some(false),
        Start::Ip6 => Some(true),
    };
    if let Some(ipv6) = inner
        && parser.words.peek().is_some_and(|w| w.ends_with(':'))
    {
        let protocol = if ipv6 { parser.ip6()? } else { parser.ip4()? };
        parser.transport(protocol)?;
    }
    parser.payload()?;
    if parser.template.bytes.len() > MOST {
        return Err(DescriptionError::TooLong);
    }
    Ok(parser.template)
}

impl<'a> Parser<'a> {
    fn error(&mut self, expected: &'static str) -> DescriptionError {
        DescriptionError::Expected { found: self.words.peek().unwrap_or(&"end of description").to_string(), expected }
    }

    fn next(&mut self, expected: &'static str) -> Result<&'a str, DescriptionError> {
        if self.words.peek().is_none() {
            return Err(self.error(expected));
        }
        Ok(self.words.next().unwrap_or_default())
    }

    fn word(&mut self, word: &str) -> bool {
        self.words.next_if(|w| *w == word).is_some()
    }

    /// A value, fixed or varying. `read` turns one word into a number.
    fn value(&mut self, expected: &'static str, read: impl Fn(&str) -> Option<u128>) -> Result<Value, DescriptionError> {
        let first = self.words.peek().copied().unwrap_or_default();
        // `64-128` in one word, where the value itself has neither sign.
        let joined = [('-', Vary::Increment), ('+', Vary::Random)]
            .iter()
            .find_map(|(sign, vary)| first.split_once(*sign).and_then(|(a, b)| Some((read(a)?, read(b)?, *vary))));
        let (low, high, vary) = match joined {
            Some(range) => {
                self.words.next();
                range
            }
            None => {
                let Some(low) = read(first) else { return Err(self.error(expected)) };
                self.words.next();
                let vary = match self.words.next_if(|w| *w == "-" || *w == "+") {
                    Some("-") => Vary::Increment,
                    Some(_) => Vary::Random,
                    None => return Ok(Value { low, high: low, vary: Vary::Increment }),
                };
                let last = self.words.peek().copied().unwrap_or_default();
                let Some(high) = read(last) else { return Err(self.error(expected)) };
                self.words.next();
                (low, high, vary)
            }
        };
        if high < low {
            return Err(DescriptionError::Backwards(first.into()));
        }
        Ok(Value { low, high, vary })
    }

    fn number(&mut self, expected: &'static str, most: u128) -> Result<Value, DescriptionError> {
        self.value(expected, |w| number(w).filter(|n| *n <= most))
    }

    /// Writes a value into the template at `offset`.
    fn put(&mut self, offset: usize, width: usize, value: &Value) {
        let bytes = value.low.to_be_bytes();
        if let Some(to) = self.template.bytes.get_mut(offset..offset + width) {
            to.copy_from_slice(&bytes[16 - width..]);
        }
        if value.low != value.high {
            let Value { low, high, vary } = *value;
            self.template.fields.push(Field { offset, width, low, high, vary });
        }
    }

    fn arrow(&mut self) -> Result<(), DescriptionError> {
        if self.word("->") { Ok(()) } else { Err(self.error("`->'")) }
    }

    /// A heading such as `UDP:`.
    fn heading(&mut self, expected: &'static str) -> Result<&'a str, DescriptionError> {
        match self.words.peek().and_then(|w| w.strip_suffix(':')) {
            Some(name) if !name.is_empty() => {
                self.words.next();
                Ok(name)
            }
            _ => Err(self.error(expected)),
        }
    }

    /// Ethernet header and tags; says whether IPv4 or IPv6 follows.
    fn ethernet(&mut self) -> Result<Option<bool>, DescriptionError> {
        const EXPECTED: &str = "an Ethernet header such as `IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02'";
        let name = self.heading(EXPECTED)?;
        let ether_type = match name.to_ascii_uppercase().as_str() {
            "IP4" => EtherType::IPV4,
            "IP6" => EtherType::IPV6,
            "ARP" => EtherType::ARP,
            "MPLS" => EtherType::MPLS,
            other => match number(&other.to_ascii_lowercase()).and_then(|n| u16::try_from(n).ok()) {
                Some(n) => EtherType(n),
                None => return Err(DescriptionError::Expected { found: name.into(), expected: EXPECTED }),
            },
        };
        self.template.bytes.resize(12, 0);
        let source = self.value("a MAC address", mac)?;
        self.put(6, 6, &source);
        self.arrow()?;
        let destination = self.value("a MAC address", mac)?;
        self.put(0, 6, &destination);
        loop {
            let tpid = match self.words.peek() {
                Some(&"vlan" | &"dot1q") => EtherType::VLAN,
                Some(&"dot1ad") => EtherType::QINQ,
                _ => break,
            };
            self.words.next();
            let id = self.number("a vlan id", 4095)?;
            let at = self.template.bytes.len();
            self.template.bytes.extend(tpid.0.to_be_bytes());
            self.template.bytes.extend([0, 0]);
            self.put(at + 2, 2, &id);
        }
        self.template.bytes.extend(ether_type.0.to_be_bytes());
        Ok(match ether_type {
            EtherType::IPV4 => Some(false),
            EtherType::IPV6 => Some(true),
            _ => None,
        })
    }

    fn protocol(&mut self, ipv6: bool) -> Result<IpProtocol, DescriptionError> {
        const EXPECTED: &str = "an IP header such as `UDP: 10.0.0.1 -> 10.0.0.2'";
        let name = self.heading(EXPECTED)?;
        Ok(match name.to_ascii_uppercase().as_str() {
            "UDP" => IpProtocol::UDP,
            "TCP" => IpProtocol::TCP,
            "ICMP" if !ipv6 => IpProtocol::ICMP,
            "ICMP" | "ICMP6" => IpProtocol::ICMPV6,
            other => match number(&other.to_ascii_lowercase()).and_then(|n| u8::try_from(n).ok()) {
                Some(n) => IpProtocol(n),
                None => return Err(DescriptionError::Expected { found: name.into(), expected: EXPECTED }),
            },
        })
    }

    fn ip4(&mut self) -> Result<IpProtocol, DescriptionError> {
        let at = self.template.bytes.len();
        let protocol = self.protocol(false)?;
        self.template.ip = Some((at, false));
        self.template.bytes.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let source = self.value("an IPv4 address", ip4)?;
        self.put(at + 12, 4, &source);
        self.arrow()?;
        let destination = self.value("an IPv4 address", ip4)?;
        self.put(at + 16, 4, &destination);
        loop {
            match self.words.peek() {
                Some(&"ttl") => self.named(at + 8, 1, 255)?,
                Some(&"tos") => self.named(at + 1, 1, 255)?,
                Some(&"fragment_id" | &"id") => self.named(at + 4, 2, 65_535)?,
                Some(&"length") => {
                    self.named(at + 2, 2, 65_535)?;
                    self.template.keep_length = true;
                }
                Some(&"checksum") => {
                    self.named(at + 10, 2, 65_535)?;
                    self.template.keep_checksums = true;
                }
                Some(&"dont_fragment" | &"df") => {
                    self.words.next();
                    self.template.bytes[at + 6] |= 0x40;
                }
                _ => return Ok(protocol),
            }
        }
    }

    fn ip6(&mut self) -> Result<IpProtocol, DescriptionError> {
        let at = self.template.bytes.len();
        let protocol = self.protocol(true)?;
        self.template.ip = Some((at, true));
        self.template.bytes.extend([0x60, 0, 0, 0, 0, 0, protocol.0, 64]);
        self.template.bytes.resize(at + 40, 0);
        let source = self.value("an IPv6 address", ip6)?;
        self.put(at + 8, 16, &source);
        self.arrow()?;
        let destination = self.value("an IPv6 address", ip6)?;
        self.put(at + 24, 16, &destination);
        loop {
            match self.words.peek() {
                Some(&"hop-limit" | &"hop_limit" | &"ttl") => self.named(at + 7, 1, 255)?,
                Some(&"length") => {
                    self.named(at + 4, 2, 65_535)?;
                    self.template.keep_length = true;
                }
                _ => return Ok(protocol),
            }
        }
    }

    /// A word followed by a number for a field.
    fn named(&mut self, offset: usize, width: usize, most: u128) -> Result<(), DescriptionError> {
        self.words.next();
        let value = self.number("a number in range", most)?;
        self.put(offset, width, &value);
        Ok(())
    }

    fn transport(&mut self, protocol: IpProtocol) -> Result<(), DescriptionError> {
        if protocol == IpProtocol::ICMP || protocol == IpProtocol::ICMPV6 {
            return self.icmp(protocol);
        }
        if protocol != IpProtocol::UDP && protocol != IpProtocol::TCP {
            return Ok(());
        }
        if !self.words.peek().is_some_and(|w| w.ends_with(':')) {
            return Ok(());
        }
        self.words.next();
        let at = self.template.bytes.len();
        let header: &[u8] = if protocol == IpProtocol::UDP {
            &[0; 8]
        } else {
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02, 0x20, 0, 0, 0, 0, 0]
        };
        self.template.bytes.extend(header);
        let source = self.number("a port", 65_535)?;
        self.put(at, 2, &source);
        self.arrow()?;
        let destination = self.number("a port", 65_535)?;
        self.put(at + 2, 2, &destination);
        loop {
            match (self.words.peek(), protocol == IpProtocol::UDP) {
                (Some(&"length"), true) => {
                    self.named(at + 4, 2, 65_535)?;
                    self.template.keep_length = true;
                }
                (Some(&"checksum"), udp) => {
                    self.named(at + if udp { 6 } else { 16 }, 2, 65_535)?;
                    self.template.keep_checksums = true;
                }
                (Some(&"seqnum"), false) => self.named(at + 4, 4, u128::from(u32::MAX))?,
                (Some(&"flags"), false) => self.named(at + 13, 1, 255)?,
                _ => return Ok(()),
            }
        }
    }

    /// `ICMP: echo_request` (or `ICMP echo_request`), with `id` and `sequence`.
    fn icmp(&mut self, protocol: IpProtocol) -> Result<(), DescriptionError> {
        if self.words.next_if(|w| matches!(*w, "ICMP" | "ICMP:" | "ICMP6" | "ICMP6:")).is_none() {
            return Ok(());
        }
        let ipv6 = protocol == IpProtocol::ICMPV6;
        let at = self.template.bytes.len();
        let kind = self.next("echo_request or echo_reply")?;
        let kind = match (kind, ipv6) {
            ("echo_request", false) => 8,
            ("echo_reply", false) => 0,
            ("echo_request", true) => 128,
            ("echo_reply", true) => 129,
            _ => return Err(DescriptionError::Expected { found: kind.into(), expected: "echo_request or echo_reply" }),
        };
        self.template.bytes.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        loop {
            match self.words.peek() {
                Some(&"id") => self.named(at + 4, 2, 65_535)?,
                Some(&"sequence" | &"seq") => self.named(at + 6, 2, 65_535)?,
                _ => return Ok(()),
            }
        }
    }

    fn payload(&mut self) -> Result<(), DescriptionError> {
        const EXPECTED: &str = "`incrementing <n>' or `hex <digits>'";
        while let Some(word) = self.words.next() {
            match word {
                "incrementing" => {
                    let n = self.number("a number of bytes", MOST as u128)?.low;
                    self.template.bytes.extend((0..n).map(|i| i as u8));
                }
                "hex" => {
                    let digits = self.next("hex digits")?;
                    let plain = digits.strip_prefix("0x").unwrap_or(digits);
                    let byte = |i| plain.get(i..i + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
                    let bytes: Option<Vec<u8>> = (0..plain.len()).step_by(2).map(byte).collect();
                    let wrong = || DescriptionError::Expected { found: digits.into(), expected: "an even number of hex digits" };
                    self.template.bytes.extend(bytes.ok_or_else(wrong)?);
                }
                other => return Err(DescriptionError::Expected { found: other.into(), expected: EXPECTED }),
            }
            if self.template.bytes.len() > MOST {
                return Err(DescriptionError::TooLong);
            }
        }
        Ok(())
    }
}

fn number(word: &str) -> Option<u128> {
    match word.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn mac(word: &str) -> Option<u128> {
    MacAddr::from_str(word).ok().map(|m| m.to_u64().into())
}

fn ip4(word: &str) -> Option<u128> {
    Ipv4Addr::from_str(word).ok().map(|a| a.to_bits().into())
}

fn ip6(word: &str) -> Option<u128> {
    Ipv6Addr::from_str(word).ok().map(Ipv6Addr::to_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_description_gives_headers_fields_and_payload() {
        let text = "IP4: 02:00:00:00:00:01 -> 0200.0000.0002 vlan 7 UDP: 10.0.0.1 - 10.0.0.255 -> 10.1.0.1 ttl 9 \
                    UDP: 1234 -> 1000+2000 incrementing 3";
        let t = template(text, Start::Ethernet).unwrap();
        assert_eq!(t.bytes.len(), 14 + 4 + 20 + 8 + 3);
        assert_eq!(t.bytes[..18], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!(t.ip, Some((18, false)));
        assert_eq!((t.bytes[18 + 8], t.bytes[18 + 9]), (9, 17));
        let source = Field { offset: 30, width: 4, low: 0x0a00_0001, high: 0x0a00_00ff, vary: Vary::Increment };
        let port = Field { offset: 40, width: 2, low: 1000, high: 2000, vary: Vary::Random };
        assert_eq!(t.fields, [source, port]);
        assert_eq!(t.bytes[46..], [0, 1, 2]);
    }

    #[test]
    fn ipv6_and_icmp_are_understood() {
        let t = template("ICMP6: 2001:db8::1 -> 2001:db8::2 hop-limit 3 ICMP6 echo_request id 5", Start::Ip6).unwrap();
        assert_eq!((t.bytes[6], t.bytes[7], t.bytes[40], t.bytes[45]), (58, 3, 128, 5));
        let t = template("0x88b5: 02:00:00:00:00:01 -> 02:00:00:00:00:02 hex 0xdeadbeef", Start::Ethernet).unwrap();
        assert_eq!(t.bytes[12..], [0x88, 0xb5, 0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |text: &str| template(text, Start::Ethernet).unwrap_err().to_string();
        assert_eq!(message("IP4: 02:00:00:00:00:01 02:00:00:00:00:02"), "unknown input `02:00:00:00:00:02', expected `->'");
        assert!(message("IPX: 1 -> 2").starts_with("unknown input `IPX'"));
        assert!(message("").starts_with("unknown input `end of description'"));
        let udp = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 1.1.1.1 -> 2.2.2.2";
        assert!(message(&format!("{udp} UDP: 70000 -> 1")).contains("`70000'"));
        assert!(message(&format!("{udp} UDP: 9-8 -> 1")).contains("ends before"));
        assert!(message(&format!("{udp} UDP: 9 -> 1 incrementing 70000")).contains("number of bytes"));
        assert!(message(&format!("{udp} UDP: 9 -> 1 hex abc")).contains("even number"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(words in proptest::collection::vec(proptest::sample::select(vec![
            "IP4:", "IP6:", "UDP:", "TCP:", "ICMP:", "->", "-", "+", "1.2.3.4", "::1", "02:00:00:00:00:01", "vlan", "10", "64-128",
            "ttl", "length", "checksum", "incrementing", "hex", "0xab", "é", "ICMP", "echo_request", "9999999999999999999999",
        ]), 0..12)) {
            for start in [Start::Ethernet, Start::Ip4, Start::Ip6] {
                let _ = template(&words.join(" "), start);
            }
        }
    }
}
