//! Sessions of operators and programs, as state machines: bytes in, events and bytes out.
//!
//! Whoever owns the socket reads it and calls [`Session::receive`], then takes events until there are no
//! more; it runs what they ask for, hands the result to [`Session::answer`], takes events again (the next
//! command may be waiting), and writes [`Session::output`]. One request is given out at a time, so
//! answers are in order however many commands were sent at once.
//!
//! ```text
//!            telnet options            TTYPE answer
//!  connect ───────────────► negotiating ─┬─ "vppctl" ────► lines: CR LF, one NUL after each command
//!                                        ├─ "quiverctl" ─► frames: JSON lines (as on json.sock)
//!                                        ├─ another name ► interactive: prompt, echo, editing, completion
//!                                        └─ none in 1 s ─► lines with a prompt, no echo
//! ```
//!
//! Memory is bounded: input stops being wanted ([`Session::wants_input`]) when enough is waiting, a
//! line that is too long is skipped with an error, and nothing more is done while the peer does not
//! read ([`Session::congested`]).

mod editor;
pub mod frames;
mod interactive;
mod keys;
mod lines;
mod telnet;
mod terminal;
#[cfg(test)]
mod tests;

pub use terminal::declare_commands;

use crate::{
    grammar::Completion,
    operation::{Answer, OpError, View},
};
use interactive::Interactive;
use lines::Lines;
use std::{collections::VecDeque, rc::Rc, time::Duration};

/// How long a client may take to tell its terminal type before it gets a prompt.
pub const TERMINAL_TYPE_WAIT: Duration = Duration::from_secs(1);

/// Longest line of a non-interactive client. A route with many paths or a packet in hexadecimal is long.
pub const LONGEST_LINE: usize = 1 << 20;

/// Input and output beyond these are not taken or made until there is room again.
const MUCH_INPUT: usize = LONGEST_LINE + (64 << 10);
const MUCH_OUTPUT: usize = 256 << 10;

/// What an operator's session looks like; the `unix { cli-… }` settings.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Shown once to interactive clients; empty for none. Lines end in `\n`.
    pub banner: String,
    /// The prompt.
    pub prompt: String,
    /// How many lines the history holds; 0 for no history.
    pub history_limit: usize,
    /// Whether long output stops at each page.
    pub pager: bool,
    /// Output of more lines than this is not paged.
    pub pager_limit: usize,
    /// Whether interactive clients edit their lines themselves.
    pub line_mode: bool,
    /// Whether colours may be used at all.
    pub ansi: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            banner: String::new(),
            prompt: "quiver# ".to_owned(),
            history_limit: 50,
            pager: false,
            pager_limit: 100_000,
            line_mode: false,
            ansi: true,
        }
    }
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// A command line; reply with [`Session::answer`].
    Command {
        /// The line.
        line: String,
        /// How to render the reply.
        view: View,
    },
    /// An operation by name; reply with [`Session::answer`].
    Operation {
        /// The operation.
        name: String,
        /// Its request.
        request: serde_json::Value,
        /// How to render the reply.
        view: View,
    },
    /// What may stand at a place of a line; reply with [`Session::completed`].
    Complete {
        /// The line.
        line: String,
        /// Byte offset of the cursor.
        cursor: usize,
    },
}

/// What a session tells its owner.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// To be answered; no other request is given before.
    Request(Request),
    /// The running request is to be cancelled (Ctrl-C, a cancel frame); it is still to be answered.
    Interrupt,
    /// A key was pressed while a request runs: reason to cancel for what only watches, such as `ping`.
    /// Call [`Session::discard_typed`] when the key was used up by that.
    KeyPress,
}

/// One client on `cli.sock` or `json.sock`.
#[derive(Debug)]
pub struct Session {
    options: Rc<SessionOptions>,
    telnet: Option<telnet::Decoder>,
    mode: Mode,
    /// Bytes without telnet commands that no mode has taken yet.
    input: VecDeque<u8>,
    output: Vec<u8>,
    /// How much of the output is written; it is thrown away now and then, since moving the rest costs.
    written: usize,
    events: VecDeque<Event>,
    busy: bool,
    input_ended: bool,
    closing: bool,
}

#[derive(Debug)]
enum Mode {
    Negotiating,
    Lines(Lines),
    Frames(frames::Server),
    Interactive(Box<Interactive>),
}

impl Session {
    /// A client of `cli.sock`, just connected.
    pub fn cli(options: Rc<SessionOptions>) -> Self {
        let mut session = Self::new(options, Mode::Negotiating);
        session.telnet = Some(telnet::Decoder::default());
        session.output.extend_from_slice(&telnet::GREETING);
        session
    }

    /// A client of `json.sock`, just connected.
    pub fn json() -> Self {
        Self::new(Rc::default(), Mode::Frames(frames::Server::default()))
    }

    fn new(options: Rc<SessionOptions>, mode: Mode) -> Self {
        Self {
            options,
            telnet: None,
            mode,
            input: VecDeque::new(),
            output: Vec::new(),
            written: 0,
            events: VecDeque::new(),
            busy: false,
            input_ended: false,
            closing: false,
        }
    }

    /// Whether there is room for more input. While there is not, leave it in the socket.
    pub fn wants_input(&self) -> bool {
        !self.input_ended && !self.closing && self.input.len() < MUCH_INPUT
    }

    /// Takes bytes that the client sent.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.closing {
            return;
        }
        let before = self.input.len();
        match &mut self.telnet {
            None => self.input.extend(bytes),
            Some(_) => bytes.iter().for_each(|byte| self.receive_byte(*byte)),
        }
        let typed = self.input.len() > before;
        match &mut self.mode {
            Mode::Frames(server) => server.look_ahead(&mut self.input, self.busy, &mut self.events),
            Mode::Interactive(_) if self.busy && typed => {
                if self.input.range(before..).any(|byte| *byte == keys::CTRL_C) {
                    self.interrupt();
                } else {
                    self.events.push_back(Event::KeyPress);
                }
            }
            _ => {}
        }
    }

    fn receive_byte(&mut self, byte: u8) {
        let Some(telnet) = &mut self.telnet else { return };
        match telnet.push(byte) {
            telnet::Item::Nothing => {}
            telnet::Item::Byte(byte) => self.input.push_back(byte),
            telnet::Item::Interrupt => self.interrupt(),
            telnet::Item::TerminalType(name) => self.terminal_type(&name),
            telnet::Item::NoTerminalType => self.terminal_type(""),
            telnet::Item::WindowSize { width, height } => {
                if let Mode::Interactive(interactive) = &mut self.mode {
                    interactive.resize(width, height);
                }
            }
        }
    }

    fn interrupt(&mut self) {
        if self.busy {
            self.input.clear();
            self.events.push_back(Event::Interrupt);
        }
    }

    fn terminal_type(&mut self, name: &str) {
        if !matches!(self.mode, Mode::Negotiating) {
            return;
        }
        self.mode = match name {
            "vppctl" => Mode::Lines(Lines::for_vppctl()),
            "quiverctl" => Mode::Frames(frames::Server::default()),
            _ if self.options.line_mode => Mode::Lines(Lines::for_people(&self.options, true, &mut self.output)),
            _ => {
                let size = self.telnet.as_ref().and_then(telnet::Decoder::window_size);
                Mode::Interactive(Box::new(Interactive::new(&self.options, name, size, &mut self.output)))
            }
        };
    }

    /// Whether the client still has to say what it is; then [`Session::terminal_type_timeout`] is to be
    /// called [`TERMINAL_TYPE_WAIT`] after it connected.
    pub fn awaits_terminal_type(&self) -> bool {
        matches!(self.mode, Mode::Negotiating)
    }

    /// The client did not tell its terminal type in time: it gets a prompt anyway.
    pub fn terminal_type_timeout(&mut self) {
        if self.awaits_terminal_type() {
            let crlf = self.telnet.as_ref().is_some_and(telnet::Decoder::speaks_telnet);
            self.mode = Mode::Lines(Lines::for_people(&self.options, crlf, &mut self.output));
        }
    }

    /// The client will send nothing more. What it sent is still run and answered.
    pub fn end_of_input(&mut self) {
        if self.awaits_terminal_type() {
            self.mode = Mode::Lines(Lines::for_pipe());
        }
        if matches!(self.mode, Mode::Interactive(_)) {
            self.interrupt();
            self.closing = true;
        }
        self.input_ended = true;
    }

    /// What is to be done next. Call it until it gives nothing: after each [`Session::receive`],
    /// [`Session::answer`], [`Session::completed`], [`Session::wrote`], timeout and end of input.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.busy || self.closing || self.congested() {
            return None;
        }
        let request = match &mut self.mode {
            Mode::Negotiating => return None,
            Mode::Lines(lines) => lines.advance(&mut self.input, self.input_ended, &mut self.output),
            Mode::Frames(server) => server.advance(&mut self.input, self.input_ended, &mut self.output),
            Mode::Interactive(interactive) => interactive.advance(&mut self.input, &mut self.output),
        };
        match request {
            Advance::Request(request) => {
                self.busy = true;
                Some(Event::Request(request))
            }
            Advance::Close => {
                self.closing = true;
                None
            }
            Advance::Wait => {
                self.closing |= self.input_ended;
                None
            }
            Advance::Congested => None,
        }
    }

    /// Progress text of the running request.
    pub fn print(&mut self, text: &str) {
        if !self.busy || text.is_empty() {
            return;
        }
        match &mut self.mode {
            Mode::Negotiating => {}
            Mode::Lines(lines) => lines.write(text, &mut self.output),
            Mode::Frames(server) => server.print(text, &mut self.output),
            Mode::Interactive(interactive) => interactive.print(text, &mut self.output),
        }
    }

    /// Whether changes are collected from now on: the prompt says so, and each frame.
    pub fn set_candidate(&mut self, candidate: bool) {
        match &mut self.mode {
            Mode::Negotiating => {}
            Mode::Lines(lines) => lines.set_prompt(prompt_in(&self.options.prompt, candidate)),
            Mode::Frames(server) => server.set_candidate(candidate),
            Mode::Interactive(interactive) => interactive.set_prompt(prompt_in(&self.options.prompt, candidate)),
        }
    }

    /// The result of the running request.
    pub fn answer(&mut self, result: Result<Answer, OpError>) {
        if !std::mem::take(&mut self.busy) {
            return;
        }
        // An interrupt that was not taken concerned this request only.
        self.events.retain(|event| matches!(event, Event::Request(_)));
        match &mut self.mode {
            Mode::Negotiating => {}
            Mode::Lines(lines) => lines.answer(result, &mut self.output),
            Mode::Frames(server) => server.answer(result, &mut self.output),
            Mode::Interactive(interactive) => interactive.answer(result, &mut self.output),
        }
    }

    /// The result of a [`Request::Complete`].
    pub fn completed(&mut self, completion: Completion) {
        match &mut self.mode {
            Mode::Interactive(interactive) if self.busy => {
                self.busy = false;
                interactive.completed(&completion, &mut self.output);
            }
            _ => {
                let json = serde_json::to_string(&completion).ok();
                self.answer(Ok(Answer { json, ..Answer::default() }));
            }
        }
    }

    /// Forgets what was typed while a request ran.
    pub fn discard_typed(&mut self) {
        if matches!(self.mode, Mode::Interactive(_)) {
            self.input.clear();
        }
    }

    /// Says something that nobody asked for: why the session ends now.
    pub fn farewell(&mut self, text: &str) {
        match &self.mode {
            Mode::Frames(_) => frames::farewell(text, &mut self.output),
            Mode::Negotiating | Mode::Lines(_) | Mode::Interactive(_) => {
                push_text(&format!("\n{text}\n"), true, &mut self.output);
            }
        }
    }

    /// Whether a request was given out and not yet answered.
    pub fn busy(&self) -> bool {
        self.busy
    }

    /// Whether so much output waits that no more should be made: pause the running job.
    pub fn congested(&self) -> bool {
        self.output().len() >= MUCH_OUTPUT
    }

    /// What is to be written to the client.
    pub fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// The first `bytes` of [`Session::output`] have been written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written = (self.written + bytes).min(self.output.len());
        if self.written == self.output.len() {
            // A large answer must not keep its memory as long as the session lives.
            self.output = Vec::new();
            self.written = 0;
        } else if self.written > self.output.len() / 2 {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Whether the session is over and all is written: close the connection.
    pub fn finished(&self) -> bool {
        self.closing && self.output().is_empty() && !self.busy
    }
}

/// A prompt that says whether changes are collected: `quiver(candidate)# `.
pub fn prompt_in(prompt: &str, candidate: bool) -> String {
    let sign = prompt.trim_end().rfind(['#', '>', '$', '%', ':']).filter(|_| candidate);
    match sign {
        _ if !candidate || prompt.is_empty() => prompt.to_owned(),
        Some(at) => format!("{}(candidate){}", &prompt[..at], &prompt[at..]),
        None => format!("{prompt}(candidate) "),
    }
}

/// What a mode makes of its input.
#[derive(Debug)]
enum Advance {
    Request(Request),
    /// Nothing until more input comes.
    Wait,
    /// There is more input, but the client must read first.
    Congested,
    Close,
}

/// Appends text with `\n` as CR LF where wanted, and without NUL, which has a meaning on the line.
fn push_text(text: &str, crlf: bool, output: &mut Vec<u8>) {
    let mut last = 0;
    for byte in text.bytes() {
        match byte {
            0 => continue,
            b'\n' if crlf && last != b'\r' => output.extend_from_slice(b"\r\n"),
            _ => output.push(byte),
        }
        last = byte;
    }
}

/// What a person reads as the outcome: the text, or the error on a line.
fn result_text(result: Result<Answer, OpError>) -> String {
    match result {
        Ok(answer) => answer.text,
        Err(error) => format!("{error}\n"),
    }
}
