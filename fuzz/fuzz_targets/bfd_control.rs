//! BFD packets, and what a session makes of them: any bytes are a packet or refused, by whichever key; what a session sends can be read and
//! is taken by one with the same key; and its next time lies ahead.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_bfd::auth::{Authentication, InUse, Key, Kind, Sealed, Secret};
use quiver_bfd::packet::{Control, Echo, State};
use quiver_bfd::session::{Echoes, Session, Timing};

/// Bytes of a step: time, and the longest packet.
const STEP: usize = 53;

fn key(number: u8, id: u8) -> Option<InUse> {
    Some(InUse { key: Key { kind: Kind::of_number(number)?, secret: Secret::new(b"fuzz")? }, id })
}

fuzz_target!(|data: &[u8]| {
    let Some(([kind, next, id], steps)) = data.split_first_chunk() else { return };
    let by = key(kind % 6, *id);
    let mut authentication = Authentication::new(by, 0);
    authentication.set(key(next % 6, *id), true);
    let timing = Timing { desired_min_tx: 10_000, required_min_rx: 10_000, detect_mult: 3 };
    let mut session = Session::new(1, timing, 1, 0);
    session.set_echoes(Echoes::Sent, 0);
    let mut now = 0;
    for step in steps.chunks(STEP) {
        let Some((time, bytes)) = step.split_first() else { return };
        now += u64::from(*time) * u64::from(*time) * 100_000;
        let tick = session.tick(now);
        if tick.send {
            let sent = session.send(false, now);
            assert_eq!(Control::parse(&sent.to_bytes()), Ok(sent));
            let sealed = Sealed::new(&sent, by.as_ref(), 7);
            let read = Control::parse(sealed.bytes()).unwrap();
            assert_eq!(Authentication::new(by, 0).check(&read, Control::trimmed(sealed.bytes()), now), Ok(()));
        }
        if let Some(echo) = Echo::parse(bytes) {
            assert_eq!(echo.to_bytes(), bytes);
            session.echo_returned(echo.sent, now);
        }
        assert!(session.due() > now);
        let Ok(control) = Control::parse(bytes) else { continue };
        // The session is to see packets too whose digest the fuzzer cannot find.
        let _ = authentication.check(&control, Control::trimmed(bytes), now);
        let heard = session.receive(&control, now);
        authentication.taken(now, session.status().detection_time * 1000);
        if let Some(is_final) = heard.answer {
            let sent = session.send(is_final, now);
            assert!(sent.is_final == is_final && !(sent.poll && sent.is_final));
            assert!(session.state() == State::Up || sent.desired_min_tx >= 1_000_000);
            let _ = authentication.seal(&sent);
        }
    }
});
