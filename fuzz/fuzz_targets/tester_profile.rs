//! Any text as a traffic profile: frames that their own receiver accounts for, or an error of one line that names the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_tester_core::MacAddr;
use quiver_tester_core::maker::{Maker, Surroundings};
use quiver_tester_core::profile::{Profile, Side, Signing, Size};
use quiver_tester_core::receiver::{Flow, Kind, Receiver};
use quiver_tester_core::trial::Plan;
use quiver_tester_core::trial::dry::{DryPort, DryRun};
use quiver_tester_core::units::Rate;

const FRAMES: u64 = 20;

fuzz_target!(|text: &str| {
    let profile = match Profile::of_yaml("f", text) {
        Ok(profile) => profile,
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("f: ") && !error.contains('\n'), "{error:?}");
            return;
        }
    };
    for (id, stream) in profile.streams.iter().chain(&profile.streams.iter().map(|s| s.mirrored()).collect::<Vec<_>>()).enumerate() {
        let around = Surroundings {
            src: MacAddr([2, 0, 0, 0, 0, 1]),
            dst: Some(MacAddr([2, 0, 0, 0, 0, 2])),
            ethernet: true,
            id: id as u16,
            tag: 3,
            seed: 1,
        };
        let Ok(mut maker) = Maker::new(stream, Some(&Size::Fixed(256)), &around) else { continue };
        let largest = maker.largest();
        let (signing, signed) = (stream.signing(), maker.signed().among(FRAMES));
        let mut receiver = Receiver::new(3, id as u16, vec![Flow::new(FRAMES)], true, signing != Signing::Full);
        for time in 0..FRAMES {
            let frame = maker.make_bytes(time);
            assert!(frame.len() <= largest && frame.len() >= 14, "{} of at most {largest} bytes", frame.len());
            let kind = receiver.frame(&frame, time + 1);
            assert!(signing == Signing::Part || (kind == Kind::Ours) == (signing == Signing::Full), "{kind:?}");
        }
        assert_eq!(receiver.received(), signed);
    }
    let plan = Plan { rate: Some(Rate::Pps(1000.0)), line_rate: Some(1e9), ..Plan::new(profile) };
    let port = DryPort { src: MacAddr([2, 0, 0, 0, 0, 1]), dst: MacAddr([2, 0, 0, 0, 0, 2]), ethernet: true };
    for side in [Side::Left, Side::Right] {
        let Ok(run) = DryRun::new(&plan, side, port) else { continue };
        let times: Vec<u64> = run.take(2 * FRAMES as usize).map(|(time, _)| time).collect();
        assert!(times.is_sorted() && times.iter().all(|t| *t <= plan.duration.as_nanos() as u64), "{times:?}");
    }
});
