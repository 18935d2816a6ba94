//! Bonds outlive the process: partners of LACP hear the ports that they know, and an active-backup bond uses the member that it used.

use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::restart::{Damaged, Load, Names, Round, Save, Subject};

use crate::control::Bonds;
use crate::lacp::lag::{Kept, Lag};
use crate::ops::Mode;
use crate::{follow, machines};

/// Least bytes of a bond.
const EACH: usize = 4 + 4 + 8;

/// Adds the subject.
pub fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("members of bonds", 1) });
}

fn save(router: &mut Router, save: &mut Save) {
    let all: Vec<IfIndex> = router.state::<Bonds>().map(|state| state.iter().map(|(index, _)| index).collect()).unwrap_or_default();
    save.u64(all.len() as u64);
    for index in all {
        let lag = machines::lag(router, index);
        let Some(bond) = router.state::<Bonds>().ok().and_then(|state| state.get(index)) else { continue };
        save.u32(index.0).u32(bond.active.map_or(u32::MAX, |active| active.0));
        let port = |lag: &Lag, place| lag.port(place).copied();
        let ports: Vec<_> =
            bond.members.iter().filter_map(|member| Some((member.interface, port(lag.as_ref()?, member.place)?))).collect();
        save.u64(ports.len() as u64);
        for (interface, port) in ports {
            save.u32(interface.0);
            port.save(save);
        }
    }
}

/// A bond of another process, with numbers as they are here.
struct Other {
    bond: Option<IfIndex>,
    active: Option<IfIndex>,
    ports: Vec<(IfIndex, Kept)>,
}

fn read(load: &mut Load<'_>, names: &Names) -> Result<Other, Damaged> {
    let (bond, active) = (names.interface(load.u32()?), names.interface(load.u32()?));
    let mut ports = Vec::new();
    for _ in 0..load.count(4 + Kept::LEN)? {
        let (interface, kept) = (names.interface(load.u32()?), Kept::load(load)?);
        ports.extend(interface.map(|interface| (interface, kept)));
    }
    Ok(Other { bond, active, ports })
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, _: Round) -> Result<u64, Damaged> {
    let all = (0..load.count(EACH)?).map(|_| read(load, names)).collect::<Result<Vec<_>, _>>()?;
    let mut n = 0;
    for Other { bond, active, ports } in all {
        let Some(index) = bond else { continue };
        // Links that have come up since are no news to the machines.
        follow::update(router, index);
        let Some(bond) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(index)) else { continue };
        let place = |interface: IfIndex| Some(bond.member(interface)?.place);
        let ports: Vec<(u8, Kept)> = ports.into_iter().filter_map(|(interface, kept)| Some((place(interface)?, kept))).collect();
        let active = active.filter(|active| bond.mode == Mode::ActiveBackup && bond.member(*active).is_some());
        if active.is_some() {
            bond.active = active;
            n += 1;
        }
        n += machines::adopt(router, index, ports);
        follow::update(router, index);
    }
    Ok(n)
}
