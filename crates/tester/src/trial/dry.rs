//! What a trial would send, without ports: frames of a side in the order and at the times of their departures.

use quiver_wire::MacAddr;

use super::{Plan, TrialError, rates, schedule, sized};
use crate::maker::{Maker, Surroundings};
use crate::pace::Pace;
use crate::profile::{Side, Stream};
use crate::random::Random;

/// Trial number of frames that no trial sends.
const TAG: u8 = 0;

/// A port that is not there.
#[derive(Clone, Copy, Debug)]
pub struct DryPort {
    /// Its hardware address.
    pub src: MacAddr,
    /// That of its next hop.
    pub dst: MacAddr,
    /// Whether it carries Ethernet frames rather than IP packets.
    pub ethernet: bool,
}

/// The frames of a side, each with the time of its departure, ns from the start of the trial.
pub struct DryRun {
    streams: Vec<(Maker, Pace)>,
}

impl DryRun {
    /// Prepares the streams of a side. Streams without a rate take turns, all at the start.
    ///
    /// # Errors
    /// As for a trial.
    pub fn new(plan: &Plan, side: Side, port: DryPort) -> Result<Self, TrialError> {
        let streams: Vec<Stream> = plan.profile.streams_from(side).into_iter().map(|s| sized(s, plan)).collect();
        let schedules = schedule::schedules(&streams, &rates(&streams, plan)?)?;
        let mut seeds = Random::new(plan.seed);
        let duration = plan.duration.as_nanos() as u64;
        let mut made = Vec::new();
        for (id, (stream, schedule)) in streams.iter().zip(&schedules).enumerate() {
            let DryPort { src, dst, ethernet } = port;
            let around = Surroundings { src, dst: Some(dst), ethernet, id: id as u16, tag: TAG, seed: seeds.next_u64() };
            let maker = Maker::new(stream, None, &around)?;
            let pace = schedule::pace(schedule.as_ref(), stream.share.unwrap_or(1.0), duration, (0, 1), seeds.next_u64());
            made.push((maker, pace));
        }
        Ok(Self { streams: made })
    }
}

impl Iterator for DryRun {
    /// Departure, and the frame without FCS.
    type Item = (u64, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let dues = self.streams.iter().enumerate().filter_map(|(i, (_, pace))| Some((pace.due()?, i)));
        let (due, first) = dues.min()?;
        let (maker, pace) = &mut self.streams[first];
        pace.depart();
        let time = if pace.is_max() { 0 } else { due };
        Some((time, maker.make_bytes(time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::signature::{Reading, Signature};
    use crate::units::Rate;

    const PORT: DryPort = DryPort { src: MacAddr([2, 0, 0, 0, 0, 1]), dst: MacAddr([2, 0, 0, 0, 0, 2]), ethernet: true };

    #[test]
    fn streams_are_merged_by_time_and_stamped_with_it() {
        let profile = Profile::of_yaml(
            "p",
            "{ name: p, bidirectional: true, streams: [ { name: a, share: 3, ipv4: {}, udp: {} },
               { name: b, rate: 500pps, start: 1ms, burst: { frames: 2 }, ipv4: {}, udp: {} }, { name: c, after: b, ipv4: {}, udp: {} } ] }",
        )
        .unwrap();
        let mut plan = Plan { rate: Some(Rate::Pps(4000.0)), ..Plan::new(profile) };
        plan.size = Some(crate::profile::Size::Fixed(64));
        plan.duration = std::time::Duration::from_millis(8);
        for side in [Side::Left, Side::Right] {
            // `b' has no size: streams with a rate of their own keep theirs.
            assert!(matches!(DryRun::new(&plan, side, PORT), Err(TrialError::Make(_))));
        }
        plan.profile.streams[1].size = plan.size.clone();
        let frames: Vec<_> = DryRun::new(&plan, Side::Right, PORT).unwrap().collect();
        assert!(frames.is_sorted_by_key(|(time, _)| *time));
        let mut counts = [0; 3];
        for (time, frame) in &frames {
            let Reading::Valid(signature) = Signature::read(frame) else { panic!("a signature") };
            assert_eq!((signature.time, signature.tag), (*time, TAG));
            counts[usize::from(signature.stream)] += 1;
        }
        // Three quarters of 4,000 a second for 8 ms; two; a quarter from 1 + 2 × 2 ms on.
        assert_eq!(counts, [24, 2, 3]);
    }
}
