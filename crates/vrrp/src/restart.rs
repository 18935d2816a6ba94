//! Virtual routers outlive the process: a master goes on advertising, and a backup knows its master. Other routers do not notice where they
//! wait longer than nobody sent.

use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::restart::{Damaged, Load, Names, Round, Save, Subject};

use crate::control;
use crate::machine::Kept;
use crate::process;
use crate::thread::Key;

/// Least bytes of a virtual router.
const EACH: usize = 4 + 2 + 16 + Kept::LEN;

/// Adds the subject.
pub fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("virtual routers", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    let all = control::kept(router).unwrap_or_default();
    save.u64(all.len() as u64);
    for (key, kept, [received, sent]) in all {
        save.u32(key.interface.0).u8(if key.family == FamilyId::V4 { 4 } else { 6 }).u8(key.vr_id);
        save.u64(received).u64(sent);
        kept.save(save);
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, _: Round) -> Result<u64, Damaged> {
    // What virtual routers said before they are what they were would be taken for news later.
    process::drain(router);
    let mut all = Vec::new();
    for _ in 0..load.count(EACH)? {
        let interface = names.interface(load.u32()?);
        let family = match load.u8()? {
            4 => FamilyId::V4,
            6 => FamilyId::V6,
            _ => return Err(Damaged),
        };
        let (vr_id, counts) = (load.u8()?, [load.u64()?, load.u64()?]);
        let kept = Kept::load(load, family)?;
        all.extend(interface.map(|interface| (Key { interface, family, vr_id }, kept, counts)));
    }
    Ok(all.into_iter().map(|(key, kept, counts)| u64::from(control::adopt(router, &key, kept, counts))).sum())
}
