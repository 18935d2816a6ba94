//! Rules: what a packet must be, and what then becomes of it.

use quiver_tables::boxes::Ranges;
use quiver_wire::IpPrefix;
use serde::{Deserialize, Serialize};

use crate::packet::{FOUR, NO_PORT, SIX, has_ports, words};

quiver_command::words! {
    /// What becomes of a packet.
    #[derive(Default)]
    pub enum Action {
        /// It is dropped.
        #[default]
        Deny = "deny",
        /// It goes on.
        Permit = "permit",
        /// It goes on, and begins a session, whose packets go on in both directions.
        Reflect = "permit+reflect",
    }
}

/// Ports, or types or codes of ICMP: a closed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { first: 0, last: u16::MAX }
    }
}

/// TCP flags: those under the mask have these values (RFC 9293, 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// Values.
    pub value: u8,
    /// Which flags are looked at.
    pub mask: u8,
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What becomes of its packets.
    pub action: Action,
    /// Source.
    pub src: IpPrefix,
    /// Destination, of the same family.
    pub dst: IpPrefix,
    /// Protocol; 0 for any, and then neither ports nor flags are looked at.
    #[serde(default)]
    pub proto: u8,
    /// Source ports, or types of ICMP.
    #[serde(default)]
    pub sport: Ports,
    /// Destination ports, or codes of ICMP.
    #[serde(default)]
    pub dport: Ports,
    /// TCP flags.
    #[serde(default)]
    pub tcp_flags: Flags,
}

const TCP: u8 = 6;
/// ICMP of both families.
const ICMP: [u8; 2] = [1, 58];

impl Rule {
    /// Whether it is one of IPv6.
    pub fn is_six(&self) -> bool {
        matches!(self.src, IpPrefix::V6(_))
    }

    /// Which value of ports the packets have, as they are looked up: `later` of later fragments, which have none.
    fn ports(&self, ports: Ports, later: bool) -> (u32, u32) {
        let (first, last) = (u32::from(ports.first), u32::from(ports.last));
        if self.proto == 0 || later {
            return (0, NO_PORT);
        }
        // What has no ports although its protocol has them is cut off, and in no rule of the protocol.
        let has_them = has_ports(self.proto) || ICMP.contains(&self.proto);
        if !has_them && ports == Ports::default() { (0, NO_PORT) } else { (first, last) }
    }

    fn flags(&self, later: bool) -> (u8, u8) {
        if self.proto == TCP && !later { (self.tcp_flags.mask, self.tcp_flags.value) } else { (0, 0) }
    }

    fn protocol(&self) -> (u32, u32) {
        if self.proto == 0 { (0, 255) } else { (self.proto.into(), self.proto.into()) }
    }
}

/// Rules as ranges of a family's fields.
pub trait Fields<const D: usize> {
    /// The ranges of a rule; nothing for one of the other family. `later`: as later fragments are looked up.
    fn ranges(rule: &Rule, later: bool) -> Option<Ranges<D>>;
}

fn put<const D: usize>(rule: &Rule, later: bool, src: &[[u32; 2]], dst: &[[u32; 2]]) -> Ranges<D> {
    let (sport, dport) = (rule.ports(rule.sport, later), rule.ports(rule.dport, later));
    let rest = [rule.protocol(), sport, dport];
    let all = src.iter().chain(dst).map(|[low, high]| (*low, *high)).chain(rest);
    let (flags_mask, flags_value) = rule.flags(later);
    let mut ranges = Ranges { low: [0; D], high: [0; D], flags_mask, flags_value };
    for (at, (low, high)) in all.enumerate().take(D) {
        (ranges.low[at], ranges.high[at]) = (low, high);
    }
    ranges
}

impl Fields<FOUR> for crate::packet::Four {
    fn ranges(rule: &Rule, later: bool) -> Option<Ranges<FOUR>> {
        let (IpPrefix::V4(src), IpPrefix::V4(dst)) = (rule.src, rule.dst) else { return None };
        let range = |prefix: quiver_wire::Ipv4Prefix| [prefix.network().to_bits(), prefix.last().to_bits()];
        Some(put(rule, later, &[range(src)], &[range(dst)]))
    }
}

impl Fields<SIX> for crate::packet::Six {
    fn ranges(rule: &Rule, later: bool) -> Option<Ranges<SIX>> {
        let (IpPrefix::V6(src), IpPrefix::V6(dst)) = (rule.src, rule.dst) else { return None };
        // The length of a prefix falls into one word: words before it are fixed, words behind it are free. So each word is a range.
        let range = |prefix: quiver_wire::Ipv6Prefix| {
            let (low, high) = (words(prefix.network().to_bits()), words(prefix.last().to_bits()));
            std::array::from_fn::<[u32; 2], 4, _>(|at| [low[at], high[at]])
        };
        Some(put(rule, later, &range(src), &range(dst)))
    }
}
