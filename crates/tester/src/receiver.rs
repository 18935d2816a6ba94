//! What comes back on a port in a trial, frame by frame.

use quiver_wire::ethernet::{EtherType, skip_tags};

use crate::latency::Latencies;
use crate::signature::{Reading, Signature, Stamp};
use crate::tracker::{Arrivals, Tracker};

/// Account of one stream number.
#[derive(Clone, Debug)]
pub struct Flow {
    tracker: Tracker,
    latencies: Latencies,
}

impl Flow {
    /// Of at most so many frames.
    pub fn new(frames: u64) -> Self {
        Self { tracker: Tracker::new(frames), latencies: Latencies::default() }
    }

    /// Counts of arrivals.
    pub fn arrivals(&self) -> Arrivals {
        self.tracker.counts()
    }

    /// Latencies of all frames, once each.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }
}

/// What a frame is to the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of this direction's, accounted for.
    Ours,
    /// It has no signature.
    Unsigned,
    /// It is of another trial or direction, or damaged; accounted for.
    Stray,
}

/// Frames of a vector that follow one another in their stream and left at the same time, as frames do at high rates: they are
/// accounted for together.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// When the vector arrived, ns.
    now: u64,
    first: Signature,
    frames: u32,
    /// Of the last signature read.
    stamp: Stamp,
}

impl Run {
    /// For a vector that arrived at `now`, ns.
    #[inline(always)]
    pub fn new(now: u64) -> Self {
        Self { now, first: Signature { tag: 0, stream: 0, sequence: 0, time: 0 }, frames: 0, stamp: Stamp::new(0) }
    }

    /// When the vector arrived, ns.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }
}

/// Account of a direction.
#[derive(Clone, Debug)]
pub struct Receiver {
    tag: u8,
    /// Number of the first stream.
    base: u16,
    flows: Vec<Flow>,
    /// Whether frames carry Ethernet headers.
    ethernet: bool,
    /// Frames without signature that belong to the direction, where its stream has such.
    counted: Option<u64>,
    foreign: u64,
    corrupted: u64,
}

impl Receiver {
    /// Awaits streams numbered from `base`.
    pub fn new(tag: u8, base: u16, flows: Vec<Flow>, ethernet: bool, counted_only: bool) -> Self {
        Self { tag, base, flows, ethernet, counted: counted_only.then_some(0), foreign: 0, corrupted: 0 }
    }

    /// Accounts, by number from 0.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Adds what another receiver of the same port has counted for a flow.
    pub fn absorb(&mut self, at: usize, arrivals: &Arrivals, latencies: &Latencies) {
        if let Some(flow) = self.flows.get_mut(at) {
            flow.tracker.add_counts(arrivals);
            flow.latencies.merge(latencies);
        }
    }

    /// Awaits any number of frames from now on: how many there will be is no longer known.
    pub fn await_any(&mut self) {
        self.flows.iter_mut().for_each(|flow| flow.tracker.await_any());
    }

    /// Frames that are not of this trial.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Damaged frames of this trial.
    pub fn corrupted(&self) -> u64 {
        self.corrupted + self.flows.iter().map(|f| f.arrivals().impossible).sum::<u64>()
    }

    /// Frames that were counted only.
    pub fn counted(&self) -> Option<u64> {
        self.counted
    }

    /// Different frames received so far.
    pub fn received(&self) -> u64 {
        self.counted.unwrap_or(0) + self.flows.iter().map(|f| f.arrivals().received).sum::<u64>()
    }

    /// Notes a frame without signature that nobody else had a use for.
    pub fn note_unsigned(&mut self) {
        match &mut self.counted {
            Some(n) => *n += 1,
            None => self.foreign += 1,
        }
    }

    /// Takes a frame that arrived at `now`, ns.
    pub fn frame(&mut self, frame: &[u8], now: u64) -> Kind {
        let mut run = Run::new(now);
        let kind = self.take(frame, &mut run);
        self.end(&mut run);
        kind
    }

    /// Takes a frame of a vector. What it is to the trial is known at once; it is in the account after [`Receiver::end`].
    #[inline(always)]
    pub fn take(&mut self, frame: &[u8], run: &mut Run) -> Kind {
        let reading = Signature::read_next(frame, &mut run.stamp);
        self.take_read(reading, frame, run)
    }

    /// The same, where the signature at the frame's end has been read.
    #[inline(always)]
    pub fn take_read(&mut self, reading: Reading, frame: &[u8], run: &mut Run) -> Kind {
        match reading {
            Reading::Valid(signature) => self.signed(signature, run),
            other => self.odd(frame, other, run),
        }
    }

    #[inline(always)]
    fn signed(&mut self, signature: Signature, run: &mut Run) -> Kind {
        let next = Signature { sequence: run.first.sequence.wrapping_add(run.frames), ..run.first };
        if run.frames > 0 && signature == next {
            run.frames += 1;
            return Kind::Ours;
        }
        self.end(run);
        let at = usize::from(signature.stream.wrapping_sub(self.base));
        if at >= self.flows.len() || signature.tag != self.tag {
            self.foreign += 1;
            return Kind::Stray;
        }
        (run.first, run.frames) = (signature, 1);
        Kind::Ours
    }

    /// Puts a run into the account.
    #[inline(always)]
    pub fn end(&mut self, run: &mut Run) {
        let frames = std::mem::take(&mut run.frames);
        let Some(flow) = self.flows.get_mut(usize::from(run.first.stream.wrapping_sub(self.base))).filter(|_| frames > 0) else {
            return;
        };
        let received = flow.tracker.arrive_run(run.first.sequence, frames);
        flow.latencies.add_many(run.now.saturating_sub(run.first.time), received);
    }

    #[inline(never)]
    fn odd(&mut self, frame: &[u8], reading: Reading, run: &mut Run) -> Kind {
        // A shorter frame than was sent may have been padded (a tag was taken off).
        let inner = if self.ethernet { unpadded(frame) } else { ip_packet(frame) };
        let reading = match inner.filter(|p| p.len() < frame.len()).map(Signature::read) {
            Some(Reading::Valid(signature)) => return self.signed(signature, run),
            Some(damaged @ Reading::Damaged(_)) => damaged,
            _ => reading,
        };
        match reading {
            Reading::Damaged(tag) if tag == self.tag => {
                self.corrupted += 1;
                Kind::Stray
            }
            _ => Kind::Unsigned,
        }
    }
}

/// A frame up to the end of its IP packet.
fn unpadded(frame: &[u8]) -> Option<&[u8]> {
    let (at, ether_type) = skip_tags(frame, 2)?;
    if !matches!(ether_type, EtherType::IPV4 | EtherType::IPV6) {
        return None;
    }
    ip_packet(frame.get(at..)?)
}

/// An IP packet without what follows it.
fn ip_packet(bytes: &[u8]) -> Option<&[u8]> {
    let at = |i: usize| Some(usize::from(u16::from_be_bytes([*bytes.get(i)?, *bytes.get(i + 1)?])));
    let len = match bytes.first()? >> 4 {
        4 => at(2)?,
        6 => at(4)? + 40,
        _ => return None,
    };
    bytes.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::{Maker, Surroundings};
    use crate::profile::{Profile, Size};
    use quiver_wire::MacAddr;

    const AROUND: Surroundings = Surroundings {
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        dst: Some(MacAddr([2, 0, 0, 0, 0, 2])),
        ethernet: true,
        id: 5,
        tag: 1,
        seed: 1,
    };

    fn maker(size: u16) -> Maker {
        let text = "name: p\nstreams:\n- name: s\n  ipv4: {}\n  udp: {}\n  vlan: [ { id: 3 } ]";
        Maker::new(&Profile::of_yaml("p", text).unwrap().streams[0], Some(&Size::Fixed(size)), &AROUND).unwrap()
    }

    #[test]
    fn known_delays_are_reported_exactly() {
        let (mut maker, mut receiver) = (maker(68), Receiver::new(1, 5, vec![Flow::new(1000)], true, false));
        for n in 0..1000_u64 {
            let frame = maker.make_bytes(n * 10_000);
            assert_eq!(receiver.frame(&frame, n * 10_000 + 1_000_000 + n % 2 * 500), Kind::Ours);
        }
        let (latency, _, variation) = receiver.flows()[0].latencies().summary().unwrap();
        assert_eq!((latency.count, latency.min, latency.max, latency.mean), (1000, 1_000_000, 1_000_500, 1_000_250.0));
        assert_eq!(variation.max, 500);
        assert_eq!(receiver.received(), 1000);
    }

    #[test]
    fn every_frame_has_exactly_one_account() {
        let (mut maker, mut receiver) = (maker(68), Receiver::new(1, 5, vec![Flow::new(4)], true, false));
        let frames: Vec<_> = (0..5).map(|_| maker.make_bytes(9)).collect();
        assert_eq!(receiver.frame(&frames[0], 10), Kind::Ours);
        assert_eq!(receiver.frame(&frames[0], 10), Kind::Ours);
        assert_eq!(receiver.frame(&frames[2], 10), Kind::Ours);
        assert_eq!(receiver.frame(&frames[1], 10), Kind::Ours);
        // More than were ever to be sent.
        assert_eq!(receiver.frame(&frames[4], 10), Kind::Ours);
        let mut damaged = frames[3].clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(receiver.frame(&damaged, 10), Kind::Stray);
        let mut other = Receiver::new(2, 5, vec![Flow::new(4)], true, false);
        assert_eq!(other.frame(&frames[3], 10), Kind::Stray);
        assert_eq!(receiver.frame(&[0; 60], 10), Kind::Unsigned);
        receiver.note_unsigned();
        let arrivals = receiver.flows()[0].arrivals();
        assert_eq!((arrivals.received, arrivals.duplicated, arrivals.reordered), (3, 1, 1));
        assert_eq!((receiver.corrupted(), receiver.foreign(), other.foreign()), (2, 1, 1));
    }

    #[test]
    fn a_frame_whose_tag_was_taken_off_and_that_was_padded_is_known() {
        let (mut maker, mut receiver) = (maker(68), Receiver::new(1, 5, vec![Flow::new(4)], true, false));
        let mut frame = maker.make_bytes(9);
        frame.drain(12..16);
        frame.extend([0; 4]);
        assert_eq!(receiver.frame(&frame, 10), Kind::Ours);
        assert_eq!(receiver.received(), 1);
    }

    #[test]
    fn frames_counted_only_are_counted() {
        let mut receiver = Receiver::new(1, 5, Vec::new(), true, true);
        assert_eq!(receiver.frame(&[1; 60], 10), Kind::Unsigned);
        receiver.note_unsigned();
        assert_eq!((receiver.received(), receiver.foreign()), (1, 0));
    }
}
