//! What the nodes know: which policer has the packets of an interface. Published as a whole, read as a snapshot.

use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_net::ip::FamilyId;
use quiver_tables::chunks::Chunks;

use crate::policer::Policer;

/// Where packets are policed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Packets that come in.
    In(FamilyId),
    /// Packets that leave.
    Out(FamilyId),
    /// Frames of layer 2 that come in.
    L2In,
    /// Frames of layer 2 that leave.
    L2Out,
    /// Packets that are punted.
    Punt(FamilyId),
}

/// The policer of an interface.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Policer.
    pub policer: Arc<Policer>,
    /// Bytes of the link header, with tags.
    pub link: u32,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// By whether packets leave.
    interfaces: [Chunks<Option<Bound>>; 2],
    /// By family.
    punts: [Option<Bound>; 2],
}

impl View {
    /// Sets the policer of what comes in by an interface, or of what leaves (`tx`).
    pub fn set(&mut self, tx: bool, interface: IfIndex, bound: Option<Bound>) {
        *self.interfaces[usize::from(tx)].get_mut(interface.0 as usize) = bound;
    }

    /// Sets the policer of punted packets.
    pub fn set_punt(&mut self, family: FamilyId, policer: Option<Arc<Policer>>) {
        // The data of punted packets begins with their IP header, and link headers are not counted.
        self.punts[family as usize] = policer.map(|policer| Bound { policer, link: 0 });
    }

    /// The policer of a place.
    #[inline(always)]
    pub fn get(&self, place: Place, interface: IfIndex) -> Option<&Bound> {
        let of = |tx: bool| self.interfaces[usize::from(tx)].get(interface.0 as usize)?.as_ref();
        match place {
            Place::In(_) | Place::L2In => of(false),
            Place::Out(_) | Place::L2Out => of(true),
            Place::Punt(family) => self.punts[family as usize].as_ref(),
        }
    }
}
