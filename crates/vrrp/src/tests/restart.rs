//! Another process takes over.

use proptest::prelude::*;
use quiver_graph::Hold;
use quiver_net::restart::{Round, Save, sections};

use super::*;

/// A snapshot with these bytes as the virtual routers of x0, whose number is 7.
fn snapshot(bytes: &[u8]) -> Vec<u8> {
    let mut save = Save::new(Round::Ahead);
    save.section("names", 1, |save| {
        save.u64(1).u32(7).text("x0").u64(0).u64(0);
    });
    save.section("virtual routers", 1, |save| {
        save.raw(bytes);
    });
    save.finish()
}

/// The process that takes over, with the same configuration.
fn successor(family: FamilyId, options: &str) -> Harness {
    let mut new = bed(0);
    new.router.graph.set_hold(Hold::All);
    begin(&mut new, family, options);
    new.until("its addresses are checked", |h| {
        h.run();
        settle(h);
        h.router.waits_for().is_none()
    });
    new
}

#[test]
fn a_master_stays_master_without_a_word_and_goes_on_advertising() {
    for family in FAMILIES {
        let mut old = bed(0);
        begin(&mut old, family, "interval 20");
        until(&mut old, family, State::Master);
        let mut new = successor(family, "interval 20");
        let ahead = old.router.snapshot(Round::Ahead);
        new.router.restore(&ahead, Round::Ahead).unwrap();
        assert_eq!(info(&mut new, family).state, State::Master);
        old.router.graph.set_hold(Hold::Receive);
        let last = old.router.snapshot(Round::Last);
        let restored = new.router.restore(&last, Round::Last).unwrap();
        let of_vrrp = restored.iter().find(|restored| restored.subject == "virtual routers").unwrap();
        assert_eq!(of_vrrp.result, Ok(1));
        new.router.graph.begin(0);
        let mut all = Vec::new();
        new.until("three advertisements", |h| {
            all.extend(hear(h, family));
            settle(h);
            assert_eq!(info(h, family).state, State::Master);
            all.len() >= 3
        });
        assert!(all.iter().all(|said| matches!(said, Said::Advertisement(a) if a.priority == 100)), "{all:?}");
        let received =
            |h: &Harness| h.router.route_lookup(0, VIRTUAL[family as usize]).map(|found| (found.prefix_len, found.source));
        assert_eq!(received(&new), received(&old), "packets to the address are received");
    }
}

#[test]
fn a_backup_stays_backup_and_one_that_was_not_started_stays_so() {
    let family = FamilyId::V4;
    let mut old = bed(0);
    begin(&mut old, family, "interval 100");
    old.inject(x0(&old), &heard(family, 200, 4000));
    until(&mut old, family, State::Backup);
    old.until("it has heard the master", |h| {
        h.run();
        info(h, family).master.is_some()
    });
    let bytes = old.router.snapshot(Round::Ahead);
    let mut new = successor(family, "interval 100");
    new.router.restore(&bytes, Round::Last).unwrap();
    let is = info(&mut new, family);
    assert_eq!((is.state, is.master), (State::Backup, Some(PEER[0])));
    let mut idle = bed(0);
    run(&mut idle, &format!("vrrp vr add x0 vr_id 7 {}", VIRTUAL[0]));
    idle.router.restore(&bytes, Round::Last).unwrap();
    assert_eq!(info(&mut idle, family).state, State::Initialize);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..120), at in any::<proptest::sample::Index>(), by: u8) {
        let mut new = bed(0);
        begin(&mut new, FamilyId::V4, "");
        new.router.restore(&snapshot(&bytes), Round::Ahead).unwrap();
        // One byte of what is right is another.
        let mut old = bed(0);
        begin(&mut old, FamilyId::V4, "");
        let whole = old.router.snapshot(Round::Ahead);
        let own = sections(&whole).unwrap().into_iter().find(|section| section.name == "virtual routers").unwrap();
        let mut bytes = own.bytes.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        new.router.restore(&snapshot(&bytes), Round::Last).unwrap();
        new.run();
    }
}
