//! LACP data units, and what the machines of a bond make of them: any bytes are a unit or refused, what is sent can be read, time passes, and no
//! port sends that does not receive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_bond::lacp::lag::{Lag, PortConfig};
use quiver_bond::lacp::pdu::{LEN, Pdu, answer_marker};
use quiver_wire::MacAddr;

fuzz_target!(|data: &[u8]| {
    let mut lag = Lag::new(MacAddr([2, 0xfe, 0, 0, 0, 1]), 1);
    for place in 0..4 {
        lag.add(place, PortConfig { passive: place & 1 != 0, long_timeout: place & 2 != 0 });
        lag.enable(place, true, 0);
    }
    let mut now = 0;
    // A byte of time, a byte that says which port and whether its link changes, then a unit.
    for step in data.chunks(LEN + 2) {
        let [time, which, bytes @ ..] = step else { return };
        now += u64::from(*time) * u64::from(*time) * 2_000_000;
        let place = which & 3;
        lag.tick(now);
        if which & 4 != 0 {
            lag.enable(place, which & 8 != 0, now);
        }
        let _ = answer_marker(&mut bytes.to_vec());
        if let Some(pdu) = Pdu::parse(bytes) {
            lag.receive(place, &pdu, now);
        }
        for (_, sent) in lag.to_send(now) {
            assert_eq!(Pdu::parse(&sent.to_bytes()), Some(sent));
        }
        assert!(lag.due(now) > now);
        let (sends, receives) = lag.masks();
        assert!(sends & !receives == 0);
    }
});
