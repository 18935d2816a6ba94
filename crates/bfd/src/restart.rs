//! Sessions outlive the process: a peer hears the same session as before, and does not notice where its detection time is longer than the
//! time in which nobody sent.

use quiver_net::Router;
use quiver_net::restart::{Damaged, Load, Names, Round, Save, Subject};

use crate::control::{self, Adopted};
use crate::datagram::Key;
use crate::process;
use crate::{auth, session};

/// Least bytes of a session.
const EACH: usize = 4 + 4 + 2 * 5 + 16 + session::Kept::LEN + auth::Kept::LEN;

/// Adds the subject.
pub fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("bfd sessions", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    let all = control::entries(router).unwrap_or_default();
    save.u64(all.len() as u64);
    for (entry, ups, since) in all {
        save.u32(entry.key.interface.0).u32(entry.key.table).ip(entry.key.local).ip(entry.key.peer);
        save.u64(ups).u64(since);
        entry.session.save(save);
        entry.authentication.save(save);
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, _: Round) -> Result<u64, Damaged> {
    // What sessions said before they are what they were would be taken for news later.
    process::drain(router);
    let mut all = Vec::new();
    for _ in 0..load.count(EACH)? {
        let (number, table, local, peer) = (load.u32()?, load.u32()?, load.ip()?, load.ip()?);
        let (ups, since) = (load.u64()?, load.u64()?);
        let (session, authentication) = (session::Kept::load(load)?, auth::Kept::load(load)?);
        let key = match number == Key::ANY.0 {
            true => Some(Key::multihop(table, local, peer)),
            false => names.interface(number).map(|interface| Key::on(interface, local, peer)),
        };
        all.extend(key.map(|key| (key, Adopted { ups, since, session, authentication })));
    }
    Ok(all.into_iter().map(|(key, adopted)| u64::from(control::adopt(router, &key, adopted))).sum())
}
