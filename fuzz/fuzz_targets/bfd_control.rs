//! BFD control packets, and what a session makes of them: any bytes are a packet or refused, what a session sends can be read, and its
//! next time lies ahead.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_bfd::packet::{Control, LEN, State};
use quiver_bfd::session::{Session, Timing};

fuzz_target!(|data: &[u8]| {
    let timing = Timing { desired_min_tx: 10_000, required_min_rx: 10_000, detect_mult: 3 };
    let mut session = Session::new(1, timing, 1, 0);
    let mut now = 0;
    // A byte of time, then a packet.
    for step in data.chunks(LEN + 1) {
        let Some((time, bytes)) = step.split_first() else { return };
        now += u64::from(*time) * u64::from(*time) * 100_000;
        if session.tick(now).send {
            let sent = session.send(false, now);
            assert_eq!(Control::parse(&sent.to_bytes()), Ok(sent));
        }
        assert!(session.due() > now);
        let Ok(control) = Control::parse(bytes) else { continue };
        let heard = session.receive(&control, now);
        if let Some(is_final) = heard.answer {
            let sent = session.send(is_final, now);
            assert!(sent.is_final == is_final && !(sent.poll && sent.is_final));
            assert!(session.state() == State::Up || sent.desired_min_tx >= 1_000_000);
        }
    }
});
