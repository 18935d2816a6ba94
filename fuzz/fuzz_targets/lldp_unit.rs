//! LLDP data units, and what an agent makes of them: any bytes are a unit or refused, neighbours stay within their number, time passes, and what is
//! due later is later.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_lldp::agent::{Agent, NEIGHBOURS_MAX, SECOND};
use quiver_lldp::pdu::write::{dotted, encoded};
use quiver_lldp::pdu::{Info, MANAGEMENT_MAX, Unit};

fuzz_target!(|data: &[u8]| {
    let mut agent = Agent::default();
    agent.set_up(true, 0);
    let mut now = 0;
    let mut rest = data;
    // A byte of time, a byte of length, then a unit. The same bytes as one unit, too.
    let _ = Unit::parse(data).map(|unit| Info::from(&unit));
    while let [time, length, more @ ..] = rest {
        let (bytes, after) = more.split_at(usize::from(*length).min(more.len()));
        rest = after;
        now += u64::from(*time) * SECOND / 8;
        if let Ok(unit) = Unit::parse(bytes) {
            let info = Info::from(&unit);
            assert!(info.management.len() <= MANAGEMENT_MAX);
            assert!(!info.system_name.unwrap_or_default().contains(char::is_control));
            agent.hear(&unit, now);
        }
        agent.expire(now);
        agent.sends(30, now);
        assert!(agent.neighbours().len() <= NEIGHBOURS_MAX);
        assert!(agent.due() > now);
        if let Some(text) = dotted(bytes) {
            assert_eq!(encoded(&text).as_deref(), Some(bytes));
        }
    }
});
