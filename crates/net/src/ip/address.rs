//! Addresses of interfaces, and the routes that follow from them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::{IpPrefix, MacAddr};

use super::FamilyId;
use crate::Router;
use crate::data::if_flags;
use crate::fib::{FibError, Hop, Path, Source};
use crate::interface::{IfEvent, Interface, Kind};

/// Why an address was refused; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// An address that no interface can have.
    #[error("{0} cannot be an interface's address")]
    Impossible(IpAddr),
    /// `local0` has none.
    #[error("local0 cannot have addresses")]
    Local,
    /// The interface has it already.
    #[error("{name} has {address} already")]
    Exists {
        /// Interface.
        name: String,
        /// Address.
        address: IpAddr,
    },
    /// The prefixes of two addresses contain one another.
    #[error("failed to add {new} on {name} which conflicts with {old} for interface {other}")]
    Conflict {
        /// New address with its length.
        new: String,
        /// Where it was to be.
        name: String,
        /// The address it conflicts with.
        old: String,
        /// Where that is.
        other: String,
    },
    /// The interface has no such address.
    #[error("{address} not found for interface {name}")]
    NotFound {
        /// Interface.
        name: String,
        /// Address with its length.
        address: String,
    },
    /// Another interface borrows the addresses.
    #[error("addresses of {0} are used by {1}, which is unnumbered")]
    Lent(String, String),
    /// The FIB refused a route.
    #[error(transparent)]
    Fib(#[from] FibError),
}

fn text(address: IpAddr, len: u8) -> String {
    format!("{address}/{len}")
}

fn prefix(address: IpAddr, len: u8) -> Result<IpPrefix, AddressError> {
    IpPrefix::new(address, len).map_err(|_| FibError::PrefixLen(len).into())
}

fn is_possible(address: IpAddr, len: u8, loopback: bool) -> bool {
    match address {
        IpAddr::V4(a) => {
            let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            // Neither the link itself nor all of its hosts; a link of two addresses has only these (RFC 3021).
            let no_host = len < 31 && (a.to_bits() & host == 0 || a.to_bits() & host == host);
            // 127/8 never leaves a router (RFC 1122, 3.2.1.3), and nothing leaves by a loopback.
            !(no_host || a.is_unspecified() || a.is_loopback() && !loopback || a.octets()[0] >= 224 || a.octets()[0] == 0)
        }
        IpAddr::V6(a) => !(a.is_unspecified() || a.is_loopback() || a.is_multicast()),
    }
}

/// Routes that an address brings: where it is received, the link it is on, and (IPv4) the addresses of that link that stand
/// for no host. `source` is the address that asks for neighbours on the link; `broadcast`: packets to the link's broadcast
/// address are broadcast there.
fn routes(interface: IfIndex, address: IpAddr, len: u8, source: IpAddr, broadcast: bool) -> Vec<(IpPrefix, Path)> {
    let mut routes = vec![(IpPrefix::host(address), Path::new(Hop::Receive))];
    let Ok(link) = IpPrefix::new(address, len) else { return routes };
    if matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits())) {
        return Vec::new();
    }
    if !link.is_host() {
        routes.push((link.masked(), Path::new(Hop::Attached { interface, source: Some(source) })));
    }
    if let IpPrefix::V4(link) = link
        && link.len() < 31
    {
        routes.push((IpPrefix::host(link.network().into()), Path::new(Hop::Drop)));
        routes.push((IpPrefix::host(link.last().into()), broadcast_path(interface, link.last(), broadcast)));
    }
    routes
}

/// Directed broadcasts are not forwarded unless that is asked for (RFC 2644). Then the broadcast address is as a neighbour
/// whose MAC address is everybody's.
fn broadcast_path(interface: IfIndex, address: Ipv4Addr, on: bool) -> Path {
    if on { Path::neighbor(interface, address.into()) } else { Path::new(Hop::Drop) }
}

/// The broadcast address of a prefix, where it has one.
fn broadcast_of(address: IpAddr, len: u8) -> Option<Ipv4Addr> {
    match IpPrefix::new(address, len) {
        Ok(IpPrefix::V4(link)) if len < 31 => Some(link.last()),
        _ => None,
    }
}

/// The first of these addresses that is on a link: the one that asks for neighbours there.
fn asks(addresses: &[(IpAddr, u8)], link: IpPrefix) -> Option<IpAddr> {
    let on_link = |(a, l): &&(IpAddr, u8)| IpPrefix::new(*a, *l).is_ok_and(|p| p.masked() == link.masked());
    addresses.iter().find(on_link).map(|(a, _)| *a)
}

impl Router {
    fn table_of(interface: &Interface, family: FamilyId) -> u32 {
        match family {
            FamilyId::V4 => interface.tables.0,
            FamilyId::V6 => interface.tables.1,
        }
    }

    /// Adds an address. Routes follow: to itself, to its link, and for IPv6 the interface gets a link-local address.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn add_address(&mut self, index: IfIndex, address: IpAddr, len: u8) -> Result<(), AddressError> {
        let interface = self.interfaces.get(index).ok_or(AddressError::NoInterface(index.0))?;
        if interface.kind == Kind::Local {
            return Err(AddressError::Local);
        }
        let new = prefix(address, len)?;
        if !is_possible(address, len, interface.kind.is_loop()) {
            return Err(AddressError::Impossible(address));
        }
        let family = FamilyId::of(&address);
        self.check_conflict(interface, new)?;
        let table = Self::table_of(interface, family);
        let broadcast = interface.directed_broadcast;
        let link_local = matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits()));
        if family == FamilyId::V6 && !link_local && self.add_link_local(index)? {
            self.set_ip6_by_address(index, true);
        }
        let source = self.interfaces.get(index).and_then(|i| asks(&i.addresses, new)).unwrap_or(address);
        let all = if self.has_routes(index) { routes(index, address, len, source, broadcast) } else { Vec::new() };
        for (done, (prefix, path)) in all.iter().enumerate() {
            if let Err(error) = self.add_route(table, *prefix, Source::Interface, vec![*path]) {
                for (prefix, path) in &all[..done] {
                    let _ = self.remove_route(table, *prefix, Source::Interface, Some(&[*path]));
                }
                return Err(error.into());
            }
        }
        if link_local {
            self.set_own_link_local(index, address, true)?;
            self.set_ip6_by_address(index, false);
        }
        self.interfaces.push_address(index, address, len);
        if broadcast {
            self.update_broadcast(index, address, len, true)?;
        }
        self.update_ip_flags(index);
        self.tell(&IfEvent::Address(index, address, len, true));
        Ok(())
    }

    /// Whether an address may stand beside those of the same table: on the same interface those of one prefix may be
    /// several, all others must not contain one another.
    fn check_conflict(&self, interface: &Interface, new: IpPrefix) -> Result<(), AddressError> {
        let (address, len) = (new.addr(), new.len());
        let family = FamilyId::of(&address);
        let link_local = |a: &IpAddr| matches!(a, IpAddr::V6(a) if is_link_local(a.to_bits()));
        if interface.addresses.iter().any(|(a, _)| *a == address) {
            return Err(AddressError::Exists { name: interface.name.clone(), address });
        }
        if link_local(&address) {
            return Ok(());
        }
        let table = Self::table_of(interface, family);
        if let Some((other, a, l)) = self.interfaces.conflict(table, interface.index, new) {
            return Err(AddressError::Conflict {
                new: text(address, len),
                name: interface.name.clone(),
                old: text(a, l),
                other: self.interfaces.name(other),
            });
        }
        Ok(())
    }

    /// Removes an address and the routes that came with it.
    ///
    /// # Errors
    /// The interface has no such address, or lends it.
    pub fn remove_address(&mut self, index: IfIndex, address: IpAddr, len: u8) -> Result<(), AddressError> {
        let interface = self.interfaces.get(index).ok_or(AddressError::NoInterface(index.0))?;
        if !interface.addresses.contains(&(address, len)) {
            return Err(AddressError::NotFound { name: interface.name.clone(), address: text(address, len) });
        }
        let table = Self::table_of(interface, FamilyId::of(&address));
        let broadcast = interface.directed_broadcast;
        let link = prefix(address, len)?;
        let source = asks(&interface.addresses, link).unwrap_or(address);
        let others: Vec<(IpAddr, u8)> = interface.addresses.iter().filter(|a| **a != (address, len)).copied().collect();
        let heir = asks(&others, link);
        // The other addresses of the same link still need what they share with this one.
        let kept: Vec<(IpPrefix, Path)> = others.iter().flat_map(|(a, l)| routes(index, *a, *l, *a, broadcast)).collect();
        let all = if self.has_routes(index) { routes(index, address, len, source, broadcast) } else { Vec::new() };
        for (prefix, path) in all {
            let shared = kept.iter().any(|(p, _)| *p == prefix);
            let done = match (shared, heir, path.hop) {
                (true, Some(heir), Hop::Attached { interface, .. }) => {
                    let path = Path::new(Hop::Attached { interface, source: Some(heir) });
                    self.replace_route(table, prefix, Source::Interface, vec![path])
                }
                (true, ..) => Ok(()),
                _ => self.remove_route(table, prefix, Source::Interface, Some(&[path])),
            };
            match done {
                Ok(()) | Err(FibError::NoRoute | FibError::NoPath) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if matches!(address, IpAddr::V6(a) if is_link_local(a.to_bits())) {
            self.set_own_link_local(index, address, false)?;
        }
        self.interfaces.take_address(index, address, len);
        if broadcast && heir.is_none() {
            self.update_broadcast(index, address, len, false)?;
        }
        self.update_ip_flags(index);
        self.tell(&IfEvent::Address(index, address, len, false));
        self.leave_ip6(index)
    }

    fn set_ip6_by_address(&mut self, index: IfIndex, by_address: bool) {
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.ip6_by_address = by_address;
        }
    }

    /// IPv6 that came with an address goes with the last one, as in VPP: an interface that nobody has given IPv6 for its own sake does
    /// not forward it.
    fn leave_ip6(&mut self, index: IfIndex) -> Result<(), AddressError> {
        let Some(interface) = self.interfaces.get(index).filter(|i| i.ip6_by_address) else { return Ok(()) };
        let own = (IpAddr::V6(interface.link_local()), 128);
        let mut v6 = interface.addresses.iter().filter(|(a, _)| a.is_ipv6());
        match (v6.next(), v6.next()) {
            (Some(only), None) if *only == own => self.remove_address(index, own.0, own.1),
            _ => Ok(()),
        }
    }

    /// Sets whether packets to the broadcast addresses of an interface's IPv4 prefixes are broadcast on its link.
    ///
    /// # Errors
    /// No such interface, or no room.
    pub fn set_directed_broadcast(&mut self, index: IfIndex, on: bool) -> Result<(), AddressError> {
        let interface = self.interfaces.get_mut(index).ok_or(AddressError::NoInterface(index.0))?;
        interface.directed_broadcast = on;
        let (table, addresses) = (interface.tables.0, interface.addresses.clone());
        let has_routes = self.has_routes(index);
        for (address, len) in addresses {
            let Some(broadcast) = broadcast_of(address, len) else { continue };
            let path = broadcast_path(index, broadcast, on);
            if has_routes {
                self.replace_route(table, IpPrefix::host(broadcast.into()), Source::Interface, vec![path])?;
            }
            self.update_broadcast(index, address, len, on)?;
        }
        Ok(())
    }

    /// Gives the broadcast address of a prefix everybody's MAC address, or takes it away.
    fn update_broadcast(&mut self, index: IfIndex, address: IpAddr, len: u8, on: bool) -> Result<(), FibError> {
        match broadcast_of(address, len) {
            Some(broadcast) => self.neighbor_update_without_route(index, broadcast.into(), on.then_some(MacAddr::BROADCAST)),
            None => Ok(()),
        }
    }

    /// Whether an interface's addresses have their routes: only while it and the one that carries it are up, so that other
    /// routes serve their prefixes meanwhile.
    pub(crate) fn has_routes(&self, index: IfIndex) -> bool {
        let up = |index| self.interfaces.get(index).filter(|i| i.admin_up).map(|i| i.parent);
        up(index).and_then(up).is_some()
    }

    /// An interface has come up or gone down: the routes of its addresses, and of its sub-interfaces', come and go with it.
    ///
    /// # Errors
    /// No room for a route.
    pub(crate) fn update_address_routes(&mut self, index: IfIndex) -> Result<(), FibError> {
        let all: Vec<IfIndex> = std::iter::once(index).chain(self.interfaces.subs(index)).collect();
        for index in all {
            let on = self.has_routes(index);
            let Some(interface) = self.interfaces.get(index) else { continue };
            let broadcast = interface.directed_broadcast;
            let mut wanted = Vec::new();
            for (address, len) in &interface.addresses {
                let Ok(link) = IpPrefix::new(*address, *len) else { continue };
                let source = asks(&interface.addresses, link).unwrap_or(*address);
                let table = Self::table_of(interface, FamilyId::of(address));
                wanted.extend(routes(index, *address, *len, source, broadcast).into_iter().map(|(p, path)| (table, p, path)));
            }
            for (table, prefix, path) in wanted {
                if on {
                    self.add_route(table, prefix, Source::Interface, vec![path])?;
                    continue;
                }
                match self.remove_route(table, prefix, Source::Interface, Some(&[path])) {
                    Ok(()) | Err(FibError::NoRoute | FibError::NoPath) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Removes all addresses of an interface.
    ///
    /// # Errors
    /// As [`Router::remove_address`].
    pub fn remove_addresses(&mut self, index: IfIndex) -> Result<(), AddressError> {
        let interface = self.interfaces.get(index).ok_or(AddressError::NoInterface(index.0))?;
        for (address, len) in interface.addresses.clone() {
            // The link-local one may have gone with another.
            match self.remove_address(index, address, len) {
                Ok(()) | Err(AddressError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives an interface IPv6: a link-local address made from its MAC address (RFC 4862, 5.3), if it has none. It keeps IPv6 when its
    /// last address goes.
    ///
    /// # Errors
    /// No such interface, `local0`, or no room.
    pub fn enable_ip6(&mut self, index: IfIndex) -> Result<(), AddressError> {
        self.add_link_local(index)?;
        self.set_ip6_by_address(index, false);
        Ok(())
    }

    /// Makes a link-local address if there is none; gives whether there was none.
    fn add_link_local(&mut self, index: IfIndex) -> Result<bool, AddressError> {
        let interface = self.interfaces.get(index).ok_or(AddressError::NoInterface(index.0))?;
        let has = interface.addresses.iter().any(|(a, _)| matches!(a, IpAddr::V6(a) if is_link_local(a.to_bits())));
        if has {
            return Ok(false);
        }
        let address = interface.link_local();
        self.add_address(index, address.into(), 128).map(|()| true)
    }

    /// Takes IPv6 away from an interface: its link-local address.
    ///
    /// # Errors
    /// No such interface, or one with other IPv6 addresses.
    pub fn disable_ip6(&mut self, index: IfIndex) -> Result<(), AddressError> {
        let interface = self.interfaces.get(index).ok_or(AddressError::NoInterface(index.0))?;
        let is_own = |a: &IpAddr| matches!(a, IpAddr::V6(a) if is_link_local(a.to_bits()));
        let v6: Vec<(IpAddr, u8)> = interface.addresses.iter().filter(|(a, _)| a.is_ipv6()).copied().collect();
        if v6.iter().any(|(a, _)| !is_own(a)) {
            return Err(FibError::HasAddresses(interface.name.clone()).into());
        }
        for (address, len) in v6 {
            self.remove_address(index, address, len)?;
        }
        Ok(())
    }

    /// Sets or clears which protocols an interface takes, and those that borrow its addresses, after an address came or went: an
    /// unnumbered one takes those of the one that lends to it.
    pub(crate) fn update_ip_flags(&mut self, index: IfIndex) {
        let has = |i: &Interface, v6: bool| i.addresses.iter().any(|(a, _)| a.is_ipv6() == v6);
        let states: Vec<(IfIndex, bool, bool)> = std::iter::once(index)
            .chain(self.interfaces.borrowers(index))
            .filter_map(|index| self.interfaces.get(index))
            .map(|i| {
                let lender = i.unnumbered.and_then(|u| self.interfaces.get(u));
                // Its host interface may well have one, or ask for one by DHCP.
                let host = self.host_interfaces.get(i.index).is_some();
                (
                    i.index,
                    host || has(i, false) || lender.is_some_and(|l| has(l, false)),
                    has(i, true) || lender.is_some_and(|l| has(l, true)),
                )
            })
            .collect();
        for (index, ip4, ip6) in states {
            self.set_flags(index, if_flags::IP4, ip4);
            self.set_flags(index, if_flags::IP6, ip6);
        }
    }

    /// Makes an interface use the addresses of another (`None`: no more).
    ///
    /// # Errors
    /// No such interface, a lender that borrows itself, or a borrower that lends.
    pub fn set_unnumbered(&mut self, index: IfIndex, lender: Option<IfIndex>) -> Result<(), AddressError> {
        let interface = self.interfaces.get(index).ok_or(AddressError::NoInterface(index.0))?;
        if let Some(lender) = lender {
            let other = self.interfaces.get(lender).ok_or(AddressError::NoInterface(lender.0))?;
            if interface.kind == Kind::Local || other.kind == Kind::Local {
                return Err(AddressError::Local);
            }
            if lender == index || other.unnumbered.is_some() {
                return Err(AddressError::Lent(other.name.clone(), interface.name.clone()));
            }
            // The one that borrows from it would have none, and the order in which both were said would count.
            if let Some(borrower) = self.interfaces.borrowers(index).next() {
                return Err(AddressError::Lent(interface.name.clone(), self.interfaces.name(borrower)));
            }
        }
        self.interfaces.set_lender(index, lender);
        self.update_ip_flags(index);
        self.publish_view(index, false);
        self.with_fib(|fib, env| fib.relink(env, index));
        Ok(())
    }

    /// An interface's first address of a family; for IPv6 one that is not link-local where there is one. An unnumbered
    /// interface answers with its lender's.
    pub fn interface_address(&self, index: IfIndex, family: FamilyId) -> Option<(IpAddr, u8)> {
        let interface = self.interfaces.get(index)?;
        let lender = interface.unnumbered.and_then(|u| self.interfaces.get(u));
        let addresses = || {
            let all = interface.addresses.iter().chain(lender.into_iter().flat_map(|l| &l.addresses));
            all.filter(move |(a, _)| FamilyId::of(a) == family)
        };
        let global = |a: &&(IpAddr, u8)| !matches!(a.0, IpAddr::V6(v6) if is_link_local(v6.to_bits()));
        let preferred = |a: &&(IpAddr, u8)| global(a) && !self.is_deprecated(index, a.0);
        addresses().find(preferred).or_else(|| addresses().find(global)).or_else(|| addresses().next()).copied()
    }

    /// Which of an interface's addresses is in the same link as a neighbour.
    pub fn address_towards(&self, index: IfIndex, neighbor: IpAddr) -> Option<IpAddr> {
        let interface = self.interfaces.get(index)?;
        let lender = interface.unnumbered.and_then(|u| self.interfaces.get(u));
        let all = || interface.addresses.iter().chain(lender.into_iter().flat_map(|l| &l.addresses));
        let on_link = |(a, l): &&(IpAddr, u8)| IpPrefix::new(*a, *l).is_ok_and(|p| p.contains(neighbor));
        let preferred = |a: &&(IpAddr, u8)| on_link(a) && !self.is_deprecated(index, a.0);
        let near = all().find(preferred).or_else(|| all().find(on_link)).map(|(a, _)| *a);
        near.or_else(|| self.interface_address(index, FamilyId::of(&neighbor)).map(|(a, _)| a))
    }

    /// The address that this router uses as source towards a destination of a table (user's number): one of the interface
    /// that the packet leaves on.
    pub fn source_for(&self, table: u32, destination: IpAddr) -> Option<IpAddr> {
        let found = self.route_lookup(table, destination)?;
        let interface = found.interface?;
        self.address_towards(interface, destination)
    }

    /// Whether an address is one of this router's in a table (user's number).
    pub fn is_own_address(&self, table: u32, address: IpAddr) -> bool {
        let family = FamilyId::of(&address);
        self.interfaces.iter().any(|i| Self::table_of(i, family) == table && i.addresses.iter().any(|(a, _)| *a == address))
    }
}

/// 0.0.0.0 and ::, for callers that need an address where there is none.
pub const fn unspecified(family: FamilyId) -> IpAddr {
    match family {
        FamilyId::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        FamilyId::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
