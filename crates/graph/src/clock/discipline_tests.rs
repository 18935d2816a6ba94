//! The servo against simulated clocks: a counter, a kernel clock of changing rate, and readings with noise.

use super::*;

/// A small generator with a fixed seed, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// The world: real time in ns, a counter, and the kernel's clock as an integral of its rate.
struct World {
    hertz: f64,
    ticks: f64,
    kernel: f64,
    /// Deviation of the kernel's clock from the counter's nominal rate.
    drift: f64,
    noise: u64,
    random: Random,
}

impl World {
    fn new(hertz: f64, drift: f64, noise: u64) -> Self {
        let random = Random(1);
        Self { hertz, ticks: 1e9, kernel: 5e9, drift, noise, random }
    }

    fn pass(&mut self, ns: f64) {
        self.ticks += ns * self.hertz / 1e9;
        self.kernel += ns * (1.0 + self.drift);
    }

    /// A comparison: the kernel's clock is read somewhere between the two readings of the counter.
    fn sample(&mut self) -> Sample {
        let width = 20 + self.random.below(self.noise + 1);
        let off = self.random.below(width + 1) as f64 - width as f64 / 2.0;
        let scale = self.hertz / 1e9;
        Sample { ticks: (self.ticks + off * scale) as u64, ns: self.kernel as u64, width: (width as f64 * scale) as u64 }
    }

    fn error(&self, discipline: &Discipline) -> f64 {
        discipline.timeline().at(self.ticks as u64) as f64 - self.kernel
    }
}

fn started(world: &mut World) -> Discipline {
    let first = world.sample();
    world.pass(10e6);
    Discipline::new(first, world.sample())
}

/// One interval: correct, then let time pass and watch it. Returns the largest error seen.
fn interval(world: &mut World, discipline: &mut Discipline, ns: f64) -> f64 {
    let sample = world.sample();
    discipline.update(sample, world.ticks as u64);
    discipline.accept();
    let mut worst: f64 = 0.0;
    let mut last = discipline.timeline().at(world.ticks as u64);
    for _ in 0..50 {
        world.pass(ns / 50.0);
        let now = discipline.timeline().at(world.ticks as u64);
        assert!(now >= last, "time ran backwards");
        last = now;
        worst = worst.max(world.error(discipline).abs());
    }
    worst
}

fn run(world: &mut World, discipline: &mut Discipline, intervals: u32) {
    for _ in 0..intervals {
        interval(world, discipline, 100e6);
    }
}

#[test]
fn the_error_stays_under_a_microsecond_a_second_for_any_counter_and_drift() {
    for hertz in [24e6, 1e9, 2.5e9, 4.2e9] {
        for drift in [-50e-6, 0.0, 50e-6, 400e-6] {
            let mut world = World::new(hertz, drift, 80);
            let mut discipline = started(&mut world);
            for round in 0..100 {
                let worst = interval(&mut world, &mut discipline, 100e6);
                let bound = if round < 5 { 2_000.0 } else { 400.0 };
                assert!(worst < bound, "{worst} ns at {hertz} Hz, {drift}, round {round}");
            }
        }
    }
}

#[test]
fn a_change_of_the_kernels_rate_is_followed_within_two_corrections() {
    let mut world = World::new(2.5e9, 0.0, 60);
    let mut discipline = started(&mut world);
    run(&mut world, &mut discipline, 20);
    for drift in [20e-6, -500e-6, 500e-6, 0.0] {
        world.drift = drift;
        interval(&mut world, &mut discipline, 100e6);
        interval(&mut world, &mut discipline, 100e6);
        interval(&mut world, &mut discipline, 100e6);
        let worst = interval(&mut world, &mut discipline, 100e6);
        assert!(worst < 1_000.0, "{worst} ns after a change to {drift}");
    }
}

#[test]
fn corrections_may_come_rarely_or_at_any_time() {
    let mut world = World::new(3e9, 30e-6, 60);
    let mut discipline = started(&mut world);
    run(&mut world, &mut discipline, 30);
    let mut random = Random(7);
    for _ in 0..200 {
        let ns = 1e6 * (1 + random.below(3_000)) as f64;
        let worst = interval(&mut world, &mut discipline, ns);
        assert!(worst < 1_000.0, "{worst} ns over an interval of {ns}");
    }
}

#[test]
fn a_pause_of_the_machine_lets_time_jump_forward_once() {
    for pause in [2e6, 1e9, 3600e9] {
        let mut world = World::new(2.5e9, 10e-6, 60);
        let mut discipline = started(&mut world);
        run(&mut world, &mut discipline, 20);
        world.kernel += pause;
        interval(&mut world, &mut discipline, 100e6);
        assert_eq!(discipline.jumps, 1);
        let worst = interval(&mut world, &mut discipline, 100e6);
        assert!(worst < 2_000.0, "{worst} ns after a pause of {pause}");
        run(&mut world, &mut discipline, 10);
        assert!(interval(&mut world, &mut discipline, 100e6) < 400.0);
        assert_eq!(discipline.jumps, 1);
    }
}

#[test]
fn a_clock_that_is_ahead_slows_down_and_never_turns_back() {
    let mut world = World::new(2.5e9, 0.0, 60);
    let mut discipline = started(&mut world);
    run(&mut world, &mut discipline, 20);
    // The counter ran on for a second in which the kernel's clock stood still.
    world.ticks += world.hertz;
    let ahead = interval(&mut world, &mut discipline, 100e6);
    assert!(ahead > 0.9e9);
    // `interval` holds that time does not run backwards. Half speed makes up a second in two.
    run(&mut world, &mut discipline, 21);
    let worst = interval(&mut world, &mut discipline, 100e6);
    assert!(worst < 1_000.0, "{worst} ns");
    assert_eq!(discipline.jumps, 0);
}

#[test]
fn a_counter_that_fell_back_is_taken_up_where_it_is() {
    let mut world = World::new(2.5e9, 0.0, 60);
    let mut discipline = started(&mut world);
    run(&mut world, &mut discipline, 20);
    world.ticks -= 4e9;
    world.drift = 50e-6;
    let sample = world.sample();
    assert!(discipline.update(sample, world.ticks as u64).jump);
    discipline.accept();
    world.pass(10e6);
    assert!(world.error(&discipline).abs() < 1_000.0);
    run(&mut world, &mut discipline, 5);
    assert!(interval(&mut world, &mut discipline, 100e6) < 400.0);
    assert_eq!(discipline.jumps, 1);
}

#[test]
fn a_first_rate_that_was_wrong_is_corrected() {
    let mut world = World::new(2.5e9, 0.0, 60);
    let sample = world.sample();
    let mut discipline = Discipline::new(sample, sample);
    run(&mut world, &mut discipline, 40);
    assert!(interval(&mut world, &mut discipline, 100e6) < 400.0);
    let hertz = discipline.timeline().ticks_per_second();
    assert!(hertz.abs_diff(2_500_000_000) < 2_500, "{hertz}");
}

#[test]
fn calls_in_quick_succession_change_nothing() {
    let mut world = World::new(2.5e9, 0.0, 60);
    let mut discipline = started(&mut world);
    run(&mut world, &mut discipline, 5);
    world.pass(1e6);
    let (before, sample) = (*discipline.timeline(), world.sample());
    discipline.update(sample, world.ticks as u64);
    assert!(discipline.deadline().is_some(), "an interval after the last one");
    discipline.accept();
    for _ in 0..10 {
        world.pass(1e5);
        let sample = world.sample();
        discipline.update(sample, world.ticks as u64);
        assert!(discipline.deadline().is_none());
    }
    assert_ne!(before, *discipline.timeline());
}
