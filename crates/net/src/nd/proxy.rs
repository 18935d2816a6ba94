//! Proxy neighbour discovery (RFC 4861, 7.2.8): answers in the place of hosts that are behind another interface.
//!
//! *A host* (`set ip6 nd proxy`) has an address of another link's prefix but is behind this interface. It gets a route of its own; on all
//! other links of the table this router answers solicitations for it, and to the host it answers for its own addresses of the prefix.
//! Nothing is answered on the link that the host itself is on.
//!
//! *A mirror* (`set interface ip6-nd proxy`) answers every solicitation of an interface, whatever the target: for a host interface that has
//! the router's own address, where everything else is behind the router.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::IpPrefix;
use quiver_wire::ipv6::address::{is_link_local, is_multicast, solicited_node};

use crate::Router;
use crate::fib::{FibError, Path, Source};
use crate::ip::FamilyId;
use crate::neighbor::{View, Views};

/// Who listens to the groups of such hosts.
const USER: &str = "ip6-nd-proxy";

/// Hosts that are answered for, by table (user's number) and address: behind which interface.
pub(crate) type Proxied = BTreeMap<(u32, u128), IfIndex>;

/// Why a host was refused; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// An address that no host of another link can have.
    #[error("{0} cannot be answered for: a global unicast address is needed")]
    Address(Ipv6Addr),
    /// The host is behind another interface.
    #[error("{address} is answered for already, behind {interface}")]
    Elsewhere {
        /// Address.
        address: Ipv6Addr,
        /// Interface.
        interface: String,
    },
    /// There is no such host.
    #[error("{address} behind {interface} is not answered for")]
    NoHost {
        /// Address.
        address: Ipv6Addr,
        /// Interface.
        interface: String,
    },
    /// The FIB refused its route.
    #[error(transparent)]
    Fib(#[from] FibError),
}

impl Router {
    /// Hosts that are answered for: behind which interface, and their addresses.
    pub fn nd_proxies(&self) -> Vec<(IfIndex, Ipv6Addr)> {
        let views = self.neighbors.views.get();
        let mut all: Vec<_> = views.proxied6.iter().map(|((_, address), i)| (*i, Ipv6Addr::from_bits(*address))).collect();
        all.sort_unstable();
        all
    }

    /// Adds a host to answer for, or removes one, with its route and what is known of it as a neighbour. Adding it again changes nothing.
    ///
    /// # Errors
    /// See [`ProxyError`].
    pub fn set_nd_proxy(&mut self, interface: IfIndex, address: Ipv6Addr, add: bool) -> Result<(), ProxyError> {
        let known = self.interfaces.get(interface).ok_or(ProxyError::NoInterface(interface.0))?;
        let (table, name) = (known.tables.1, known.name.clone());
        let bits = address.to_bits();
        let mut proxied = Proxied::clone(&self.neighbors.views.get().proxied6);
        if !add {
            // Its interface may be in another table by now.
            let key = proxied.iter().find(|((_, a), i)| *a == bits && **i == interface).map(|(key, _)| *key);
            let key = key.ok_or(ProxyError::NoHost { address, interface: name })?;
            proxied.remove(&key);
            self.publish_proxied(proxied);
            match self.remove_route(key.0, IpPrefix::host(address.into()), Source::NdProxy, None) {
                Ok(()) | Err(FibError::NoRoute) => {}
                Err(error) => return Err(error.into()),
            }
            // There may be no such neighbour.
            let _ = self.remove_neighbor(interface, address.into());
            return Ok(());
        }
        if address.is_unspecified() || address.is_loopback() || is_multicast(bits) || is_link_local(bits) {
            return Err(ProxyError::Address(address));
        }
        match proxied.get(&(table, bits)) {
            Some(other) if *other == interface => return Ok(()),
            Some(other) => return Err(ProxyError::Elsewhere { address, interface: self.interfaces.name(*other) }),
            None => {}
        }
        let path = Path::neighbor(interface, address.into());
        self.replace_route(table, IpPrefix::host(address.into()), Source::NdProxy, vec![path])?;
        proxied.insert((table, bits), interface);
        self.publish_proxied(proxied);
        Ok(())
    }

    fn publish_proxied(&mut self, proxied: Proxied) {
        let mut views = Views::clone(&self.neighbors.views.get());
        views.proxied6 = proxied.into();
        self.neighbors.views.publish(views);
        let all: Vec<IfIndex> = self.interfaces.iter().map(|i| i.index).collect();
        all.into_iter().for_each(|index| want_groups(self, index));
    }

    /// Whether an interface answers every solicitation.
    pub fn nd_mirror(&self, interface: IfIndex) -> bool {
        self.neighbor_view(interface).is_some_and(|view| view.mirrors6)
    }

    /// Has an interface answer every solicitation, or no more.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_nd_mirror(&mut self, interface: IfIndex, on: bool) -> Result<(), ProxyError> {
        let view = self.neighbor_view(interface).ok_or(ProxyError::NoInterface(interface.0))?;
        let mut views = Views::clone(&self.neighbors.views.get());
        views.set(interface, Some(View { mirrors6: on, ..view }));
        self.neighbors.views.publish(views);
        Ok(())
    }
}

/// Solicitations for a host go to its group, which this router listens to on the other links.
fn want_groups(router: &mut Router, interface: IfIndex) {
    let views = router.neighbors.views.get();
    let Some(view) = views.get(interface) else { return };
    let other = |((table, _), behind): &(&(u32, u128), &IfIndex)| *table == view.table6 && **behind != interface;
    let hosts = views.proxied6.iter().filter(other).filter(|_| !view.v6.is_empty());
    let groups: BTreeSet<IpAddr> = hosts.map(|((_, host), _)| solicited_node(Ipv6Addr::from_bits(*host)).into()).collect();
    router.want_groups(interface, FamilyId::V6, USER, &groups);
}

/// An interface has got IPv6, or lost it.
pub(super) fn address_changed(router: &mut Router, interface: IfIndex) {
    if !router.neighbors.views.get().proxied6.is_empty() {
        want_groups(router, interface);
    }
}

/// An interface goes, with the hosts behind it.
pub(super) fn forget(router: &mut Router, interface: IfIndex) {
    let behind = router.nd_proxies().into_iter().filter(|(of, _)| *of == interface);
    for (_, address) in behind.collect::<Vec<_>>() {
        if let Err(error) = router.set_nd_proxy(interface, address, false) {
            tracing::warn!(target: "ip6/nd", %address, "host to answer for: {error}");
        }
    }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
