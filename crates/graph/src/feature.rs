//! Feature arcs: ordered node sequences that are switched on per interface at run time.
//!
//! ```text
//!   ip4-input ──► [ feature A ] ──► [ feature B ] ──► ip4-lookup      interface 1: A and B
//!       └──────────────────────────────────────────►  ip4-lookup      interface 2: none
//! ```
//!
//! Each node on an arc (the ones that start it and the features) has a table from interface index to the slot of its next
//! node. It is read with one load that stays in L1, so a packet needs no metadata line to know where it is on the arc. A
//! change is prepared (edges exist on all workers) and then published by one store per node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use crate::IfIndex;
use crate::interface::MAX_INTERFACES;
use crate::node::Verdict;

/// Where a node on an arc sends packets, by interface. Shared by all instances of the node.
#[derive(Clone)]
pub struct ArcPoint {
    slots: Arc<[AtomicU16]>,
    active: Arc<AtomicUsize>,
}

impl Default for ArcPoint {
    fn default() -> Self {
        Self::new()
    }
}

impl ArcPoint {
    /// A point that nothing follows yet; hand it to [`crate::NodeSpec::on_arc`] and to the node's recipe.
    pub fn new() -> Self {
        Self { slots: (0..MAX_INTERFACES).map(|_| AtomicU16::new(0)).collect(), active: Arc::default() }
    }

    /// Where a packet of `interface` goes next; `default` (the end of the arc) where no feature follows.
    #[inline(always)]
    pub fn next(&self, interface: IfIndex, default: Verdict) -> Verdict {
        match self.slots.get(interface.0 as usize).map(|s| s.load(Ordering::Relaxed)) {
            Some(slot) if slot != 0 => Verdict::slot(slot),
            _ => default,
        }
    }

    /// Whether any interface has a feature after this point: a node may ask once a vector.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set(&self, interface: IfIndex, slot: u16) {
        let Some(s) = self.slots.get(interface.0 as usize) else { return };
        let old = s.swap(slot, Ordering::Release);
        match (old != 0, slot != 0) {
            (false, true) => drop(self.active.fetch_add(1, Ordering::Release)),
            (true, false) => drop(self.active.fetch_sub(1, Ordering::Release)),
            _ => {}
        }
    }
}

/// Where a node on an arc sends packets that all belong to one interface: the start of the arc at a node of the interface's own. It
/// takes a word, where an [`ArcPoint`] takes one for each interface that can be.
#[derive(Clone)]
pub struct ArcSlot {
    interface: IfIndex,
    slot: Arc<AtomicU16>,
}

impl ArcSlot {
    /// A point of an interface that nothing follows yet.
    pub fn new(interface: IfIndex) -> Self {
        Self { interface, slot: Arc::default() }
    }

    /// Where a packet goes next; `default` (the end of the arc) where no feature follows.
    #[inline(always)]
    pub fn next(&self, default: Verdict) -> Verdict {
        match self.slot.load(Ordering::Relaxed) {
            0 => default,
            slot => Verdict::slot(slot),
        }
    }

    /// Whether a feature follows.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.slot.load(Ordering::Relaxed) != 0
    }
}

/// A node's place on an arc, for all interfaces or for one.
#[derive(Clone)]
pub enum Point {
    /// Packets of any interface come here.
    Any(ArcPoint),
    /// Packets of one interface come here.
    One(ArcSlot),
}

impl Point {
    pub(crate) fn set(&self, interface: IfIndex, slot: u16) {
        match self {
            Self::Any(point) => point.set(interface, slot),
            Self::One(one) if one.interface == interface => one.slot.store(slot, Ordering::Release),
            Self::One(_) => {}
        }
    }
}

impl From<ArcPoint> for Point {
    fn from(point: ArcPoint) -> Self {
        Self::Any(point)
    }
}

impl From<ArcSlot> for Point {
    fn from(slot: ArcSlot) -> Self {
        Self::One(slot)
    }
}

/// A feature's place on an arc.
#[derive(Clone, Debug)]
pub struct FeatureSpec {
    /// Arc's name, such as `ip4-unicast`.
    pub arc: &'static str,
    /// Node that is the feature.
    pub node: String,
    /// Features that must come later than this one.
    pub before: Vec<&'static str>,
    /// Features that must come earlier.
    pub after: Vec<&'static str>,
}

/// An arc: which nodes start it, and where it ends.
#[derive(Clone, Debug)]
pub struct ArcSpec {
    /// Name.
    pub name: &'static str,
    /// Nodes that start it.
    pub starts: Vec<String>,
    /// Node where it ends: what the nodes on it do by themselves.
    pub end: String,
}

/// Orders features by their constraints; ties keep the order of declaration.
///
/// # Errors
/// The names on a cycle.
pub(crate) fn order(features: &[FeatureSpec]) -> Result<Vec<usize>, Vec<String>> {
    let n = features.len();
    let at = |name: &str| features.iter().position(|f| f.node == name);
    let mut earlier: Vec<Vec<usize>> = vec![Vec::new(); n];
    for (i, feature) in features.iter().enumerate() {
        for name in &feature.after {
            if let Some(j) = at(name) {
                earlier[i].push(j);
            }
        }
        for name in &feature.before {
            if let Some(j) = at(name) {
                earlier[j].push(i);
            }
        }
    }
    let mut done = vec![false; n];
    let mut result = Vec::with_capacity(n);
    while result.len() < n {
        let Some(i) = (0..n).find(|i| !done[*i] && earlier[*i].iter().all(|j| done[*j])) else {
            return Err((0..n).filter(|i| !done[*i]).map(|i| features[i].node.clone()).collect());
        };
        done[i] = true;
        result.push(i);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(node: &str, before: &[&'static str], after: &[&'static str]) -> FeatureSpec {
        FeatureSpec { arc: "a", node: node.into(), before: before.to_vec(), after: after.to_vec() }
    }

    #[test]
    fn constraints_decide_and_ties_keep_declaration_order() {
        let f = [feature("c", &[], &["a"]), feature("b", &["c"], &[]), feature("a", &["b"], &["absent"])];
        assert_eq!(order(&f).unwrap(), [2, 1, 0]);
        let f = [feature("x", &[], &[]), feature("y", &[], &[])];
        assert_eq!(order(&f).unwrap(), [0, 1]);
    }

    #[test]
    fn a_cycle_is_named() {
        let f = [feature("a", &["b"], &[]), feature("b", &["a"], &[]), feature("c", &[], &[])];
        assert_eq!(order(&f).unwrap_err(), ["a", "b"]);
    }

    #[test]
    fn a_point_without_features_gives_the_end() {
        let point = ArcPoint::new();
        let end = Verdict::slot(1);
        assert_eq!(point.next(IfIndex(3), end), end);
        point.set(IfIndex(3), 7);
        assert!(point.is_active());
        assert_eq!(point.next(IfIndex(3), end), Verdict::slot(7));
        assert_eq!(point.next(IfIndex(4), end), end);
        assert_eq!(point.next(IfIndex(u32::MAX), end), end);
        point.set(IfIndex(3), 0);
        assert!(!point.is_active());
    }

    #[test]
    fn a_point_of_one_interface_hears_of_no_other() {
        let slot = ArcSlot::new(IfIndex(3));
        let (point, end) = (Point::from(slot.clone()), Verdict::slot(1));
        point.set(IfIndex(4), 7);
        assert_eq!((slot.next(end), slot.is_active()), (end, false));
        point.set(IfIndex(3), 7);
        assert_eq!((slot.next(end), slot.is_active()), (Verdict::slot(7), true));
    }
}
