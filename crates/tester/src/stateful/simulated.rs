//! Simulated devices for the procedures: what they find is known beforehand.

use std::time::Duration;

use super::phase::{Apparatus, Phase, StatefulError, Verdict};
use super::procedure::{Measure, Outcome, Settings, run};
use crate::report::Report;

/// A device behind a tester.
#[derive(Clone, Debug)]
struct Device {
    /// Connections that it can have.
    limit: u64,
    /// New ones take the place of old ones, rather than being refused.
    evicts: bool,
    /// Connections a second that it can open with an empty table, and by how much less when it is full.
    opens: f64,
    slows: f64,
    /// Frames a second and direction.
    carries: f64,
    /// Frames a second that the tester can send.
    tester: f64,
    /// Frames that go to the wrong place when it validates.
    misdirects: u64,
    /// Connections that the clear command forgets about.
    keeps: u64,
    /// Connections that the command drops a second; no command for 0.
    drops: f64,
    /// Steps after which somebody ends it, and that the tester spoils.
    ends_after: usize,
    spoils: usize,
    /// Its state: connections that are open, and that the responder has learnt.
    open: u64,
    learnt: u64,
    steps: usize,
    cleared: usize,
}

const DEVICE: Device = Device {
    limit: 1000,
    evicts: false,
    opens: 50_000.0,
    slows: 0.0,
    carries: 70_000.0,
    tester: 1e9,
    misdirects: 0,
    keeps: 0,
    drops: 1e6,
    ends_after: usize::MAX,
    spoils: 0,
    open: 0,
    learnt: 0,
    steps: 0,
    cleared: 0,
};

impl Device {
    fn phase(&mut self, pps: f64, frames: u64, through: u64) -> Phase {
        self.steps += 1;
        let spoilt = self.spoils > 0;
        self.spoils = self.spoils.saturating_sub(1);
        let valid = pps <= self.tester && !spoilt;
        Phase {
            rate_pps: pps,
            intended: frames,
            sent: frames,
            received: through,
            connections: through,
            misdirected: 0,
            valid,
            reasons: if valid { vec![] } else { vec!["the rate was not reached".to_owned()] },
            aborted: self.steps > self.ends_after,
        }
    }
}

impl Apparatus for Device {
    fn clear(&mut self) -> Result<Option<Duration>, StatefulError> {
        if self.drops == 0.0 {
            return Ok(None);
        }
        let took = Duration::from_secs_f64(0.01 + self.open as f64 / self.drops);
        self.open = self.open.min(self.keeps);
        self.cleared += 1;
        Ok(Some(took))
    }

    fn open(&mut self, connections: u64, pps: f64) -> Result<Phase, StatefulError> {
        // Slower the fuller it is.
        let opens = self.opens * (1.0 - self.slows * connections.min(self.limit) as f64 / self.limit as f64);
        let fast = if pps > opens { (connections as f64 * opens / pps) as u64 } else { connections };
        let through = if self.evicts { fast } else { fast.min(self.limit) };
        (self.open, self.learnt) = (through.min(self.limit), through);
        Ok(self.phase(pps, connections, through))
    }

    fn validate(&mut self, pps: f64) -> Result<Phase, StatefulError> {
        let phase = self.phase(pps, self.learnt, self.open.min(self.learnt));
        Ok(Phase { misdirected: self.misdirects, ..phase })
    }

    fn traffic(&mut self, pps: f64) -> Result<(Phase, Option<Report>), StatefulError> {
        let frames = (2.0 * pps) as u64;
        let through = if pps > self.carries { (2.0 * self.carries) as u64 } else { frames };
        Ok((self.phase(pps, frames, through), None))
    }
}

const SETTINGS: Settings = Settings {
    connections: 16,
    total: 100_000,
    open_pps: 100_000.0,
    alpha: 0.8,
    traffic_pps: 100_000.0,
    precision: 0.01,
    error: 1,
};

fn measured(device: &mut Device, measure: Measure, settings: &Settings) -> Outcome {
    run(device, measure, settings).expect("an outcome")
}

#[test]
fn the_capacity_is_the_limit_whether_old_or_new_connections_suffer() {
    for limit in [16, 17, 31, 32, 33, 1000, 4095, 65_536, 99_999] {
        for evicts in [false, true] {
            let outcome = measured(&mut Device { limit, evicts, ..DEVICE }, Measure::Capacity, &SETTINGS);
            let found = outcome.found;
            assert_eq!((found.capacity, found.capacity_below), (Some(limit), Some(limit + 1)), "{limit} {evicts}");
            assert!(outcome.valid, "{:?}", outcome.reasons);
        }
    }
}

#[test]
fn a_capacity_that_no_test_reaches_has_no_upper_bound_and_one_below_the_first_no_lower() {
    let outcome = measured(&mut Device { limit: 1 << 40, ..DEVICE }, Measure::Capacity, &SETTINGS);
    assert_eq!((outcome.found.capacity, outcome.found.capacity_below), (Some(100_000), None));
    let outcome = measured(&mut Device { limit: 15, ..DEVICE }, Measure::Capacity, &SETTINGS);
    assert_eq!((outcome.found.capacity, outcome.found.capacity_below), (None, Some(16)));
    assert!(!outcome.valid && outcome.reasons[0].contains("too many to begin with"), "{:?}", outcome.reasons);
}

#[test]
fn a_coarse_error_ends_the_search_early_and_brackets_the_limit() {
    let settings = Settings { error: 100, ..SETTINGS };
    let outcome = measured(&mut Device { limit: 5000, ..DEVICE }, Measure::Capacity, &settings);
    let (fits, fails) = (outcome.found.capacity.unwrap(), outcome.found.capacity_below.unwrap());
    assert!(fits <= 5000 && fails > 5000 && fails - fits <= 100, "{fits} {fails}");
}

#[test]
fn a_table_that_slows_down_as_it_fills_is_measured_to_its_limit_and_at_its_rate() {
    let device = Device { limit: 3000, slows: 0.7, ..DEVICE };
    let outcome = measured(&mut device.clone(), Measure::Capacity, &SETTINGS);
    assert_eq!(outcome.found.capacity, Some(3000));
    let pps = outcome.found.establishment_rate_pps.unwrap();
    assert!(pps <= 15_100.0, "{pps}");
}

#[test]
fn the_establishment_rate_is_found_to_the_precision_asked_for() {
    for (opens, precision) in [(50_000.0, 0.01), (333.0, 0.001), (99_999.0, 0.0001)] {
        let settings = Settings { precision, connections: 500, ..SETTINGS };
        let outcome = measured(&mut Device { opens, ..DEVICE }, Measure::EstablishmentRate, &settings);
        let rate = outcome.found.establishment_rate_pps.unwrap();
        assert!(outcome.valid && rate <= opens && rate >= opens * (1.0 - 1.1 * precision), "{rate} of {opens}");
    }
    // As fast as was asked at most.
    let outcome = measured(&mut Device { opens: 1e9, ..DEVICE }, Measure::EstablishmentRate, &SETTINGS);
    assert_eq!((outcome.found.establishment_rate_pps, outcome.steps.len()), (Some(100_000.0), 1));
}

#[test]
fn connections_count_only_when_they_are_validated() {
    // All frames pass, and nothing is remembered.
    let outcome = measured(&mut Device { limit: 0, evicts: true, ..DEVICE }, Measure::EstablishmentRate, &SETTINGS);
    assert_eq!(outcome.found.establishment_rate_pps, None);
    assert!(outcome.steps.iter().all(|s| s.verdict == Verdict::Failed && s.phase_1.is_whole(16)));
    // All are remembered, and one of them goes to another host.
    let outcome = measured(&mut Device { misdirects: 1, ..DEVICE }, Measure::EstablishmentRate, &SETTINGS);
    assert_eq!(outcome.found.establishment_rate_pps, None);
    let outcome = measured(&mut Device { misdirects: 1, opens: 1e9, ..DEVICE }, Measure::Connections, &SETTINGS);
    assert_eq!(outcome.found.connections, Some(15));
    let settings = Settings { connections: 1500, ..SETTINGS };
    let mut device = Device { opens: 1e9, ..DEVICE };
    let outcome = measured(&mut device, Measure::Connections, &settings);
    assert_eq!((outcome.found.connections, outcome.steps[0].verdict, device.open), (Some(1000), Verdict::Failed, 1000));
}

#[test]
fn what_the_tester_could_not_send_does_not_pass_for_the_devices_limit() {
    let outcome = measured(&mut Device { tester: 20_000.0, ..DEVICE }, Measure::EstablishmentRate, &SETTINGS);
    let rate = outcome.found.establishment_rate_pps.unwrap();
    assert!(!outcome.valid && (19_000.0..=20_000.0).contains(&rate), "{rate}");
    assert!(outcome.reasons[0].contains("the device may do better"), "{:?}", outcome.reasons);
    // A step that is spoilt once is repeated, and all of it is kept.
    let outcome = measured(&mut Device { spoils: 1, opens: 1e9, ..DEVICE }, Measure::EstablishmentRate, &SETTINGS);
    let verdicts: Vec<_> = outcome.steps.iter().map(|s| s.verdict).collect();
    assert_eq!((outcome.valid, &verdicts[..]), (true, &[Verdict::Invalid, Verdict::Passed][..]));
}

#[test]
fn the_tear_down_rate_is_that_of_the_device_without_what_the_command_takes_by_itself() {
    let settings = Settings { connections: 1000, open_pps: 1000.0, ..SETTINGS };
    let outcome = measured(&mut DEVICE.clone(), Measure::TearDownRate, &settings);
    let found = outcome.found;
    assert!((found.tear_down_rate_cps.unwrap() / 1e6 - 1.0).abs() < 1e-3, "{found:?}");
    assert_eq!((outcome.valid, found.left, found.connections), (true, Some(0), Some(1000)));
    let outcome = measured(&mut Device { keeps: 10, ..DEVICE }, Measure::TearDownRate, &settings);
    assert_eq!((outcome.valid, outcome.found.left), (false, Some(10)));
    let outcome = measured(&mut Device { limit: 900, ..DEVICE }, Measure::TearDownRate, &settings);
    assert!(!outcome.valid && outcome.found.tear_down_rate_cps.is_none(), "{:?}", outcome.found);
    let error = run(&mut Device { drops: 0.0, ..DEVICE }, Measure::TearDownRate, &settings).unwrap_err().to_string();
    assert!(error.contains("needs a command"), "{error}");
}

#[test]
fn throughput_is_that_of_phase_2_and_each_trial_has_its_phase_1() {
    let mut device = DEVICE.clone();
    let outcome = measured(&mut device, Measure::Throughput, &Settings { open_pps: 1000.0, ..SETTINGS });
    let rate = outcome.found.throughput_pps.unwrap();
    assert!(outcome.valid && (69_000.0..=70_000.0).contains(&rate), "{rate}");
    assert!(outcome.steps.iter().all(|s| s.phase_1.is_whole(16) && s.phase_2.is_some()));
    assert_eq!(device.cleared, outcome.steps.len());
    // Where connections cannot be opened there is no rate.
    for measure in [Measure::Throughput, Measure::Trial] {
        let outcome = measured(&mut Device { limit: 10, opens: 1e9, ..DEVICE }, measure, &SETTINGS);
        assert!(!outcome.valid && outcome.found.throughput_pps.is_none(), "{:?}", outcome.reasons);
        assert!(outcome.reasons[0].starts_with("phase 1 opened 10 of 16"), "{:?}", outcome.reasons);
    }
}

#[test]
fn an_end_before_its_time_leaves_what_was_found() {
    for (measure, ends_after) in
        [(Measure::Capacity, 9), (Measure::EstablishmentRate, 1), (Measure::Throughput, 5), (Measure::Connections, 1)]
    {
        let settings = Settings { open_pps: 40_000.0, ..SETTINGS };
        let outcome = measured(&mut Device { ends_after, ..DEVICE }, measure, &settings);
        assert!(outcome.aborted && !outcome.valid && !outcome.steps.is_empty(), "{measure}: {outcome:?}");
        assert!(outcome.steps.len() <= ends_after);
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (settings, words) in [
        (Settings { connections: 0, ..SETTINGS }, "1 to 100000 are possible"),
        (Settings { connections: 100_001, ..SETTINGS }, "1 to 100000 are possible"),
        (Settings { open_pps: 0.0, ..SETTINGS }, "rate of phase 1"),
        (Settings { traffic_pps: f64::NAN, ..SETTINGS }, "rate of phase 2"),
        (Settings { alpha: -1.0, ..SETTINGS }, "alpha"),
        (Settings { precision: 1.0, ..SETTINGS }, "precision"),
        (Settings { error: 0, ..SETTINGS }, "precision"),
    ] {
        let error = run(&mut DEVICE.clone(), Measure::Connections, &settings).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
