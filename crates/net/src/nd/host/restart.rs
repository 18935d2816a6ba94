//! Addresses and routers by advertisements outlive the process: routers advertise in minutes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::autoconfig::{self, Learned, LearnedRouter};
use crate::Router;
use crate::restart::{Damaged, Load, Names, Round, Save, Subject};

/// Bytes of the shortest entry: interface, address, length, two times.
const LEAST: usize = 4 + 17 + 1 + 8 + 8;
/// The same of a router: interface, address, table, time, preference.
const LEAST_ROUTER: usize = 4 + 17 + 4 + 8 + 1;

pub(super) fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("address autoconfiguration", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    let (addresses, routers) = autoconfig::all(router);
    save.u64(addresses.len() as u64);
    for ((interface, address), learned) in addresses {
        save.u32(interface.0).ip(address.into()).u8(learned.len).u64(learned.valid).u64(learned.preferred);
    }
    save.u64(routers.len() as u64);
    for ((interface, address), learned) in routers {
        save.u32(interface.0).ip(address.into()).u32(learned.table).u64(learned.until).u8(learned.preference);
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, round: Round) -> Result<u64, Damaged> {
    let (mut addresses, mut routers) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..load.count(LEAST)? {
        let (interface, address, len) = (names.interface(load.u32()?), load.ip()?, load.u8()?);
        let learned = Learned { len, valid: load.u64()?, preferred: load.u64()? };
        let (Some(interface), IpAddr::V6(address)) = (interface, address) else { continue };
        if autoconfig::restore(router, interface, address, learned) {
            addresses.insert((interface, address));
        }
    }
    for _ in 0..load.count(LEAST_ROUTER)? {
        let (interface, address) = (names.interface(load.u32()?), load.ip()?);
        let learned = LearnedRouter { table: load.u32()?, until: load.u64()?, preference: load.u8()? };
        let (Some(interface), IpAddr::V6(address)) = (interface, address) else { continue };
        if autoconfig::restore_router(router, interface, address, learned) {
            routers.insert((interface, address));
        }
    }
    if round == Round::Last {
        autoconfig::keep_only(router, &addresses, &routers);
    }
    Ok((addresses.len() + routers.len()) as u64)
}
