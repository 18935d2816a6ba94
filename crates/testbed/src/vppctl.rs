//! A client of VPP's command socket: telnet options first, then line by line in `vppctl`'s non-interactive mode.
//!
//! The server asks for the terminal type; the name `vppctl` switches off banner, prompt and echo. From then on one NUL byte
//! ends the answer to each line. The protocol does not tell success from failure: it carries only text.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::sys::with_context;

const IAC: u8 = 255;
const SUB_BEGIN: u8 = 250;
const SUB_END: u8 = 240;
const TERMINAL_TYPE: u8 = 24;
const SEND: u8 = 1;

/// One session.
#[derive(Debug)]
pub struct Vppctl {
    stream: UnixStream,
    telnet: Telnet,
}

impl Vppctl {
    /// Connects and answers the terminal-type question before it comes: a router waits a second for the answer, and this
    /// process may be kept waiting for longer.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket).map_err(|e| with_context(socket.display(), e))?;
        stream.write_all(&[&[IAC, SUB_BEGIN, TERMINAL_TYPE, 0], &b"vppctl"[..], &[IAC, SUB_END]].concat())?;
        let mut session = Self { stream, telnet: Telnet::default() };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !session.telnet.asked {
            session.fill(deadline)?;
        }
        Ok(session)
    }

    /// Sends one line and returns its answer with `\n` line ends.
    pub fn command(&mut self, line: &str, bound: Duration) -> io::Result<String> {
        let deadline = Instant::now() + bound;
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        loop {
            if let Some(end) = self.telnet.text.iter().position(|&byte| byte == 0) {
                let answer: Vec<u8> = self.telnet.text.drain(..=end).take(end).collect();
                return Ok(String::from_utf8_lossy(&answer).replace("\r\n", "\n"));
            }
            self.fill(deadline).map_err(|e| with_context(line, e))?;
        }
    }

    fn fill(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                chunk[..count].iter().for_each(|&byte| self.telnet.take(byte));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Splits a telnet stream into text and options, a byte at a time.
#[derive(Debug, Default)]
struct Telnet {
    text: Vec<u8>,
    state: State,
    sub: Vec<u8>,
    asked: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Text,
    Command,
    Option,
    Sub,
    SubCommand,
}

impl Telnet {
    fn take(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Text, IAC) => State::Command,
            (State::Text, _) | (State::Command, IAC) => {
                self.text.push(byte);
                State::Text
            }
            (State::Command, SUB_BEGIN) => {
                self.sub.clear();
                State::Sub
            }
            // WILL, WONT, DO, DONT carry one more byte; other commands none.
            (State::Command, 251..=254) => State::Option,
            (State::Command | State::Option, _) => State::Text,
            (State::Sub, IAC) => State::SubCommand,
            (State::Sub, _) | (State::SubCommand, IAC) => {
                self.sub.push(byte);
                State::Sub
            }
            (State::SubCommand, _) => {
                self.asked |= self.sub == [TERMINAL_TYPE, SEND];
                State::Text
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_of_vpp_holds_the_question_and_no_text() {
        let greeting = b"\xff\xfc\x22\xff\xfe\x22\xff\xfb\x03\xff\xfd\x03\xff\xfb\x01\xff\xfe\x01\xff\xfd\x18\
            \xff\xfa\x18\x01\xff\xf0\xff\xfd\x1f\xff\xfa\x1f\x01\xff\xf0";
        let mut telnet = Telnet::default();
        for (at, &byte) in greeting.iter().enumerate() {
            assert_eq!(telnet.asked, at >= 27, "after {at} bytes");
            telnet.take(byte);
        }
        assert!(telnet.asked && telnet.text.is_empty());
    }

    #[test]
    fn a_doubled_iac_is_a_text_byte() {
        let mut telnet = Telnet::default();
        b"a\xff\xffb\xff\xf1c".iter().for_each(|&byte| telnet.take(byte));
        assert_eq!(telnet.text, b"a\xffbc");
    }
}
