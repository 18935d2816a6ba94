//! Pools and static mappings.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use super::{External, NatError, PoolSpec, StaticSpec, enabled, fib_of};
use crate::config::Mapping;
use crate::process::{self, Purge};
use crate::session::Endpoint;

/// Most addresses that one command adds.
const RANGE_MAX: u32 = 65_536;

/// First IPv4 address of an interface.
pub(super) fn address_of(router: &Router, index: IfIndex) -> Option<Ipv4Addr> {
    router.interfaces.get(index)?.addresses.iter().find_map(|(a, _)| match a {
        IpAddr::V4(a) => Some(*a),
        IpAddr::V6(_) => None,
    })
}

/// A mapping as nodes read it; `None` while its interface has no address or its table does not exist.
pub(super) fn resolved(router: &Router, spec: &StaticSpec) -> Option<Mapping> {
    let addr = match spec.external {
        External::Addr(a) => a,
        External::Interface(i) => address_of(router, i)?,
    };
    let mut sum = 0_u32;
    let mut locals = Vec::new();
    for (local, weight) in &spec.locals {
        sum = sum.saturating_add(*weight);
        let own = if spec.identity { Endpoint::new(addr.to_bits(), spec.port) } else { *local };
        locals.push((own, sum));
    }
    Some(Mapping {
        proto: spec.proto,
        locals,
        external: Endpoint::new(addr.to_bits(), spec.port),
        vrf: (spec.vrf, fib_of(router, spec.vrf).ok()?),
        out2in_only: spec.out2in_only,
        twice: spec.twice,
        identity: spec.identity,
        affinity: spec.affinity,
    })
}

/// Adds addresses to a pool, or takes them out; sessions of those that go end.
///
/// # Errors
/// Not enabled, no such table, an address that is or is not there.
pub fn set_pool(router: &mut Router, spec: PoolSpec, last: Ipv4Addr, add: bool) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let (first, twice) = (spec.addr, spec.twice);
        let (from, to) = (first.to_bits(), last.to_bits());
        if from > to || to - from >= RANGE_MAX {
            return Err(NatError::Invalid(format!("{first} - {last} is no range of at most {RANGE_MAX} addresses")));
        }
        if twice && spec.independent {
            return Err(NatError::Invalid("endpoint-independent: addresses for twice-nat are given to remote endpoints".into()));
        }
        let there: HashSet<u32> = nat.pools.iter().filter(|p| p.twice == twice).map(|p| p.addr.to_bits()).collect();
        let wrong = (from..=to).find(|a| there.contains(a) == add).map(Ipv4Addr::from_bits);
        match (wrong, add) {
            (Some(a), true) => return Err(NatError::Exists(a.to_string())),
            (Some(a), false) => return Err(NatError::NoEntry(format!("address {a} in the pool"))),
            (None, true) => {
                // A table that is not there yet is made, as in VPP.
                if let Some(vrf) = spec.vrf.filter(|vrf| fib_of(router, *vrf).is_err()) {
                    router.add_table(FamilyId::V4, Some(vrf), None).map_err(|_| NatError::NoTable(vrf))?;
                }
                nat.pools.extend((from..=to).map(|a| PoolSpec { addr: Ipv4Addr::from_bits(a), ..spec }));
            }
            (None, false) => {
                nat.pools.retain(|p| p.twice != twice || !(from..=to).contains(&p.addr.to_bits()));
                nat.purges.push(Purge::Outside(from..=to));
            }
        }
        nat.publish(router);
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}

/// Puts an interface's address into a pool, whatever it is at the time.
///
/// # Errors
/// Not enabled, no such interface, or it is or is not there.
pub fn set_pool_interface(router: &mut Router, index: IfIndex, twice: bool, add: bool) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let name = router.interfaces.get(index).ok_or(NatError::NoInterface(index.0))?.name.clone();
        let there = nat.pool_interfaces.contains(&(index, twice));
        match (there, add) {
            (true, true) => return Err(NatError::Exists(format!("interface address of {name}"))),
            (false, false) => return Err(NatError::NoEntry(format!("interface address of {name}"))),
            (false, true) => nat.pool_interfaces.push((index, twice)),
            (true, false) => {
                nat.pool_interfaces.retain(|p| *p != (index, twice));
                let gone = address_of(router, index).map(Ipv4Addr::to_bits);
                nat.purges.extend(gone.map(|a| Purge::Outside(a..=a)));
            }
        }
        nat.publish(router);
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}

/// Adds a static mapping, or takes it out with its sessions.
///
/// # Errors
/// Not enabled, no such table, its outside belongs to another one, or it is not there.
pub fn set_static(router: &mut Router, spec: StaticSpec, add: bool) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        if add {
            fib_of(router, spec.vrf)?;
        }
        let same = |s: &StaticSpec| s.external == spec.external && s.port == spec.port && s.proto == spec.proto;
        let at = nat.statics.iter().position(same);
        match (at, add) {
            (Some(_), true) => return Err(NatError::Exists("a mapping of this external endpoint".into())),
            (None, false) => return Err(NatError::NoEntry("such static mapping".into())),
            (None, true) => nat.statics.push(spec),
            (Some(at), false) => {
                let old = nat.statics.remove(at);
                nat.purges.extend(resolved(router, &old).map(Purge::Mapping));
            }
        }
        nat.publish(router);
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}

/// Adds an inside endpoint to a load-balanced mapping, or takes it out with its sessions.
///
/// # Errors
/// Not enabled, no such mapping, or the endpoint is or is not there, or is the only one.
pub fn set_back_end(
    router: &mut Router,
    external: Endpoint,
    proto: u8,
    local: (Endpoint, u32),
    vrf: u32,
    add: bool,
) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let outside = External::Addr(Ipv4Addr::from_bits(external.addr));
        let ours = |s: &&mut StaticSpec| {
            s.external == outside && s.port == external.port && s.proto == Some(proto) && s.vrf == vrf && !s.identity
        };
        let none = || NatError::NoEntry(format!("load-balanced static mapping of {external} in table {vrf}"));
        let spec = nat.statics.iter_mut().find(ours).ok_or_else(none)?;
        let before = spec.locals.len();
        let at = spec.locals.iter().position(|(l, _)| *l == local.0);
        match (at, add) {
            (Some(_), true) => return Err(NatError::Exists(format!("back-end {}", local.0))),
            (None, false) => return Err(NatError::NoEntry(format!("back-end {}", local.0))),
            (Some(_), false) if spec.locals.len() == 1 => {
                let text = format!("back-end {} is the only one: take the mapping out", local.0);
                return Err(NatError::Invalid(text));
            }
            (None, true) => spec.locals.push(local),
            (Some(at), false) => {
                spec.locals.remove(at);
                let spec = spec.clone();
                nat.purges.extend(resolved(router, &spec).map(|m| Purge::BackEnd(m, local.0)));
            }
        }
        nat.publish(router);
        // From one to two, or back: now the remote host says which thread has a session, or no more.
        if before == if add { 1 } else { 2 } {
            nat.relocate(router);
        }
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}
