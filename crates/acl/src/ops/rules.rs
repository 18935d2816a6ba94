//! Rules in a command: `permit src 192.0.2.0/24 proto tcp dport 80-81, deny src 0.0.0.0/0`.

use quiver_command::grammar::Args;
use quiver_command::operation::OpError;
use quiver_command::request::{Argument, Value};
use quiver_wire::{IpPrefix, Ipv4Prefix, Ipv6Prefix};
use serde::{Deserialize, Serialize};

use crate::rule::{Action, Flags, Ports, Rule};

/// Protocols that have a word.
const PROTOCOLS: &[(&str, u8)] = &[("icmp", 1), ("tcp", 6), ("udp", 17), ("icmp6", 58), ("sctp", 132)];

/// Rules, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules(pub Vec<Rule>);

/// The words of a rule: a comma ends it, alone or at the end of a word.
struct Words<'a, 'b> {
    args: &'b mut Args<'a>,
    /// The last word had a comma.
    ended: bool,
}

impl Words<'_, '_> {
    fn next(&mut self, what: &str) -> Result<String, OpError> {
        if self.ended {
            return Err(self.args.missing(what));
        }
        let word = self.args.word(what)?;
        let bare = word.strip_suffix(',');
        self.ended = bare.is_some();
        Ok(bare.unwrap_or(&word).to_owned())
    }

    /// Takes one of these words, if one is next.
    fn key(&mut self, keys: &[&'static str]) -> Option<&'static str> {
        if self.ended {
            return None;
        }
        let next = self.args.peek()?;
        let key = keys.iter().find(|key| **key == next)?;
        self.args.take_exact(key).then_some(*key)
    }

    /// Whether another rule follows.
    fn comma(&mut self) -> bool {
        std::mem::take(&mut self.ended) || self.args.take_exact(",")
    }

    fn parsed<T>(
        &mut self,
        what: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, OpError> {
        let word = self.next(what)?;
        parse(&word).ok_or_else(|| OpError::invalid(what, &word, expected))
    }
}

fn number<T: TryFrom<u64>>(word: &str) -> Option<T> {
    let value = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => word.parse().ok()?,
    };
    value.try_into().ok()
}

fn action(word: &str) -> Option<Action> {
    const ALL: [Action; 3] = [Action::Deny, Action::Permit, Action::Reflect];
    ALL.into_iter().find(|action| action.word() == word)
}

fn ports(word: &str) -> Option<Ports> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let ports = Ports { first: number(first)?, last: number(last)? };
    (ports.first <= ports.last).then_some(ports)
}

fn protocol(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, number)| *number);
    named.or_else(|| number(word))
}

fn rule(words: &mut Words<'_, '_>) -> Result<Rule, OpError> {
    let first = words.next("rule")?;
    let action = match (action(&first), &*first) {
        (Some(action), _) => action,
        (None, "action") => {
            let numbers = [Action::Deny, Action::Permit, Action::Reflect];
            words.parsed("action", "expected 0 (deny), 1 (permit) or 2 (permit+reflect)", |word| {
                numbers.get(number::<usize>(word)?).copied()
            })?
        }
        _ => return Err(OpError::invalid("rule", &first, "expected deny, permit or permit+reflect")),
    };
    let (mut src, mut dst) = (None, None);
    let (mut proto, mut sport, mut dport, mut tcp_flags) = (0, Ports::default(), Ports::default(), Flags::default());
    while let Some(key) = words.key(&["src", "dst", "proto", "sport", "dport", "tcpflags", "mask"]) {
        let prefix = "expected a prefix, such as 192.0.2.0/24";
        match key {
            "src" => src = Some(words.parsed("src", prefix, |word| word.parse::<IpPrefix>().ok())?),
            "dst" => dst = Some(words.parsed("dst", prefix, |word| word.parse::<IpPrefix>().ok())?),
            "proto" => proto = words.parsed("proto", "expected 0 to 255, tcp, udp, icmp, icmp6 or sctp", protocol)?,
            "sport" => sport = words.parsed("sport", "expected a port, or <first>-<last>", ports)?,
            "dport" => dport = words.parsed("dport", "expected a port, or <first>-<last>", ports)?,
            "tcpflags" => tcp_flags.value = words.parsed("tcpflags", "expected 0 to 255", number)?,
            _ => tcp_flags.mask = words.parsed("mask", "expected 0 to 255", number)?,
        }
    }
    let any = |of: Option<IpPrefix>| match of {
        Some(IpPrefix::V6(_)) => IpPrefix::V6(Ipv6Prefix::DEFAULT),
        _ => IpPrefix::V4(Ipv4Prefix::DEFAULT),
    };
    let (src, dst) = (src.unwrap_or_else(|| any(dst)), dst.unwrap_or_else(|| any(src)));
    Ok(Rule { action, src: src.masked(), dst: dst.masked(), proto, sport, dport, tcp_flags })
}

impl Value for Rules {
    const KIND: &'static str = "rules";

    fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
        let mut words = Words { args, ended: false };
        let mut rules = vec![rule(&mut words)?];
        while words.comma() {
            rules.push(rule(&mut words)?);
        }
        Ok(Self(rules))
    }

    fn text(&self) -> String {
        self.0.iter().map(|rule| text(rule, true)).collect::<Vec<_>>().join(", ")
    }
}

/// A rule in the words of the command; `short`: without what matches all.
pub(super) fn text(rule: &Rule, short: bool) -> String {
    let mut out = format!("{} src {} dst {}", rule.action.word(), rule.src, rule.dst);
    if rule.proto == 0 && short {
        return out;
    }
    out += &format!(" proto {}", rule.proto);
    for (name, ports) in [("sport", rule.sport), ("dport", rule.dport)] {
        if short && ports == Ports::default() {
            continue;
        }
        let Ports { first, last } = ports;
        out += &if first == last { format!(" {name} {first}") } else { format!(" {name} {first}-{last}") };
    }
    let Flags { value, mask } = rule.tcp_flags;
    if mask != 0 {
        out += &format!(" tcpflags {value} mask {mask}");
    }
    out
}
