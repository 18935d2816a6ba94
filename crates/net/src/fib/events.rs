//! What the FIB does when interfaces change, and when neighbours are found or lost.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;
use quiver_wire::ipv6::address::is_link_local;

use super::adjacency::{AdjKey, AdjKind, Env};
use super::path::{Hop, Key, Path};
use super::records::{Bucket, Class};
use super::route::Change;
use super::source::Source;
use super::table::{Select, by_family};
use super::{Fib, FibError};
use crate::Router;
use crate::interface::IfEvent;
use crate::ip::{FamilyId, PrefixTable};
use crate::nd::AddressState;

impl Fib {
    /// Path lists that may change when an interface goes up or down: those over it and over its sub-interfaces.
    fn lists_over(&self, env: &Env<'_>, interface: IfIndex) -> BTreeSet<u32> {
        let family = std::iter::once(interface).chain(env.interfaces.subs(interface));
        family.flat_map(|index| self.lists.over(index)).collect()
    }

    fn adjacencies_of(&self, interface: IfIndex) -> Vec<(u32, AdjKey, Option<MacAddr>)> {
        let with = |index| self.adjacencies.get(index).map(|a| (index, a.key, a.mac));
        self.adjacencies.on(interface).filter_map(with).collect()
    }

    /// Brings an adjacency up to date, and what leads to it where it has moved or its class has changed.
    pub(super) fn update_adjacency(&mut self, env: &mut Env<'_>, index: u32, mac: Option<MacAddr>) -> Result<u32, FibError> {
        let before = self.adjacencies.get(index).map(|a| a.bucket(index));
        let now = self.adjacencies.update(env, &mut self.records, index, mac)?;
        let Some(adjacency) = self.adjacencies.get(now) else { return Ok(now) };
        let (bucket, users, key) = (adjacency.bucket(now), adjacency.users.clone(), adjacency.key);
        if Some(bucket) != before {
            if let AdjKind::Neighbor(IpAddr::V6(a)) = key.kind
                && is_link_local(a.to_bits())
            {
                // A full table means that packets to it ask for the neighbour each time: slower, not lost.
                let _ = self.link_locals.set(key.interface, a.to_bits(), bucket);
            }
            self.refresh(env, users);
        }
        Ok(now)
    }

    /// A neighbour's MAC address is known, is another one, or is not known any more.
    pub(crate) fn neighbor(
        &mut self,
        env: &mut Env<'_>,
        interface: IfIndex,
        address: IpAddr,
        mac: Option<MacAddr>,
        host_route: bool,
    ) -> Result<(), FibError> {
        env.interfaces.get(interface).ok_or(FibError::NoInterface(interface.0))?;
        let key = AdjKey { family: FamilyId::of(&address), interface, kind: AdjKind::Neighbor(address) };
        let index = match (self.adjacencies.find(&key), mac) {
            (Some(index), _) => index,
            (None, Some(_)) => self.adjacencies.make(env, &mut self.records, key)?,
            (None, None) => return Ok(()),
        };
        // Its own adjacency first: that of the other family's packets takes the MAC address from it when its users are resolved anew.
        let updated =
            self.update_adjacency(env, index, mac).and_then(|index| match self.adjacencies.find(&key.of_other_family()) {
                Some(cross) => self.update_adjacency(env, cross, mac).map(|_| index),
                None => Ok(index),
            });
        let index = match updated {
            Ok(index) => index,
            Err(error) => {
                self.adjacencies.release(index);
                return Err(error);
            }
        };
        if let Some(adjacency) = self.adjacencies.get_mut(index) {
            adjacency.host_route = host_route;
        }
        let result = by_family!(key.family, F => self.host_routes::<F>(env, index));
        self.adjacencies.release(index);
        if mac.is_none()
            && let IpAddr::V6(a) = address
            && self.adjacencies.find(&key).is_none()
        {
            self.link_locals.remove(interface, a.to_bits());
        }
        result
    }

    /// A neighbour has a host route in each table whose route to it is the neighbour's link (a connected prefix, or a route
    /// that names the interface alone, in any table), as long as its MAC address is known: packets to it then do not come
    /// by the link's glean adjacency.
    fn host_routes<F: Select>(&mut self, env: &mut Env<'_>, index: u32) -> Result<(), FibError> {
        let Some(adjacency) = self.adjacencies.get(index) else { return Ok(()) };
        let AdjKind::Neighbor(address) = adjacency.key.kind else { return Ok(()) };
        let Some(hop) = F::number(address) else { return Ok(()) };
        let interface = adjacency.key.interface;
        let entry = (hop, interface);
        let mut fibs: BTreeSet<u32> = adjacency.in_fibs.iter().copied().collect();
        if adjacency.mac.is_some() && adjacency.host_route {
            F::tables_mut(self).neighbors.insert(entry);
            for link in links(env, interface) {
                fibs.extend(self.lists.attached_fibs(F::ID, link));
            }
        } else {
            F::tables_mut(self).neighbors.remove(&entry);
        }
        fibs.into_iter().try_for_each(|fib| self.host_route_in::<F>(env, index, fib))
    }

    /// As [`Fib::host_routes`], in one FIB.
    pub(super) fn host_route_in<F: Select>(&mut self, env: &mut Env<'_>, index: u32, fib: u32) -> Result<(), FibError> {
        let Some(adjacency) = self.adjacencies.get(index) else { return Ok(()) };
        let AdjKind::Neighbor(address) = adjacency.key.kind else { return Ok(()) };
        let Some(hop) = F::number(address) else { return Ok(()) };
        let interface = adjacency.key.interface;
        let have = adjacency.in_fibs.contains(&fib);
        let may = adjacency.host_route && adjacency.mac.is_some();
        let link_local = matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()));
        let want = may && !link_local && self.is_attached::<F>(env, fib, hop, interface);
        if want == have {
            return Ok(());
        }
        let path = Path::neighbor(interface, address);
        if want {
            self.set::<F>(env, fib, (hop, F::BITS), Source::Adjacency, vec![path], Change::Add)?;
        } else {
            match self.unset::<F>(env, fib, (hop, F::BITS), Source::Adjacency, Some(&[path])) {
                Ok(()) | Err(FibError::NoRoute | FibError::NoPath) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(adjacency) = self.adjacencies.get_mut(index) {
            adjacency.in_fibs.retain(|f| *f != fib);
            if want {
                adjacency.in_fibs.push(fib);
            }
        }
        Ok(())
    }

    /// Whether the route that covers a host leads to this interface's link, on which the host is asked for.
    fn is_attached<F: Select>(&self, env: &Env<'_>, fib: u32, host: F::Addr, interface: IfIndex) -> bool {
        let cover = F::tables(self).get(fib).and_then(|table| table.routes.cover(host, F::BITS));
        let Some(list) = cover.and_then(|(_, lb)| self.lists.get(lb)) else { return false };
        let mut paths = list.key.paths.iter();
        paths.any(|path| matches!(path.hop, Hop::Attached { interface: i, .. } if links(env, interface).contains(&i)))
    }

    /// An interface borrows other addresses than before: its neighbours are on another link.
    pub(crate) fn relink(&mut self, env: &mut Env<'_>, interface: IfIndex) {
        for (index, key, _) in self.adjacencies_of(interface) {
            let _ = by_family!(key.family, F => self.host_routes::<F>(env, index));
        }
    }

    /// An interface is gone: its neighbours are lost, and paths over it are never up again.
    fn forget(&mut self, env: &mut Env<'_>, interface: IfIndex) {
        for (index, key, _) in self.adjacencies_of(interface) {
            let _ = self.update_adjacency(env, index, None);
            let _ = by_family!(key.family, F => self.host_routes::<F>(env, index));
            env.graph.progress();
        }
        let lists: BTreeSet<u32> = self.lists.over(interface).collect();
        for lb in &lists {
            let Some(key) = self.lists.get(*lb).map(|l| l.key.clone()) else { continue };
            let gone = |p: &Path| if p.interface() == Some(interface) { Path { hop: Hop::Gone, ..*p } } else { *p };
            let mut paths: Vec<Path> = key.paths.iter().map(gone).collect();
            paths.sort_unstable();
            self.lists.rekey(*lb, Key { paths: paths.into(), ..(*key).clone() });
        }
        self.refresh(env, lists);
        for (index, ..) in self.adjacencies_of(interface) {
            self.adjacencies.release(index);
        }
        self.link_locals.forget(interface);
    }
}

/// Interfaces whose link's routes serve the neighbours of an interface: its own and, unnumbered, its lender's.
fn links(env: &Env<'_>, interface: IfIndex) -> Vec<IfIndex> {
    let lender = env.interfaces.get(interface).and_then(|i| i.unnumbered);
    std::iter::once(interface).chain(lender).collect()
}

impl Router {
    /// An interface has, or has no more, a link-local address of its own. Destinations of the link that nobody knows are
    /// asked for in its name.
    pub(crate) fn set_own_link_local(&mut self, index: IfIndex, address: IpAddr, add: bool) -> Result<(), FibError> {
        let IpAddr::V6(own) = address else { return Ok(()) };
        let asks = if add { Some(own) } else { self.other_link_local(index, own) };
        self.with_fib(|fib, env| {
            let full = |_| FibError::Full("link-local addresses");
            let key = |a: Ipv6Addr| AdjKey { family: FamilyId::V6, interface: index, kind: AdjKind::Glean(Some(a.into())) };
            match asks {
                Some(asks) => {
                    let glean = fib.adjacencies.make(env, &mut fib.records, key(asks))?;
                    fib.link_locals.set(index, 0, Bucket::new(Class::Glean, glean)).map_err(full)?;
                }
                None => fib.link_locals.remove(index, 0),
            }
            if add {
                return fib.link_locals.set(index, own.to_bits(), Bucket::new(Class::Receive, 0)).map_err(full);
            }
            fib.link_locals.remove(index, own.to_bits());
            if let Some(glean) = fib.adjacencies.find(&key(own)) {
                fib.adjacencies.release(glean);
            }
            Ok(())
        })
    }

    /// Packets to a link-local address that is not the interface's own are received here, or no longer.
    ///
    /// # Errors
    /// There is no room for more.
    pub fn receive_link_local(&mut self, index: IfIndex, address: Ipv6Addr, receive: bool) -> Result<(), FibError> {
        self.with_fib(|fib, _| {
            if receive {
                let full = |_| FibError::Full("link-local addresses");
                return fib.link_locals.set(index, address.to_bits(), Bucket::new(Class::Receive, 0)).map_err(full);
            }
            fib.link_locals.remove(index, address.to_bits());
            Ok(())
        })
    }

    /// A link-local address that an interface has beside this one.
    fn other_link_local(&self, index: IfIndex, own: Ipv6Addr) -> Option<Ipv6Addr> {
        let addresses = self.interfaces.get(index).map(|i| i.addresses.as_slice()).unwrap_or_default();
        addresses.iter().find_map(|(address, _)| match address {
            IpAddr::V6(a) if *a != own && is_link_local(a.to_bits()) => Some(*a).filter(|a| self.is_usable(index, *a)),
            _ => None,
        })
    }

    fn is_usable(&self, index: IfIndex, address: Ipv6Addr) -> bool {
        self.address_state(index, address) != AddressState::Duplicate
    }

    /// The adjacency of a neighbour, made if there is none; incomplete until the neighbour's MAC address is known. It stays
    /// until the interface goes, or is lost by [`Router::neighbor_update`].
    ///
    /// # Errors
    /// No such interface, or no room.
    pub fn adjacency(&mut self, interface: IfIndex, address: IpAddr) -> Result<u32, FibError> {
        self.with_fib(|fib, env| {
            env.interfaces.get(interface).ok_or(FibError::NoInterface(interface.0))?;
            let key = AdjKey { family: FamilyId::of(&address), interface, kind: AdjKind::Neighbor(address) };
            fib.adjacencies.make(env, &mut fib.records, key)
        })
    }
}

/// Listens to what happens to interfaces.
pub(crate) fn on_interface(router: &mut Router, event: &IfEvent) {
    match *event {
        IfEvent::Created(index) => {
            let Some(output) = router.interfaces.get(index).map(|i| i.output) else { return };
            let output = router.graph.node_name(output).to_owned();
            for (arc, start) in [("ip4-output", "ip4-rewrite"), ("ip6-output", "ip6-rewrite")] {
                let _ = router.graph.set_arc_ends(arc, index, start, &output);
            }
        }
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) => router.with_fib(|fib, env| {
            let lists = fib.lists_over(env, index);
            fib.refresh(env, lists);
        }),
        IfEvent::Mac(index) | IfEvent::Mtu(index) | IfEvent::Table(index, _) => router.with_fib(|fib, env| {
            for (at, _, mac) in fib.adjacencies_of(index) {
                // Where no record is free, the old link header stays.
                let _ = fib.update_adjacency(env, at, mac);
            }
        }),
        IfEvent::Deleted(index) => {
            let _ = router.remove_addresses(index);
            router.with_fib(|fib, env| fib.forget(env, index));
        }
        IfEvent::Address(..) | IfEvent::L2(_) | IfEvent::Promiscuous(_) | IfEvent::Device(_) | IfEvent::HostInterface(..) => {}
    }
}
