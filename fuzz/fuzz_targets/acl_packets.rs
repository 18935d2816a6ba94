//! What access lists see of a packet: any bytes are read without a panic; a packet and its answer, with all of it turned round, have the
//! key of one session.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_acl::packet::{FOUR, Family, Flow, Four, SIX, Seen, Six, ether_type, quoted};

/// The same packet in the other direction, by what is seen of it.
fn turned<const D: usize>(seen: &Seen<D>) -> Seen<D> {
    let words = (D - 3) / 2;
    let mut other = *seen;
    other.fields[..2 * words].rotate_left(words);
    other.fields.swap(D - 2, D - 1);
    if let Flow::Query { asks, .. } = &mut other.flow {
        *asks = !*asks;
    }
    other
}

fn check<F: Family<D>, const D: usize>(bytes: &[u8]) {
    let Some(seen) = F::look(bytes) else { return };
    assert!(seen.fields[D - 3] <= 255 && seen.fields[D - 2..].iter().all(|port| *port <= 65_536));
    match seen.flow {
        Flow::Error(at) => {
            let _ = quoted::<F, D>(bytes, at, 1, false);
        }
        Flow::Ports | Flow::Query { .. } => {
            let other = turned(&seen);
            assert_eq!(F::key(&seen, 7, false), F::key(&other, 7, true));
            assert_ne!(F::key(&seen, 7, false), F::key(&seen, 8, false));
        }
        Flow::None | Flow::Later => {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    check::<Four, FOUR>(bytes);
    check::<Six, SIX>(bytes);
    if let Some((at, _)) = ether_type(bytes) {
        check::<Four, FOUR>(&bytes[at..]);
        check::<Six, SIX>(&bytes[at..]);
    }
});
