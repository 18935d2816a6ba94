//! `lacp-input`, `lacp-session`, `lacp-process`, `lacp-output`: LACP and markers, on the thread that has a bond's machines.

use std::collections::HashMap;

use quiver_graph::{
    Frame, Idle, IfIndex, InputNode, NoNext, Node, NodeCx, Pkt, Snapshot, VectorNode, Verdict, drop_reasons, flags, next_nodes,
};

use crate::lacp::thread::{Heard, Shared};
use crate::members::Members;

next_nodes! {
    /// Where frames that are received go.
    pub enum InputNext { Session = "lacp-session" }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum InputDrop {
        /// The interface has left its bond.
        Gone = "no member of a bond with LACP",
        /// The queue to the thread that has the bond is full.
        Congestion = "handoff congestion drop",
    }
}

/// Finds the thread that has the bond of a member.
#[derive(Clone)]
pub struct Input {
    pub(super) members: Snapshot<Members>,
}

impl Node for Input {
    type Next = InputNext;
    type Drop = InputDrop;
    const CONSUMES: bool = true;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.members.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let member = self.members.get().get(&packet.rx_if());
        let Some((bond, owner)) = member.and_then(|member| Some((member.bond, member.lacp?))) else {
            return packet.drop(InputDrop::Gone);
        };
        packet.set_aux(bond.0);
        cx.hand_over(owner, InputNext::Session, packet, InputDrop::Congestion)
    }
}

next_nodes! {
    /// Where frames that are sent go.
    pub enum Next { Output = "lacp-output" }
}

drop_reasons! {
    /// What is counted, and why frames are dropped.
    pub enum Event {
        /// A LACP data unit arrived.
        Received = "LACP data units received" (info),
        /// A LACP data unit was sent.
        Sent = "LACP data units sent" (info),
        /// A marker arrived and was answered.
        Marker = "markers answered" (info),
        /// A frame of a slow protocol was neither a LACP data unit nor a marker.
        Bad = "bad data unit",
        /// The interface left its bond while its frame was on its way.
        Gone = "no member of the bond any more",
    }
}

fn send(cx: &mut NodeCx<'_>, member: IfIndex, frame: &[u8]) {
    let Some(mut packet) = cx.alloc_bytes(frame, member) else { return };
    let mut view = cx.view(&mut packet);
    view.mark(flags::LOCAL);
    view.set_aux(member.0);
    cx.emit(Next::Output, packet);
}

/// Sends what is due, and says so.
fn run(cx: &mut NodeCx<'_>, shared: &Shared) -> usize {
    let now = cx.now();
    let mut sent = 0;
    shared.lock(now).run(now, |member, frame| {
        send(cx, member, frame);
        sent += 1;
    });
    cx.count(Event::Sent, sent as u64);
    sent
}

/// Tells the machines of frames, and sends what they answer. The aux lane has the bond.
pub struct Session {
    pub(super) shared: Shared,
}

/// Bytes of a frame that are looked at: more than all frames of LACP and markers have.
const LONGEST: usize = 128;

impl VectorNode for Session {
    type Next = Next;
    type Drop = Event;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.trace_here(frame);
        let now = cx.now();
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let (bond, member) = (IfIndex(packet.aux()), packet.rx_if());
            let mut bytes = [0; LONGEST];
            let len = packet.total_len().min(LONGEST);
            packet.copy_out(0, &mut bytes[..len]);
            let heard = self.shared.lock(now).hear(bond, member, &mut bytes[..len], now);
            let mut packet = cx.packet(frame, i);
            let verdict = match heard {
                Heard::Bad => packet.drop(Event::Bad),
                Heard::Gone => packet.drop(Event::Gone),
                Heard::Unit | Heard::Marker => {
                    let (packet, taken) = packet.take();
                    cx.free(packet);
                    taken
                }
            };
            cx.decide(i, verdict);
            match heard {
                Heard::Unit => cx.count(Event::Received, 1),
                Heard::Marker => {
                    send(cx, member, &bytes[..len]);
                    cx.count(Event::Marker, 1);
                }
                _ => {}
            }
        }
        run(cx, &self.shared);
    }
}

/// Does what time calls for. It is an input node, so that its thread looks at the time in each poll iteration, and wakes up for it.
pub struct Process {
    pub(super) shared: Shared,
}

impl InputNode for Process {
    type Next = Next;
    type Drop = Event;

    fn idle(&self) -> bool {
        self.shared.due() == u64::MAX
    }

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        if cx.now() < self.shared.due() {
            return 0;
        }
        run(cx, &self.shared)
    }

    fn arm(&mut self, _now: u64) -> Idle {
        let due = self.shared.due();
        Idle::Sleep { until: (due < u64::MAX).then_some(due) }
    }
}

/// Slots of members' output nodes.
pub type Outputs = HashMap<IfIndex, Verdict>;

drop_reasons! {
    /// Why frames do not leave.
    pub enum OutputDrop {
        /// The interface left its bond while its frame was made.
        Gone = "no member of a bond any more",
    }
}

/// Sends frames by the members that the aux lane names.
#[derive(Clone)]
pub struct Output {
    pub(super) outputs: Snapshot<Outputs>,
}

impl Node for Output {
    type Next = NoNext;
    type Drop = OutputDrop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.outputs.refresh();
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        match self.outputs.get().get(&IfIndex(packet.aux())) {
            Some(slot) => *slot,
            None => packet.drop(OutputDrop::Gone),
        }
    }
}
