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
