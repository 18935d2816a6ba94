//! The node that polls the queues of a driver kind.

use std::os::fd::RawFd;

use super::watch::Watch;
use super::{RxBurst, RxQueue};
use crate::context::NodeCx;
use crate::feature::ArcPoint;
use crate::frame::IfIndex;
use crate::node::{Idle, InputNode, NextNodes, NoDrops, SHARE, Verdict};

/// Where received frames go: the `device-input` arc decides by interface; its end is `ethernet-input` (or an IP input node
/// for interfaces without a link layer).
#[derive(Clone, Copy, Debug)]
pub enum DeviceNext {
    /// Parse the link layer.
    Ethernet,
}

impl NextNodes for DeviceNext {
    const NAMES: &'static [&'static str] = &["ethernet-input"];
    fn slot(self) -> u16 {
        1
    }
}

/// A queue placed on a worker.
pub struct PlacedQueue {
    /// Interface that it receives for.
    pub interface: IfIndex,
    /// Number of the queue on that interface.
    pub queue: u16,
    /// Where its packets go unless a feature takes them.
    pub next: Verdict,
    /// Administratively up: a queue that is down is not polled.
    pub up: bool,
    /// The driver's part.
    pub rx: Box<dyn RxQueue>,
}

/// How a thread learns of a queue's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxMode {
    /// The queue is polled without end: the shortest latency, for a whole core.
    Polling,
    /// The thread sleeps as soon as the queue is empty, until the device's event.
    Interrupt,
    /// The thread polls while packets come and for a while after the last one, then sleeps until the device's event.
    #[default]
    Adaptive,
}

impl RxMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Polling, Self::Interrupt, Self::Adaptive];

    /// Its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Interrupt => "interrupt",
            Self::Adaptive => "adaptive",
        }
    }
}

/// A queue at its place.
pub(super) struct Placed {
    pub(super) queue: PlacedQueue,
    mode: RxMode,
    /// It may have packets: its device must be asked.
    pub(super) ready: bool,
    /// See [`Watch`].
    pub(super) number: u64,
}

/// A queue between two threads: what waits in it and how it is used stay as they are.
pub struct MovingQueue(Placed);

/// Input node of a driver kind.
pub struct DeviceInput {
    queues: Vec<Placed>,
    /// The queue whose turn it is, where those before it brought in enough for one go.
    turn: usize,
    /// Tells which queues have packets, where asking each would be a system call.
    watch: Watch,
    arc: ArcPoint,
}

impl DeviceInput {
    /// A node without queues; `arc` is its point on the `device-input` arc.
    pub fn new(arc: ArcPoint) -> Self {
        Self { queues: Vec::new(), turn: 0, watch: Watch::default(), arc }
    }

    /// Places a new queue here, in the mode that all start with. What waits in it from before is thrown away.
    pub fn place(&mut self, mut queue: PlacedQueue) {
        if queue.up {
            queue.rx.discard();
        }
        self.put(Placed { queue, mode: RxMode::default(), ready: true, number: 0 });
    }

    fn put(&mut self, placed: Placed) {
        let placed = Placed { ready: true, number: self.watch.number(), ..placed };
        if placed.queue.up {
            self.watch.add(&placed);
        }
        self.queues.push(placed);
    }

    /// Takes a queue away, to close it.
    pub fn unplace(&mut self, interface: IfIndex, queue: u16) -> Option<PlacedQueue> {
        self.take(interface, queue).map(|moving| moving.0.queue)
    }

    /// Takes a queue away, for [`DeviceInput::adopt`] on another thread.
    pub fn take(&mut self, interface: IfIndex, queue: u16) -> Option<MovingQueue> {
        let at = self.queues.iter().position(|p| p.queue.interface == interface && p.queue.queue == queue)?;
        let placed = self.queues.remove(at);
        self.watch.remove(&placed);
        Some(MovingQueue(placed))
    }

    /// Takes over a queue from another thread, with what waits in it.
    pub fn adopt(&mut self, queue: MovingQueue) {
        self.put(queue.0);
    }

    fn of(&mut self, interface: IfIndex) -> impl Iterator<Item = &mut Placed> {
        self.queues.iter_mut().filter(move |p| p.queue.interface == interface)
    }

    /// Sets how a queue waits for packets. `false` and no change where there is no such queue here, or its device has no events
    /// to wait for.
    pub fn set_mode(&mut self, interface: IfIndex, queue: u16, mode: RxMode) -> bool {
        let Some(placed) = self.of(interface).find(|p| p.queue.queue == queue) else { return false };
        if mode != RxMode::Polling && placed.queue.rx.event_fd().is_none() {
            return false;
        }
        placed.mode = mode;
        true
    }

    /// Switches an interface's queues on or off.
    pub fn set_up(&mut self, interface: IfIndex, up: bool) {
        for placed in self.queues.iter_mut().filter(|placed| placed.queue.interface == interface && placed.queue.up != up) {
            placed.queue.up = up;
            if up {
                placed.queue.rx.discard();
                placed.ready = true;
                self.watch.add(placed);
            } else {
                self.watch.remove(placed);
            }
        }
    }

    /// Has an interface's queues take up a device that was opened anew. Reach this node by [`crate::Worker::input`], which
    /// has the thread look at the event descriptors again.
    pub fn renew(&mut self, interface: IfIndex) {
        self.of(interface).for_each(|placed| placed.queue.rx.renew());
        self.watch.renew();
    }

    /// Interfaces and queue numbers placed here.
    pub fn placed(&self) -> Vec<(IfIndex, u16)> {
        self.queues.iter().map(|p| (p.queue.interface, p.queue.queue)).collect()
    }

    fn up(&self) -> impl Iterator<Item = &Placed> {
        self.queues.iter().filter(|p| p.queue.up)
    }
}

impl InputNode for DeviceInput {
    type Next = DeviceNext;
    type Drop = NoDrops;

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let mut packets = 0;
        // A frame that stays empty is the next queue's: most queues bring nothing most of the time.
        let mut frame = cx.core.queue.new_frame();
        let first = std::mem::take(&mut self.turn);
        let watched = self.watch.look(&mut self.queues);
        for (at, Placed { queue, ready, .. }) in
            self.queues.iter_mut().enumerate().skip(first).filter(|(_, p)| p.queue.up && p.ready)
        {
            let mut burst = RxBurst { cx, frame: &mut frame, interface: queue.interface, bytes: 0 };
            let _ = queue.rx.rx(&mut burst);
            let bytes = burst.bytes;
            let n = frame.len();
            if n == 0 {
                *ready = !watched;
                continue;
            }
            packets += n;
            let thread = cx.thread();
            cx.core.interfaces.rx.add(thread, queue.interface.0, n as u64, bytes);
            cx.capture_received(&mut frame, queue.interface);
            let empty = cx.core.queue.new_frame();
            cx.send(self.arc.next(queue.interface, queue.next), std::mem::replace(&mut frame, empty));
            if packets >= SHARE {
                self.turn = (at + 1) % self.queues.len();
                break;
            }
        }
        cx.recycle(frame);
        packets
    }

    fn unfinished(&self) -> bool {
        // Queues that are taken away meanwhile shorten the list.
        (1..self.queues.len()).contains(&self.turn)
    }

    fn arm(&mut self, _now: u64) -> Idle {
        // One that must be polled keeps the thread awake, so none need be armed.
        if self.up().any(|p| p.mode == RxMode::Polling || p.queue.rx.event_fd().is_none()) {
            return Idle::Busy;
        }
        // Every queue is armed, also past the first that is ready, so that none depends on the order.
        let mut idle = Idle::Sleep { until: None };
        for Placed { queue, .. } in self.queues.iter_mut().filter(|p| p.queue.up) {
            if !queue.rx.arm() {
                idle = Idle::Busy;
            }
        }
        idle
    }

    fn spins(&self) -> Option<bool> {
        let mut queues = self.up().peekable();
        queues.peek()?;
        Some(queues.any(|p| p.mode != RxMode::Interrupt))
    }

    fn event_fds(&self, fds: &mut Vec<RawFd>) {
        match self.watch.fd() {
            Some(fd) => fds.push(fd),
            None => fds.extend(self.up().filter_map(|p| p.queue.rx.event_fd())),
        }
    }

    fn discard(&mut self) {
        self.queues.iter_mut().filter(|p| p.queue.up).for_each(|p| p.queue.rx.discard());
    }

    fn begin(&mut self, since: u64) {
        self.queues.iter_mut().filter(|p| p.queue.up).for_each(|p| p.queue.rx.begin(since));
    }
}
