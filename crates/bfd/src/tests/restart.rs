//! Another process takes over.

use proptest::prelude::*;
use quiver_graph::Hold;
use quiver_net::restart::{Round, Save, sections};

use super::*;

/// A snapshot with these bytes as the sessions of x0, whose number is 7.
fn snapshot(bytes: &[u8]) -> Vec<u8> {
    let mut save = Save::new(Round::Ahead);
    save.section("names", 1, |save| {
        save.u64(1).u32(7).text("x0").u64(0).u64(0);
    });
    save.section("bfd sessions", 1, |save| {
        save.raw(bytes);
    });
    save.finish()
}

/// The process that takes over, with the same configuration.
fn successor(workers: usize, lines: &str) -> Harness {
    let mut new = bed(workers);
    new.router.graph.set_hold(Hold::All);
    run(&mut new, lines);
    new
}

#[test]
fn a_session_that_is_up_stays_up_with_its_discriminator_and_the_peer_hears_no_other_state() {
    for (workers, family) in [(0, 0), (0, 1), (2, 0)] {
        let mut old = bed(workers);
        run(&mut old, &add(family));
        let discriminator = come_up(&mut old, family, 0);
        nodes::settle(&mut old);
        let mut new = successor(workers, &add(family));
        let ahead = old.router.snapshot(Round::Ahead);
        new.router.restore(&ahead, Round::Ahead).unwrap();
        old.router.graph.set_hold(Hold::Receive);
        let last = old.router.snapshot(Round::Last);
        let restored = new.router.restore(&last, Round::Last).unwrap();
        assert_eq!(restored.iter().find(|restored| restored.subject == "bfd sessions").unwrap().result, Ok(1));
        new.router.graph.begin(0);
        let (before, is) = (sessions(&mut old).remove(0), sessions(&mut new).remove(0));
        assert_eq!((is.state, is.ups, is.local_discriminator), (State::Up, 1, discriminator));
        assert_eq!((is.remote_discriminator, is.detection_time), (77, before.detection_time));
        let n = std::cell::Cell::new(0);
        until_said(&mut new, family, "some packets", |control| {
            assert_eq!((control.state, control.my_discriminator, control.your_discriminator), (State::Up, discriminator, 77));
            n.set(n.get() + 1);
            n.get() > 3
        });
        // What the peer sends reaches the session.
        let received = sessions(&mut new)[0].received;
        let x0 = x0(&new);
        new.inject(x0, &frame(family, 255, &control(State::Up, discriminator).to_bytes()));
        new.until("it hears the peer", |h| {
            h.run();
            sessions(h)[0].received > received
        });
        nodes::settle(&mut new);
        assert_eq!((sessions(&mut new)[0].state, sessions(&mut new)[0].ups), (State::Up, 1));
    }
}

#[test]
fn what_an_administrator_holds_down_and_what_was_lost_stay_so() {
    let mut old = bed(0);
    run(&mut old, &add(0));
    come_up_with(&mut old, 0, 0, 3);
    until_said(&mut old, 0, "down", |control| control.state == State::Down);
    nodes::settle(&mut old);
    let bytes = old.router.snapshot(Round::Ahead);
    let mut new = successor(0, &add(0));
    new.router.restore(&bytes, Round::Last).unwrap();
    let is = sessions(&mut new).remove(0);
    assert_eq!((is.state, is.failed, is.ups, is.diagnostic), (State::Down, true, 1, "Control Detection Time Expired"));
    let flags = "bfd udp session set-flags interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2 admin down";
    let mut held = successor(0, &format!("{}\n{flags}", add(0)));
    let restored = held.router.restore(&bytes, Round::Last).unwrap();
    assert_eq!(restored.iter().find(|restored| restored.subject == "bfd sessions").unwrap().result, Ok(0));
    assert_eq!(sessions(&mut held)[0].state, State::AdminDown);
}

#[test]
fn numbers_of_authenticated_packets_rise_and_a_change_of_the_key_goes_on_waiting() {
    let keys = "bfd key set conf-key-id 1 type meticulous-keyed-sha1 secret 5ec12e7a90
                bfd key set conf-key-id 2 type keyed-md5 secret 5ec12e";
    let of = "interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2";
    let with = |id: u32| format!("{keys}\n{} conf-key-id {id} bfd-key-id {id}", add(0));
    let number = |h: &mut Harness| {
        let mut found = None;
        h.until("a packet", |h| {
            let all = h.run();
            found = all.iter().find(|(_, f)| f.len() > 90).map(|(_, f)| (f[66], u32::from_be_bytes([f[70], f[71], f[72], f[73]])));
            found.is_some()
        });
        found.unwrap()
    };
    let mut old = bed(0);
    run(&mut old, &with(1));
    run(&mut old, &format!("bfd udp session auth activate {of} conf-key-id 2 bfd-key-id 2 delayed yes"));
    let (kind, before) = number(&mut old);
    assert_eq!(kind, 5, "the key before");
    old.router.graph.set_hold(Hold::Receive);
    let bytes = old.router.snapshot(Round::Ahead);
    let mut new = successor(0, &with(2));
    new.router.restore(&bytes, Round::Last).unwrap();
    new.router.graph.begin(0);
    let (kind, after) = number(&mut new);
    assert_eq!(kind, 5, "the peer has not changed yet");
    assert!((1..1000).contains(&after.wrapping_sub(before)), "{before} then {after}");
    assert!(sessions(&mut new)[0].auth_pending);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<proptest::sample::Index>(), by: u8) {
        let mut new = successor(0, &add(0));
        new.router.restore(&snapshot(&bytes), Round::Ahead).unwrap();
        // One byte of what is right is another.
        let mut old = bed(0);
        run(&mut old, &add(0));
        let whole = old.router.snapshot(Round::Ahead);
        let own = sections(&whole).unwrap().into_iter().find(|section| section.name == "bfd sessions").unwrap();
        let mut bytes = own.bytes.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        new.router.restore(&snapshot(&bytes), Round::Last).unwrap();
        new.router.graph.begin(0);
        new.run();
        prop_assert_eq!(sessions(&mut new).len(), 1);
    }
}
