//! Another process takes over.

use proptest::prelude::*;
use quiver_net::restart::{Load, Round, Save, sections};

use super::*;
use crate::lacp::lag::{Kept, Lag};

const LACP: &str = "create bond mode lacp
     bond add BondEthernet0 x0
     bond add BondEthernet0 x1
     set interface state BondEthernet0 up";

/// What outlives the process of a bond's port, with a byte changed.
fn kept(lag: &Lag, place: u8, change: Option<(usize, u8)>) -> Option<Kept> {
    let mut save = Save::new(Round::Ahead);
    save.section("port", 1, |save| lag.port(place).unwrap().save(save));
    let whole = save.finish();
    let mut bytes = sections(&whole).unwrap()[0].bytes.to_vec();
    assert_eq!(bytes.len(), Kept::LEN);
    if let Some((at, by)) = change {
        bytes[at % Kept::LEN] ^= by;
    }
    Kept::load(&mut Load::new(&bytes)).ok()
}

#[test]
fn a_partner_of_lacp_hears_the_ports_that_it_knows() {
    machine::another_takes_over(kept);
}

#[test]
fn an_active_backup_bond_uses_the_member_that_it_used() {
    let lines = "create bond mode active-backup
         bond add BondEthernet0 x0
         bond add BondEthernet0 x1
         set interface state BondEthernet0 up";
    let mut old = bed(0);
    run(&mut old, lines);
    set_link(&mut old, "x0", false);
    set_link(&mut old, "x0", true);
    assert_eq!(active(&old), ["x1"], "it stays where it went");
    let bytes = old.router.snapshot(Round::Ahead);
    let mut new = bed(0);
    run(&mut new, lines);
    assert_eq!(active(&new), ["x0"]);
    for round in [Round::Ahead, Round::Last] {
        let restored = new.router.restore(&bytes, round).unwrap();
        assert_eq!(restored.iter().find(|restored| restored.subject == "members of bonds").unwrap().result, Ok(1));
        assert_eq!(active(&new), ["x1"]);
    }
    set_link(&mut new, "x1", false);
    new.router.restore(&bytes, Round::Last).unwrap();
    assert_eq!(active(&new), ["x0"], "a member whose link is down here is not used");
}

/// A snapshot with these bytes as the bonds; BondEthernet0 has the number 7, x0 the number 8.
fn snapshot(bytes: &[u8]) -> Vec<u8> {
    let mut save = Save::new(Round::Ahead);
    save.section("names", 1, |save| {
        save.u64(2).u32(7).text("BondEthernet0").u32(8).text("x0").u64(0).u64(0);
    });
    save.section("members of bonds", 1, |save| {
        save.raw(bytes);
    });
    save.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<proptest::sample::Index>(), by: u8) {
        let mut new = bed(0);
        run(&mut new, LACP);
        new.router.restore(&snapshot(&bytes), Round::Ahead).unwrap();
        // One byte of what is right is another.
        let mut old = bed(0);
        run(&mut old, LACP);
        let whole = old.router.snapshot(Round::Ahead);
        let own = sections(&whole).unwrap().into_iter().find(|section| section.name == "members of bonds").unwrap();
        let mut bytes = own.bytes.to_vec();
        bytes[..4].copy_from_slice(&7_u32.to_le_bytes());
        bytes[16..20].copy_from_slice(&8_u32.to_le_bytes());
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        new.router.restore(&snapshot(&bytes), Round::Last).unwrap();
        new.run();
        prop_assert_eq!(bonds(&new)[0].members.len(), 2);
    }
}
