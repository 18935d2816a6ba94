//! Feature arcs: what is switched into the way of packets, by interface.

use std::collections::HashMap;

use super::{Graph, GraphError};
use crate::feature::{ArcSpec, FeatureSpec, Point, order};
use crate::frame::IfIndex;

/// An arc and what is on for which interface.
pub(super) struct ArcState {
    pub(super) spec: ArcSpec,
    pub(super) features: Vec<FeatureSpec>,
    ordered: Vec<usize>,
    /// By interface: which features are on.
    enabled: HashMap<u32, Vec<String>>,
    /// By interface: start and end, where they are its own.
    own: HashMap<u32, (String, String)>,
}

impl Graph {
    /// Declares a feature arc.
    ///
    /// # Errors
    /// Unknown nodes, or a start that has no point on the arc.
    pub fn add_arc(&mut self, spec: ArcSpec) -> Result<(), GraphError> {
        for node in spec.starts.iter().chain([&spec.end]) {
            if self.node(node).is_none() {
                return Err(GraphError::UnknownNode { name: node.clone(), by: spec.name.into() });
            }
        }
        for node in &spec.starts {
            self.arc_point(spec.name, node).ok_or_else(|| GraphError::NotOnArc { node: node.clone(), arc: spec.name.into() })?;
        }
        self.arc_order.push(spec.name);
        self.arcs.insert(
            spec.name,
            ArcState { spec, features: Vec::new(), ordered: Vec::new(), enabled: HashMap::new(), own: HashMap::new() },
        );
        Ok(())
    }

    /// Adds a node that starts an arc.
    ///
    /// # Errors
    /// Unknown arc or node, or a node without a point on the arc.
    pub fn add_arc_start(&mut self, arc: &str, node: &str) -> Result<(), GraphError> {
        self.arc_point(arc, node).ok_or_else(|| GraphError::NotOnArc { node: node.into(), arc: arc.into() })?;
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        state.spec.starts.push(node.into());
        Ok(())
    }

    /// Says that an interface's packets start and end an arc at nodes of their own (`<name>-output` and `<name>-tx`).
    ///
    /// # Errors
    /// Unknown arc, or a start without a point on it.
    pub fn set_arc_ends(&mut self, arc: &str, interface: IfIndex, start: &str, end: &str) -> Result<(), GraphError> {
        self.arc_point(arc, start).ok_or_else(|| GraphError::NotOnArc { node: start.into(), arc: arc.into() })?;
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        state.own.insert(interface.0, (start.into(), end.into()));
        Ok(())
    }

    /// Declares features; nodes must exist.
    ///
    /// # Errors
    /// Unknown arcs or nodes, or constraints that contradict one another.
    pub fn add_features(&mut self, features: Vec<FeatureSpec>) -> Result<(), GraphError> {
        for feature in features {
            if self.node(&feature.node).is_none() {
                return Err(GraphError::UnknownNode { name: feature.node, by: feature.arc.into() });
            }
            self.arc_point(feature.arc, &feature.node)
                .ok_or_else(|| GraphError::NotOnArc { node: feature.node.clone(), arc: feature.arc.into() })?;
            let arc = self.arcs.get_mut(feature.arc).ok_or_else(|| GraphError::NoSuchArc(feature.arc.into()))?;
            arc.features.push(feature);
            arc.ordered =
                order(&arc.features).map_err(|nodes| GraphError::Cycle { arc: arc.spec.name.into(), nodes: nodes.join(", ") })?;
        }
        Ok(())
    }

    /// Takes a feature out of an arc, after switching it off on every interface: its node can be removed then.
    ///
    /// # Errors
    /// Unknown arc or feature.
    pub fn remove_feature(&mut self, arc: &str, feature: &str) -> Result<(), GraphError> {
        let state = self.arcs.get(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        let on = |(interface, enabled): (&u32, &Vec<String>)| enabled.iter().any(|f| f == feature).then_some(IfIndex(*interface));
        for interface in state.enabled.iter().filter_map(on).collect::<Vec<_>>() {
            self.set_feature(arc, feature, interface, false)?;
        }
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        let Some(at) = state.features.iter().position(|f| f.node == feature) else {
            return Err(GraphError::NoSuchFeature { feature: feature.into(), arc: arc.into() });
        };
        state.features.remove(at);
        // What could be ordered with it can be without it.
        state.ordered = order(&state.features).unwrap_or_default();
        Ok(())
    }

    fn arc_point(&self, arc: &str, node: &str) -> Option<Point> {
        let entry = self.entries[self.node(node)?.0 as usize].as_ref()?;
        entry.spec.points.iter().find(|(a, _)| *a == arc).map(|(_, p)| p.clone())
    }

    /// Switches a feature on an interface; `true` if that changed something.
    ///
    /// # Errors
    /// Unknown arc or feature.
    pub fn set_feature(&mut self, arc: &str, feature: &str, interface: IfIndex, on: bool) -> Result<bool, GraphError> {
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        if !state.features.iter().any(|f| f.node == feature) {
            return Err(GraphError::NoSuchFeature { feature: feature.into(), arc: arc.into() });
        }
        let list = state.enabled.entry(interface.0).or_default();
        if list.iter().any(|f| f == feature) == on {
            return Ok(false);
        }
        if on {
            list.push(feature.into());
        } else {
            list.retain(|f| f != feature);
        }
        self.publish_arc(arc, interface)?;
        if let Some(tell) = &self.on_feature {
            tell(interface);
        }
        Ok(true)
    }

    /// Has somebody be told of each feature that is switched on or off, by interface.
    pub fn watch_features(&mut self, tell: impl Fn(IfIndex) + Send + 'static) {
        self.on_feature = Some(Box::new(tell));
    }

    /// Features that are on for an interface, in order, by arc.
    pub fn features_of(&self, interface: IfIndex) -> Vec<(&'static str, Vec<String>)> {
        self.arc_order.iter().map(|name| (*name, self.arc_chain(name, interface))).filter(|(_, f)| !f.is_empty()).collect()
    }

    /// All arcs with their features in order.
    pub fn arcs(&self) -> Vec<(&'static str, Vec<String>)> {
        let names = |a: &ArcState| a.ordered.iter().map(|i| a.features[*i].node.clone()).collect();
        self.arc_order.iter().filter_map(|n| self.arcs.get(n).map(|a| (*n, names(a)))).collect()
    }

    fn arc_chain(&self, arc: &str, interface: IfIndex) -> Vec<String> {
        let Some(state) = self.arcs.get(arc) else { return Vec::new() };
        let Some(enabled) = state.enabled.get(&interface.0) else { return Vec::new() };
        state.ordered.iter().map(|i| &state.features[*i].node).filter(|n| enabled.contains(n)).cloned().collect()
    }

    /// Publishes an interface's chain back to front, so that a packet always finds a complete rest of the way.
    fn publish_arc(&mut self, arc: &str, interface: IfIndex) -> Result<(), GraphError> {
        let chain = self.arc_chain(arc, interface);
        let Some(state) = self.arcs.get(arc) else { return Ok(()) };
        let name = state.spec.name;
        let (starts, end) = match state.own.get(&interface.0) {
            Some((start, end)) => (vec![start.clone()], end.clone()),
            None => (state.spec.starts.clone(), state.spec.end.clone()),
        };
        let find = |g: &Self, n: &str| g.node(n).ok_or_else(|| GraphError::NoSuchNode(n.into()));
        let mut next = None;
        for feature in chain.iter().rev() {
            let from = find(self, feature)?;
            let target = find(self, next.unwrap_or(&end))?;
            let slot = self.edge(from, target)?;
            if let Some(point) = self.arc_point(name, feature) {
                point.set(interface, slot.0);
            }
            next = Some(feature);
        }
        for start in &starts {
            let slot = match next {
                Some(feature) => {
                    let (from, to) = (find(self, start)?, find(self, feature)?);
                    self.edge(from, to)?.0
                }
                None => 0,
            };
            if let Some(point) = self.arc_point(name, start) {
                point.set(interface, slot);
            }
        }
        Ok(())
    }

    /// Switches every feature of an interface off: it is going away.
    pub fn forget_interface(&mut self, interface: IfIndex) {
        for arc in self.arc_order.clone() {
            for feature in self.arc_chain(arc, interface) {
                let _ = self.set_feature(arc, &feature, interface, false);
            }
            if let Some(state) = self.arcs.get_mut(arc) {
                state.own.remove(&interface.0);
                state.enabled.remove(&interface.0);
            }
        }
    }
}
