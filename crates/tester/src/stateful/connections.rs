//! The connections of a stateful test, numbered: each number has a four-tuple of its own.
//!
//! A number is taken apart into places in the ranges of source port, destination port, source and destination address. In
//! pseudo-random order it goes through a permutation of all numbers first (a Feistel network over the next power of four, walked
//! until it is back in range), so that every combination comes exactly once, nothing is remembered, and test frames of all
//! numbers are the unique enumeration that RFC 9693 (section 4.4) and RFC 4814 ask for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::random::Random;

/// Most connections of a test: what frames count within half the range of their sequence numbers.
pub const MOST: u64 = 1 << 30;
/// Rounds of the Feistel network.
const ROUNDS: usize = 4;

/// Addresses and ports of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl FourTuple {
    /// That of an answer.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port }
    }
}

/// Which part of a four-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Part {
    Src,
    Dst,
    SrcPort,
    DstPort,
}

/// Addresses in a row: `198.18.0.2`, `198.18.0.2-198.18.0.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    count: u64,
}

/// An address as a number.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The address of a number in the family of another one.
fn address(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
    }
}

impl AddressRange {
    /// The first one.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl From<IpAddr> for AddressRange {
    fn from(first: IpAddr) -> Self {
        Self { first, count: 1 }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |word: &str| {
            word.parse::<IpAddr>().map_err(|_| format!("`{word}' is not an address: 198.18.0.2 or 198.18.0.2-198.18.0.9"))
        };
        let (first, last) = match text.split_once('-') {
            None => (one(text)?, one(text)?),
            Some((first, last)) => (one(first)?, one(last)?),
        };
        if first.is_ipv4() != last.is_ipv4() {
            return Err(format!("`{text}' begins and ends in different families"));
        }
        let more = number(last).checked_sub(number(first)).ok_or_else(|| format!("`{text}' ends before it begins"))?;
        let count = u64::try_from(more).ok().and_then(|n| n.checked_add(1)).filter(|n| *n <= MOST);
        Ok(Self { first, count: count.ok_or_else(|| format!("`{text}' has more than {MOST} addresses"))? })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            n => write!(f, "{}-{}", self.first, address(self.first, number(self.first) + u128::from(n) - 1)),
        }
    }
}

/// Ports in a row: `7`, `1024-65535`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl PortRange {
    /// How many there are.
    pub fn count(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |word: &str| word.parse::<u16>().map_err(|_| format!("`{word}' is not a port: 7 or 1024-65535"));
        let (first, last) = match text.split_once('-') {
            None => (one(text)?, one(text)?),
            Some((first, last)) => (one(first)?, one(last)?),
        };
        if last < first { Err(format!("`{text}' ends before it begins")) } else { Ok(Self { first, last }) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// In which order connections have their four-tuples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Pseudo-random, each once.
    #[default]
    Random,
    /// Counted upwards, source ports first.
    Increasing,
    /// The same from the end.
    Decreasing,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            "increasing" => Ok(Self::Increasing),
            "decreasing" => Ok(Self::Decreasing),
            _ => Err(format!("`{text}' is no order: random, increasing or decreasing")),
        }
    }
}

/// What connections a test can open, as the initiator writes their four-tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Addresses of the initiator.
    pub initiators: AddressRange,
    /// Addresses of the responder.
    pub responders: AddressRange,
    /// Ports of the initiator.
    pub initiator_ports: PortRange,
    /// Ports of the responder.
    pub responder_ports: PortRange,
}

impl Default for Ends {
    /// Addresses of RFC 2544, and ports of RFC 4814 (section 4.5) with those of the responder kept to a few, as RFC 9693
    /// recommends (section 4.3).
    fn default() -> Self {
        Self {
            initiators: IpAddr::from([198, 18, 0, 2]).into(),
            responders: IpAddr::from([198, 19, 0, 2]).into(),
            initiator_ports: PortRange { first: 1024, last: 65_535 },
            responder_ports: PortRange { first: 1, last: 100 },
        }
    }
}

/// Connections by number.
#[derive(Clone, Debug)]
pub struct Connections {
    ends: Ends,
    order: Order,
    total: u64,
    permutation: Permutation,
}

impl Connections {
    /// All combinations of these ends.
    ///
    /// # Errors
    /// Families differ.
    pub fn new(ends: Ends, order: Order, seed: u64) -> Result<Self, String> {
        if ends.initiators.first.is_ipv4() != ends.responders.first.is_ipv4() {
            let (a, b) = (ends.initiators, ends.responders);
            return Err(format!(
                "initiator addresses {a} and responder addresses {b} are of different families: give both as the initiator writes them"
            ));
        }
        let counts = [ends.initiators.count, ends.responders.count, ends.initiator_ports.count(), ends.responder_ports.count()];
        let total = counts.into_iter().fold(1_u64, u64::saturating_mul).min(MOST);
        Ok(Self { ends, order, total, permutation: Permutation::new(total, seed) })
    }

    /// How many there can be.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The ranges.
    pub fn ends(&self) -> &Ends {
        &self.ends
    }

    /// A part of the four-tuple of connection `n`, as a number.
    pub fn part(&self, n: u64, part: Part) -> u128 {
        let at = match self.order {
            Order::Random => self.permutation.of(n),
            Order::Increasing => n,
            Order::Decreasing => self.total - 1 - n.min(self.total - 1),
        };
        let Ends { initiators, responders, initiator_ports, responder_ports } = &self.ends;
        let (at, src_port) = (at / initiator_ports.count(), at % initiator_ports.count());
        let (at, dst_port) = (at / responder_ports.count(), at % responder_ports.count());
        let (at, src) = (at / initiators.count, at % initiators.count);
        match part {
            Part::Src => number(initiators.first) + u128::from(src),
            Part::Dst => number(responders.first) + u128::from(at % responders.count),
            Part::SrcPort => u128::from(initiator_ports.first) + u128::from(src_port),
            Part::DstPort => u128::from(responder_ports.first) + u128::from(dst_port),
        }
    }

    /// The four-tuple of connection `n`.
    pub fn tuple(&self, n: u64) -> FourTuple {
        let like = self.ends.initiators.first;
        let part = |part| self.part(n, part);
        FourTuple {
            src: address(like, part(Part::Src)),
            dst: address(like, part(Part::Dst)),
            src_port: part(Part::SrcPort) as u16,
            dst_port: part(Part::DstPort) as u16,
        }
    }
}

/// A permutation of the numbers below `total`.
#[derive(Clone, Debug)]
struct Permutation {
    total: u64,
    /// Bits of each half.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    fn new(total: u64, seed: u64) -> Self {
        let bits = u64::BITS - total.saturating_sub(1).leading_zeros();
        let mut random = Random::new(seed);
        Self { total, half: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.next_u64()) }
    }

    /// The number in place of `n`; `n` itself where that is out of range.
    fn of(&self, n: u64) -> u64 {
        if n >= self.total {
            return n;
        }
        let mask = (1 << self.half) - 1;
        let mut now = n;
        loop {
            let (mut left, mut right) = (now >> self.half, now & mask);
            for key in self.keys {
                let mixed = Random::new(right ^ key).next_u64();
                (left, right) = (right, left ^ (mixed & mask));
            }
            now = left << self.half | right;
            // Walks within the cycle of `n`, which comes back below `total`: at the latest to where it began.
            if now < self.total {
                return now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn ends(text: [&str; 4]) -> Ends {
        let [a, b, c, d] = text;
        Ends {
            initiators: a.parse().unwrap(),
            responders: b.parse().unwrap(),
            initiator_ports: c.parse().unwrap(),
            responder_ports: d.parse().unwrap(),
        }
    }

    #[test]
    fn every_combination_comes_once_in_every_order() {
        for text in [
            ["10.0.0.1-10.0.0.3", "10.1.0.1-10.1.0.2", "5-11", "80-81"],
            ["2001:2::2", "64:ff9b::c613:2-64:ff9b::c613:6", "1", "1-9"],
            ["10.0.0.1", "10.1.0.1", "7", "7"],
        ] {
            for order in [Order::Random, Order::Increasing, Order::Decreasing] {
                let all = Connections::new(ends(text), order, 3).unwrap();
                let tuples: Vec<_> = (0..all.total()).map(|n| all.tuple(n)).collect();
                let different: HashSet<_> = tuples.iter().map(|t| format!("{t:?}")).collect();
                assert_eq!(different.len() as u64, all.total(), "{text:?} {order:?}");
                if order == Order::Increasing {
                    assert_eq!(tuples[0], first(&all));
                }
                assert!(tuples.iter().all(|t| t.reversed().reversed() == *t && t.src_port >= all.ends().initiator_ports.first));
            }
        }
    }

    fn first(all: &Connections) -> FourTuple {
        let ends = all.ends();
        FourTuple {
            src: ends.initiators.first(),
            dst: ends.responders.first(),
            src_port: ends.initiator_ports.first,
            dst_port: ends.responder_ports.first,
        }
    }

    #[test]
    fn orders_are_what_they_say() {
        let of = |order| Connections::new(ends(["10.0.0.1", "10.1.0.1", "1-1000", "1-3"]), order, 3).unwrap();
        let ports = |order| (0..3000).map(|n| of(order).tuple(n).src_port).collect::<Vec<_>>();
        let up = ports(Order::Increasing);
        assert_eq!(up[..3], [1, 2, 3]);
        assert_eq!(of(Order::Increasing).tuple(1000).dst_port, 2);
        assert_eq!(ports(Order::Decreasing), up.iter().rev().copied().collect::<Vec<_>>());
        let random = ports(Order::Random);
        let rising = random.windows(2).filter(|w| w[0] < w[1]).count();
        assert!((1300..1700).contains(&rising), "{rising}");
        assert_ne!(
            random,
            (0..3000)
                .map(|n| Connections::new(*of(Order::Random).ends(), Order::Random, 4).unwrap().tuple(n).src_port)
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn ranges_are_read_and_written_and_wrong_ones_refused() {
        for text in ["10.0.0.1", "10.0.0.1-10.0.0.9", "2001:2::1-2001:2::ff"] {
            assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), text);
        }
        for text in ["7", "1024-65535"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        for (text, words) in [
            ("x", "not an address"),
            ("10.0.0.2-10.0.0.1", "ends before"),
            ("10.0.0.2-::1", "different families"),
            ("::-ffff::", "more than"),
            ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "more than"),
        ] {
            let error = text.parse::<AddressRange>().unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!("9-3".parse::<PortRange>().unwrap_err().contains("ends before"));
        assert!("70000".parse::<PortRange>().is_err() && "upwards".parse::<Order>().is_err());
        let mixed = Ends { initiators: "2001:2::2".parse().unwrap(), ..Ends::default() };
        assert!(Connections::new(mixed, Order::Random, 1).unwrap_err().contains("different families"));
    }

    #[test]
    fn no_more_connections_than_numbers_can_tell_apart() {
        let many = ends(["10.0.0.0-10.255.255.255", "11.0.0.0-11.255.255.255", "0-65535", "0-65535"]);
        let all = Connections::new(many, Order::Random, 1).unwrap();
        assert_eq!(all.total(), MOST);
        assert!((0..100).all(|n| all.tuple(n).src.is_ipv4()));
    }
}
