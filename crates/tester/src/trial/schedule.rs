//! When each stream of a direction sends: its rate, its bursts, and which streams wait for the end of another one.

use super::TrialError;
use crate::pace::{Bursts, Pace, Schedule};
use crate::profile::Stream;

/// What a stream without a rate is like, and of what kind streams are that need one.
fn unpaced(stream: &Stream) -> Result<Option<Schedule>, TrialError> {
    if stream.burst.is_some() || stream.start.is_some() || stream.after.is_some() {
        return Err(TrialError::NeedsRate(stream.name.clone()));
    }
    Ok(None)
}

/// The schedules of a direction's streams for their rates, frames a second; `None` for streams that send as fast as it goes.
///
/// # Errors
/// A stream that is to begin or to end somewhere has no rate.
pub(super) fn schedules(streams: &[Stream], rates: &[Option<f64>]) -> Result<Vec<Option<Schedule>>, TrialError> {
    let mut all: Vec<Option<Schedule>> = Vec::new();
    for (stream, pps) in streams.iter().zip(rates) {
        let Some(pps) = *pps else {
            all.push(unpaced(stream)?);
            continue;
        };
        // The profile has been checked: the stream before is an earlier one, and has an end.
        let before = stream.after.as_ref().and_then(|name| streams.iter().position(|s| s.name == *name));
        let begin = match before.and_then(|at| all.get(at)) {
            None => 0.0,
            Some(schedule) => {
                let end = schedule.as_ref().and_then(Schedule::end);
                end.ok_or_else(|| TrialError::NeedsRate(stream.name.clone()))?
            }
        };
        let bursts = stream.burst.map(|b| Bursts {
            frames: b.frames,
            count: b.bursts().unwrap_or(u64::MAX),
            gap: b.gap.map_or(0, |gap| gap.0),
        });
        let start = begin + stream.start.map_or(0.0, |s| s.0 as f64);
        all.push(Some(Schedule { departures: stream.departures, pps, start, bursts }));
    }
    Ok(all)
}

/// A thread's part of a stream.
pub(super) fn pace(schedule: Option<&Schedule>, share: f64, duration: u64, part: (usize, usize), seed: u64) -> Pace {
    schedule.map_or_else(|| Pace::max(share), |schedule| schedule.pace(duration, part, seed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Profile, Side};

    const CHAIN: &str = "
name: chain
streams:
- { name: a, start: 2ms, burst: { frames: 3 }, ipv4: {}, udp: {} }
- { name: b, after: a, start: 1ms, burst: { frames: 2, count: 2, gap: 5ms }, ipv4: {}, udp: {} }
- { name: c, after: b, ipv4: {}, udp: {} }
";

    fn times(mut pace: Pace) -> Vec<u64> {
        std::iter::from_fn(|| {
            let due = pace.due()?;
            pace.depart();
            Some(due / 1000)
        })
        .collect()
    }

    #[test]
    fn a_stream_begins_when_the_one_before_has_ended() {
        let streams = Profile::of_yaml("p", CHAIN).unwrap().streams_from(Side::Left);
        let all = schedules(&streams, &[Some(1000.0), Some(500.0), Some(100.0)]).unwrap();
        let due = |at: usize, duration: u64| times(pace(all[at].as_ref(), 1.0, duration, (0, 1), 1));
        let long = 100_000_000;
        assert_eq!(due(0, long), [2000, 3000, 4000]);
        // From 5 + 1 ms: frames 2 ms apart, a burst of 4 ms, then 5 ms of nothing.
        assert_eq!(due(1, long), [6000, 8000, 15_000, 17_000]);
        assert_eq!(due(2, long), [19_000, 29_000, 39_000, 49_000, 59_000, 69_000, 79_000, 89_000]);
        assert_eq!(due(1, 15_000_001), [6000, 8000, 15_000]);
        assert!(due(2, 18_000_000).is_empty());
    }

    #[test]
    fn without_a_rate_there_is_no_end_and_no_phase() {
        let streams = Profile::of_yaml("p", CHAIN).unwrap().streams_from(Side::Left);
        let error = schedules(&streams, &[None, None, None]).unwrap_err().to_string();
        assert!(error.starts_with("stream a has a start, bursts or a stream before it, which needs a rate"), "{error}");
    }
}
