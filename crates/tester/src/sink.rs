//! The node that receives: accounts for test frames, answers what a host would answer, and ends the way of all of them.
//!
//! Where several threads receive for a port they read signatures first, which is most of the work, and then put a whole vector into
//! the port's one account: so copies of a frame are told from frames whichever thread takes them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_graph::{Frame, IfIndex, NoDrops, NoNext, NodeCx, VectorNode, Verdict, flags};

use crate::answer::{Handled, Host};
use crate::receiver::{Kind, Receiver, Run};
use crate::signature::{LEN, Reading, Signature, Stamp};
use crate::stateful::table::Tap;
use crate::tcp;
use crate::time::Time;

/// What a port receives, shared with the control side: locked for a vector, and by the control side ten times a second.
#[derive(Debug)]
pub struct Inbox {
    /// The trial that runs.
    pub receiver: Option<Receiver>,
    /// What looks at the headers of its frames.
    pub tap: Option<Tap>,
    /// Whose the segments of TCP are, and which end of it the port is.
    pub tcp: Option<(tcp::Shared, tcp::End)>,
    /// The port as a host.
    pub host: Host,
    /// Frames that the device's ring holds.
    pub ring: usize,
    /// How often so many frames came without the ring being found empty in between that it may have run over.
    pub ring_full: u64,
}

impl Inbox {
    /// Of a port without a trial.
    pub fn new(host: Host, ring: usize) -> Self {
        Self { receiver: None, tap: None, tcp: None, host, ring, ring_full: 0 }
    }

    /// Takes a frame of one segment, and says what to answer.
    #[inline(always)]
    fn take(&mut self, bytes: &[u8], run: &mut Run) -> Option<Vec<u8>> {
        if let Some(receiver) = &mut self.receiver
            && receiver.take(bytes, run) != Kind::Unsigned
        {
            return None;
        }
        self.other(bytes, run.now())
    }

    /// The same of a frame whose signature has been read.
    #[inline(always)]
    fn take_read(&mut self, reading: Reading, bytes: &[u8], run: &mut Run) -> Option<Vec<u8>> {
        if let Some(receiver) = &mut self.receiver
            && receiver.take_read(reading, bytes, run) != Kind::Unsigned
        {
            return None;
        }
        self.other(bytes, run.now())
    }

    #[inline(never)]
    fn other(&mut self, bytes: &[u8], now: u64) -> Option<Vec<u8>> {
        match self.host.handle(bytes) {
            Handled::Control(answer) => return answer,
            Handled::No => {}
        }
        match (&self.tcp, self.host.packet(bytes)) {
            (Some((engine, end)), Some(packet)) => tcp::engine::lock(engine).take(*end, packet, now),
            _ => self.receiver.iter_mut().for_each(Receiver::note_unsigned),
        }
        None
    }

    /// Notes how many frames came at once; `run` are those that a thread has taken without finding the ring empty.
    #[inline(always)]
    fn note_vector(&mut self, frames: usize, most: usize, run: &mut usize) {
        *run = if frames >= most { *run + frames } else { 0 };
        if *run >= self.ring {
            self.ring_full += 1;
            *run = 0;
        }
    }
}

/// Inboxes by interface, from 1.
pub type Inboxes = Arc<Vec<Mutex<Inbox>>>;

/// Locks an inbox.
pub fn lock(inbox: &Mutex<Inbox>) -> MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The node. Its next node in slot `interface` sends on that interface.
pub struct Sink {
    time: Time,
    inboxes: Inboxes,
    answers: Vec<(u32, Vec<u8>)>,
    /// Other threads receive for the same ports.
    shared: bool,
    /// Signatures of a vector, where they are read before the account is locked; none for frames of several buffers.
    readings: Vec<Option<Reading>>,
    /// By port: frames since a ring was last found empty.
    runs: Vec<usize>,
}

impl Sink {
    /// An instance for a thread.
    pub fn new(time: Time, inboxes: Inboxes, shared: bool) -> Self {
        let runs = vec![0; inboxes.len()];
        Self { time, inboxes, answers: Vec::new(), shared, readings: Vec::new(), runs }
    }
}

/// Reads the signatures of one port's packets, from `from` on.
fn read_ahead(readings: &mut Vec<Option<Reading>>, cx: &mut NodeCx<'_>, frame: &mut Frame, from: usize) {
    let interface = cx.packet(frame, from).rx_if();
    let mut stamp = Stamp::new(0);
    readings.clear();
    for i in from..frame.len() {
        let packet = cx.packet(frame, i);
        if packet.rx_if() != interface {
            break;
        }
        readings.push((!packet.has(flags::CHAINED)).then(|| Signature::read_next(packet.bytes(), &mut stamp)));
    }
}

/// Shows a tap the packets of one port, from `from` on.
#[inline(never)]
fn show(tap: &mut Tap, cx: &mut NodeCx<'_>, frame: &mut Frame, from: usize) {
    let interface = cx.packet(frame, from).rx_if();
    for i in from..frame.len() {
        let packet = cx.packet(frame, i);
        if packet.rx_if() != interface {
            break;
        }
        if packet.has(flags::CHAINED) {
            let mut tail = [0; LEN];
            packet.copy_out(packet.total_len().saturating_sub(LEN), &mut tail);
            tap.note(packet.bytes(), Some(&tail));
        } else {
            tap.note(packet.bytes(), None);
        }
    }
}

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let now = self.time.now();
        let (n, most) = (frame.len(), cx.vector_size());
        let mut from = 0;
        // A vector may hold packets of several ports, one after the other.
        while from < n {
            let interface = cx.packet(frame, from).rx_if().0;
            let at = (interface as usize).wrapping_sub(1);
            let Some(inbox) = self.inboxes.get(at) else { break };
            if self.shared {
                read_ahead(&mut self.readings, cx, frame, from);
            }
            let mut inbox = lock(inbox);
            if let Some(tap) = &mut inbox.tap {
                show(tap, cx, frame, from);
            }
            let mut run = Run::new(now);
            let mut to = from;
            while to < n {
                let packet = cx.packet(frame, to);
                if packet.rx_if().0 != interface {
                    break;
                }
                let answer = if packet.has(flags::CHAINED) {
                    // Only the tail counts: whatever is so long is no question to a host.
                    let mut tail = [0; LEN];
                    let total = packet.total_len();
                    packet.copy_out(total.saturating_sub(LEN), &mut tail);
                    inbox.take(&tail, &mut run)
                } else if let Some(Some(reading)) = self.readings.get(to - from) {
                    inbox.take_read(*reading, packet.bytes(), &mut run)
                } else {
                    inbox.take(packet.bytes(), &mut run)
                };
                self.answers.extend(answer.map(|bytes| (interface, bytes)));
                to += 1;
            }
            inbox.receiver.iter_mut().for_each(|receiver| receiver.end(&mut run));
            inbox.note_vector(to - from, most, &mut self.runs[at]);
            from = to;
        }
        for (interface, bytes) in self.answers.drain(..) {
            if let Some(packet) = cx.alloc_bytes(&bytes, IfIndex(interface)) {
                cx.emit(Verdict::slot(interface as u16), packet);
            }
        }
        cx.consume_all(frame, IfIndex(1));
    }
}
