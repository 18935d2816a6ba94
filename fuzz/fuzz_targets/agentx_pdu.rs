//! AgentX from a master agent: any bytes are PDUs or refused, a stream is read to its end, and what is answered can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_agentx::{Bind, Front, Pdu, Request, Session, Value, front, response};

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Front::Whole(length)) = front(rest) {
        if let Ok(pdu) = Pdu::read(rest) {
            let binds: Vec<_> = match &pdu.request {
                Request::Get(ranges) | Request::GetNext(ranges) | Request::GetBulk { ranges, .. } => {
                    ranges.iter().map(|range| Bind { name: range.start.clone(), value: Value::Oid(range.end.clone()) }).collect()
                }
                _ => Vec::new(),
            };
            let answer = response(Session::of(&pdu), 0, 0, &binds);
            assert_eq!(front(&answer), Ok(Front::Whole(answer.len())));
            let read = Pdu::read(&answer).unwrap();
            assert_eq!(Session::of(&read), Session::of(&pdu));
        }
        rest = &rest[length..];
    }
    let _ = Pdu::read(rest);
});
