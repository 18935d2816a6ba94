//! Output nodes: the end of the graph's way to an interface.

use std::sync::Arc;

use crate::data::{IfTable, if_flags};
use quiver_graph::{
    ArcSlot, Frame, IfIndex, InterfaceCounters, NoDrops, NoNext, Node, NodeCx, Pkt, Shared, TxState, VectorNode, Verdict,
    drop_reasons, next_nodes,
};

drop_reasons! {
    /// Why an interface's end drops.
    pub enum OutputDrop {
        /// The interface that the packet should leave by is down.
        ///
        /// Causes: `set interface state IF down`; the interface was created and never set up; a route leads to an interface that
        /// somebody took down.
        /// Check: `show interface`, then `set interface state IF up`.
        /// See: `show interface`, `set interface state IF up`.
        Down = "interface is down",
        /// The interface that the packet should leave by has no device (any more).
        ///
        /// Causes: the device was removed, or the interface has not been attached to one yet; a loopback interface outside of a
        /// bridge has none.
        /// Check: `show hardware-interfaces IF`, and the log.
        /// See: `show hardware-interfaces`, `show logging`.
        NoDevice = "interface has no device",
    }
}

/// `<name>-output`: start of the `interface-output` arc; counts what leaves on a sub-interface.
pub(crate) struct Output {
    pub interface: IfIndex,
    pub arc: ArcSlot,
    /// Set for sub-interfaces, whose packets the device's tx node counts under the parent.
    pub counters: Option<Arc<InterfaceCounters>>,
    pub state: Arc<TxState>,
}

/// Slot of the tx node: declared by [`quiver_graph::NodeSpec::with_next`], after no static next nodes.
pub(crate) const TX: Verdict = Verdict::slot(1);

impl VectorNode<Shared> for Output {
    type Next = NoNext;
    type Drop = OutputDrop;

    fn passes(&self) -> Option<Verdict> {
        (self.state.is_up() && self.counters.is_none() && !self.arc.is_active()).then_some(TX)
    }

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Shared>) {
        if !self.state.is_up() {
            for i in 0..frame.len() {
                let verdict = cx.packet(frame, i).drop(OutputDrop::Down);
                cx.decide(i, verdict);
            }
            return;
        }
        if let Some(counters) = &self.counters {
            let bytes = (0..frame.len()).map(|i| cx.packet(frame, i).total_len() as u64).sum();
            counters.tx.add(cx.thread(), self.interface.0, frame.len() as u64, bytes);
        }
        cx.decide_all(frame, self.arc.next(TX));
    }
}

/// End of the `interface-output` arc's declaration; features there go on to the interface's own tx node.
#[derive(Clone)]
pub(crate) struct Nowhere;

impl Node<Shared> for Nowhere {
    type Next = NoNext;
    type Drop = OutputDrop;

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        packet.drop(OutputDrop::NoDevice)
    }
}

next_nodes! {
    /// Where a loopback's packets go.
    pub enum LoopNext { Ethernet = "ethernet-input" }
}

/// Tx node of a loopback interface: what is sent comes in again on the same interface. As the BVI of a bridge domain it does so
/// as a frame of the bridge, which counts what it receives where the bridge hands it over.
#[derive(Clone)]
pub(crate) struct LoopTx {
    interface: IfIndex,
    interfaces: IfTable,
    counters: Arc<InterfaceCounters>,
    /// Packets and bytes of this vector.
    sum: (u64, u64),
}

impl LoopTx {
    pub fn new(interface: IfIndex, interfaces: IfTable, counters: Arc<InterfaceCounters>) -> Self {
        Self { interface, interfaces, counters, sum: (0, 0) }
    }
}

impl Node for LoopTx {
    type Next = LoopNext;
    type Drop = NoDrops;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        self.sum.0 += 1;
        self.sum.1 += packet.total_len() as u64;
        packet.set_rx_if(self.interface);
        packet.unmark(quiver_graph::flags::LOCAL);
        LoopNext::Ethernet.into()
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        let (packets, bytes) = std::mem::take(&mut self.sum);
        let (thread, interface) = (cx.thread(), self.interface);
        self.counters.tx.add(thread, interface.0, packets, bytes);
        if self.interfaces.flags(interface) & if_flags::L2 == 0 {
            self.counters.rx.add(thread, interface.0, packets, bytes);
        }
    }
}
