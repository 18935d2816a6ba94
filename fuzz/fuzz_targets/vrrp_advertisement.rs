//! VRRP advertisements, and what a virtual router makes of them: any bytes are an advertisement or refused, what a virtual router sends
//! can be read, and its next time lies ahead.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use quiver_vrrp::machine::{Config, Machine, State};
use quiver_vrrp::packet::Advertisement;

fuzz_target!(|data: &[u8]| {
    let (own, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (group, other6): (IpAddr, IpAddr) = ([224, 0, 0, 18].into(), IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 2]));
    let mut machine = Machine::new(Config { priority: 100, interval: 10, preempt: true });
    machine.set_source(Some(own), 0);
    machine.start(0);
    let mut now = 1;
    // A byte of time, then a message.
    for step in data.chunks(13) {
        let Some((time, bytes)) = step.split_first() else { return };
        now += u64::from(*time) * u64::from(*time) * 100_000;
        let _ = Advertisement::parse(other6, IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 0x12]), bytes);
        machine.tick(now);
        if let Some(priority) = machine.take(now).advertise {
            let sent = Advertisement { vr_id: 1, priority, interval: machine.interval() };
            assert_eq!(Advertisement::parse(own, group, &sent.message(own, group, &[own])), Ok(sent));
        }
        assert!(machine.due() > now);
        // A checksum that a fuzzer need not find.
        let heard = Advertisement::parse(other, group, bytes).unwrap_or(Advertisement {
            vr_id: 1,
            priority: bytes.first().copied().unwrap_or(1),
            interval: u16::from(bytes.get(1).copied().unwrap_or(1)).max(1),
        });
        machine.receive(&heard, other, now);
        assert!(matches!(machine.state(), State::Backup | State::Master));
    }
});
