use super::*;
use proptest::prelude::*;

fn p4(text: &str) -> Ipv4Prefix {
    text.parse().unwrap()
}

#[test]
fn errors_name_what_was_wrong() {
    for (text, error) in [
        ("10.0.0.0/33", "Invalid prefix len: 33"),
        ("10.0.0.0/256", "Invalid prefix len: 256"),
        ("10.0.0.0/-1", "Invalid prefix len: -1"),
        ("10.0.0.0/+8", "Invalid prefix len: +8"),
        ("10.0.0.0/", "Invalid prefix len: "),
        ("2001:db8::/129", "Invalid prefix len: 129"),
        ("10.0.0.256/8", "Invalid address: 10.0.0.256"),
        ("2001:db8:/32", "Invalid address: 2001:db8:"),
        ("elephant", "Invalid address: elephant"),
        ("10.0.0.1", "Missing prefix length: 10.0.0.1 (expected 10.0.0.1/LEN)"),
    ] {
        let got = text.parse::<IpPrefix>().unwrap_err().to_string();
        assert_eq!(got, error);
    }
    assert!(Ipv4Prefix::new(Ipv4Addr::UNSPECIFIED, 33).is_err());
}

#[test]
fn length_zero_contains_everything_and_full_length_one_address() {
    assert!(Ipv4Prefix::DEFAULT.contains(Ipv4Addr::BROADCAST));
    assert!(Ipv6Prefix::DEFAULT.contains(Ipv6Addr::LOCALHOST));
    let host = p4("10.0.0.1/32");
    assert!(host.is_host() && host.contains(Ipv4Addr::new(10, 0, 0, 1)));
    assert!(!host.contains(Ipv4Addr::new(10, 0, 0, 0)));
}

#[test]
fn host_bits_are_kept_until_masked() {
    let prefix = p4("10.1.2.3/16");
    assert_eq!(prefix.to_string(), "10.1.2.3/16");
    assert_eq!(prefix.masked(), p4("10.1.0.0/16"));
    assert_eq!(prefix.network(), Ipv4Addr::new(10, 1, 0, 0));
    assert_eq!(prefix.last(), Ipv4Addr::new(10, 1, 255, 255));
    assert!(prefix.covers(p4("10.1.9.0/24")) && !prefix.covers(p4("10.0.0.0/15")));
}

#[test]
fn the_nth_prefix_stops_at_the_end_of_the_address_space() {
    assert_eq!(p4("10.0.0.0/24").nth(256), Some(p4("10.1.0.0/24")));
    assert_eq!(p4("255.255.255.0/24").nth(1), None);
    assert_eq!(p4("0.0.0.0/24").nth(1 << 24), None);
    assert_eq!(p4("0.0.0.0/0").nth(0), Some(Ipv4Prefix::DEFAULT));
    assert_eq!(p4("0.0.0.0/0").nth(1), None);
    assert_eq!(p4("1.2.3.4/32").nth(2), Some(p4("1.2.3.6/32")));
}

#[test]
fn families_never_contain_each_other() {
    let all4 = IpPrefix::V4(Ipv4Prefix::DEFAULT);
    assert!(!all4.contains("::".parse().unwrap()));
    assert!(all4.contains("1.2.3.4".parse().unwrap()));
}

proptest! {
    #[test]
    fn contains_is_comparing_the_leading_bits_one_by_one(
        addr: u128, other: u128, same in 0u8..=128, len in 0u8..=128,
    ) {
        // `other` shares the first `same` bits, so that both answers are common
        let keep = u128::MAX.checked_shl(128 - u32::from(same)).unwrap_or(0);
        let other = (addr & keep) | (other & !keep);
        let prefix = Ipv6Prefix::new(Ipv6Addr::from_bits(addr), len).unwrap();
        let slow = (0..len).all(|bit| (addr >> (127 - bit)) & 1 == (other >> (127 - bit)) & 1);
        prop_assert_eq!(prefix.contains(Ipv6Addr::from_bits(other)), slow);
    }

    #[test]
    fn text_round_trips(v4: u32, len4 in 0u8..=32, v6: u128, len6 in 0u8..=128) {
        let prefix = IpPrefix::new(Ipv4Addr::from_bits(v4).into(), len4).unwrap();
        prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        let prefix = IpPrefix::new(Ipv6Addr::from_bits(v6).into(), len6).unwrap();
        prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text: String) {
        let _ = text.parse::<IpPrefix>();
    }
}

#[cfg(feature = "serde")]
#[test]
fn serde_form_is_the_text() {
    let prefix: IpPrefix = "2001:db8::/32".parse().unwrap();
    let json = serde_json::to_string(&prefix).unwrap();
    assert_eq!(json, "\"2001:db8::/32\"");
    assert_eq!(serde_json::from_str::<IpPrefix>(&json).unwrap(), prefix);
    let error = serde_json::from_str::<IpPrefix>("\"10.0.0.0/33\"").unwrap_err();
    assert!(error.to_string().contains("Invalid prefix len: 33"));
}
