//! A capture file in memory, and when each of its packets is due.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use quiver_wire::pcapfile::{LinkType, Reader};

use super::{PcapPortError, Timing};

/// Most memory that a capture may take, bytes.
const MOST: usize = 1 << 30;
/// ns of a second.
const SECOND: u64 = 1_000_000_000;

/// The packets of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recording {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    end: usize,
    /// ns after the first packet; never less than the one before.
    time: u64,
}

impl Recording {
    /// Reads a file whole.
    pub(super) fn read(path: &Path, file: File) -> Result<Self, PcapPortError> {
        let path_buf = || path.to_owned();
        let failed = |error| PcapPortError::File { path: path_buf(), error };
        let mut recording = Self::default();
        let mut first = None;
        for packet in Reader::new(BufReader::new(file)).map_err(failed)? {
            let packet = packet.map_err(failed)?;
            let unfit = |reason: String| PcapPortError::Unfit { path: path_buf(), reason };
            if packet.link_type != LinkType::ETHERNET {
                return Err(unfit(format!("packets have link type {}, not Ethernet (1)", packet.link_type.0)));
            }
            if recording.size() + packet.bytes.len() > MOST {
                return Err(unfit(format!("more than {} MB of packets; cut it with `editcap -c'", MOST >> 20)));
            }
            recording.push(packet.time_ns.saturating_sub(*first.get_or_insert(packet.time_ns)), &packet.bytes);
        }
        if recording.packets.is_empty() {
            return Err(PcapPortError::Unfit { path: path_buf(), reason: "holds no packets".to_owned() });
        }
        Ok(recording)
    }

    /// Bytes of memory that it takes.
    fn size(&self) -> usize {
        self.bytes.len() + self.packets.len() * size_of::<Packet>()
    }

    pub(super) fn push(&mut self, time: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let time = time.max(self.packets.last().map_or(0, |p| p.time));
        self.packets.push(Packet { end: self.bytes.len(), time });
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// The bytes of one.
    #[inline(always)]
    pub(super) fn bytes(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.packets[i - 1].end };
        &self.bytes[start..self.packets[i].end]
    }

    /// Time from the first packet of one round to that of the next: to the last packet and a usual gap more.
    fn round(&self) -> u64 {
        let last = self.packets.last().map_or(0, |p| p.time);
        match self.packets.len() as u64 {
            0 | 1 => SECOND,
            n => last + last / (n - 1),
        }
    }

    /// When packet `i` of a round is due, ns after the replay has begun; 0: at once.
    #[inline(always)]
    pub(super) fn due(&self, timing: Timing, round: u64, i: usize) -> u64 {
        match timing {
            Timing::Max => 0,
            Timing::Original => round.saturating_mul(self.round()).saturating_add(self.packets.get(i).map_or(0, |p| p.time)),
            Timing::Rate(pps) => {
                let n = u128::from(round) * self.packets.len() as u128 + i as u128;
                (n * u128::from(SECOND) / u128::from(pps.max(1))).min(u128::from(u64::MAX)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(times: &[u64]) -> Recording {
        let mut recording = Recording::default();
        times.iter().enumerate().for_each(|(i, time)| recording.push(*time, &vec![i as u8; 60 + i]));
        recording
    }

    #[test]
    fn packets_keep_their_bytes_and_their_distances() {
        let r = recording(&[0, 10, 5, 40]);
        assert_eq!(r.len(), 4);
        for i in 0..4 {
            assert_eq!(r.bytes(i), vec![i as u8; 60 + i]);
        }
        let due: Vec<u64> = (0..4).map(|i| r.due(Timing::Original, 0, i)).collect();
        assert_eq!(due, [0, 10, 10, 40], "time does not go back");
        assert_eq!(r.due(Timing::Original, 1, 0), 40 + 13, "the next round begins a usual gap later");
        assert_eq!(recording(&[0]).due(Timing::Original, 3, 0), 3 * SECOND);
    }

    #[test]
    fn a_rate_goes_on_over_rounds_without_drift() {
        let r = recording(&[0, 0, 0]);
        for (round, i, n) in [(0, 0, 0), (0, 2, 2), (1, 0, 3), (333_333, 1, 1_000_000)] {
            assert_eq!(r.due(Timing::Rate(1000), round, i), n * 1_000_000);
        }
        assert_eq!(r.due(Timing::Rate(3), 1, 0), SECOND);
        assert_eq!(r.due(Timing::Max, 9, 2), 0);
        let _ = r.due(Timing::Original, u64::MAX, 0);
        let _ = r.due(Timing::Rate(1), u64::MAX, 0);
    }
}
