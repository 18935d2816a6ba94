//! What a node reads: where the frames of each mirrored interface are copied to.

use std::collections::HashMap;

use quiver_graph::{IfIndex, Verdict};

/// Where frames are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Where a device's frames come in.
    In,
    /// Where they leave.
    Out,
    /// Where frames come in to layer 2.
    L2In,
    /// Where they leave it.
    L2Out,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::In, Self::Out, Self::L2In, Self::L2Out];

    /// The place of a direction.
    pub const fn of(l2: bool, tx: bool) -> Self {
        match (l2, tx) {
            (false, false) => Self::In,
            (false, true) => Self::Out,
            (true, false) => Self::L2In,
            (true, true) => Self::L2Out,
        }
    }

    /// Frames of layer 2.
    pub const fn is_l2(self) -> bool {
        matches!(self, Self::L2In | Self::L2Out)
    }

    /// Frames that leave.
    pub const fn is_tx(self) -> bool {
        matches!(self, Self::Out | Self::L2Out)
    }

    /// The node's name.
    pub const fn node(self) -> &'static str {
        match self {
            Self::In => "span-input",
            Self::Out => "span-output",
            Self::L2In => "span-l2-input",
            Self::L2Out => "span-l2-output",
        }
    }

    /// Its arc, but for layer 2.
    pub const fn arc(self) -> Option<&'static str> {
        match self {
            Self::In => Some("device-input"),
            Self::Out => Some("interface-output"),
            Self::L2In | Self::L2Out => None,
        }
    }
}

/// A destination of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The interface.
    pub interface: IfIndex,
    /// The node's slot that leads to it.
    pub slot: Verdict,
}

/// Destinations by mirrored interface, of one node.
pub type Mirrors = HashMap<IfIndex, Vec<Leg>>;
