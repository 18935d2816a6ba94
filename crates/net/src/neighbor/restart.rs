//! Learned neighbours outlive the process, with what is known of them.

use std::collections::HashSet;

use super::ask::Outcome;
use super::hold::Key;
use super::state::{Evidence, State};
use crate::Router;
use crate::ip::FamilyId;
use crate::restart::{Damaged, Load, Names, Round, Save, Subject};

/// Bytes of the shortest entry: interface, address, MAC address, flags, time.
const LEAST: usize = 4 + 5 + 6 + 1 + 8;

pub(super) fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("neighbors", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    // Static ones are configuration, and one that is only asked for is asked for again.
    let all = [FamilyId::V4, FamilyId::V6].into_iter().flat_map(|family| router.neighbors(family));
    let all: Vec<_> = all.filter(|n| n.state != State::Permanent).filter_map(|n| Some((n, n.mac?))).collect();
    save.u64(all.len() as u64);
    for (neighbor, mac) in all {
        save.u32(neighbor.interface.0).ip(neighbor.address).mac(mac);
        save.u8(u8::from(neighbor.state == State::Reachable)).u64(neighbor.heard);
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, round: Round) -> Result<u64, Damaged> {
    let now = router.graph.clock().timer_now();
    let mut said: HashSet<Key> = HashSet::new();
    for _ in 0..load.count(LEAST)? {
        let (interface, address, mac) = (names.interface(load.u32()?), load.ip()?, load.mac()?);
        let (reachable, heard) = (load.u8()? != 0, load.u64()?);
        let Some(interface) = interface.filter(|_| mac.is_unicast()) else { continue };
        let key = (interface, address);
        let evidence = Evidence::Advert { mac: Some(mac), solicited: reachable, overrides: true };
        if router.neighbor(interface, address).is_none_or(|n| n.mac != Some(mac)) {
            router.hear_neighbor(key, evidence, true, now);
        }
        router.neighbors.table_mut(FamilyId::of(&address)).set_heard(&key, heard.min(now));
        if router.neighbor(interface, address).is_some() {
            said.insert(key);
        }
    }
    if round == Round::Last {
        for family in [FamilyId::V4, FamilyId::V6] {
            for key in router.neighbor_keys(family, None, false) {
                if !said.contains(&key) {
                    router.drop_neighbor(&key, Outcome::Forgotten);
                }
            }
        }
    }
    Ok(said.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use quiver_graph::IfIndex;
    use quiver_wire::MacAddr;

    use super::*;
    use crate::neighbor::NeighborInfo;
    use crate::testing::{Harness, host_mac};

    fn address(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, n).into()
    }

    fn bed() -> (Harness, IfIndex) {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, address(1), 24).unwrap();
        (h, x)
    }

    fn hear(h: &mut Harness, x: IfIndex, n: u8, mac: MacAddr) {
        let now = h.router.graph.clock().timer_now();
        let evidence = Evidence::Advert { mac: Some(mac), solicited: n.is_multiple_of(2), overrides: true };
        h.router.hear_neighbor((x, address(n)), evidence, true, now);
    }

    fn known(h: &Harness) -> Vec<NeighborInfo> {
        h.router.neighbors(FamilyId::V4)
    }

    #[test]
    fn learned_neighbours_stay_with_state_and_age() {
        let (mut old, x) = bed();
        for n in 2..8 {
            hear(&mut old, x, n, host_mac(n));
        }
        old.router.add_neighbor(x, address(9), host_mac(9), true, false).unwrap();
        let ahead = old.router.snapshot(Round::Ahead);
        let (mut new, y) = bed();
        new.router.restore(&ahead, Round::Ahead).unwrap();
        assert_eq!(known(&new).len(), 6, "static ones are configuration");
        // One moves, one goes, one comes.
        hear(&mut old, x, 2, host_mac(20));
        old.router.remove_neighbor(x, address(3)).unwrap();
        hear(&mut old, x, 10, host_mac(10));
        old.router.remove_neighbor(x, address(9)).unwrap();
        let last = old.router.snapshot(Round::Last);
        new.router.restore(&last, Round::Last).unwrap();
        assert_eq!((x, known(&new)), (y, known(&old)));
        let adjacency = new.router.find_adjacency(y, address(2)).and_then(|a| new.router.adjacency_info(a)).unwrap();
        assert_eq!(adjacency.mac, Some(host_mac(20)), "packets go there");
    }

    #[test]
    fn neighbours_of_interfaces_that_are_gone_and_odd_addresses_are_left_out() {
        let mut save = Save::new(Round::Ahead);
        save.section("names", 1, |save| {
            save.u64(1).u32(7).text("x0").u64(0).u64(0);
        });
        save.section("neighbors", 1, |save| {
            save.u64(4);
            for (interface, n, mac) in [(7, 2, host_mac(2)), (8, 3, host_mac(3)), (7, 4, MacAddr::BROADCAST), (7, 5, host_mac(5))] {
                save.u32(interface).ip(if n == 5 { Ipv4Addr::BROADCAST.into() } else { address(n) }).mac(mac).u8(1).u64(u64::MAX);
            }
        });
        let (mut new, x) = bed();
        new.router.restore(&save.finish(), Round::Last).unwrap();
        let now = new.router.graph.clock().timer_now();
        let all: Vec<_> = known(&new).iter().map(|n| (n.interface, n.address, n.heard <= now)).collect();
        assert_eq!(all, [(x, address(2), true)]);
    }
}
