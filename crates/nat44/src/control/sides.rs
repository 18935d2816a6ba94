//! Which interfaces are inside and which outside.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::neighbor::ProxyRange;

use super::{External, Nat, NatError, enabled};
use crate::config::Side;
use crate::nodes::{ARC, HANDOFF, TRANSLATE};

/// The interface that is not one: nothing comes in on it.
const LOCAL: IfIndex = IfIndex(0);

impl Nat {
    /// Asks for proxy ARP on outside interfaces for every external address that is not the router's own.
    pub(super) fn answer_arp(&mut self, router: &mut Router) {
        let own: HashSet<IpAddr> = router.interfaces.iter().flat_map(|i| i.addresses.iter().map(|(a, _)| *a)).collect();
        let mut wanted: Vec<u32> =
            self.config.external.iter().copied().filter(|a| !own.contains(&Ipv4Addr::from_bits(*a).into())).collect();
        wanted.sort_unstable();
        let mut ranges: Vec<ProxyRange> = Vec::new();
        let own = self.enabled.map_or(0, |e| e.vrfs.1);
        let tables = self.outside_users.keys().filter_map(|fib| router.table_of_fib(FamilyId::V4, (*fib).into()));
        let mut tables: Vec<u32> = std::iter::once(own).chain(tables).collect();
        tables.sort_unstable();
        tables.dedup();
        for addr in wanted {
            match ranges.last_mut() {
                Some(last) if last.last.to_bits().checked_add(1) == Some(addr) => last.last = Ipv4Addr::from_bits(addr),
                _ => ranges.push(ProxyRange { table: own, first: Ipv4Addr::from_bits(addr), last: Ipv4Addr::from_bits(addr) }),
            }
        }
        let ranges = tables.into_iter().flat_map(|table| ranges.iter().map(move |range| ProxyRange { table, ..*range })).collect();
        router.hold_proxy_ranges(ranges);
        for (interface, _) in self.sides.iter().filter(|(_, (side, _))| side.outside) {
            router.hold_proxy_arp(*interface, true);
        }
    }

    /// Switches the features of an interface as its side wants them.
    pub(super) fn switch(&self, router: &mut Router, index: IfIndex, side: Side) -> Result<(), NatError> {
        // Packets may come in on a thread without sessions, too.
        let several = self.fleet.len() > 1;
        for (n, on) in [(0, side.inside), (1, side.outside)] {
            for (name, on) in [(TRANSLATE[n], on), (HANDOFF[n], on && several)] {
                router.graph.set_feature(ARC, name, index, on).map_err(|e| NatError::Graph(e.to_string()))?;
            }
        }
        Ok(())
    }

    /// The side of an interface: as it is named; where some are outside of all others, the others are inside, those that are named outside too.
    pub(super) fn wanted(&self, index: IfIndex) -> Side {
        let mut side = self.named.get(&index).copied().unwrap_or_default();
        side.outside |= self.outputs.contains(&index);
        side.inside |= !self.outputs.is_empty() && !self.outputs.contains(&index) && index != LOCAL;
        side
    }

    /// Puts an interface on a side; `true` if it was on another one. Nothing is published.
    pub(super) fn put(&mut self, router: &mut Router, index: IfIndex, side: Side) -> Result<bool, NatError> {
        if side == self.config.side(index) {
            return Ok(false);
        }
        self.switch(router, index, side)?;
        self.note_side(router, index, side);
        if !side.outside {
            router.hold_proxy_arp(index, false);
        }
        Ok(true)
    }

    /// Notes the side and the MTU of an interface; `true` if something is another one.
    pub(super) fn note_side(&mut self, router: &Router, index: IfIndex, side: Side) -> bool {
        let before = self.sides.remove(&index);
        if let Some((_, mtu)) = before {
            self.mtus.remove(&(mtu, index));
        }
        let fib_before = self.outside_tables.remove(&index);
        let fib = router.interfaces.get(index).filter(|_| side.outside).map(|_| router.data.interfaces.fibs(index).0 as u16);
        for (fib, change) in [(fib_before, -1), (fib, 1)] {
            let Some(fib) = fib else { continue };
            let users = self.outside_users.entry(fib).or_default();
            *users += change;
            if *users == 0 {
                self.outside_users.remove(&fib);
            }
        }
        if let Some(fib) = fib {
            self.outside_tables.insert(index, fib);
        }
        let now = (side != Side::default()).then(|| (side, router.interfaces.get(index).map_or(u32::MAX, |i| i.mtu4())));
        if let Some((side, mtu)) = now {
            self.sides.insert(index, (side, mtu));
            self.mtus.insert((mtu, index));
        }
        let is_both = |entry: Option<(Side, u32)>| usize::from(entry.is_some_and(|(side, _)| side.inside && side.outside));
        self.both = self.both + is_both(now) - is_both(before);
        if before != now {
            self.config.set_side(index, side);
        }
        before != now || fib_before != fib
    }

    /// Publishes sides alone: pools and mappings are as they were.
    pub(super) fn publish_sides(&mut self) {
        let most = u32::from(u16::MAX);
        self.config.mtu = self.mtus.first().map_or(most, |(mtu, _)| *mtu).min(most) as u16;
        self.config.both = self.both > 0;
        self.config.outputs = Arc::new(self.outputs.clone());
        let own = self.config.outside_fib;
        self.config.outside_fibs =
            std::iter::once(own).chain(self.outside_users.keys().copied().filter(|fib| *fib != own)).collect();
        self.parts.config.publish(self.config.clone());
    }

    /// Whether a pool or a mapping follows the addresses of an interface.
    pub(super) fn follows(&self, index: IfIndex) -> bool {
        self.pool_interfaces.iter().any(|(i, _)| *i == index)
            || self.statics.iter().any(|s| s.external == External::Interface(index))
    }

    /// Puts an interface on the side that it is to be on. Pools and mappings are as they were, however many there are.
    fn follow_side(&mut self, router: &mut Router, index: IfIndex) -> Result<(), NatError> {
        let tables = |nat: &Self| nat.outside_users.keys().copied().collect::<Vec<_>>();
        let (side, before) = (self.wanted(index), tables(self));
        if self.put(router, index, side)? {
            self.publish_sides();
            if tables(self) != before {
                self.answer_arp(router);
            } else if side.outside {
                router.hold_proxy_arp(index, true);
            }
        }
        Ok(())
    }

    /// Puts every interface on the side that it is to be on; one that is going, on none.
    pub(super) fn follow_sides(&mut self, router: &mut Router, going: Option<IfIndex>) -> Result<(), NatError> {
        let mut all: Vec<IfIndex> = router.interfaces.iter().map(|i| i.index).collect();
        all.extend(self.sides.keys());
        all.sort_unstable();
        all.dedup();
        for index in all {
            let side = if going == Some(index) { Side::default() } else { self.wanted(index) };
            self.put(router, index, side)?;
        }
        self.publish(router);
        Ok(())
    }
}

/// Puts an interface on a side, or takes it from there.
///
/// # Errors
/// Not enabled, no such interface.
pub fn set_interface(router: &mut Router, index: IfIndex, sides: Side, add: bool) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let interface = router.interfaces.get(index).ok_or(NatError::NoInterface(index.0))?;
        let name = interface.name.clone();
        let mut side = nat.named.get(&index).copied().unwrap_or_default();
        for (now, change) in [(&mut side.inside, sides.inside), (&mut side.outside, sides.outside)] {
            if change && !add && !*now {
                return Err(NatError::NoEntry(format!("NAT44 on {name}")));
            }
            *now = if change { add } else { *now };
        }
        if side == Side::default() {
            nat.named.remove(&index);
        } else {
            nat.named.insert(index, side);
        }
        nat.follow_side(router, index)
    })
}

/// Translates what leaves by an interface, wherever it comes from: that one is outside, and all others are inside, also those
/// that are made later. Or does so no more.
///
/// # Errors
/// Not enabled, no such interface, or it is or is not so already.
pub fn set_output(router: &mut Router, index: IfIndex, add: bool) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let name = router.interfaces.get(index).ok_or(NatError::NoInterface(index.0))?.name.clone();
        match (add, nat.outputs.contains(&index)) {
            (true, true) => return Err(NatError::Exists(format!("NAT44 output feature on {name}"))),
            (false, false) => return Err(NatError::NoEntry(format!("NAT44 output feature on {name}"))),
            (true, false) => drop(nat.outputs.insert(index)),
            (false, true) => drop(nat.outputs.remove(&index)),
        }
        nat.follow_sides(router, None)
    })
}
