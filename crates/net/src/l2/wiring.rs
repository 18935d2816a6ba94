//! Edges between nodes as modes, ports and rewrites want them, and what is published of ports.

use std::collections::{BTreeMap, HashMap};

use quiver_graph::{ArcPoint, GraphError, IfIndex, NodeId, Published, Snapshot, Verdict};

use super::Ways;
use super::domain::{DomainView, FloodPort, PortKind};
use super::macs::Flush;
use super::port::PortWord;
use super::rewrite::{Change, Rewrites};
use crate::Router;
use crate::interface::{IfEvent, InterfaceError, L2Mode, Tunnel};

/// Where a plugin's node between layer 2 and an interface sends its frames then.
#[derive(Clone, Default)]
pub(crate) struct L2Filters {
    rx: HashMap<IfIndex, Verdict>,
    tx: HashMap<IfIndex, Verdict>,
}

/// Where the packets of a plugin's node go on.
#[derive(Clone)]
pub struct Onward(Kind);

#[derive(Clone)]
enum Kind {
    Arc(ArcPoint, Verdict),
    L2(Snapshot<L2Filters>, bool),
}

impl Onward {
    /// Along an arc; `end` is where its last feature leads.
    pub const fn arc(point: ArcPoint, end: Verdict) -> Self {
        Self(Kind::Arc(point, end))
    }

    /// Whether they are frames of layer 2.
    pub const fn is_l2(&self) -> bool {
        matches!(self.0, Kind::L2(..))
    }

    /// Sees what has changed. Once a vector.
    #[inline(always)]
    pub fn refresh(&mut self) {
        if let Kind::L2(filters, _) = &mut self.0 {
            filters.refresh();
        }
    }

    /// The next node of an interface's packets; `None` where its use on layer 2 has ended meanwhile.
    #[inline(always)]
    pub fn next(&self, interface: IfIndex) -> Option<Verdict> {
        match &self.0 {
            Kind::Arc(point, end) => Some(point.next(interface, *end)),
            Kind::L2(filters, true) => filters.get().tx.get(&interface).copied(),
            Kind::L2(filters, false) => filters.get().rx.get(&interface).copied(),
        }
    }
}

impl Router {
    /// Where a filter, whose node this names, sends frames: those that leave (`tx`), or those that come in.
    pub fn l2_onward(&mut self, node: &'static str, tx: bool) -> Onward {
        let nexts = self.l2.nexts.entry(node).or_insert_with(|| Published::new(L2Filters::default()));
        Onward(Kind::L2(nexts.snapshot(), tx))
    }

    /// Has the frames of an interface pass a node while it is bridged or cross-connected, or no longer: those that leave (`tx`), or
    /// those that come in. The node stands between tag rewrite and the bridge, and between tag rewrite and the output. Several
    /// nodes stand in the order of their names.
    ///
    /// # Errors
    /// No such interface or node.
    pub fn set_l2_filter(&mut self, index: IfIndex, tx: bool, node: &'static str, on: bool) -> Result<(), InterfaceError> {
        self.interfaces.expect(index)?;
        if on {
            let id = self.l2_node(node)?;
            self.l2.filters.entry((index, tx)).or_default().insert(node, id);
        } else if let Some(filters) = self.l2.filters.get_mut(&(index, tx)) {
            filters.remove(node);
        }
        self.wire(index)?;
        self.tell(&IfEvent::L2(index));
        Ok(())
    }

    /// The first filter of an interface, of which the last leads to a node; without any that node.
    fn l2_filtered(&mut self, index: IfIndex, tx: bool, target: NodeId) -> Result<NodeId, InterfaceError> {
        let filters = self.l2.filters.get(&(index, tx)).cloned().unwrap_or_default();
        filters.into_iter().rev().try_fold(target, |target, (name, filter)| {
            let next = self.graph.edge(filter, target)?;
            if let Some(nexts) = self.l2.nexts.get(name) {
                let mut all = L2Filters::clone(&nexts.get());
                if tx { &mut all.tx } else { &mut all.rx }.insert(index, next);
                nexts.publish(all);
            }
            Ok(filter)
        })
    }

    fn forget_filters(&mut self, index: IfIndex) {
        let gone = [false, true].map(|tx| self.l2.filters.remove(&(index, tx)).unwrap_or_default());
        for nexts in gone.iter().flat_map(BTreeMap::keys).filter_map(|name| self.l2.nexts.get(name)) {
            let mut all = L2Filters::clone(&nexts.get());
            all.rx.remove(&index);
            all.tx.remove(&index);
            nexts.publish(all);
        }
    }

    fn l2_node(&self, name: &'static str) -> Result<NodeId, GraphError> {
        self.graph.node(name).ok_or_else(|| GraphError::NoSuchNode(name.into()))
    }

    /// Node by which frames of layer 2 leave on an interface, which the aux lane names: tags are rewritten and filters passed. It is
    /// another one when the interface's rewrite or filters change; [`IfEvent::L2`] tells.
    ///
    /// # Errors
    /// No such interface.
    pub fn l2_output(&mut self, index: IfIndex) -> Result<NodeId, InterfaceError> {
        self.l2_way_out(index)
    }

    /// Node by which frames leave on an interface.
    fn l2_way_out(&mut self, index: IfIndex) -> Result<NodeId, InterfaceError> {
        let output = self.interfaces.expect(index)?.output;
        if self.l2.rewrites.contains_key(&index) {
            return Ok(self.l2_node("l2-output-vtr")?);
        }
        self.l2_filtered(index, true, output)
    }

    /// Puts an interface's edges, record and port right after its mode, its domain or its rewrite has changed.
    pub(super) fn wire(&mut self, index: IfIndex) -> Result<(), InterfaceError> {
        self.wire_rewrite(index)?;
        self.wire_input(index)?;
        let to_here = |i: &&crate::Interface| i.l2 == L2Mode::CrossConnect(index);
        let peers: Vec<IfIndex> = self.interfaces.iter().filter(to_here).map(|i| i.index).collect();
        for peer in peers {
            self.wire_input(peer)?;
        }
        self.wire_port(index)
    }

    /// Node that frames of an interface go to when their tags are right, and what its aux lane says.
    fn l2_target(&mut self, mode: L2Mode) -> Result<Option<(NodeId, IfIndex)>, InterfaceError> {
        Ok(match mode {
            L2Mode::L3 => None,
            L2Mode::CrossConnect(peer) => Some((self.l2_way_out(peer)?, peer)),
            L2Mode::Bridge { .. } => Some((self.l2_node("l2-bridge")?, IfIndex::LOCAL0)),
        })
    }

    fn wire_input(&mut self, index: IfIndex) -> Result<(), InterfaceError> {
        let mode = self.interfaces.expect(index)?.l2;
        let Some((target, peer)) = self.l2_target(mode)? else { return Ok(()) };
        let target = self.l2_filtered(index, false, target)?;
        let input = self.l2_node("l2-input")?;
        let first = if let Some(rewrite) = self.l2.rewrites.get(&index).cloned() {
            let vtr = self.l2_node("l2-input-vtr")?;
            let next = self.graph.edge(vtr, target)?;
            self.change_rewrites(|all| all.rx.insert(index, Change { pop: rewrite.pop, push: rewrite.push, next }));
            vtr
        } else {
            target
        };
        let slot = self.graph.edge(input, first)?;
        // Peer and slot are one word, so a packet never sees half of the change.
        self.records.update(index, |r| (r.l2_peer, r.l2_slot) = (peer, slot.index()));
        Ok(())
    }

    fn wire_rewrite(&mut self, index: IfIndex) -> Result<(), InterfaceError> {
        let Some(rewrite) = self.l2.rewrites.get(&index).cloned() else {
            self.forget_rewrite(index);
            return Ok(());
        };
        let interface = self.interfaces.expect(index)?;
        let (output, known) = (interface.output, interface.tags());
        let push = known.into_iter().take(rewrite.pop.into()).collect();
        let vtr = self.l2_node("l2-output-vtr")?;
        let output = self.l2_filtered(index, true, output)?;
        let next = self.graph.edge(vtr, output)?;
        self.change_rewrites(|all| all.tx.insert(index, Change { pop: rewrite.push.len() as u8, push, next }));
        Ok(())
    }

    fn forget_rewrite(&mut self, index: IfIndex) {
        let all = self.l2.changes.get();
        if all.rx.contains_key(&index) || all.tx.contains_key(&index) {
            self.change_rewrites(|all| (all.rx.remove(&index), all.tx.remove(&index)));
        }
    }

    fn change_rewrites<R>(&mut self, change: impl FnOnce(&mut Rewrites) -> R) {
        let mut all = Rewrites::clone(&self.l2.changes.get());
        change(&mut all);
        self.l2.changes.publish(all);
    }

    fn wire_port(&mut self, index: IfIndex) -> Result<(), InterfaceError> {
        if let L2Mode::Bridge { domain, kind, .. } = self.interfaces.expect(index)?.l2 {
            let out = if kind == PortKind::Bvi { self.l2_node("l2-bvi")? } else { self.l2_way_out(index)? };
            let bridge = self.graph.edge(self.l2_node("l2-bridge")?, out)?;
            let flood = self.graph.edge(self.l2_node("l2-flood")?, out)?;
            self.l2.ways.insert(index, Ways { bridge, flood });
            self.publish_domain(domain);
        }
        Ok(())
    }

    /// Publishes what the data path knows of a port.
    pub(super) fn publish_port(&mut self, index: IfIndex) {
        let domain = self.bridge_of(index);
        let l2 = &mut self.l2;
        let found = domain.and_then(|id| l2.domains.get(&id)).and_then(|d| d.port(index).map(|port| (d, port)));
        let word = match (found, l2.ways.get(&index)) {
            (Some((domain, port)), Some(ways)) => PortWord::new(ways.bridge, domain.index, port.group, domain.flags(port)),
            _ => PortWord::default(),
        };
        l2.ports.set(index, word);
    }

    /// Publishes what the data path knows of a domain and its ports.
    pub(super) fn publish_domain(&mut self, id: u32) {
        self.publish_ports(id);
        let l2 = &mut self.l2;
        let Some(domain) = l2.domains.get(&id) else { return };
        let tunnel = |p: &super::BridgePort| self.interfaces.get(p.interface).map_or(Tunnel::No, |i| i.origin.tunnel);
        let to_group = domain.ports.iter().any(|p| tunnel(p) == Tunnel::ToGroup);
        let by_group = |p: &super::BridgePort| to_group && tunnel(p) == Tunnel::ToPeer;
        let port = |p: &super::BridgePort| {
            Some(FloodPort {
                interface: p.interface,
                slot: l2.ways.get(&p.interface)?.flood,
                group: p.group,
                floods: p.kind != PortKind::UnknownForward && !by_group(p),
                is_bvi: p.kind == PortKind::Bvi,
            })
        };
        let view = DomainView {
            ports: domain.ports.iter().filter_map(port).collect(),
            unknown: domain.ports.iter().find(|p| p.kind == PortKind::UnknownForward).and_then(port),
            neighbors: domain.neighbors.iter().map(|(a, m)| (*a, *m)).collect::<HashMap<_, _>>(),
            unicast_arp: domain.arp_forward,
        };
        let index = domain.index;
        l2.publish(index, Some(view));
    }

    /// Publishes the ports of a domain alone.
    pub(super) fn publish_ports(&mut self, id: u32) {
        let ports = self.l2.domains.get(&id).map(|d| d.ports.iter().map(|p| p.interface).collect::<Vec<_>>());
        for port in ports.unwrap_or_default() {
            self.publish_port(port);
        }
    }
}

/// What happens to interfaces, as far as it concerns this module.
pub(super) fn on_event(router: &mut Router, event: &IfEvent) {
    match event {
        IfEvent::Deleted(index) => {
            router.leave_bridge(*index);
            router.l2.rewrites.remove(index);
            router.forget_rewrite(*index);
            router.forget_filters(*index);
        }
        // What was behind it may be elsewhere by the time it comes back.
        IfEvent::Admin(index, false) | IfEvent::Link(index, false) if router.bridge_of(*index).is_some() => {
            drop(router.flush_macs(Flush::Interface(*index)));
        }
        IfEvent::Mac(index) if router.bridge_of(*index).is_some() => router.set_bvi_mac(*index),
        _ => {}
    }
}
