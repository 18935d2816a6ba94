use std::io::Write as _;

use super::*;
use crate::rights::Direct;

/// The program; `None`, visibly, where this user or this build has none: under the gate that is a failure.
fn fast_path() -> Option<FastPath> {
    match FastPath::open(&Direct) {
        Ok(fast) => Some(fast),
        Err(error) => {
            // Past the test runner's capture; a closed standard error is no reason to fail.
            let _ = writeln!(io::stderr(), "fast path: SKIP: {error}");
            assert!(std::env::var_os("QUIVER_CI").is_none_or(|value| value != "1"), "SKIP: {error}");
            None
        }
    }
}

fn question(fib: u32, address: &str) -> Question {
    Question { fib, address: address.parse().unwrap() }
}

/// A packet to 10.0.2.2 with the right checksum, in a frame to `mac`.
fn frame(mac: [u8; 6], payload: usize) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2];
    ip[2..4].copy_from_slice(&((20 + payload) as u16).to_be_bytes());
    let sum = ip.chunks(2).fold(0_u32, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(word[1]));
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    frame.extend(ip);
    frame.extend((0..payload).map(|n| n as u8));
    frame
}

const ROUTER: [u8; 6] = [2, 0, 0, 0, 1, 1];
const LEAVES: [u8; 6] = [2, 0, 0, 0, 2, 1];
const NEIGHBOR: [u8; 6] = [2, 0, 0, 0, 2, 2];
const OUT: Output = Output { device: 1, mac: LEAVES, mtu4: 1500, mtu6: 1500, takes: true, direct: false };

/// `lo` (device 1) is port 1; what leaves by port 2 leaves by `lo` too, as nobody looks.
fn prepare(fast: &FastPath) {
    let input = Input { device: 1, mac: ROUTER, fib4: Some(7), fib6: Some(8), unfinished: false };
    assert!(fast.set_input(1, &input));
    fast.set_device(2, 1).unwrap();
    fast.set_port(2, &OUT);
    fast.set_on(true);
}

#[test]
fn a_destination_is_asked_for_once_decided_and_forgotten() {
    let Some(mut fast) = fast_path() else { return };
    prepare(&fast);
    let (sent, to) = (frame(ROUTER, 40), question(7, "10.0.2.2"));
    assert_eq!(fast.try_frame(&sent).unwrap(), None);
    assert_eq!(fast.question().unwrap(), Some(to));
    let round = fast.begin_round();
    fast.decide(&to, 5, round).unwrap();
    assert_eq!(fast.try_frame(&sent).unwrap(), None, "the load-balance leads nowhere");
    fast.set_path(5, Some((2, NEIGHBOR)));
    let left = fast.try_frame(&sent).unwrap().expect("it leaves");
    let mut expected = sent.clone();
    expected[..6].copy_from_slice(&NEIGHBOR);
    expected[6..12].copy_from_slice(&LEAVES);
    expected[22] = 63;
    // RFC 1141: the time to live is the upper byte of its word.
    let check = u16::from_be_bytes([sent[24], sent[25]]) + 0x100;
    expected[24..26].copy_from_slice(&check.to_be_bytes());
    assert_eq!(left, expected);
    assert_eq!(fast.last_used(&to).unwrap(), round);
    assert_eq!(fast.question().unwrap(), None);
    assert_eq!(fast.received(1).unwrap(), Received { packets4: 1, packets6: 0, bytes: 74 });
    assert_eq!(fast.sent(2).unwrap(), Traffic { packets: 1, bytes: 74 });
    assert_eq!(fast.used(5).unwrap(), Traffic { packets: 1, bytes: 60 });
    fast.forget(&to).unwrap();
    fast.forget(&to).unwrap();
    assert_eq!(fast.try_frame(&sent).unwrap(), None);
    assert_eq!(fast.question().unwrap(), Some(to));
}

#[test]
fn each_switch_sends_packets_to_the_graph() {
    let Some(fast) = fast_path() else { return };
    prepare(&fast);
    let sent = frame(ROUTER, 40);
    let decide = || {
        fast.decide(&question(7, "10.0.2.2"), 5, 0).unwrap();
        fast.set_path(5, Some((2, NEIGHBOR)));
        prepare(&fast);
    };
    let leaves = || {
        let left = fast.try_frame(&sent).unwrap();
        assert_eq!(left, fast.try_at_ingress(&sent).unwrap());
        left.is_some()
    };
    let switches: [(&str, &dyn Fn()); 7] = [
        ("off", &|| fast.set_on(false)),
        ("the input is closed", &|| fast.close_input(1)),
        ("the input is gone", &|| fast.forget_input(1)),
        ("the port is closed", &|| fast.close_port(2)),
        ("the path leads nowhere", &|| fast.set_path(5, None)),
        ("it would leave where it came from", &|| fast.set_path(5, Some((1, NEIGHBOR)))),
        ("it is too large", &|| fast.set_port(2, &Output { mtu4: 59, mtu6: 59, ..OUT })),
    ];
    for (name, switch) in switches {
        decide();
        assert!(leaves(), "before: {name}");
        switch();
        assert!(!leaves(), "{name}");
    }
    decide();
    let other = Input { device: 1, mac: ROUTER, fib4: None, fib6: Some(7), unfinished: false };
    assert!(fast.set_input(1, &other));
    assert!(!leaves(), "no IPv4");
    // A device that takes nothing from the driver hook takes what has a socket buffer.
    decide();
    fast.set_port(2, &Output { takes: false, ..OUT });
    assert_eq!(fast.try_frame(&sent).unwrap(), None);
    assert!(fast.try_at_ingress(&sent).unwrap().is_some());
    // A device whose number has the same low bits has no place.
    assert!(!fast.set_input(3, &Input { device: 1025, ..other }));
}

#[test]
fn the_ingress_hook_counts_and_cuts_padding() {
    let Some(fast) = fast_path() else { return };
    prepare(&fast);
    fast.decide(&question(7, "10.0.2.2"), 5, 0).unwrap();
    fast.set_path(5, Some((2, NEIGHBOR)));
    let sent = frame(ROUTER, 20);
    let padded = [&sent[..], &[0; 6]].concat();
    let left = fast.try_at_ingress(&padded).unwrap().expect("it leaves");
    assert_eq!(Some(left), fast.try_at_ingress(&sent).unwrap());
    let mut fast = fast;
    assert_eq!(fast.received(1).unwrap(), Received { packets4: 2, packets6: 0, bytes: 60 + 54 });
    assert_eq!(fast.sent(2).unwrap(), Traffic { packets: 2, bytes: 2 * 54 });
    assert_eq!(fast.used(5).unwrap(), Traffic { packets: 2, bytes: 2 * 40 });
}

#[test]
fn unfinished_checksums_are_finished() {
    let Some(fast) = fast_path() else { return };
    prepare(&fast);
    fast.decide(&question(7, "10.0.2.2"), 5, 0).unwrap();
    fast.set_path(5, Some((2, NEIGHBOR)));
    let input = Input { device: 1, mac: ROUTER, fib4: Some(7), fib6: Some(8), unfinished: true };
    assert!(fast.set_input(1, &input));
    for (protocol, field, payload) in [(6_u8, 16, 20), (6, 16, 1400), (17, 6, 8), (17, 6, 61), (17, 6, 1401)] {
        let mut sent = frame(ROUTER, payload);
        sent[23] = protocol;
        // The header's checksum follows.
        let check = u16::from_be_bytes([sent[24], sent[25]]) + 253 - u16::from(protocol);
        sent[24..26].copy_from_slice(&check.to_be_bytes());
        let pseudo = [10, 0, 1, 2, 10, 0, 2, 2, 0, protocol, (payload >> 8) as u8, payload as u8];
        let sum = |bytes: &[u8]| {
            let sum =
                bytes.chunks(2).fold(0_u32, |sum, word| sum + u32::from(word[0]) * 256 + u32::from(*word.get(1).unwrap_or(&0)));
            let sum = (sum & 0xffff) + (sum >> 16);
            ((sum & 0xffff) + (sum >> 16)) as u16
        };
        sent[34 + field..36 + field].copy_from_slice(&sum(&pseudo).to_be_bytes());
        let left = fast.try_frame(&sent).unwrap().expect("it leaves");
        // Right: the sum over pseudo-header and the rest, checksum and all, is all ones.
        let all = [&pseudo[..], &left[34..]].concat();
        assert_eq!(sum(&all), 0xffff, "protocol {protocol}, {payload} bytes");
        // What is finished stays as it is.
        let mut again = sent.clone();
        again[34 + field..36 + field].copy_from_slice(&left[34 + field..36 + field]);
        assert_eq!(fast.try_frame(&again).unwrap().expect("it leaves")[34..], left[34..]);
    }
}
