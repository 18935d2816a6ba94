//! Frames that are packets of a capture: templates in which nothing varies but the signature, where they have one.
//!
//! Numbers are those of all frames of the stream, with a signature or without, so that the receiver's account of the signed ones
//! is right whatever stands between them.

use std::sync::Arc;

use quiver_wire::checksum::Update;
use quiver_wire::ethernet::EtherType;

use super::{MakeError, Maker, Order, Ready, Surroundings, Template, put, turned};
use crate::profile::{Replay, SignatureMode, Stream, size};
use crate::room;
use crate::signature::{LEN, Reading, Signature, Stamp};
use crate::tracker::FIRST;

/// Least bytes of an Ethernet frame without FCS.
const LEAST: usize = size::MIN as usize - 4;

/// Which frames of a maker's have a signature.
#[derive(Clone, Debug)]
pub enum SignedFrames {
    /// All.
    All,
    /// None.
    None,
    /// Some of each turn: how many there are among its first frames.
    Turns(Arc<[u32]>),
}

impl SignedFrames {
    /// How many there are among its first frames.
    pub fn among(&self, frames: u64) -> u64 {
        match self {
            Self::All => frames,
            Self::None => 0,
            Self::Turns(sums) => {
                let turn = sums.len() as u64 - 1;
                let of = |n: u64| u64::from(sums[n as usize]);
                frames / turn * of(turn) + of(frames % turn)
            }
        }
    }
}

impl Maker {
    /// Prepares the packets of a capture for a port.
    pub(super) fn replaying(stream: &Stream, replay: &Replay, around: &Surroundings) -> Result<Self, MakeError> {
        let name = || stream.name.clone();
        if replay.ethernet() && !around.ethernet {
            return Err(MakeError::NeedsEthernet(name()));
        }
        let mut head = Vec::new();
        if around.ethernet && !replay.ethernet() {
            let dst = around.dst.ok_or_else(|| MakeError::NoDestination(name()))?;
            head = [dst.0, around.src.0].concat();
        }
        let frame = |packet: &[u8]| {
            let mut bytes = head.clone();
            if !head.is_empty() {
                let kind = if packet.first().is_some_and(|b| b >> 4 == 6) { EtherType::IPV6 } else { EtherType::IPV4 };
                bytes.extend(kind.0.to_be_bytes());
            }
            bytes.extend(packet);
            if around.ethernet {
                bytes.resize(bytes.len().max(LEAST), 0);
            }
            bytes
        };
        let frames: Vec<Vec<u8>> = replay.packets().iter().map(|packet| frame(packet)).collect();
        // Templates stand in the order of their lengths.
        let mut by_length: Vec<u16> = (0..frames.len()).map(|n| n as u16).collect();
        by_length.sort_by_key(|n| frames[usize::from(*n)].len());
        let mut order = vec![0; frames.len()];
        by_length.iter().enumerate().for_each(|(place, n)| order[usize::from(*n)] = place as u16);
        let signed = stream.signature != SignatureMode::None;
        let template = |n: &u16| {
            let bytes = frames[usize::from(*n)].clone();
            let room = room::find(&bytes, around.ethernet).ok().filter(|_| signed);
            Template::of_packet(bytes, room)
        };
        Ok(Self {
            id: around.id,
            tag: around.tag,
            sequence: FIRST,
            signed,
            raw: true,
            ethernet: around.ethernet,
            templates: by_length.iter().map(template).collect(),
            order: Order::Turns { order, at: 0 },
            varying: Ready::new(Vec::new()),
            ip_checksum: None,
            l4: None,
        })
    }
    /// Which of its frames have a signature.
    pub fn signed(&self) -> SignedFrames {
        let Order::Turns { order, .. } = &self.order else { return self.all_or_none() };
        if !self.raw {
            return self.all_or_none();
        }
        let mut sums = vec![0];
        for which in order {
            let before = sums[sums.len() - 1];
            sums.push(before + u32::from(self.templates[usize::from(*which)].room.is_some()));
        }
        SignedFrames::Turns(sums.into())
    }

    fn all_or_none(&self) -> SignedFrames {
        if self.signed { SignedFrames::All } else { SignedFrames::None }
    }

    /// Writes signature and checksum into a copy of a packet, where it has room.
    #[inline(never)]
    pub(super) fn finish_packet(&mut self, which: usize, out: &mut [u8], stamp: &Stamp) {
        let template = &self.templates[which];
        if let Some(room) = &template.room {
            let signature = Signature::written(self.tag, self.id, self.sequence, stamp);
            signature.put(out, room.at);
            if let Some(at) = room.checksum {
                let sum = template.l4.add_u16(turned(signature.sum, room.at - room.l4));
                let field = if room.udp { sum.udp_checksum() } else { sum.checksum() };
                put(out, at, field.to_be_bytes());
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Gives a packet that has had to wait another departure time, where it has one.
    #[inline(never)]
    pub(super) fn restamp_packet(&self, frame: &mut [u8], time: u64) {
        let Some(room) = room::find(frame, self.ethernet).ok().filter(|_| self.signed) else { return };
        let Some(Reading::Valid(old)) = frame.get(..room.at + LEN).map(Signature::read) else { return };
        let [before, after] = [old.time, time].map(|time| Signature::written(old.tag, old.stream, old.sequence, &Stamp::new(time)));
        after.put(frame, room.at);
        let Some(at) = room.checksum else { return };
        let Some(field) = frame.get(at..at + 2).and_then(|b| b.try_into().ok()) else { return };
        let [before, after] = [before.sum, after.sum].map(|sum| turned(sum, room.at - room.l4));
        let update = Update::new(u16::from_be_bytes(field)).u16(before, after);
        let new = if room.udp { update.finish_udp() } else { update.finish() };
        put(frame, at, new.to_be_bytes());
    }
}
