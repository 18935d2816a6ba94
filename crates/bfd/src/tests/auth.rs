//! Authentication: as bytes, over time, and in a router.

use proptest::prelude::*;

use super::{add, bed, control, error, frame, run, sessions, until_said, x0};
use crate::auth::{Authentication, InUse, Key, Kind, Refused, Sealed, Secret};
use crate::packet::{Control, LEN, State};

const KINDS: [Kind; 5] = [Kind::Password, Kind::Md5, Kind::MeticulousMd5, Kind::Sha1, Kind::MeticulousSha1];

fn by(kind: Kind, secret: &[u8], id: u8) -> InUse {
    InUse { key: Key { kind, secret: Secret::new(secret).unwrap() }, id }
}

/// The first packet of a session that receives every 10 ms.
fn first() -> Control {
    Control {
        state: State::Down,
        independent: true,
        detect_mult: 3,
        my_discriminator: 0x1234_5678,
        desired_min_tx: 1_000_000,
        required_min_rx: 10_000,
        ..Control::default()
    }
}

fn check(auth: &mut Authentication, packet: &[u8], now: u64) -> Result<(), Refused> {
    let control = Control::parse(packet).unwrap();
    let result = auth.check(&control, Control::trimmed(packet), now);
    if result.is_ok() {
        auth.taken(now, 30);
    }
    result
}

#[test]
fn digests_are_those_of_another_implementation() {
    // Python's hashlib over the 24 bytes, the section and the padded key.
    let sha1 = Sealed::new(&first(), Some(&by(Kind::MeticulousSha1, b"secret", 9)), 0x0102_0304);
    let sha1_expected =
        [0xea, 0x87, 0x36, 0x0a, 0x70, 0x13, 0x4d, 0x98, 0x68, 0x89, 0xcc, 0x19, 0x5e, 0x57, 0xc5, 0x67, 0xb4, 0x2b, 0xb5, 0xf2];
    assert_eq!(sha1.bytes()[..32], [&header(52)[..], &[5, 28, 9, 0, 1, 2, 3, 4]].concat());
    assert_eq!(sha1.bytes()[32..], sha1_expected);
    let md5 = Sealed::new(&first(), Some(&by(Kind::MeticulousMd5, b"secret", 9)), 0x0102_0304);
    let md5_expected = [0x4f, 0x2f, 0x80, 0x00, 0xce, 0x8d, 0x94, 0x2b, 0x8c, 0xb0, 0x92, 0xe4, 0xb2, 0x02, 0x33, 0x4a];
    assert_eq!(md5.bytes()[..32], [&header(48)[..], &[3, 24, 9, 0, 1, 2, 3, 4]].concat());
    assert_eq!(md5.bytes()[32..], md5_expected);
    let password = Sealed::new(&first(), Some(&by(Kind::Password, b"pass", 9)), 1);
    assert_eq!(password.bytes(), [&header(31)[..], &[1, 7, 9], b"pass"].concat());
}

/// The fixed part of [`first`] with a section behind it.
fn header(len: u8) -> [u8; LEN] {
    let mut bytes = Control { authenticated: true, ..first() }.to_bytes();
    bytes[3] = len;
    bytes
}

#[test]
fn each_rule_of_reception_refuses() {
    for kind in KINDS {
        let good = by(kind, b"0123456789abcdef", 1);
        let sealed = |by: &InUse| Sealed::new(&first(), Some(by), 100);
        let mut auth = Authentication::new(Some(good), 0);
        let mut refused = |packet: &[u8]| check(&mut auth, packet, 0).err();
        assert_eq!(refused(&first().to_bytes()), Some(Refused::Missing));
        assert_eq!(refused(sealed(&InUse { id: 2, ..good }).bytes()), Some(Refused::KeyId));
        assert_eq!(refused(sealed(&by(kind, b"0123456789abcdeg", 1)).bytes()), Some(Refused::Digest), "{kind:?}");
        let other = if kind == Kind::Sha1 { Kind::Md5 } else { Kind::Sha1 };
        assert_eq!(refused(sealed(&by(other, b"0123456789abcdef", 1)).bytes()), Some(Refused::Kind));
        let mut wrong = sealed(&good).bytes().to_vec();
        wrong[LEN + 1] -= 1;
        assert_eq!(refused(&wrong), Some(Refused::Length));
        let mut changed = sealed(&good).bytes().to_vec();
        changed[2] = 4;
        if kind != Kind::Password {
            assert_eq!(refused(&changed), Some(Refused::Digest), "a field that the digest covers");
        }
        assert_eq!(refused(sealed(&good).bytes()), None);
        let mut none = Authentication::new(None, 0);
        assert_eq!(check(&mut none, sealed(&good).bytes(), 0), Err(Refused::Unexpected));
        assert_eq!(check(&mut none, &first().to_bytes(), 0), Ok(()));
    }
    // A password that begins like the right one, and one that goes on.
    let mut auth = Authentication::new(Some(by(Kind::Password, b"pass", 1)), 0);
    for other in [&b"pas"[..], b"passw", b"pass\0"] {
        let packet = Sealed::new(&first(), Some(&by(Kind::Password, other, 1)), 0);
        assert_eq!(check(&mut auth, packet.bytes(), 0), Err(Refused::Digest));
    }
}

#[test]
fn sequence_numbers_rise_within_a_window_that_silence_opens() {
    for (kind, same) in [(Kind::Sha1, Ok(())), (Kind::MeticulousSha1, Err(Refused::Sequence)), (Kind::Md5, Ok(()))] {
        let key = by(kind, b"k", 1);
        let mut auth = Authentication::new(Some(key), 0);
        let mut at = |sequence: u32, now: u64| check(&mut auth, Sealed::new(&first(), Some(&key), sequence).bytes(), now);
        assert_eq!(at(u32::MAX - 1, 0), Ok(()), "any number is the first");
        assert_eq!(at(u32::MAX - 1, 1), same);
        assert_eq!(at(u32::MAX - 2, 1), Err(Refused::Sequence), "an older one");
        assert_eq!(
            at(8, 1),
            Err(Refused::Sequence),
            "three times the detection multiplier, over the end of the numbers, and one more"
        );
        assert_eq!(at(7, 2), Ok(()));
        assert_eq!(at(6, 61), Err(Refused::Sequence));
        assert_eq!(at(6, 62), Ok(()), "twice the detection time after the last packet");
    }
}

#[test]
fn numbers_of_packets_sent_rise_with_each_or_with_what_they_say() {
    let sequence = |sealed: &Sealed| u32::from_be_bytes(sealed.bytes()[LEN + 4..LEN + 8].try_into().unwrap());
    let other = Control { poll: true, ..first() };
    let three = |kind| {
        let mut auth = Authentication::new(Some(by(kind, b"k", 1)), u32::MAX);
        [first(), first(), other].map(|control| sequence(&auth.seal(&control)))
    };
    assert_eq!(three(Kind::MeticulousSha1), [0, 1, 2]);
    assert_eq!(three(Kind::Sha1), [0, 0, 1]);
}

#[test]
fn a_delayed_change_waits_for_the_other_side() {
    let (old, new) = (by(Kind::Sha1, b"old", 1), by(Kind::MeticulousSha1, b"new", 2));
    let packet = |by: Option<&InUse>| Sealed::new(&first(), by, 7);
    for (from, to) in [(Some(old), Some(new)), (Some(old), None), (None, Some(new))] {
        let mut auth = Authentication::new(from, 0);
        auth.set(to, true);
        let sent = |auth: &mut Authentication| auth.seal(&first()).bytes()[LEN..].first().copied();
        let kind = |by: Option<InUse>| by.map(|by| by.key.kind.number());
        assert!(auth.is_pending());
        assert_eq!(check(&mut auth, packet(from.as_ref()).bytes(), 0), Ok(()), "the old way still holds");
        assert_eq!(sent(&mut auth), kind(from));
        assert_eq!(check(&mut auth, packet(to.as_ref()).bytes(), 0), Ok(()));
        assert!(!auth.is_pending());
        assert_eq!(sent(&mut auth), kind(to));
        assert!(check(&mut auth, packet(from.as_ref()).bytes(), 0).is_err(), "and does so no longer");
        // Back at once.
        auth.set(from, false);
        assert_eq!(sent(&mut auth), kind(from));
    }
    let mut auth = Authentication::new(Some(old), 0);
    auth.set(Some(new), true);
    auth.set(Some(old), false);
    assert!(!auth.is_pending(), "a change at once ends one that waits");
    assert!(check(&mut auth, packet(Some(&new)).bytes(), 0).is_err());
}

#[test]
fn a_secret_is_not_in_debug_text() {
    let key = by(Kind::Sha1, &[0xab; 20], 1);
    let text = format!("{key:?}").to_lowercase();
    assert!(!text.contains("ab, ") && !text.contains("171") && !text.contains("abab"), "{text}");
}

proptest! {
    #[test]
    fn what_is_sealed_is_taken_and_any_other_bytes_are_not(
        secret in proptest::collection::vec(any::<u8>(), 1..=16),
        kind in 0..KINDS.len(),
        id in any::<u8>(),
        sequence in any::<u32>(),
        bit in 0..8_u8,
        at in any::<proptest::sample::Index>(),
    ) {
        let key = by(KINDS[kind], &secret, id);
        let sealed = Sealed::new(&first(), Some(&key), sequence);
        let mut packet = sealed.bytes().to_vec();
        prop_assert_eq!(check(&mut Authentication::new(Some(key), 0), &packet, 0), Ok(()));
        let at = at.index(packet.len());
        packet[at] ^= 1 << bit;
        // A password covers itself only.
        if let Ok(control) = Control::parse(&packet)
            && (KINDS[kind] != Kind::Password || at >= LEN)
        {
            let taken = Authentication::new(Some(key), 0).check(&control, Control::trimmed(&packet), 0);
            prop_assert!(taken.is_err());
        }
    }

    #[test]
    fn any_bytes_behind_a_control_packet_are_read(kind in 0..KINDS.len(), rest in proptest::collection::vec(any::<u8>(), 2..40)) {
        let mut packet = header((LEN + rest.len()) as u8).to_vec();
        packet.extend(rest);
        let control = Control::parse(&packet).unwrap();
        let _ = Authentication::new(Some(by(KINDS[kind], b"k", 1)), 0).check(&control, &packet, 0);
    }
}

const OF: &str = "interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2";

#[test]
fn a_session_with_a_key_takes_and_sends_packets_with_it_only() {
    let mut h = bed(1);
    run(
        &mut h,
        &format!(
            "bfd key set conf-key-id 5 type meticulous-keyed-sha1 secret 5ec12e7a90
             {} conf-key-id 5 bfd-key-id 7",
            add(0)
        ),
    );
    let key = by(Kind::MeticulousSha1, &[0x5e, 0xc1, 0x2e, 0x7a, 0x90], 7);
    let mut peer = Authentication::new(Some(key), 1000);
    let x0 = x0(&h);
    let first = until_said(&mut h, 0, "a first packet", |c| c.state == State::Down && c.authenticated);
    let send = |h: &mut quiver_net::testing::Harness, state, auth: &mut Authentication| {
        let sealed = auth.seal(&control(state, first.my_discriminator));
        h.inject(x0, &frame(0, 255, sealed.bytes()));
        h.run();
        sealed
    };
    let count = |h: &quiver_net::testing::Harness, reason: &str| h.count("bfd-session", reason);
    send(&mut h, State::Init, &mut Authentication::new(None, 0));
    h.until("refused", |h| count(h, "not authenticated, the session is") == 1);
    assert_eq!(sessions(&mut h)[0].state, State::Down);
    let init = send(&mut h, State::Init, &mut peer);
    until_said(&mut h, 0, "up", |c| c.state == State::Up && c.authenticated);
    h.inject(x0, &frame(0, 255, init.bytes()));
    h.until("a packet that was recorded", |h| {
        h.run();
        count(h, "sequence number outside of the window") == 1
    });
    let session = sessions(&mut h).remove(0);
    assert_eq!((session.state, session.received), (State::Up, 1));
    let auth = session.authentication.unwrap();
    assert_eq!((auth.kind, auth.conf_key_id, auth.bfd_key_id), (Kind::MeticulousSha1, 5, 7));
    // Off, as soon as the peer is.
    run(&mut h, &format!("bfd udp session auth deactivate {OF} delayed yes"));
    assert!(sessions(&mut h)[0].auth_pending && run(&mut h, "show bfd session 0").contains("waits for the other side"));
    send(&mut h, State::Up, &mut Authentication::new(None, 0));
    h.until("the change", |h| {
        h.run();
        !sessions(h)[0].auth_pending
    });
    assert_eq!(sessions(&mut h)[0].state, State::Up);
    h.assert_buffers_held(0);
}

#[test]
fn keys_that_are_used_stay_and_secrets_are_shown_in_the_configuration_only() {
    let mut h = bed(0);
    run(
        &mut h,
        &format!(
            "bfd key set conf-key-id 4294967295 type keyed-sha1 secret 00ff
             bfd key set conf-key-id 2 type simple-password secret 70617373
             {}
             bfd udp session auth activate {OF} conf-key-id 4294967295 bfd-key-id 255",
            add(0)
        ),
    );
    let used = error(&mut h, "bfd key set conf-key-id 4294967295 type keyed-sha1 secret 00");
    assert!(used.contains("1 sessions use this key") && used.contains("auth activate"), "{used}");
    assert!(error(&mut h, "bfd key del conf-key-id 4294967295").contains("use this key"));
    for (line, text) in [
        ("bfd key del conf-key-id 3", "no such key"),
        ("bfd key set conf-key-id 3 type keyed-sha1 secret 0", "hexadecimal"),
        ("bfd key set conf-key-id 3 type keyed-sha1 secret zz", "hexadecimal"),
        ("bfd key set conf-key-id 3 type keyed-md5 secret 0102030405060708090a0b0c0d0e0f1011", "at most 16 bytes"),
        (format!("bfd udp session auth activate {OF} conf-key-id 3 bfd-key-id 1").as_str(), "no such key"),
        (format!("{} conf-key-id 2", add(1)).as_str(), "go together"),
        (format!("{} conf-key-id 3 bfd-key-id 1", add(1)).as_str(), "no such key"),
    ] {
        let text_of = error(&mut h, line);
        assert!(text_of.contains(text), "{line}: {text_of}");
        assert!(!text_of.contains("0102030405") && !text_of.contains("zz"), "no secret in an error: {text_of}");
    }
    let keys = run(&mut h, "show bfd keys");
    assert!(keys.contains("4294967295") && keys.contains("keyed-sha1") && keys.contains("keys: 2"), "{keys}");
    assert!(!keys.contains("00ff") && !keys.contains("70617373"), "{keys}");
    run(&mut h, &format!("bfd udp session auth deactivate {OF}"));
    run(&mut h, "bfd key del conf-key-id 4294967295");
    assert_eq!(sessions(&mut h)[0].authentication, None);
}
