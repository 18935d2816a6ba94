//! Any bytes, cut anywhere, with answers that come early or late: no panic, order kept, memory bounded, an end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_command::grammar::{Candidate, Completion};
use quiver_command::operation::{Answer, OpError};
use quiver_command::session::{Event, LONGEST_LINE, Request, Session, frames::terminal_type_answer};
use std::rc::Rc;

fn answer(session: &mut Session, request: Request) {
    match request {
        Request::Complete { line, cursor } => {
            let candidates = ["show", "set"].map(|text| Candidate { text: text.to_owned(), help: String::new() });
            session.completed(Completion { start: cursor.min(line.len()), candidates: candidates.into(), hints: Vec::new() });
        }
        Request::Command { line, .. } if line.len() % 3 == 0 => session.answer(Err(OpError::unknown_input(&line))),
        Request::Command { line, .. } => session.answer(Ok(Answer { text: line + "\n", ..Answer::default() })),
        Request::Operation { .. } => session.answer(Ok(Answer { json: Some("null".to_owned()), ..Answer::default() })),
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    let mut session = if how & 1 == 0 { Session::cli(Rc::default()) } else { Session::json() };
    if let Some(name) = [None, Some("vppctl"), Some("xterm"), Some("quiverctl")][usize::from(how >> 1) % 4] {
        session.receive(&terminal_type_answer(name));
    }
    let mut waiting: Option<Request> = None;
    // The first byte of each chunk says how long it is and what happens after it.
    let mut rest = bytes;
    while let Some((&control, tail)) = rest.split_first() {
        let (chunk, tail) = tail.split_at(usize::from(control & 31).min(tail.len()));
        rest = tail;
        if session.wants_input() {
            session.receive(chunk);
        }
        if control & 32 != 0 {
            session.print("progress\n");
        }
        if control & 64 != 0
            && let Some(request) = waiting.take()
        {
            answer(&mut session, request);
        }
        while let Some(event) = session.next_event() {
            if let Event::Request(request) = event {
                assert!(waiting.replace(request).is_none(), "one request at a time");
            }
        }
        assert_eq!(session.busy(), waiting.is_some());
        if control & 128 != 0 {
            session.wrote(session.output().len() / 2 + 1);
        }
        if control == 255 {
            session.terminal_type_timeout();
            session.discard_typed();
        }
    }
    session.end_of_input();
    let mut rounds = 0;
    while !session.finished() {
        if let Some(request) = waiting.take() {
            answer(&mut session, request);
        }
        while let Some(event) = session.next_event() {
            if let Event::Request(request) = event {
                waiting = Some(request);
            }
        }
        assert!(session.output().len() < 4 * LONGEST_LINE);
        session.wrote(session.output().len());
        rounds += 1;
        assert!(rounds < 2 * bytes.len() + 10, "the session does not end");
    }
});
