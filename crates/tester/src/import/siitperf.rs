//! `siitperf.conf`, the configuration file of siitperf, a tester of SIIT, NAT64 and routers after RFC 8219: a key and a value in each
//! line, `#` begins a comment. Its keys are read as siitperf means them (its README, and the file that it ships, 2025).
//!
//! What is no traffic becomes a comment of the profile: hardware addresses and processor cores are a port's here, and frame size,
//! rate and duration a trial's, as they are arguments of siitperf's programs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use quiver_wire::MacAddr;
use serde_json::{Value, json};

use super::{ImportError, text};
use crate::stateful::{AddressRange, Ends, Order, PortRange};

/// Ports where they do not vary (RFC 2544, section C.2.6.4).
const FIXED_PORTS: (u16, u16) = (0xc020, 7);
/// Keys with an address; those of one side and family.
const ADDRESSES: [&str; 8] =
    ["IPv6-L-Real", "IPv6-L-Virt", "IPv6-R-Real", "IPv6-R-Virt", "IPv4-L-Real", "IPv4-L-Virt", "IPv4-R-Real", "IPv4-R-Virt"];
const MACS: [&str; 4] = ["MAC-L-Tester", "MAC-R-Tester", "MAC-L-DUT", "MAC-R-DUT"];
/// Keys with a number, and the largest one.
const NUMBERS: [(&str, u64); 40] = [
    ("IP-L-Vers", 6),
    ("IP-R-Vers", 6),
    ("Forward", u32::MAX as u64),
    ("Reverse", u32::MAX as u64),
    ("Promisc", u32::MAX as u64),
    ("Num-L-Nets", 256),
    ("Num-R-Nets", 256),
    ("CPU-L-Send", 65_535),
    ("CPU-R-Recv", 65_535),
    ("CPU-R-Send", 65_535),
    ("CPU-L-Recv", 65_535),
    ("MEM-Channels", 65_535),
    ("Fwd-var-sport", 3),
    ("Fwd-var-dport", 3),
    ("Rev-var-sport", 3),
    ("Rev-var-dport", 3),
    ("Fwd-sport-min", 65_535),
    ("Fwd-sport-max", 65_535),
    ("Fwd-dport-min", 65_535),
    ("Fwd-dport-max", 65_535),
    ("Rev-sport-min", 65_535),
    ("Rev-sport-max", 65_535),
    ("Rev-dport-min", 65_535),
    ("Rev-dport-max", 65_535),
    ("IP-L-var", 3),
    ("IP-R-var", 3),
    ("IP-L-min", 65_535),
    ("IP-L-max", 65_535),
    ("IP-R-min", 65_535),
    ("IP-R-max", 65_535),
    ("IPv4-L-offset", 2),
    ("IPv4-R-offset", 2),
    ("IPv6-L-offset", 14),
    ("IPv6-R-offset", 14),
    ("Stateful", 2),
    ("Enumerate-ports", 3),
    ("Enumerate-ips", 3),
    ("Responder-tuples", 3),
    ("Responder-ports", 3),
    ("NUMA-local", 65_535),
];

/// What the file says.
#[derive(Debug, Default)]
struct Conf {
    numbers: BTreeMap<&'static str, u64>,
    addresses: BTreeMap<&'static str, IpAddr>,
    macs: BTreeMap<&'static str, MacAddr>,
}

fn value<T: FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}' is not {what}"))
}

impl Conf {
    fn read(file: &str, text: &str) -> Result<Self, ImportError> {
        let mut conf = Self::default();
        for (n, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let Some(key) = words.next() else { continue };
            let result = match (words.next(), words.next()) {
                (Some(word), None) => conf.set(key, word),
                _ => Err(format!("`{key}' has one value")),
            };
            result.map_err(|error| ImportError::Line { file: file.to_owned(), line: n + 1, error })?;
        }
        Ok(conf)
    }

    fn set(&mut self, key: &str, word: &str) -> Result<(), String> {
        if let Some(key) = ADDRESSES.iter().find(|k| **k == key) {
            let address = if key.starts_with("IPv4") {
                IpAddr::V4(value::<Ipv4Addr>(word, "an IPv4 address")?)
            } else {
                IpAddr::V6(value::<Ipv6Addr>(word, "an IPv6 address")?)
            };
            self.addresses.insert(key, address);
        } else if let Some(key) = MACS.iter().find(|k| **k == key) {
            self.macs.insert(key, value(word, "an Ethernet address")?);
        } else if let Some((key, most)) = NUMBERS.iter().find(|(k, _)| *k == key) {
            let number = match word.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| format!("`{word}' is not a number"))?,
                None => value(word, "a number")?,
            };
            if number > *most {
                return Err(format!("`{key}' is at most {most}"));
            }
            self.numbers.insert(key, number);
        } else {
            return Err(format!("`{key}' is no key of siitperf's"));
        }
        Ok(())
    }

    /// A number, or what siitperf takes where the file does not say it.
    fn number(&self, key: &str, unset: u64) -> u64 {
        self.numbers.get(key).copied().unwrap_or(unset)
    }

    fn version(&self, side: char) -> Result<u64, String> {
        let key = format!("IP-{side}-Vers");
        match self.numbers.get(key.as_str()) {
            Some(version @ (4 | 6)) => Ok(*version),
            _ => Err(format!("`{key}' is 4 or 6")),
        }
    }

    /// The address of `owner` that a sender of this version uses for it: its real one where it has that version itself.
    fn address(&self, version: u64, owner: char) -> Result<IpAddr, String> {
        let kind = if self.version(owner)? == version { "Real" } else { "Virt" };
        let key = format!("IPv{version}-{owner}-{kind}");
        let address = self.addresses.get(key.as_str()).filter(|a| !a.is_unspecified());
        address.copied().ok_or_else(|| format!("`{key}' is missing: IPv{version} frames need it"))
    }

    /// An address as a field: fixed, or varying in the 16 bits that the file names, or in its network.
    fn varied(&self, address: IpAddr, owner: char, destination: bool) -> Result<Value, String> {
        let version = if address.is_ipv4() { 4 } else { 6 };
        let (base, bytes) = match address {
            IpAddr::V4(a) => (u128::from(a.to_bits()), 4),
            IpAddr::V6(a) => (a.to_bits(), 16),
        };
        let show =
            |n: u128| if version == 4 { Ipv4Addr::from_bits(n as u32).to_string() } else { Ipv6Addr::from_bits(n).to_string() };
        let var = self.number(&format!("IP-{owner}-var"), 0);
        // Of the other side's networks a sender draws one for each frame; its own is the first.
        let networks = if destination { self.number(&format!("Num-{owner}-Nets"), 1) } else { 1 };
        let (first, last, bit) = match (var, networks) {
            (0, 0 | 1) => return Ok(json!(address.to_string())),
            (0, n) => {
                let bit = if version == 4 { 8 } else { 64 };
                (0, u128::from(n) - 1, bit)
            }
            (_, 0 | 1) => {
                let offset = self.number(&format!("IPv{version}-{owner}-offset"), if version == 4 { 2 } else { 14 });
                let allowed = if version == 4 { 1..=2 } else { 6..=14 };
                if !allowed.contains(&offset) {
                    return Err(format!("`IPv{version}-{owner}-offset' is {} to {}", allowed.start(), allowed.end()));
                }
                let number = |end: &str, unset: u64| u128::from(self.number(&format!("IP-{owner}-{end}"), unset));
                (number("min", 0), number("max", 65_535), 8 * (bytes - 2 - offset))
            }
            _ => return Err(format!("`IP-{owner}-var' and `Num-{owner}-Nets' vary the same address")),
        };
        if last < first {
            return Err(format!("`IP-{owner}-max' is less than `IP-{owner}-min'"));
        }
        let width: u128 = if var == 0 { 0xff } else { 0xffff };
        let at = |n: u128| show(base & !(width << bit) | n << bit);
        // A distance, as an address: steps may be wider than numbers of JSON.
        let step = json!(show(1 << bit));
        let (kind, first, last) = match var {
            1 => ("increment", at(first), at(last)),
            2 => ("decrement", at(last), at(first)),
            _ => ("random", at(first), at(last)),
        };
        Ok(json!({ kind: { "first": first, "last": last, "step": step } }))
    }

    /// A port as a field.
    fn port(&self, direction: &str, which: &str, fixed: u16, usual: (u64, u64)) -> Result<Value, String> {
        let key = |word: &str| format!("{direction}-{word}");
        let number = |word: &str, unset: u64| self.number(&key(word), unset);
        let (least, most) = (number(&format!("{which}-min"), usual.0), number(&format!("{which}-max"), usual.1));
        let var = number(&format!("var-{which}"), 0);
        if var != 0 && most < least {
            return Err(format!("`{}' is less than `{}'", key(&format!("{which}-max")), key(&format!("{which}-min"))));
        }
        Ok(match var {
            0 => json!(fixed),
            1 => json!({ "increment": { "first": least, "last": most } }),
            2 => json!({ "decrement": { "first": most, "last": least } }),
            _ => json!({ "random": { "first": least, "last": most } }),
        })
    }

    /// What siitperf sends beside the frames that are translated: IPv6 between the real addresses, with the same ports.
    fn background(&self, name: &str, direction: &str, sides: (char, char)) -> Result<Vec<(&'static str, Value)>, String> {
        let real = |side: char| {
            let key = format!("IPv6-{side}-Real");
            let address = self.addresses.get(key.as_str()).filter(|a| !a.is_unspecified()).copied();
            address.ok_or_else(|| format!("`{key}' is missing: background traffic is IPv6 between real addresses"))
        };
        self.stream_between(name, direction, sides, (real(sides.0)?, real(sides.1)?))
    }

    fn stream(&self, name: &str, direction: &str, (own, other): (char, char)) -> Result<Vec<(&'static str, Value)>, String> {
        let version = self.version(own)?;
        let addresses = (self.address(version, own)?, self.address(version, other)?);
        self.stream_between(name, direction, (own, other), addresses)
    }

    fn stream_between(
        &self,
        name: &str,
        direction: &str,
        (own, other): (char, char),
        (from, to): (IpAddr, IpAddr),
    ) -> Result<Vec<(&'static str, Value)>, String> {
        let ip = json!({ "src": self.varied(from, own, false)?, "dst": self.varied(to, other, true)? });
        let src = self.port(direction, "sport", FIXED_PORTS.0, (1024, 65_535))?;
        let dst = self.port(direction, "dport", FIXED_PORTS.1, (1, 49_151))?;
        let mut keys = vec![("name", json!(name))];
        if own == 'R' {
            keys.push(("from", json!("right")));
        }
        keys.push((if from.is_ipv4() { "ipv4" } else { "ipv6" }, ip));
        keys.push(("udp", json!({ "src": src, "dst": dst })));
        Ok(keys)
    }

    /// What belongs to the ports, as their keys.
    fn port_keys(&self, side: char) -> String {
        let mut keys = Vec::new();
        let mut add = |key: &str, value: Option<String>| keys.extend(value.map(|v| format!("{key}={v}")));
        let mac = |who: &str| self.macs.get(format!("MAC-{side}-{who}").as_str()).map(ToString::to_string);
        let core = |what: &str| self.numbers.get(format!("CPU-{side}-{what}").as_str()).map(ToString::to_string);
        add("mac", mac("Tester"));
        add("dst-mac", mac("DUT"));
        add("tx-core", core("Send"));
        add("rx-core", core("Recv"));
        keys.join(",")
    }
}

/// The connections of a stateful test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatefulTest {
    /// Addresses and ports.
    pub ends: Ends,
    /// In which order they come.
    pub order: Order,
    /// Whether the initiator is on the left.
    pub from_left: bool,
}

impl Conf {
    /// Addresses of a side as a sender of this version writes them, in a row.
    fn row(&self, version: u64, owner: char) -> Result<AddressRange, String> {
        let address = self.address(version, owner)?;
        if self.number(&format!("Num-{owner}-Nets"), 1) > 1 {
            return Err(format!("`Num-{owner}-Nets' is 1 in stateful tests"));
        }
        if self.number(&format!("IP-{owner}-var"), 0) == 0 {
            return Ok(address.into());
        }
        let last_bits = if version == 4 { 2 } else { 14 };
        if self.number(&format!("IPv{version}-{owner}-offset"), last_bits) != last_bits {
            return Err(format!(
                "`IPv{version}-{owner}-offset' is {last_bits} here: addresses that vary in other than their last 16 bits are in no row"
            ));
        }
        let end = |word: &str, unset: u64| {
            let low = self.number(&format!("IP-{owner}-{word}"), unset);
            match address {
                IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() & !0xffff | low as u32).to_string(),
                IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() & !0xffff | u128::from(low)).to_string(),
            }
        };
        format!("{}-{}", end("min", 0), end("max", 65_535)).parse()
    }

    /// Ports in a row, where they vary.
    fn port_row(&self, direction: &str, which: &str, fixed: u16, usual: (u64, u64)) -> Result<PortRange, String> {
        let key = |word: &str| format!("{direction}-{word}");
        if self.number(&key(&format!("var-{which}")), 0) == 0 && self.number("Enumerate-ports", 0) == 0 {
            return Ok(PortRange { first: fixed, last: fixed });
        }
        let [first, last] =
            [("min", usual.0), ("max", usual.1)].map(|(end, unset)| self.number(&key(&format!("{which}-{end}")), unset) as u16);
        if last < first {
            return Err(format!("`{}' is less than `{}'", key(&format!("{which}-max")), key(&format!("{which}-min"))));
        }
        Ok(PortRange { first, last })
    }

    fn stateful(&self) -> Result<StatefulTest, String> {
        let (own, other, direction) = match self.number("Stateful", 0) {
            1 => ('L', 'R', "Fwd"),
            2 => ('R', 'L', "Rev"),
            _ => return Err("`Stateful' is 0: that is no stateful test".to_owned()),
        };
        for key in ["Responder-tuples", "Responder-ports"] {
            let number = self.number(key, 3);
            if number != 3 {
                return Err(format!("`{key}' {number}: the responder draws from its state table here, which is 3"));
            }
        }
        let version = self.version(own)?;
        let ends = Ends {
            initiators: self.row(version, own)?,
            responders: self.row(version, other)?,
            initiator_ports: self.port_row(direction, "sport", FIXED_PORTS.0, (1024, 65_535))?,
            responder_ports: self.port_row(direction, "dport", FIXED_PORTS.1, (1, 49_151))?,
        };
        let order = match self.number("Enumerate-ports", 0).max(self.number("Enumerate-ips", 0)) {
            1 => Order::Increasing,
            2 => Order::Decreasing,
            _ => Order::Random,
        };
        Ok(StatefulTest { ends, order, from_left: own == 'L' })
    }
}

/// The stateful test that the text of a `siitperf.conf` describes; `file` is what messages call it.
///
/// # Errors
/// A line that siitperf would not take, or something that cannot be measured here.
pub fn stateful(file: &str, text: &str) -> Result<StatefulTest, ImportError> {
    Conf::read(file, text)?.stateful().map_err(|error| ImportError::Content { file: file.to_owned(), error })
}

/// Background traffic, as the arguments `n` and `m` of siitperf's programs say it: of each `n` frames `m` belong to the foreground, and
/// the others are IPv6 that no device translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    n: u32,
    m: u32,
}

impl Default for Background {
    /// None.
    fn default() -> Self {
        Self { n: 1, m: 1 }
    }
}

impl FromStr for Background {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(n, m)| Some((n.parse().ok()?, m.parse().ok()?)));
        match numbers {
            Some((n, m)) if n > 0 && m <= n => Ok(Self { n, m }),
            _ => Err(format!("`{text}' is not N:M, of N frames M in the foreground: 10:9 has one of ten in the background")),
        }
    }
}

/// The profile that the text of a `siitperf.conf` describes; `file` is what messages call it.
///
/// # Errors
/// A line that siitperf would not take, or something that profiles cannot say.
pub fn profile(file: &str, text: &str) -> Result<String, ImportError> {
    profile_beside(file, text, Background::default())
}

/// The same with background traffic.
///
/// # Errors
/// See [`profile`].
pub fn profile_beside(file: &str, text: &str, background: Background) -> Result<String, ImportError> {
    let conf = Conf::read(file, text)?;
    let content = |error: String| ImportError::Content { file: file.to_owned(), error };
    if conf.number("Stateful", 0) != 0 {
        let error = "`Stateful' tests have two phases, which a profile has not: `quiver-tester stateful --siitperf' reads them";
        return Err(content(error.to_owned()));
    }
    let mut streams = Vec::new();
    for (key, name, direction, sides) in [("Forward", "forward", "Fwd", ('L', 'R')), ("Reverse", "reverse", "Rev", ('R', 'L'))] {
        if conf.number(key, 1) != 0 {
            let Background { n, m } = background;
            let front = (m > 0).then(|| (m, conf.stream(name, direction, sides)));
            let back = (n > m).then(|| (n - m, conf.background(&format!("{name}-background"), direction, sides)));
            for (part, stream) in [front, back].into_iter().flatten() {
                let mut stream = stream.map_err(content)?;
                stream.extend((n > m && m > 0).then(|| ("share", json!(part))));
                streams.push(stream);
            }
        }
    }
    if streams.is_empty() {
        return Err(content("neither `Forward' nor `Reverse' is active".to_owned()));
    }
    let mut comments = vec![
        "Imported from siitperf's configuration. Frame size, rate and duration are the trial's; siitperf makes IPv4 frames"
            .to_owned(),
    ];
    let Background { n, m } = background;
    let traffic = if n == m { "Foreground traffic only.".to_owned() } else { format!("Of {n} frames {m} are foreground traffic.") };
    comments.push(format!("20 bytes shorter than the size that it is given. {traffic}"));
    for (side, word) in [('L', "left"), ('R', "right")] {
        comments.push(format!("{word} port: {}", conf.port_keys(side)));
    }
    Ok(text::profile(&comments, "siitperf", &streams))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::{Maker, Surroundings};
    use crate::profile::{Field, Profile, Side, Size};

    const CONF: &str = "
# a router: IPv6 on the left, IPv4 on the right
IP-L-Vers 6
IP-R-Vers 4 # other family
IPv6-L-Real 2001:2::2
IPv6-R-Virt 64:ff9b::198.19.0.2
IPv4-R-Real 198.19.0.2
IPv4-L-Virt 198.18.0.2
IPv4-L-Real 0.0.0.0
MAC-L-Tester 02:00:00:00:00:01
MAC-L-DUT 02:00:00:00:00:0a
Forward 1
Reverse 1
Num-L-Nets 1
Num-R-Nets 1
CPU-L-Send 2
CPU-L-Recv 8
MEM-Channels 4
Fwd-var-sport 3
Fwd-var-dport 1
Fwd-sport-min 1024
Fwd-sport-max 65535
Fwd-dport-min 1
Fwd-dport-max 49151
Rev-var-sport 2
Rev-sport-min 5
Rev-sport-max 9
";

    fn with(more: &str) -> Result<Profile, String> {
        let text = profile("siitperf.conf", &format!("{CONF}{more}")).map_err(|e| e.to_string())?;
        Ok(Profile::of_yaml("p", &text).unwrap())
    }

    #[test]
    fn each_side_sends_its_own_family_from_its_real_address_to_what_stands_for_the_other() {
        let read = with("").unwrap();
        let (left, right) = (&read.streams[0], &read.streams[1]);
        let (six, four) = (left.ipv6.as_ref().unwrap(), right.ipv4.as_ref().unwrap());
        assert_eq!(six.src, Some(Field::Fixed("2001:2::2".parse().unwrap())));
        assert_eq!(six.dst, Some(Field::Fixed("64:ff9b::198.19.0.2".parse().unwrap())));
        assert_eq!(four.src, Some(Field::Fixed("198.19.0.2".parse().unwrap())));
        assert_eq!(four.dst, Some(Field::Fixed("198.18.0.2".parse().unwrap())));
        assert_eq!(right.from, Side::Right);
        let (fwd, rev) = (left.udp.as_ref().unwrap(), right.udp.as_ref().unwrap());
        assert_eq!(fwd.src, Some(Field::Random { first: 1024, last: 65_535, step: 1, seed: None }));
        assert_eq!(fwd.dst, Some(Field::Increment { first: 1, last: 49_151, step: 1, every: 1 }));
        assert_eq!(rev.src, Some(Field::Decrement { first: 9, last: 5, step: 1, every: 1 }));
        assert_eq!(rev.dst, Some(Field::Fixed(7)));
        let text = profile("c", CONF).unwrap();
        assert!(text.contains("# left port: mac=02:00:00:00:00:01,dst-mac=02:00:00:00:00:0a,tx-core=2,rx-core=8\n"), "{text}");
    }

    #[test]
    fn networks_and_varying_addresses_lie_where_siitperf_has_them() {
        let addresses = |more: &str| {
            let read = with(more).unwrap();
            let around = Surroundings { src: MacAddr([2; 6]), dst: Some(MacAddr([2; 6])), ethernet: true, id: 0, tag: 1, seed: 1 };
            let mut maker = Maker::new(&read.streams[0], Some(&Size::Fixed(90)), &around).unwrap();
            (0..3000).map(|_| maker.make_bytes(0)[14 + 24..14 + 40].to_vec()).collect::<std::collections::BTreeSet<_>>()
        };
        let networks = addresses("Num-R-Nets 16\n");
        assert_eq!(networks.len(), 16);
        assert!(networks.iter().all(|a| a[7] < 16 && a[..2] == [0, 0x64] && a[15] == 2));
        let varied = addresses("IP-R-var 3\nIP-R-min 0\nIP-R-max 0xff\nIPv6-R-offset 11\n");
        assert_eq!(varied.len(), 256);
        assert!(varied.iter().all(|a| a[11] == 0 && a[13..] == [19, 0, 2]));
        let four = with("IP-L-var 1\nIP-L-min 2\nIP-L-max 65534\nIPv4-L-offset 1\n").unwrap();
        let ([first, last], step) = (["198.0.2.2", "198.255.254.2"].map(|a| a.parse().unwrap()), 256);
        assert_eq!(four.streams[1].ipv4.as_ref().unwrap().dst, Some(Field::Increment { first, last, step, every: 1 }));
    }

    #[test]
    fn background_traffic_is_a_stream_with_the_rest_of_the_frames() {
        let read = |n_m: &str, more: &str| {
            let text = profile_beside("c.conf", &format!("{CONF}{more}"), n_m.parse().unwrap()).map_err(|e| e.to_string())?;
            Ok::<_, String>(Profile::of_yaml("p", &text).unwrap().streams)
        };
        let of = |streams: &[crate::profile::Stream]| {
            streams.iter().map(|s| (s.name.clone(), s.share, s.ipv6.is_some())).collect::<Vec<_>>()
        };
        let row = |name: &str, share: f64, v6| (name.to_owned(), Some(share), v6);
        let both = read("10:9", "IPv6-R-Real 2001:2:0:8000::2\nNum-R-Nets 4\n").unwrap();
        let rows = [
            row("forward", 9.0, true),
            row("forward-background", 1.0, true),
            row("reverse", 9.0, false),
            row("reverse-background", 1.0, true),
        ];
        assert_eq!(of(&both), rows);
        let (left, right) = (both[1].ipv6.as_ref().unwrap(), both[3].ipv6.as_ref().unwrap());
        assert_eq!((&left.src, &right.dst), (&Some(Field::Fixed("2001:2::2".parse().unwrap())), &left.src));
        assert_eq!(right.src, Some(Field::Fixed("2001:2:0:8000::2".parse().unwrap())));
        assert!(matches!(left.dst, Some(Field::Random { first, .. }) if first == "2001:2:0:8000::2".parse::<Ipv6Addr>().unwrap()));
        assert!(matches!(both[1].udp.as_ref().unwrap().dst, Some(Field::Increment { .. })), "ports as in the foreground");
        let none = read("3:3", "").unwrap();
        assert!(none.len() == 2 && none.iter().all(|s| s.share.is_none()));
        let only = read("2:0", "IPv6-R-Real 2001:2:0:8000::2\nReverse 0\n").unwrap();
        assert_eq!(of(&only), [("forward-background".to_owned(), None, true)]);
        assert!(read("2:1", "").unwrap_err().contains("`IPv6-R-Real' is missing"));
        for text in ["1", "1:2", "0:0", "a:b", "-1:1"] {
            assert!(text.parse::<Background>().unwrap_err().contains("is not N:M"), "{text}");
        }
    }

    #[test]
    fn stateful_tests_have_the_connections_that_siitperf_would_open() {
        let read = |more: &str| stateful("siitperf.conf", &format!("{CONF}{more}")).map_err(|e| e.to_string());
        let test = read("Stateful 1\nEnumerate-ports 3\nFwd-sport-min 1\nFwd-sport-max 40000\nFwd-dport-max 100\n").unwrap();
        assert_eq!((test.order, test.from_left), (Order::Random, true));
        let Ends { initiators, responders, initiator_ports, responder_ports } = test.ends;
        assert_eq!((initiators.to_string().as_str(), responders.to_string().as_str()), ("2001:2::2", "64:ff9b::c613:2"));
        assert_eq!((initiator_ports.to_string().as_str(), responder_ports.to_string().as_str()), ("1-40000", "1-100"));
        // From the other side, with addresses that vary and ports that do not.
        let more = "Stateful 2\nEnumerate-ips 1\nRev-var-sport 0\nIP-L-var 1\nIP-L-min 2\nIP-L-max 1001\n";
        let test = read(more).unwrap();
        assert_eq!((test.order, test.from_left), (Order::Increasing, false));
        assert_eq!(
            (test.ends.initiators.to_string().as_str(), test.ends.responders.to_string().as_str()),
            ("198.19.0.2", "198.18.0.2-198.18.3.233")
        );
        assert_eq!((test.ends.initiator_ports.first, test.ends.responder_ports.last), (0xc020, 7));
        for (more, words) in [
            ("", "no stateful test"),
            ("Stateful 1\nResponder-tuples 1\n", "`Responder-tuples' 1"),
            ("Stateful 1\nNum-R-Nets 2\n", "`Num-R-Nets' is 1"),
            ("Stateful 1\nIP-R-var 3\nIPv6-R-offset 12\n", "`IPv6-R-offset' is 14 here"),
            ("Stateful 1\nIP-R-var 3\nIP-R-min 5\nIP-R-max 3\n", "ends before it begins"),
            ("Stateful 1\nFwd-sport-min 9\nFwd-sport-max 3\n", "`Fwd-sport-max' is less"),
        ] {
            let error = read(more).unwrap_err();
            assert!(error.starts_with("siitperf.conf") && error.contains(words) && !error.contains('\n'), "{more}: {error}");
        }
    }

    #[test]
    fn what_siitperf_would_not_take_is_refused_with_its_line() {
        for (more, words) in [
            ("Speed 5\n", "line 28: `Speed' is no key"),
            ("Forward\n", "`Forward' has one value"),
            ("Forward 1 2\n", "`Forward' has one value"),
            ("Fwd-var-sport 4\n", "at most 3"),
            ("IP-L-Vers 5\n", "`IP-L-Vers' is 4 or 6"),
            ("IPv4-R-Real 2001::1\n", "is not an IPv4 address"),
            ("MAC-R-DUT x\n", "is not an Ethernet address"),
            ("Fwd-sport-min 0xzz\n", "is not a number"),
            ("Fwd-sport-min 9\nFwd-sport-max 3\n", "`Fwd-sport-max' is less than"),
            ("Stateful 1\n", "two phases"),
            ("Forward 0\nReverse 0\n", "neither"),
            ("IPv4-L-Virt 0.0.0.0\n", "`IPv4-L-Virt' is missing"),
            ("IP-R-var 3\nNum-R-Nets 4\n", "vary the same address"),
            ("IP-R-var 3\nIP-R-min 5\nIP-R-max 4\n", "`IP-R-max' is less"),
            ("IP-R-var 3\nIPv6-R-offset 5\n", "6 to 14"),
        ] {
            let error = with(more).unwrap_err();
            assert!(error.starts_with("siitperf.conf") && error.contains(words) && !error.contains('\n'), "{more}: {error}");
        }
    }
}
