//! Tables, addresses and neighbours that a client sets anew: between begin and end it says everything that is to be; what it
//! has not said goes at the end, and packets flow all the while.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use quiver_api::defs::*;
use quiver_command::operation::{OpError, retval};
use quiver_wire::IpPrefix;

use crate::Router;
use crate::api::{Handlers, family};
use crate::fib::{FibError, Source};
use crate::ip::FamilyId;
use crate::ip::api::exists;
use crate::mfib::GroupPrefix;
use crate::neighbor::NeighborError;

/// Routes that are looked at in one go.
const AT_ONCE: usize = 256;

/// What has been said since a beginning; a part of the router, there from the first beginning on.
#[derive(Default)]
struct Said {
    routes: BTreeMap<(bool, u32), BTreeSet<IpPrefix>>,
    mroutes: BTreeMap<(bool, u32), BTreeSet<GroupPrefix>>,
    addresses: Option<BTreeSet<(u32, IpAddr)>>,
    /// With the time of the beginning, ns: those heard of since stay, too.
    neighbors: Option<(u64, BTreeSet<(u32, IpAddr)>)>,
}

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.act::<IpTableReplaceBegin, IpTableReplaceBeginReply>(|router, m| {
        let key = table_key(router, &m.table)?;
        let said = router.part_or_default::<Said>();
        said.routes.insert(key, BTreeSet::new());
        said.mroutes.insert(key, BTreeSet::new());
        Ok(())
    });
    handlers.act::<IpTableReplaceEnd, IpTableReplaceEndReply>(|router, m| {
        let key = table_key(router, &m.table)?;
        let said = router.part_or_default::<Said>();
        let Some(kept) = said.routes.remove(&key) else { return Ok(()) };
        let groups = said.mroutes.remove(&key).unwrap_or_default();
        router.sweep_mroutes(family(key.0), key.1, |route| !route.client || groups.contains(&route.prefix));
        sweep_routes(router, key, |prefix| kept.contains(prefix))
    });
    handlers.act::<SwInterfaceAddressReplaceBegin, SwInterfaceAddressReplaceBeginReply>(|router, _| {
        router.part_or_default::<Said>().addresses = Some(BTreeSet::new());
        Ok(())
    });
    handlers.act::<SwInterfaceAddressReplaceEnd, SwInterfaceAddressReplaceEndReply>(|router, _| {
        let Some(kept) = router.part_or_default::<Said>().addresses.take() else { return Ok(()) };
        sweep_addresses(router, |interface, address, _| kept.contains(&(interface, address)))
    });
    handlers.act::<IpNeighborReplaceBegin, IpNeighborReplaceBeginReply>(|router, _| {
        let now = router.graph.clock().timer_now();
        router.part_or_default::<Said>().neighbors = Some((now, BTreeSet::new()));
        Ok(())
    });
    handlers.act::<IpNeighborReplaceEnd, IpNeighborReplaceEndReply>(|router, _| {
        let Some((began, kept)) = router.part_or_default::<Said>().neighbors.take() else { return Ok(()) };
        let all = [FamilyId::V4, FamilyId::V6].into_iter().flat_map(|family| router.neighbors(family));
        let gone: Vec<_> = all.filter(|n| n.heard <= began && !kept.contains(&(n.interface.0, n.address))).collect();
        for neighbor in gone {
            match router.remove_neighbor(neighbor.interface, neighbor.address) {
                Ok(()) | Err(NeighborError::NoEntry { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    });
}

fn table_key(router: &Router, table: &IpTable) -> Result<(bool, u32), OpError> {
    match exists(router, table.is_ip6, table.table_id) {
        true => Ok((table.is_ip6, table.table_id)),
        false => Err(OpError::new(retval::NO_SUCH_FIB, format!("no table {}", table.table_id)).key("table_id")),
    }
}

/// Notes a route that a client has set.
pub(crate) fn route_said(router: &mut Router, table: u32, prefix: IpPrefix) {
    let Some(said) = router.part_mut::<Said>().filter(|said| !said.routes.is_empty()) else { return };
    if let Some(routes) = said.routes.get_mut(&(prefix.addr().is_ipv6(), table)) {
        routes.insert(prefix);
    }
}

/// Notes a multicast route that a client has set.
pub(crate) fn mroute_said(router: &mut Router, table: u32, prefix: GroupPrefix) {
    let Some(said) = router.part_mut::<Said>() else { return };
    if let Some(routes) = said.mroutes.get_mut(&(prefix.group().is_ipv6(), table)) {
        routes.insert(prefix);
    }
}

/// Notes a neighbour that a client has set.
pub(crate) fn neighbor_said(router: &mut Router, interface: u32, address: IpAddr) {
    if let Some((_, neighbors)) = router.part_mut::<Said>().and_then(|said| said.neighbors.as_mut()) {
        neighbors.insert((interface, address));
    }
}

/// Before an address is added: one that is there is there again, and those that are about to go make way.
/// Gives whether the interface has it.
pub(crate) fn address_said(router: &mut Router, interface: u32, address: IpAddr, len: u8) -> Result<bool, OpError> {
    let Some(addresses) = router.part_mut::<Said>().and_then(|said| said.addresses.as_mut()) else { return Ok(false) };
    addresses.insert((interface, address));
    let kept = addresses.clone();
    let there = router.interfaces.iter().any(|i| i.index.0 == interface && i.addresses.contains(&(address, len)));
    if let (false, Ok(new)) = (there, IpPrefix::new(address, len)) {
        sweep_addresses(router, |other, old, bits| {
            let wider = IpPrefix::new(old, bits).is_ok_and(|prefix| prefix.masked().contains(address));
            kept.contains(&(other, old)) || !(wider || new.masked().contains(old))
        })?;
    }
    Ok(there)
}

/// Removes the addresses that are not to stay. Link-local ones belong to the interface and stay.
fn sweep_addresses(router: &mut Router, stays: impl Fn(u32, IpAddr, u8) -> bool) -> Result<(), OpError> {
    let link_local = |a: &IpAddr| matches!(a, IpAddr::V6(a) if a.is_unicast_link_local());
    let all = router.interfaces.iter().flat_map(|i| i.addresses.iter().map(|(a, len)| (i.index, *a, *len)));
    let gone: Vec<_> = all.filter(|(index, a, len)| !link_local(a) && !stays(index.0, *a, *len)).collect();
    for (index, address, len) in gone {
        router.remove_address(index, address, len)?;
    }
    Ok(())
}

/// Removes the routes of clients that are not to stay.
pub(crate) fn sweep_routes(router: &mut Router, (six, id): (bool, u32), stays: impl Fn(&IpPrefix) -> bool) -> Result<(), OpError> {
    let mut after = None;
    loop {
        let routes = router.routes(family(six), id, after, AT_ONCE)?;
        let Some(last) = routes.last() else { return Ok(()) };
        after = Some(last.prefix);
        // There may be millions: the thread is not given back between them.
        router.graph.progress();
        let ours = routes.iter().filter(|route| route.sources.iter().any(|s| s.source == Source::Api));
        for route in ours.filter(|route| !stays(&route.prefix)) {
            match router.remove_route(id, route.prefix, Source::Api, None) {
                Ok(()) | Err(FibError::NoRoute | FibError::NoPath) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
