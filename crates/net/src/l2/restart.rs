//! Learned MAC addresses of bridge domains outlive the process, with their ages.

use std::collections::HashSet;

use super::mac::{MacValue, key, key_parts};
use crate::Router;
use crate::restart::{Damaged, Load, Names, Round, Save, Subject};

/// Bytes of an entry: domain, interface, MAC address, when it was heard.
const EACH: usize = 4 + 4 + 6 + 2;

pub(super) fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("bridged MAC addresses", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    let l2 = &router.l2;
    let learned = l2.macs.all().into_iter().filter(|(_, value)| value.is(MacValue::LEARNED));
    let known: Vec<_> = learned.filter_map(|(key, value)| Some((*l2.numbers.get(&key_parts(key).0)?, key, value))).collect();
    save.u64(known.len() as u64);
    for (domain, key, value) in known {
        save.u32(domain).u32(value.interface().0).mac(key_parts(key).1).u16(value.stamp());
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, round: Round) -> Result<u64, Damaged> {
    let mut said = HashSet::new();
    for _ in 0..load.count(EACH)? {
        let (domain, interface, mac, stamp) = (load.u32()?, names.interface(load.u32()?), load.mac()?, load.u16()?);
        let index = router.l2.domains.get(&domain).map(|domain| domain.index);
        let (Some(interface), Some(index), true) = (interface, index, mac.is_unicast() && !mac.is_zero()) else { continue };
        let key = key(index, mac.to_u64());
        router.learn_mac(key, interface);
        if let Some(value) = router.l2.macs.get(key).filter(|value| value.is(MacValue::LEARNED)) {
            router.l2.macs.set(key, value.with_stamp(stamp));
            said.insert(key);
        }
        while router.l2.macs.step() {}
    }
    if round == Round::Last {
        router.forget_macs(|key, _, value| value.is(MacValue::LEARNED) && !said.contains(&key));
    }
    Ok(said.len() as u64)
}
