//! VLAN sub-interfaces: which tags belong to which.

use quiver_graph::IfIndex;

use super::create::{NewInterface, Tx};
use super::{InterfaceError, Kind};
use crate::Router;
use crate::data::if_flags;
use crate::ethernet::vlan::VlanTable;

/// The largest VLAN id; 4095 is reserved (IEEE 802.1Q-2018, table 9-2).
pub const VLAN_MAX: u16 = 4094;

/// A VLAN id in a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VlanId {
    /// Exactly this one, up to [`VLAN_MAX`].
    Exactly(u16),
    /// Any.
    Any,
}

/// Frames that belong to a sub-interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SubMatch {
    /// Frames that no other sub-interface takes.
    Default,
    /// Frames without a tag.
    Untagged,
    /// Tagged frames.
    Tagged {
        /// 802.1ad outer tag (0x88a8) instead of 802.1Q (0x8100).
        dot1ad: bool,
        /// Outer id.
        outer: VlanId,
        /// Inner 802.1Q id, where the frame must have two tags.
        inner: Option<VlanId>,
        /// No further tags allowed; needed for routing, since only then is it known what to send.
        exact: bool,
    },
}

impl SubMatch {
    /// Tags to put on what is sent, outermost first: TPID and id. Empty where the match does not determine them.
    pub fn tags(&self) -> Vec<(u16, u16)> {
        let Self::Tagged { dot1ad, outer: VlanId::Exactly(outer), inner, .. } = self else { return Vec::new() };
        let tpid = if *dot1ad { 0x88a8 } else { 0x8100 };
        match inner {
            None => vec![(tpid, *outer)],
            Some(VlanId::Exactly(inner)) => vec![(tpid, *outer), (0x8100, *inner)],
            Some(VlanId::Any) => Vec::new(),
        }
    }

    /// Whether packets can be routed here: tags are exact and known, or there are none.
    pub fn routable(&self) -> bool {
        match self {
            Self::Tagged { exact, .. } => *exact && !self.tags().is_empty(),
            Self::Untagged => true,
            Self::Default => false,
        }
    }
}

impl Router {
    /// Makes the sub-interface `<parent>.<id>`. It starts down.
    ///
    /// # Errors
    /// No such parent, a parent that is a sub-interface itself, ids out of range, or tags that another one has.
    pub fn create_sub_interface(&mut self, parent: IfIndex, id: u32, matching: SubMatch) -> Result<IfIndex, InterfaceError> {
        let main = self.interfaces.expect(parent)?;
        if matches!(main.kind, Kind::Sub(_) | Kind::Local) {
            return Err(InterfaceError::NotPossible(format!("{} cannot have sub-interfaces", main.name)));
        }
        if let SubMatch::Tagged { outer, inner, .. } = &matching {
            for vlan in [Some(outer), inner.as_ref()].into_iter().flatten() {
                if let VlanId::Exactly(v) = vlan
                    && *v > VLAN_MAX
                {
                    let expected = format!("0 to {VLAN_MAX}");
                    return Err(InterfaceError::Range { what: "vlan", value: u64::from(*v), expected });
                }
            }
        }
        if let Some(other) = self.interfaces.relations.subs(parent).and_then(|subs| subs.claims(&matching)) {
            return Err(InterfaceError::NotPossible(format!("{} has these tags already", self.interfaces.name(other))));
        }
        let new = NewInterface {
            name: format!("{}.{id}", main.name),
            kind: Kind::Sub(matching.clone()),
            mac: main.mac,
            mtu: main.mtu.l3,
            max_frame: main.max_frame,
            tx: Tx::Parent(parent),
        };
        let index = self.create_interface(new)?;
        self.publish_vlan(parent, &matching, Some(index));
        Ok(index)
    }

    /// Publishes that tags belong to a sub-interface, or to none any more.
    pub(crate) fn publish_vlan(&mut self, parent: IfIndex, matching: &SubMatch, index: Option<IfIndex>) {
        // A copy of a few words for each 64 entries; the entries are shared.
        let mut table = VlanTable::clone(&self.vlans.get());
        table.set(parent, matching, index);
        self.vlans.publish(table);
        let (tagged, untagged) = self.interfaces.relations.subs(parent).map(|subs| subs.takes()).unwrap_or_default();
        self.set_flags(parent, if_flags::TAGGED, tagged);
        self.set_flags(parent, if_flags::UNTAGGED, untagged);
    }
}

impl SubMatch {
    /// What it claims: two with the same claim cannot stand beside one another. Whether further tags are allowed is not part of it.
    pub(super) fn claim(&self) -> Self {
        match self {
            Self::Tagged { dot1ad, outer, inner, .. } => {
                Self::Tagged { dot1ad: *dot1ad, outer: *outer, inner: *inner, exact: true }
            }
            other => other.clone(),
        }
    }
}
