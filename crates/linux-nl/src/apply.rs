//! What readers say, done to the router.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::fib::{FibError, Source};
use quiver_net::interface::Mtu;
use quiver_net::ip::FamilyId;
use quiver_net::neighbor::State;
use quiver_wire::ipv6::address::is_link_local;

use crate::message::NeighborState;
use crate::reader::{Change, LinkChange};
use crate::rib::{Differences, RouteChange};

/// What has been done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Changes of routes made.
    pub routes: u64,
    /// Changes that the router refused.
    pub refused: u64,
    /// The last of these, in a sentence.
    pub last: Option<String>,
    /// Tables that were made for routes, with the number of routes that a table has from the start.
    tables: HashMap<(FamilyId, u32), usize>,
    /// Static neighbours that come from Linux.
    neighbors: HashSet<(IfIndex, IpAddr)>,
}

impl Applied {
    /// Makes a change; what a check finds goes to `checked`.
    pub fn apply(&mut self, router: &mut Router, change: Change, checked: &mut Differences) {
        let result = match change {
            Change::Route(change) => {
                self.routes += 1;
                self.route(router, &change)
            }
            Change::Expect(expected) => self.check(router, &expected, checked),
            Change::Neighbor(interface, address, state) => self.neighbor(router, interface, address, state),
            Change::Address(interface, address, is_there) => {
                router.with_host_change(|router| address_change(router, interface, address, is_there))
            }
            Change::Link(interface, change) => router.with_host_change(|router| self.link(router, interface, change)),
            Change::Compared(..) => Ok(()),
        };
        if let Err(text) = result {
            self.refused += 1;
            tracing::debug!(target: "linux-nl", "{text}");
            self.last = Some(text);
        }
    }

    fn route(&mut self, router: &mut Router, change: &RouteChange) -> Result<(), String> {
        let RouteChange { table, prefix, paths } = change;
        let family = FamilyId::of(&prefix.addr());
        let failed = |error: FibError| format!("{prefix} table {table}: {error}");
        let Some(paths) = paths else {
            match router.remove_route(*table, *prefix, Source::Linux, None) {
                Ok(()) | Err(FibError::NoRoute | FibError::NoTable { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
            self.leave_table(router, family, *table);
            return Ok(());
        };
        let mut done = router.replace_route(*table, *prefix, Source::Linux, paths.to_vec());
        if let Err(FibError::NoTable { .. }) = done {
            self.make_table(router, family, *table)?;
            done = router.replace_route(*table, *prefix, Source::Linux, paths.to_vec());
        }
        // A route that is not possible any more must not stay as it was before.
        done.map_err(|error| {
            let _ = router.remove_route(*table, *prefix, Source::Linux, None);
            failed(error)
        })
    }

    fn make_table(&mut self, router: &mut Router, family: FamilyId, table: u32) -> Result<(), String> {
        router.add_table(family, Some(table), None).map_err(|error| format!("table {table}: {error}"))?;
        self.tables.insert((family, table), routes_in(router, family, table));
        Ok(())
    }

    /// A table that was made for routes goes with the last of them, unless something else is in it or bound to it.
    fn leave_table(&mut self, router: &mut Router, family: FamilyId, table: u32) {
        let Some(first) = self.tables.get(&(family, table)) else { return };
        let bound = |tables: (u32, u32)| if family == FamilyId::V4 { tables.0 == table } else { tables.1 == table };
        if routes_in(router, family, table) == *first && !router.interfaces.iter().any(|i| bound(i.tables)) {
            self.tables.remove(&(family, table));
            // Where routes of other tables lead to it, it stays.
            let _ = router.remove_table(family, table);
        }
    }

    /// Compares a route with the table's, and repairs it.
    fn check(&mut self, router: &mut Router, expected: &RouteChange, found: &mut Differences) -> Result<(), String> {
        let RouteChange { table, prefix, paths: Some(paths) } = expected else { return Ok(()) };
        let mut wanted: Vec<_> = paths.to_vec();
        if prefix.is_host() {
            wanted = wanted.into_iter().map(|path| path.to_host(prefix.addr())).collect();
        }
        wanted.sort_unstable();
        let have = router.route(*table, *prefix).ok().flatten();
        let have = have.and_then(|route| route.sources.into_iter().find(|source| source.source == Source::Linux));
        if have.is_some_and(|source| source.paths == wanted) {
            return Ok(());
        }
        found.missing += 1;
        found.examples.push(format!("repaired {prefix} table {table}"));
        found.examples.truncate(20);
        self.route(router, expected)
    }

    fn neighbor(
        &mut self,
        router: &mut Router,
        interface: IfIndex,
        address: IpAddr,
        state: Option<NeighborState>,
    ) -> Result<(), String> {
        let known = router.neighbor(interface, address);
        let is_static = known.as_ref().is_some_and(|known| known.state == State::Permanent);
        let is_ours = self.neighbors.contains(&(interface, address));
        // What users of the router have set stands.
        if is_static && !is_ours {
            return Ok(());
        }
        match state {
            Some(state) => {
                if known.is_some_and(|known| known.mac == Some(state.mac) && is_static == state.permanent) {
                    return Ok(());
                }
                let added = router.add_neighbor(interface, address, state.mac, state.permanent, false);
                added.map_err(|error| format!("neighbour {address}: {error}"))?;
                if state.permanent {
                    self.neighbors.insert((interface, address));
                } else {
                    self.neighbors.remove(&(interface, address));
                }
            }
            None => {
                self.neighbors.remove(&(interface, address));
                // It may have gone by itself.
                let _ = router.remove_neighbor(interface, address);
            }
        }
        Ok(())
    }

    fn link(&mut self, router: &mut Router, index: IfIndex, change: LinkChange) -> Result<(), String> {
        let Some(interface) = router.interfaces.get(index).filter(|_| is_followed(router, index)) else { return Ok(()) };
        let (admin_up, mtu, name) = (interface.admin_up, interface.mtu, interface.name.clone());
        let failed = |error: String| format!("{name}: {error}");
        if let Some(l3) = change.mtu.filter(|l3| *l3 != mtu.l3) {
            router.set_mtu(index, Mtu { l3, ..mtu }).map_err(|error| failed(error.to_string()))?;
        }
        if let Some(up) = change.up.filter(|up| *up != admin_up) {
            router.set_interface_up(index, up).map_err(|error| failed(error.to_string()))?;
        }
        if let Some(table) = change.table {
            for family in [FamilyId::V4, FamilyId::V6] {
                self.move_to_table(router, index, family, table).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Binds an interface to a table, with its addresses.
    fn move_to_table(&mut self, router: &mut Router, index: IfIndex, family: FamilyId, table: u32) -> Result<(), String> {
        let Some(interface) = router.interfaces.get(index) else { return Ok(()) };
        let current = if family == FamilyId::V4 { interface.tables.0 } else { interface.tables.1 };
        if current == table {
            return Ok(());
        }
        let in_table = |(a, _): &&(IpAddr, u8)| FamilyId::of(a) == family && !is_own_link_local(a);
        let addresses: Vec<(IpAddr, u8)> = interface.addresses.iter().filter(in_table).copied().collect();
        if !router.tables(family).iter().any(|known| known.id == table) {
            self.make_table(router, family, table)?;
        }
        for (address, len) in &addresses {
            router.remove_address(index, *address, *len).map_err(|error| error.to_string())?;
        }
        let bound = router.set_interface_table(index, family, table).map_err(|error| error.to_string());
        for (address, len) in addresses {
            router.add_address(index, address, len).map_err(|error| error.to_string())?;
        }
        self.leave_table(router, family, current);
        bound
    }
}

fn routes_in(router: &Router, family: FamilyId, table: u32) -> usize {
    router.tables(family).iter().find(|known| known.id == table).map_or(0, |known| known.routes)
}

fn is_own_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()))
}

/// Whether an interface has a counterpart now. What was said of it while it had one does not count after that.
fn is_followed(router: &Router, interface: IfIndex) -> bool {
    router.host_interfaces().get(interface).is_some()
}

fn address_change(router: &mut Router, index: IfIndex, (address, len): (IpAddr, u8), is_there: bool) -> Result<(), String> {
    let Some(interface) = router.interfaces.get(index).filter(|_| is_followed(router, index)) else { return Ok(()) };
    let has = interface.addresses.contains(&(address, len));
    let failed = |name: String, error: String| format!("{name}: {address}/{len}: {error}");
    match (is_there, has) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => {
            let name = interface.name.clone();
            router.add_address(index, address, len).map_err(|error| failed(name, error.to_string()))
        }
        (false, true) => {
            let name = interface.name.clone();
            router.remove_address(index, address, len).map_err(|error| failed(name, error.to_string()))
        }
    }
}
