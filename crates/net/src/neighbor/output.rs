//! `neighbor-output`: frames that ARP and ND have made go to the output node of the interface that their aux lane names.

use std::sync::atomic::AtomicU32;

use quiver_graph::{IfIndex, MAX_INTERFACES, NoNext, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons};
use quiver_tables::error::OutOfMemory;
use quiver_tables::slots::{AtomicSlots, SlotsReader};

use super::view::Views;

drop_reasons! {
    /// Why made frames are dropped.
    pub enum OutputDrop {
        /// The interface was deleted while the router made a message for it.
        Gone = "interface deleted",
    }
}

/// Slots of the node that lead to each interface's output node, as main writes them.
pub(crate) struct OutputSlots(AtomicSlots<AtomicU32>);

impl OutputSlots {
    pub fn new() -> Result<Self, OutOfMemory> {
        let mut slots = AtomicSlots::new(MAX_INTERFACES as usize)?;
        slots.grow(MAX_INTERFACES as usize)?;
        Ok(Self(slots))
    }

    pub fn reader(&self) -> SlotsReader<AtomicU32> {
        self.0.reader()
    }

    /// Sets the way to an interface; slot 0: none.
    pub fn set(&mut self, interface: IfIndex, slot: u16) {
        // All slots were grown in `new`, so this cannot fail.
        let _ = self.0.set(interface.0, slot.into());
    }
}

/// The node.
#[derive(Clone)]
pub(crate) struct NeighborOutput {
    pub slots: SlotsReader<AtomicU32>,
}

impl Node for NeighborOutput {
    type Next = NoNext;
    type Drop = OutputDrop;

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        match self.slots.get(packet.aux()) as u16 {
            0 => packet.drop(OutputDrop::Gone),
            slot => Verdict::slot(slot),
        }
    }
}

/// What all ARP and ND nodes hold: a snapshot to be refreshed once a vector.
pub(crate) type ViewSnapshot = Snapshot<Views>;
