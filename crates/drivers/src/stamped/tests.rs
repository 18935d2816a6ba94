use std::time::{Duration, Instant};

use quiver_testbed::{Host, Scenario};

use super::*;

/// A frame that ends as [`TAIL`] says, with a number.
fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(60, 0);
    frame.extend([0xa9, 7, 0, 0, 0, 3]);
    frame.extend([number; 12]);
    frame
}

const TAIL: Tail = Tail { word: (18, 0xa907), range: (14, 3, 3) };

#[test]
fn frames_have_the_kernels_times_at_both_ends_of_a_wire() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("stamped").unwrap();
    host.ip("link add va type veth peer name vb\nlink set va up\nlink set vb up").unwrap();
    let measure = || {
        let mut tx = StampedTx::open("va", Clock::Kernel).unwrap();
        let mut rx = StampedRx::open("vb", Clock::Kernel, TAIL).unwrap();
        let mut other = StampedRx::open("vb", Clock::Kernel, Tail { range: (14, 4, 9), ..TAIL }).unwrap();
        let mut buffer = [0; 2048];
        // However busy the machine is. The kernel takes a moment to begin with times of what comes.
        let until = Instant::now() + Duration::from_secs(60);
        let (mut number, mut whole) = (0_u8, 0);
        while whole < 20 {
            number = number.wrapping_add(1);
            assert!(tx.send(&frame(number)).unwrap());
            let mut times = [None; 2];
            while times.contains(&None) {
                assert!(Instant::now() < until, "{whole} frames had both times, then {times:?}");
                for (at, taken) in [tx.departed(&mut buffer).unwrap(), rx.arrived(&mut buffer).unwrap()].into_iter().enumerate() {
                    if let Some((length, time)) = taken {
                        assert_eq!((length, buffer[77]), (78, number));
                        times[at] = Some(time);
                    }
                }
            }
            let [Some(left), Some(came)] = times.map(Option::flatten) else {
                assert_eq!(whole, 0, "{times:?}");
                continue;
            };
            assert!(left > 1_600_000_000_000_000_000 && came >= left, "{left} {came}");
            whole += 1;
        }
        assert_eq!(other.arrived(&mut buffer).unwrap(), None);
        let card = CardClock::switch_on("va").unwrap_err().to_string();
        assert!(card.starts_with("device va: its card gives frames no times (ethtool -T va "), "{card}");
        let none = StampedTx::open("none", Clock::Kernel).unwrap_err().to_string();
        assert!(none.starts_with("device none: "), "{none}");
        Ok(())
    };
    host.enter(measure).unwrap();
}
