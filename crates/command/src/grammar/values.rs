//! Values that occur in many commands, each from one word.

use crate::operation::{OpError, retval};
use std::net::IpAddr;

/// A whole number in decimal or `0x` hexadecimal; none where the word is not one or exceeds 64 bits.
pub fn parse_number(word: &str) -> Option<u64> {
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hexadecimal) => (hexadecimal, 16),
        None => (word, 10),
    };
    // from_str_radix would take a sign.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Bytes, with `k`, `m`, `g` or `t` for powers of 1024, and an optional `b` behind.
pub fn parse_size(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    let unit = lower.strip_suffix('b').filter(|_| !lower.starts_with("0x")).unwrap_or(&lower);
    let (digits, shift) = match unit.as_bytes() {
        [digits @ .., b'k'] => (digits, 10),
        [digits @ .., b'm'] => (digits, 20),
        [digits @ .., b'g'] => (digits, 30),
        [digits @ .., b't'] => (digits, 40),
        digits => (digits, 0),
    };
    std::str::from_utf8(digits).ok().and_then(parse_number).and_then(|number| number.checked_mul(1 << shift))
}

/// A MAC address, `aa:bb:cc:dd:ee:ff` or `aabb.ccdd.eeff`.
pub fn parse_mac(word: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let (separator, digits) = if word.contains(':') { (':', 2) } else { ('.', 4) };
    let mut bytes = mac.iter_mut();
    for part in word.split(separator) {
        // Leading zeros may be left out, as in `2:0:0:0:0:1` and `1.2.3`.
        if part.is_empty() || part.len() > digits || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let value = u16::from_str_radix(part, 16).ok()?;
        let [high, low] = value.to_be_bytes();
        if digits == 4 {
            *bytes.next()? = high;
        }
        *bytes.next()? = low;
    }
    bytes.next().is_none().then_some(mac)
}

/// An address and prefix length, `10.0.0.0/8`. `Ok(None)` where the word is not an address followed by
/// a slash, an error where the length does not fit the address.
pub fn parse_prefix(word: &str) -> Result<Option<(IpAddr, u8)>, OpError> {
    let Some((address, length)) = word.split_once('/') else {
        return Ok(None);
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Ok(None);
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    match length.parse::<u8>() {
        Ok(bits) if bits <= longest && !length.starts_with('+') => Ok(Some((address, bits))),
        _ => Err(OpError::new(retval::INVALID_VALUE, format!("Invalid prefix len: {length}"))
            .key("prefix")
            .value(word)
            .remedy(format!("use 0 to {longest}"))),
    }
}

/// A whole-number type that [`Args::number`](super::Args::number) reads.
pub trait Number: Copy + PartialOrd + std::fmt::Display + TryFrom<u64> {
    /// The largest value.
    const MAX: u64;
}

macro_rules! numbers {
    ($($type:ty)*) => { $(impl Number for $type { const MAX: u64 = <$type>::MAX as u64; })* };
}
numbers!(u8 u16 u32 u64 usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (word, number) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("0x1F", Some(31)),
            ("0Xff", Some(255)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("0x", None),
            ("+1", None),
            ("0x+1", None),
            ("-1", None),
            ("12a", None),
            ("１", None),
        ] {
            assert_eq!(parse_number(word), number, "{word}");
        }
    }

    #[test]
    fn mac_addresses_in_both_notations() {
        let mac = Some([0x02, 0xfe, 0x00, 0xab, 0xcd, 0x01]);
        assert_eq!(parse_mac("02:fe:00:ab:cd:01"), mac);
        assert_eq!(parse_mac("2:fe:0:AB:cd:1"), mac);
        assert_eq!(parse_mac("02fe.00ab.cd01"), mac);
        assert_eq!(parse_mac("2fe.ab.cd01"), mac);
        for bad in [
            "",
            "02:fe:00:ab:cd",
            "02:fe:00:ab:cd:01:02",
            "02fe.00ab",
            "02fe.00ab.cd01.0000",
            "02fe.00ab.0cd01",
            "2fe..cd01",
            "02:fe:00:ab:cd:+1",
            "02:fe:00:ab:cd:0g",
            "02fe00abcd01",
            ":::::",
        ] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_prefix_length_must_fit_its_address() {
        assert_eq!(parse_prefix("10.0.0.1/24"), Ok(Some(("10.0.0.1".parse().unwrap(), 24))));
        assert_eq!(parse_prefix("2001:db8::/128"), Ok(Some(("2001:db8::".parse().unwrap(), 128))));
        for not_one in ["10.0.0.1", "10.0.0/8", "/8", "pg0/1"] {
            assert_eq!(parse_prefix(not_one), Ok(None), "{not_one}");
        }
        for bad in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/256"] {
            assert!(parse_prefix(bad).unwrap_err().message.starts_with("Invalid prefix len: "), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_word_panics(word in "\\PC*") {
            let _ = (parse_number(&word), parse_mac(&word), parse_prefix(&word));
        }

        #[test]
        fn numbers_read_back(number: u64) {
            prop_assert_eq!(parse_number(&number.to_string()), Some(number));
            prop_assert_eq!(parse_number(&format!("{number:#x}")), Some(number));
        }
    }
}
