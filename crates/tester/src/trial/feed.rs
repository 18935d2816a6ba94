//! Departure times that the kernel cannot work out itself: they are written to it while it sends, some time ahead.

use quiver_drivers::xdp_engine::Sender;
use quiver_drivers::xdp_engine::layout::DUES;

use crate::pace::{Kind, Pace};
use crate::source::Outgoing;

/// Departure times written ahead at most, in units of [`DUES`]: at 2 M frames/s those of 0.13 s.
const AHEAD: u32 = 512;

/// The departure times of a stream, a ring of units.
#[derive(Debug)]
pub(super) struct Feed {
    stream: usize,
    pace: Pace,
    first_unit: u32,
    units: u32,
    written: u64,
}

/// Feeds of those streams that need one.
pub(super) fn feeds(streams: &[Outgoing]) -> Vec<Feed> {
    let mut all: Vec<Feed> = Vec::new();
    for (stream, Outgoing { pace, .. }) in streams.iter().enumerate() {
        if !matches!(pace.kind(), Kind::Poisson { .. }) {
            continue;
        }
        let needed = pace.total().unwrap_or(u64::MAX).div_ceil(DUES as u64).clamp(1, AHEAD.into());
        let first_unit = all.last().map_or(0, |feed| feed.first_unit + feed.units);
        all.push(Feed { stream, pace: pace.clone(), first_unit, units: (needed as u32).next_power_of_two(), written: 0 });
    }
    all
}

impl Feed {
    /// Its stream, as the thread counts them.
    pub(super) fn stream(&self) -> usize {
        self.stream
    }

    /// Its first unit.
    pub(super) fn first_unit(&self) -> u32 {
        self.first_unit
    }

    /// Units of the ring, a power of two.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Writes the times of the frames to come, as far as the ring has room behind those that are `sent`.
    ///
    /// # Errors
    /// In one line why they cannot be written.
    pub(super) fn fill(&mut self, sender: &mut Sender, sent: u64) -> Result<(), String> {
        let unit = DUES as u64;
        while !self.pace.is_over() && self.written / unit < sent / unit + u64::from(self.units) {
            let at = self.first_unit + (self.written / unit) as u32 % self.units;
            let mut times = Vec::with_capacity(DUES);
            while let Some(due) = self.pace.due().filter(|_| times.len() < DUES) {
                times.push(due);
                self.pace.depart();
            }
            self.written += times.len() as u64;
            sender.feed(self.stream, at, &times, self.written).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}
