//! Masks and matches in VPP's words: `hex 00ff…`, `l2 src dst`, `l3 ip4 src/24 proto`, `l4 dst_port`. What a mask names, a match
//! gives a value: `l3 ip4 src 192.0.2.1`.

use quiver_command::grammar::Args;
use quiver_command::operation::OpError;
use quiver_command::request::{Argument, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::view::{MATCH_MAX, SKIP_MAX, VECTOR};

/// Bytes at most: skipped ones and compared ones.
const BYTES_MAX: usize = (MATCH_MAX + SKIP_MAX) as usize * VECTOR;
/// Bytes of an Ethernet header, and of one tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// Bytes of a mask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask(pub Vec<u8>);

/// Bytes of a match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match(pub Vec<u8>);

/// A field that is a number: its words, first bit and bits.
type Field = (&'static [&'static str], usize, usize);

const IP4: &[Field] = &[
    (&["version"], 0, 4),
    (&["hdr_length"], 4, 4),
    (&["tos"], 8, 8),
    (&["length"], 16, 16),
    (&["fragment_id"], 32, 16),
    (&["ttl"], 64, 8),
    (&["proto", "protocol"], 72, 8),
    (&["checksum"], 80, 16),
];
const IP6: &[Field] = &[
    (&["version"], 0, 4),
    (&["traffic-class", "traffic_class"], 4, 8),
    (&["flow-label", "flow_label"], 12, 20),
    (&["payload_length"], 32, 16),
    (&["proto", "protocol"], 48, 8),
    (&["hop_limit"], 56, 8),
];
const L4: &[Field] = &[(&["src_port", "src"], 0, 16), (&["dst_port", "dst"], 16, 16)];
/// Ethernet's types by name.
const TYPES: &[(&str, u64)] = &[("ip4", 0x0800), ("arp", 0x0806), ("ip6", 0x86dd)];

/// Sets bits that are zero to a number's.
fn put(bytes: &mut [u8], first: usize, bits: usize, number: u128) {
    for bit in 0..bits {
        if number >> (bits - 1 - bit) & 1 == 1
            && let Some(byte) = bytes.get_mut((first + bit) / 8)
        {
            *byte |= 0x80 >> ((first + bit) % 8);
        }
    }
}

fn ones(bits: usize) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// The value of a field: all ones in a mask, the number that follows in a match.
fn number(args: &mut Args<'_>, is_mask: bool, name: &str, bits: usize) -> Result<u128, OpError> {
    if is_mask { Ok(ones(bits)) } else { Ok(args.number_in::<u64>(name, 0..=ones(bits) as u64)?.into()) }
}

fn numbers(args: &mut Args<'_>, is_mask: bool, fields: &[Field], bytes: &mut [u8]) -> Result<bool, OpError> {
    for (names, first, bits) in fields {
        if let Some(name) = names.iter().find(|name| args.take_exact(name)) {
            put(bytes, *first, *bits, number(args, is_mask, name, *bits)?);
            return Ok(true);
        }
    }
    Ok(false)
}

/// An address: `src`, `src/24` in a mask; `src 192.0.2.1` in a match.
fn address(args: &mut Args<'_>, is_mask: bool, name: &str, bits: usize) -> Result<Option<u128>, OpError> {
    let Some(word) = args.peek() else { return Ok(None) };
    let word = word.into_owned();
    let long = format!("{name}_address");
    if word == name || word == long {
        args.word(name)?;
        if is_mask {
            return Ok(Some(ones(bits)));
        }
        return Ok(Some(if bits == 32 { args.ip4(name)?.to_bits().into() } else { args.ip6(name)?.to_bits() }));
    }
    let Some(len) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')).filter(|_| is_mask) else { return Ok(None) };
    let len: usize = len
        .parse()
        .ok()
        .filter(|len| *len <= bits)
        .ok_or_else(|| OpError::invalid(name.to_owned(), &word, format!("expected {name}/0 to {name}/{bits}")))?;
    args.word(name)?;
    Ok(Some(ones(bits) & !ones(bits - len)))
}

fn layer3(args: &mut Args<'_>, is_mask: bool) -> Result<Vec<u8>, OpError> {
    let (fields, len, bits, source) = match args.expect_one_of(&[("ip4", 4), ("ip6", 6)])? {
        4 => (IP4, 20, 32, 96),
        _ => (IP6, 40, 128, 64),
    };
    let (mut bytes, mut any) = (vec![0; len], false);
    loop {
        if numbers(args, is_mask, fields, &mut bytes)? {
        } else if let Some(src) = address(args, is_mask, "src", bits)? {
            put(&mut bytes, source, bits, src);
        } else if let Some(dst) = address(args, is_mask, "dst", bits)? {
            put(&mut bytes, source + bits, bits, dst);
        } else if any {
            return Ok(bytes);
        } else {
            return Err(args.unexpected());
        }
        any = true;
    }
}

fn layer4(args: &mut Args<'_>, is_mask: bool) -> Result<Vec<u8>, OpError> {
    let _ = args.take_exact("tcp") || args.take_exact("udp");
    let (mut bytes, mut any) = (vec![0; 4], false);
    while numbers(args, is_mask, L4, &mut bytes)? {
        any = true;
    }
    if any { Ok(bytes) } else { Err(args.unexpected()) }
}

fn layer2(args: &mut Args<'_>, is_mask: bool) -> Result<Vec<u8>, OpError> {
    let (mut bytes, mut tags, mut kind, mut any) = (vec![0; ETHERNET + 2 * TAG], 0, None, false);
    loop {
        let mac = |args: &mut Args<'_>, name| match is_mask {
            true => Ok(ones(48)),
            false => args.mac(name).map(|mac| mac.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte))),
        };
        if args.take_exact("src") {
            put(&mut bytes, 48, 48, mac(args, "src")?);
        } else if args.take_exact("dst") {
            put(&mut bytes, 0, 48, mac(args, "dst")?);
        } else if args.take_exact("proto") {
            let named = args.take_one_of(TYPES).filter(|_| !is_mask);
            kind = Some(match named {
                Some(named) => named.into(),
                None => number(args, is_mask, "proto", 16)?,
            });
        } else if args.take_exact("tag1") {
            tags = tags.max(1);
            put(&mut bytes, 8 * ETHERNET + 4, 12, number(args, is_mask, "tag1", 12)?);
        } else if args.take_exact("tag2") {
            tags = 2;
            put(&mut bytes, 8 * (ETHERNET + TAG) + 4, 12, number(args, is_mask, "tag2", 12)?);
        } else if args.take_exact("cos1") {
            tags = tags.max(1);
            put(&mut bytes, 8 * ETHERNET, 3, number(args, is_mask, "cos1", 3)?);
        } else if args.take_exact("cos2") {
            tags = 2;
            put(&mut bytes, 8 * (ETHERNET + TAG), 3, number(args, is_mask, "cos2", 3)?);
        } else if args.take_exact("ignore-tag1") || args.take_exact("dot1q") {
            tags = tags.max(1);
        } else if args.take_exact("ignore-tag2") || args.take_exact("dot1ad") {
            tags = 2;
        } else if any {
            break;
        } else {
            return Err(args.unexpected());
        }
        any = true;
    }
    bytes.truncate(ETHERNET + TAG * tags);
    if let Some(kind) = kind {
        put(&mut bytes, 8 * (12 + TAG * tags), 16, kind);
    }
    Ok(bytes)
}

/// Takes a mask, or a match.
fn take(args: &mut Args<'_>, is_mask: bool) -> Result<Vec<u8>, OpError> {
    if args.take_exact("hex") {
        return from_hex(&args.word("hex")?).map_err(|text| OpError::invalid("hex", "", text));
    }
    let (mut l2, mut l3, mut l4, mut bare) = (None, None, None, false);
    loop {
        if args.take_exact("l2") {
            if args.take_exact("none") {
                bare = true;
            } else {
                l2 = Some(layer2(args, is_mask)?);
            }
        } else if args.take_exact("l3") {
            l3 = Some(layer3(args, is_mask)?);
        } else if args.take_exact("l4") {
            l4 = Some(layer4(args, is_mask)?);
        } else {
            break;
        }
    }
    if l2.is_none() && l3.is_none() {
        return Err(if l4.is_some() { args.missing("l3") } else { args.unexpected() });
    }
    if bare && l2.is_some() {
        return Err(OpError::invalid("l2", "none", "there are fields of layer 2 too"));
    }
    let mut bytes = l2.unwrap_or_else(|| vec![0; if bare { 0 } else { ETHERNET }]);
    bytes.extend(l3.unwrap_or_default());
    bytes.extend(l4.unwrap_or_default());
    Ok(bytes)
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let text = text.trim_start_matches("0x");
    if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 2 * BYTES_MAX {
        return Err(format!("expected hexadecimal digits, two for each of at most {BYTES_MAX} bytes"));
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2).unwrap_or_default(), 16);
    (0..text.len()).step_by(2).map(|at| byte(at).map_err(|_| "expected hexadecimal digits".to_owned())).collect()
}

/// Bytes as digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

macro_rules! pattern {
    ($type:ident, $kind:literal, $is_mask:literal) => {
        impl Value for $type {
            const KIND: &'static str = $kind;

            fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
                take(args, $is_mask).map(Self)
            }

            fn text(&self) -> String {
                format!("hex {}", to_hex(&self.0))
            }

            fn check(&self, argument: &Argument) -> Result<(), OpError> {
                if self.0.len() > BYTES_MAX {
                    return Err(OpError::invalid(argument.what(), self.0.len(), format!("at most {BYTES_MAX} bytes")));
                }
                Ok(())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&to_hex(&self.0))
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                from_hex(&text).map(Self).map_err(serde::de::Error::custom)
            }
        }
    };
}
pattern!(Mask, "mask", true);
pattern!(Match, "match", false);

impl Mask {
    /// What is compared, and vectors skipped before it. Vectors of zeros in front are those that are skipped. Where `skip` says how
    /// many are and they are not there, the mask begins behind them. It is filled up to whole vectors, or to `vectors`.
    ///
    /// # Errors
    /// More bits than `vectors` have, or none where their number is not given.
    pub fn split(&self, skip: Option<u32>, vectors: Option<u32>) -> Result<(u32, Vec<u8>), OpError> {
        let zeros = self.0.iter().take_while(|byte| **byte == 0).count() / VECTOR;
        let (skip, front) = match skip {
            Some(skip) if zeros >= skip as usize => (skip, skip as usize),
            Some(skip) => (skip, 0),
            None => (zeros as u32, zeros),
        };
        let mut mask = self.0.get(front * VECTOR..).unwrap_or_default().to_vec();
        let used = mask.iter().rposition(|byte| *byte != 0).map_or(0, |last| last / VECTOR + 1);
        let wanted = vectors.map_or(used, |n| n as usize);
        if used > wanted {
            return Err(OpError::invalid("match", wanted, format!("the mask has {used} vectors of 16 bytes")));
        }
        if wanted == 0 || wanted > MATCH_MAX as usize {
            return Err(OpError::invalid("match", wanted, "a mask has 1 to 5 vectors of 16 bytes"));
        }
        mask.resize(wanted * VECTOR, 0);
        Ok((skip, mask))
    }

    /// The mask with its skipped vectors, the contrary of [`split`](Self::split).
    pub fn joined(skip: u32, mask: &[u8]) -> Self {
        Self([&vec![0; skip as usize * VECTOR], mask].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(text: &str) -> Vec<u8> {
        take(&mut Args::new(text), true).unwrap()
    }

    fn matched(text: &str) -> Vec<u8> {
        take(&mut Args::new(text), false).unwrap()
    }

    #[test]
    fn masks_are_bytes_of_the_headers() {
        assert_eq!(to_hex(&mask("l3 ip4 src")), format!("{}ffffffff00000000", "00".repeat(26)));
        assert_eq!(to_hex(&mask("l2 none l3 ip4 src/20 proto")), "000000000000000000ff0000fffff00000000000");
        assert_eq!(to_hex(&mask("l2 dst proto")), "ffffffffffff000000000000ffff");
        assert_eq!(to_hex(&mask("l2 tag1 cos1 proto")), "000000000000000000000000".to_owned() + "0000" + "efff" + "ffff");
        assert_eq!(to_hex(&mask("l2 none l3 ip6 flow-label l4 dst_port")), format!("000fffff{}0000ffff", "00".repeat(36)));
        assert_eq!(to_hex(&mask("hex 00ff")), "00ff");
        for wrong in ["l3 ip4", "l4 src_port", "l3 ip4 src/33", "hex 0", "hex xy", "l2 none l2 src", "l5"] {
            assert!(take(&mut Args::new(wrong), true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn matches_have_values() {
        assert_eq!(
            to_hex(&matched("l2 none l3 ip4 src 192.0.2.1 proto 17 l4 dst_port 53")),
            "000000000000000000110000c0000201000000000000".to_owned() + "0035"
        );
        assert_eq!(to_hex(&matched("l2 src 02:00:00:00:00:07 proto ip6")), "000000000000020000000007".to_owned() + "86dd");
        assert_eq!(
            to_hex(&matched("l2 none l3 ip6 dst 2001:db8::1")),
            format!("{}20010db8000000000000000000000001", "00".repeat(24))
        );
        assert!(take(&mut Args::new("l3 ip4 proto 256"), false).is_err());
    }

    #[test]
    fn zeros_in_front_are_skipped() {
        let (skip, bytes) = Mask(mask("l3 ip4 src")).split(None, None).unwrap();
        assert_eq!((skip, bytes.len(), to_hex(&bytes)), (1, 16, "00000000000000000000ffffffff0000".to_owned()));
        assert_eq!(Mask::joined(skip, &bytes).split(Some(1), Some(1)).unwrap(), (skip, bytes.clone()));
        assert_eq!(Mask(bytes.clone()).split(Some(1), None).unwrap(), (1, bytes.clone()), "what is behind them");
        let zeros = Mask([vec![0; 16], bytes].concat());
        assert_eq!(zeros.split(Some(0), Some(2)).unwrap().0, 0);
        assert!(zeros.split(Some(0), Some(1)).is_err());
        assert!(Mask(vec![0; 16]).split(None, None).is_err());
    }
}
