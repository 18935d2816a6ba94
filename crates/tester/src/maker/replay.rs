//! Frames that are packets of a capture: templates in which nothing varies.

use quiver_wire::checksum::Sum;
use quiver_wire::ethernet::EtherType;

use super::{MakeError, Maker, Order, Ready, Surroundings, Template};
use crate::profile::{Replay, size};
use crate::tracker::FIRST;

/// Least bytes of an Ethernet frame without FCS.
const LEAST: usize = size::MIN as usize - 4;

impl Maker {
    /// Prepares the packets of a capture for a port.
    pub(super) fn replaying(name: &str, replay: &Replay, around: &Surroundings) -> Result<Self, MakeError> {
        if replay.ethernet() && !around.ethernet {
            return Err(MakeError::NeedsEthernet(name.to_owned()));
        }
        let mut head = Vec::new();
        if around.ethernet && !replay.ethernet() {
            let dst = around.dst.ok_or_else(|| MakeError::NoDestination(name.to_owned()))?;
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
        let template = |n: &u16| Template::new(frames[usize::from(*n)].clone(), Sum::new(), Sum::new(), 0);
        Ok(Self {
            id: around.id,
            tag: around.tag,
            sequence: FIRST,
            signed: false,
            raw: true,
            templates: by_length.iter().map(template).collect(),
            order: Order::Turns { order, at: 0 },
            varying: Ready::new(Vec::new()),
            ip_checksum: None,
            l4: None,
        })
    }
}
