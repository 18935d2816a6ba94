//! The protocols byte for byte, and rules that hold whatever the bytes.

use super::{Event, LONGEST_LINE, Request, Session, SessionOptions, telnet::terminal_type_answer};
use crate::{
    grammar::{Candidate, Completion},
    operation::{Answer, OpError, Render},
};
use proptest::prelude::*;
use std::rc::Rc;

/// A router that knows three commands, and remembers what it was asked.
struct Router {
    session: Session,
    asked: Vec<String>,
}

impl Router {
    fn cli(options: SessionOptions) -> Self {
        let mut session = Session::cli(Rc::new(options));
        let greeting = session.output().len();
        session.wrote(greeting);
        Self { session, asked: Vec::new() }
    }

    fn json() -> Self {
        Self { session: Session::json(), asked: Vec::new() }
    }

    fn terminal(name: &str) -> Self {
        let options = SessionOptions { banner: "Hello\n".to_owned(), ..SessionOptions::default() };
        let mut router = Self::cli(options);
        router.send(&terminal_type_answer(name));
        router
    }

    /// Sends bytes, lets everything be done, and gives what came back.
    fn send(&mut self, bytes: &[u8]) -> String {
        self.session.receive(bytes);
        self.run()
    }

    fn run(&mut self) -> String {
        let mut received = Vec::new();
        loop {
            while let Some(event) = self.session.next_event() {
                if let Event::Request(request) = event {
                    self.serve(request);
                }
            }
            if self.session.output().is_empty() {
                return String::from_utf8(received).unwrap();
            }
            received.extend_from_slice(self.session.output());
            self.session.wrote(self.session.output().len());
        }
    }

    fn serve(&mut self, request: Request) {
        let result = match request {
            Request::Complete { line, cursor } => {
                self.asked.push(format!("{line}@{cursor}"));
                let words = ["show interface", "show ip", "set"];
                let candidates = words.iter().filter(|word| word.starts_with(&line[..cursor]));
                let candidates = candidates.map(|word| Candidate { text: (*word).to_owned(), help: "x".to_owned() });
                return self.session.completed(Completion { start: 0, candidates: candidates.collect(), hints: Vec::new() });
            }
            Request::Operation { name, request, view } => {
                assert_ne!(view.render, Render::Text);
                self.asked.push(format!("{name} {request}"));
                Ok(Answer { json: Some(format!("{{\"name\":\"{name}\"}}")), ..Answer::default() })
            }
            Request::Command { line, view } => {
                self.asked.push(line.clone());
                match line.as_str() {
                    "version" if view.render == Render::Json => {
                        Ok(Answer { json: Some("{\"b\":1,\"a\":2}".to_owned()), ..Answer::default() })
                    }
                    "version" => Ok(Answer { text: "one\ntwo\n".to_owned(), ..Answer::default() }),
                    "set" => Ok(Answer::default()),
                    _ => {
                        self.session.print("working\n");
                        Err(OpError::unknown_input(&line))
                    }
                }
            }
        };
        self.session.answer(result);
    }
}

#[test]
fn the_greeting_is_what_vppctl_knows() {
    let session = Session::cli(Rc::default());
    let observed = "ff fc 22  ff fe 22  ff fb 03  ff fd 03  ff fb 01  ff fe 01  ff fd 18 \
                    ff fa 18 01 ff f0  ff fd 1f  ff fa 1f 01 ff f0";
    let expected: Vec<u8> = observed.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    assert_eq!(session.output(), expected);
    assert!(session.awaits_terminal_type());
}

#[test]
fn vppctl_gets_cr_lf_and_one_nul_after_every_command() {
    let mut router = Router::terminal("vppctl");
    assert_eq!(router.send(b"version\n"), "one\r\ntwo\r\n\0");
    assert_eq!(router.send(b"set\n"), "\0");
    assert_eq!(router.send(b"\n"), "\0");
    assert_eq!(router.send(b"foo\r\n"), "working\r\nunknown input `foo'\r\n\0");
    assert_eq!(router.send(b"quit\n"), "");
    assert!(router.session.finished());
    assert_eq!(router.asked, ["version", "set", "foo"]);
}

#[test]
fn commands_sent_at_once_or_byte_by_byte_are_answered_in_order() {
    let mut bytes = terminal_type_answer("vppctl");
    bytes.extend(b"version\nset\nfoo\nquit\nversion\n");
    let expected = "one\r\ntwo\r\n\0\0working\r\nunknown input `foo'\r\n\0";
    assert_eq!(Router::cli(SessionOptions::default()).send(&bytes), expected);
    let mut router = Router::cli(SessionOptions::default());
    let answers: String = bytes.iter().map(|byte| router.send(&[*byte])).collect();
    assert_eq!(answers, expected);
    assert!(router.session.finished());
}

#[test]
fn quiverctl_gets_frames() {
    let mut router = Router::terminal("quiverctl");
    assert_eq!(router.send(b"{\"id\":1,\"command\":\"version\"}\n"), "{\"id\":1,\"status\":\"ok\",\"text\":\"one\\ntwo\\n\"}\n");
    assert_eq!(
        router.send(b"{\"id\":\"x\",\"command\":\"version\",\"json\":true}\n"),
        "{\"id\":\"x\",\"status\":\"ok\",\"data\":{\"b\":1,\"a\":2}}\n"
    );
    assert_eq!(router.send(b"{\"command\":\"set\"}\n"), "{\"status\":\"ok\",\"text\":\"\"}\n");
}

#[test]
fn json_socket_speaks_frames_at_once() {
    let mut router = Router::json();
    assert!(router.session.output().is_empty());
    assert_eq!(
        router.send(b"{\"id\":7,\"op\":\"if_dump\",\"request\":{\"name\":\"x\"}}\n"),
        "{\"id\":7,\"status\":\"ok\",\"data\":{\"name\":\"if_dump\"}}\n"
    );
    assert_eq!(router.asked, ["if_dump {\"name\":\"x\"}"]);
    assert_eq!(
        router.send(b"{\"id\":8,\"command\":\"foo\"}\n"),
        "{\"id\":8,\"status\":\"more\",\"text\":\"working\\n\"}\n\
         {\"id\":8,\"status\":\"error\",\"text\":\"unknown input `foo'\",\
         \"error\":{\"code\":-1,\"message\":\"unknown input `foo'\",\"value\":\"foo\"}}\n"
    );
    assert_eq!(
        router.send(b"{\"complete\":\"show i\"}\n"),
        "{\"status\":\"ok\",\"data\":{\"start\":0,\"candidates\":[{\"text\":\"show interface\",\"help\":\"x\"},\
         {\"text\":\"show ip\",\"help\":\"x\"}]}}\n"
    );
    for bad in ["x", "{}", "{\"command\":\"a\",\"op\":\"b\"}", "{\"command\":1}", "{\"unknown\":1}", "[]"] {
        assert!(router.send(format!("{bad}\n").as_bytes()).starts_with("{\"status\":\"error\",\"text\":\""), "{bad}");
    }
    assert_eq!(router.send(b"\n \n{\"cancel\":true}\n"), "");
}

#[test]
fn a_cancel_frame_overtakes_what_waits() {
    let mut session = Session::json();
    session.receive(b"{\"id\":1,\"command\":\"ping\"}\n{\"id\":2,\"command\":\"a\"}\n");
    assert!(matches!(session.next_event(), Some(Event::Request(_))));
    assert_eq!(session.next_event(), None);
    session.receive(b"{\"id\":3,\"command\":\"b\"}\n{\"cancel\":3}\n{\"cancel\":1}\n");
    assert_eq!(session.next_event(), Some(Event::Interrupt));
    session.answer(Ok(Answer::default()));
    assert!(matches!(session.next_event(), Some(Event::Request(Request::Command { line, .. })) if line == "a"));
    session.answer(Ok(Answer::default()));
    assert_eq!(session.next_event(), None);
    let text = String::from_utf8(session.output().to_vec()).unwrap();
    assert!(text.lines().nth(2).unwrap().starts_with("{\"id\":3,\"status\":\"error\",\"text\":\"cancelled\""), "{text}");
}

#[test]
fn another_terminal_gets_banner_prompt_and_echo() {
    let mut router = Router::cli(SessionOptions { banner: "Hello\n".to_owned(), ..SessionOptions::default() });
    assert_eq!(router.send(&terminal_type_answer("xterm")), "Hello\r\nquiver# ");
    assert_eq!(router.send(b"versin"), "versin");
    assert_eq!(router.send(b"\x1b[D"), "\x08");
    assert_eq!(router.send(b"o"), "on\x08");
    assert_eq!(router.send(b"\r\0"), "\r\none\r\ntwo\r\nquiver# ");
    assert_eq!(router.send(b"\x1b[A"), "version");
    assert_eq!(router.send(b"\x03"), "^C\r\nquiver# ");
    assert_eq!(router.send(b"history\n"), "history\r\n    1  version\r\n    2  history\r\nquiver# ");
    assert_eq!(router.send(b"exit\n"), "exit\r\n");
    assert!(router.session.finished());
}

#[test]
fn tab_completes_and_question_mark_lists() {
    let mut router = Router::terminal("xterm");
    assert_eq!(router.send(b"se\t"), "se\x08\x08  \x08\x08set ");
    assert_eq!(router.send(b"\x15s"), "\x08\x08\x08\x08    \x08\x08\x08\x08s");
    assert_eq!(router.send(b"how\t"), "how\x08\x08\x08\x08    \x08\x08\x08\x08show i");
    let list = "\r\n  show interface  x\r\n  show ip         x\r\nquiver# show i";
    assert_eq!(router.send(b"\t"), list);
    assert_eq!(router.send(b"?"), list);
    assert_eq!(router.send(b"x\t"), "x\x07");
    assert_eq!(router.asked.last().unwrap(), "show ix@7");
}

#[test]
fn without_a_terminal_type_the_prompt_comes_anyway() {
    let mut router = Router::cli(SessionOptions::default());
    assert_eq!(router.send(b"version\n"), "");
    router.session.terminal_type_timeout();
    assert_eq!(router.run(), "quiver# one\ntwo\nquiver# ");
    assert_eq!(router.send(&terminal_type_answer("vppctl")), "");
    assert_eq!(router.send(b"set\n"), "quiver# ");
}

#[test]
fn a_pipe_that_ends_is_still_answered() {
    let mut router = Router::cli(SessionOptions::default());
    assert_eq!(router.send(b"version\nset\nversion"), "");
    router.session.end_of_input();
    assert_eq!(router.run(), "one\ntwo\none\ntwo\n");
    assert!(router.session.finished());
}

#[test]
fn pages_wait_for_a_key_when_the_pager_is_on() {
    let mut router = Router::terminal("xterm");
    router.send(&[255, 250, 31, 0, 80, 0, 2, 255, 240]);
    assert_eq!(router.send(b"version\n"), "version\r\none\r\ntwo\r\nquiver# ");
    assert_eq!(router.send(b"set terminal pager on\n"), "set terminal pager on\r\nquiver# ");
    assert_eq!(router.send(b"version\n"), "version\r\none\r\n-- more --");
    assert_eq!(router.send(b" "), "\r          \rtwo\r\nquiver# ");
    assert_eq!(router.send(b"version\nq"), "version\r\none\r\n-- more --\r          \rquiver# ");
    router.send(b"set terminal pager off\n");
    assert!(router.send(b"show term\n").contains("Terminal height: 2\r\n"));
}

#[test]
fn ctrl_c_interrupts_and_other_keys_are_told() {
    let mut session = Session::cli(Rc::default());
    session.receive(&terminal_type_answer("xterm"));
    session.receive(b"ping\n");
    assert!(matches!(session.next_event(), Some(Event::Request(_))));
    session.receive(b"x");
    assert_eq!(session.next_event(), Some(Event::KeyPress));
    session.discard_typed();
    // A window that changes its size is no key, even where a byte of it is 3.
    session.receive(&[255, 250, 31, 0, 80, 0, 3, 255, 240]);
    assert_eq!(session.next_event(), None);
    session.receive(b"\x03");
    assert_eq!(session.next_event(), Some(Event::Interrupt));
    session.receive(&[255, 244]);
    assert_eq!(session.next_event(), Some(Event::Interrupt));
    session.answer(Ok(Answer::default()));
    assert_eq!(session.next_event(), None);
}

#[test]
fn a_line_that_is_too_long_is_skipped_with_an_error() {
    for (mut router, good) in [(Router::terminal("vppctl"), "version\n"), (Router::json(), "{\"command\":\"version\"}\n")] {
        let mut answers = String::new();
        for _ in 0..3 * LONGEST_LINE / 4096 {
            assert!(router.session.wants_input());
            answers += &router.send(&[b'a'; 4096]);
        }
        answers += &router.send(b"\n");
        assert!(answers.contains("line longer than") && answers.len() < 500, "{answers}");
        assert!(router.send(good.as_bytes()).contains("one"));
    }
}

#[test]
fn input_is_not_wanted_without_end_while_a_request_runs() {
    for mut session in [Session::cli(Rc::default()), Session::json()] {
        session.receive(&terminal_type_answer("vppctl"));
        session.receive(b"{\"command\":\"x\"}\n");
        assert!(matches!(session.next_event(), Some(Event::Request(_)) | None));
        let mut taken = 0;
        while session.wants_input() && taken < 20 * LONGEST_LINE {
            session.receive(&b"{\"command\":\"version\"}\n".repeat(100));
            taken += 2200;
        }
        assert!(taken < 4 * LONGEST_LINE, "{taken}");
    }
}

#[test]
fn a_client_that_does_not_read_stops_its_own_commands() {
    let mut session = Session::json();
    session.receive(&b"x\n".repeat(100_000));
    assert_eq!(session.next_event(), None);
    assert!(session.congested());
    let mut answers = 0;
    while !session.output().is_empty() {
        answers += session.output().iter().filter(|byte| **byte == b'\n').count();
        session.wrote(session.output().len());
        assert_eq!(session.next_event(), None);
    }
    assert_eq!(answers, 100_000);
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        Just(terminal_type_answer("vppctl")),
        Just(terminal_type_answer("xterm")),
        Just(terminal_type_answer("quiverctl")),
        Just(b"version\n".to_vec()),
        Just(b"{\"id\":1,\"command\":\"version\"}\n".to_vec()),
        Just(b"{\"cancel\":true}\n".to_vec()),
        Just(b"\x1b[A".to_vec()),
        Just(b"set terminal pager on\n".to_vec()),
        Just(vec![255, 250, 31, 0, 3, 0, 3, 255, 240]),
        Just(b"\t?\x03\r".to_vec()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_taken_the_same_however_they_are_cut(bytes in any_bytes(), cut in 0..60_usize, json: bool) {
        let router = || if json { Router::json() } else { Router::cli(SessionOptions::default()) };
        let (mut whole, mut parts) = (router(), router());
        let expected = whole.send(&bytes);
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut answers = parts.send(first);
        answers += &parts.send(second);
        prop_assert_eq!(answers, expected);
        prop_assert_eq!(parts.asked, whole.asked);
    }

    #[test]
    fn every_session_ends(bytes in any_bytes()) {
        let mut router = Router::cli(SessionOptions::default());
        router.send(&bytes);
        router.session.end_of_input();
        router.run();
        prop_assert!(router.session.finished());
    }
}
