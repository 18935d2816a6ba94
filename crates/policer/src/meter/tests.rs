//! Each algorithm against its document, in plain numbers of bytes and by the second.

use super::*;

const MS: u64 = 1_000_000;

fn rates(kind: Kind, cir: u32, eir: u32, cb: u64, eb: u64) -> Rates {
    Rates { kind, unit: Unit::Kbps, cir, eir, cb, eb }
}

/// The colours of packets of 500 bytes that come at a rate of `kbps` for 10 s, and all have this colour already.
fn run(rates: Rates, kbps: u64, input: Color) -> [u64; 3] {
    let limits = rates.limits(input != Color::Conform).unwrap();
    let (mut tokens, mut counts) = (limits.full(0), [0; 3]);
    // As VPP's test of its algorithms: 20,000 packets at 8 Mbit/s.
    for n in 0..kbps * 5 / 2 {
        limits.refill(&mut tokens, n * 4_000_000_000 / kbps / 1000 * 1000);
        counts[limits.color(&mut tokens, 500, input) as usize] += 1;
    }
    counts
}

#[test]
fn one_rate_has_two_colours() {
    assert_eq!(run(rates(Kind::OneRate, 8500, 0, 100_000, 0), 8000, Color::Conform), [20_000, 0, 0]);
    let [green, yellow, red] = run(rates(Kind::OneRate, 7000, 0, 100_000, 0), 8000, Color::Conform);
    // 7 Mbit/s for 10 s and one burst, by 500 bytes.
    assert_eq!((green, yellow, green + red), (17_500 + 200 - 1, 0, 20_000));
    assert_eq!(run(rates(Kind::OneRate, 7000, 0, 100_000, 0), 8000, Color::Violate), [0, 0, 20_000]);
}

#[test]
fn the_second_bucket_of_rfc_2697_gets_what_the_first_cannot_hold() {
    let rates = rates(Kind::Rfc2697, 8, 0, 1000, 2000);
    let limits = rates.limits(false).unwrap();
    let mut tokens = limits.full(0);
    let colors = [0; 4].map(|_| limits.color(&mut tokens, 1000, Color::Conform) as usize);
    assert_eq!(colors, [0, 1, 1, 2]);
    // 8 kbit/s are a byte a ms: 1,000 bytes fill the first, 500 more go into the second.
    limits.refill(&mut tokens, 1500 * MS);
    assert_eq!((tokens.committed / PER_BYTE, tokens.excess / PER_BYTE), (1000, 500));
    assert_eq!([400, 700, 500, 500].map(|bytes| limits.color(&mut tokens, bytes, Color::Conform) as usize), [0, 2, 0, 1]);
    let aware = run(self::rates(Kind::Rfc2697, 7000, 0, 100_000, 200_000), 8000, Color::Exceed);
    assert!(aware[0] == 0 && aware[1] > 0 && aware[2] > 0, "{aware:?}");
}

#[test]
fn a_green_packet_of_rfc_2698_takes_from_both() {
    let rates = rates(Kind::Rfc2698, 8, 16, 1000, 1500);
    let limits = rates.limits(false).unwrap();
    let mut tokens = limits.full(0);
    assert_eq!([1000, 600, 500, 1].map(|bytes| limits.color(&mut tokens, bytes, Color::Conform) as usize), [0, 2, 1, 2]);
    limits.refill(&mut tokens, 100 * MS);
    assert_eq!((tokens.committed / PER_BYTE, tokens.excess / PER_BYTE), (100, 200));
    // The committed bucket has enough, the peak one not.
    limits.refill(&mut tokens, 10_000 * MS);
    tokens.excess = 0;
    assert_eq!(limits.color(&mut tokens, 100, Color::Conform), Color::Violate);
    assert!(run(rates, 8000, Color::Exceed)[0] == 0);
}

#[test]
fn rates_of_rfc_4115_add_up() {
    // The peak rate is 9 Mbit/s, of which 2 are excess: nothing of 8 violates.
    let [green, yellow, red] = run(rates(Kind::Rfc4115, 7000, 9000, 100_000, 200_000), 8000, Color::Conform);
    assert!(green < 20_000 && yellow > 0 && red == 0, "{green} {yellow} {red}");
    let [green, yellow, red] = run(rates(Kind::Rfc4115, 7000, 7500, 100_000, 200_000), 8000, Color::Conform);
    assert!(green < 20_000 && yellow > 0 && red > 0, "{green} {yellow} {red}");
    assert_eq!(run(rates(Kind::Rfc4115, 8500, 9000, 100_000, 200_000), 8000, Color::Conform), [20_000, 0, 0]);
    assert_eq!(run(rates(Kind::Rfc4115, 7000, 9000, 100_000, 200_000), 8000, Color::Violate), [0, 0, 20_000]);
    let limits = rates(Kind::Rfc4115, 8, 16, 1000, 1000).limits(true).unwrap();
    let mut tokens = limits.full(0);
    assert_eq!(limits.color(&mut tokens, 1000, Color::Exceed), Color::Exceed, "a yellow packet takes none of the committed ones");
    assert_eq!(limits.color(&mut tokens, 1000, Color::Conform), Color::Conform);
}

#[test]
fn buckets_of_mef_are_coupled() {
    let limits = rates(Kind::Mef5Cf1, 8, 8, 1000, 3000).limits(false).unwrap();
    let mut tokens = Tokens { committed: 900 * PER_BYTE, excess: 0, at: 0 };
    limits.refill(&mut tokens, 300 * MS);
    assert_eq!((tokens.committed / PER_BYTE, tokens.excess / PER_BYTE), (1000, 300 + 200));
}

#[test]
fn packets_a_second_are_counted_whatever_their_length() {
    let rates = Rates { unit: Unit::Pps, ..rates(Kind::OneRate, 400, 0, 10, 0) };
    let limits = rates.limits(false).unwrap();
    let mut tokens = limits.full(0);
    let conform = |tokens: &mut Tokens, bytes| limits.color(tokens, bytes, Color::Conform) == Color::Conform;
    assert_eq!([60, 9000, 60, 60, 60].map(|bytes| conform(&mut tokens, bytes)), [true, true, true, true, false]);
    limits.refill(&mut tokens, 2_499_999);
    assert!(!conform(&mut tokens, 60));
    limits.refill(&mut tokens, 2_500_000);
    assert!(conform(&mut tokens, 60));
    let one = Rates { cir: 1, cb: 1, ..rates }.limits(false).unwrap();
    assert_eq!(one.full(0).committed, PER_PACKET, "a burst of at least one packet");
}

#[test]
fn no_time_no_rate_and_no_burst_overflows() {
    for kind in [Kind::OneRate, Kind::Rfc2697, Kind::Rfc2698, Kind::Rfc4115, Kind::Mef5Cf1] {
        for unit in [Unit::Kbps, Unit::Pps] {
            let two = matches!(kind, Kind::Rfc2698 | Kind::Rfc4115 | Kind::Mef5Cf1);
            let eb = if kind == Kind::OneRate { 0 } else { u64::MAX };
            let rates = Rates { kind, unit, cir: u32::MAX, eir: if two { u32::MAX } else { 0 }, cb: u64::MAX, eb };
            let limits = rates.limits(false).unwrap();
            let mut tokens = limits.full(0);
            limits.refill(&mut tokens, u64::MAX);
            assert_eq!(tokens, limits.full(u64::MAX));
            limits.refill(&mut tokens, 5);
            assert_eq!(limits.color(&mut tokens, u64::MAX, Color::Conform) as usize, if unit == Unit::Pps { 0 } else { 2 });
            let _ = limits.shown(&tokens);
        }
    }
}

#[test]
fn many_conform_together_exactly_where_they_do_one_by_one() {
    for (n, kind) in (0..).zip([Kind::OneRate, Kind::Rfc2697, Kind::Rfc2698, Kind::Rfc4115, Kind::Mef5Cf1]) {
        let two = matches!(kind, Kind::Rfc2698 | Kind::Rfc4115 | Kind::Mef5Cf1);
        let eb = if kind == Kind::OneRate { 0 } else { 900 + n };
        let limits = rates(kind, 80, if two { 100 } else { 0 }, 1000 + n, eb).limits(false).unwrap();
        for each in 1..400 {
            let (mut together, mut single) = (limits.full(0), limits.full(0));
            let all = limits.all_conform(&mut together, 4, 4 * each);
            let mut colors = (0..4).map(|_| limits.color(&mut single, each, Color::Conform));
            assert_eq!(all, colors.all(|color| color == Color::Conform));
            assert!(!all || together == single);
            assert!(all || together == limits.full(0), "nothing is taken otherwise");
        }
    }
}

#[test]
fn rates_that_do_not_belong_to_the_type_are_refused() {
    for (rates, key) in [
        (rates(Kind::OneRate, 0, 0, 1, 0), "cir"),
        (rates(Kind::OneRate, 1, 1, 1, 0), "eir"),
        (rates(Kind::OneRate, 1, 0, 1, 1), "eb"),
        (rates(Kind::OneRate, 1, 0, 0, 0), "cb"),
        (rates(Kind::Rfc2697, 1, 0, 0, 0), "cb"),
        (rates(Kind::Rfc2698, 2, 1, 1, 1), "eir"),
        (rates(Kind::Rfc4115, 1, 0, 1, 1), "eir"),
        (rates(Kind::Rfc2698, 1, 1, 0, 1), "cb"),
        (rates(Kind::Mef5Cf1, 1, 1, 1, 0), "eb"),
    ] {
        let error = rates.limits(false).unwrap_err();
        assert!(error.to_string().starts_with(&format!("invalid {key} ")), "{error}");
    }
    let none = rates(Kind::OneRate, 0, 0, 0, 0).limits(false).unwrap();
    assert_eq!(none.color(&mut none.full(0), 1, Color::Conform), Color::Violate, "as in VPP, every packet violates");
}

#[test]
fn buckets_are_shown_with_a_scale_that_fits() {
    let limits = rates(Kind::OneRate, 80, 0, 1000, 0).limits(false).unwrap();
    let shown = limits.shown(&limits.full(1 << 20));
    // 10 bytes a ms for 131.072 us, times 2^16.
    assert_eq!((shown.scale, shown.limits, shown.per_period, shown.last), (16, [1000 << 16, 0], [85_899, 0], 8));
    assert_eq!(shown.buckets, shown.limits);
    let large = rates(Kind::Rfc2697, 80, 0, 1 << 30, 1 << 30).limits(false).unwrap();
    assert_eq!(large.shown(&large.full(0)).limits, [1 << 30, 1 << 31]);
}
