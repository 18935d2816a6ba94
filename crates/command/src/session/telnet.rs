//! The telnet options at the start of a session, and telnet commands among its bytes (RFC 854, 855).

const IAC: u8 = 255;
const DONT: u8 = 254;
const DO: u8 = 253;
const WONT: u8 = 252;
const WILL: u8 = 251;
const SB: u8 = 250;
const INTERRUPT_PROCESS: u8 = 244;
const BREAK: u8 = 243;
const SE: u8 = 240;

const ECHO: u8 = 1;
const SUPPRESS_GO_AHEAD: u8 = 3;
/// RFC 1091.
const TERMINAL_TYPE: u8 = 24;
/// RFC 1073.
const WINDOW_SIZE: u8 = 31;
/// RFC 1184.
const LINE_MODE: u8 = 34;
const IS: u8 = 0;
const SEND: u8 = 1;

/// Sent when a client connects, byte for byte what `vppctl` knows.
#[rustfmt::skip]
pub(super) const GREETING: [u8; 36] = [
    IAC, WONT, LINE_MODE, IAC, DONT, LINE_MODE,
    IAC, WILL, SUPPRESS_GO_AHEAD, IAC, DO, SUPPRESS_GO_AHEAD,
    IAC, WILL, ECHO, IAC, DONT, ECHO,
    IAC, DO, TERMINAL_TYPE, IAC, SB, TERMINAL_TYPE, SEND, IAC, SE,
    IAC, DO, WINDOW_SIZE, IAC, SB, WINDOW_SIZE, SEND, IAC, SE,
];

/// A sub-negotiation longer than this is none that we know; its end is dropped.
const LONGEST_OPTION: usize = 64;

/// What a byte completed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Nothing,
    Byte(u8),
    Interrupt,
    TerminalType(String),
    NoTerminalType,
    WindowSize { width: u16, height: u16 },
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Data,
    Command,
    Option(u8),
    Inside,
    InsideCommand,
}

/// Takes telnet commands out of a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    state: State,
    option: Vec<u8>,
    seen: bool,
    window: Option<(u16, u16)>,
}

impl Decoder {
    /// Whether the client has sent any telnet command.
    pub(super) fn speaks_telnet(&self) -> bool {
        self.seen
    }

    /// Width and height, if the client has told.
    pub(super) fn window_size(&self) -> Option<(u16, u16)> {
        self.window
    }

    /// Takes one byte.
    pub(super) fn push(&mut self, byte: u8) -> Item {
        let (state, item) = match (self.state, byte) {
            (State::Data, IAC) => (State::Command, Item::Nothing),
            (State::Data, byte) => (State::Data, Item::Byte(byte)),
            (State::Command, IAC) => (State::Data, Item::Byte(IAC)),
            (State::Command, SB) => {
                self.option.clear();
                (State::Inside, Item::Nothing)
            }
            (State::Command, WILL..=DONT) => (State::Option(byte), Item::Nothing),
            (State::Command, INTERRUPT_PROCESS | BREAK) => (State::Data, Item::Interrupt),
            (State::Command, _) => (State::Data, Item::Nothing),
            (State::Option(WONT), TERMINAL_TYPE) => (State::Data, Item::NoTerminalType),
            (State::Option(_), _) => (State::Data, Item::Nothing),
            (State::Inside, IAC) => (State::InsideCommand, Item::Nothing),
            (State::Inside, byte) => {
                self.keep(byte);
                (State::Inside, Item::Nothing)
            }
            (State::InsideCommand, SE) => (State::Data, self.option()),
            (State::InsideCommand, byte) => {
                self.keep(byte);
                (State::Inside, Item::Nothing)
            }
        };
        self.seen |= matches!(state, State::Command);
        self.state = state;
        item
    }

    fn keep(&mut self, byte: u8) {
        if self.option.len() < LONGEST_OPTION {
            self.option.push(byte);
        }
    }

    fn option(&mut self) -> Item {
        match *self.option.as_slice() {
            [TERMINAL_TYPE, IS, ref name @ ..] => Item::TerminalType(String::from_utf8_lossy(name).into_owned()),
            [WINDOW_SIZE, w1, w0, h1, h0] => {
                let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
                self.window = Some((width, height));
                Item::WindowSize { width, height }
            }
            _ => Item::Nothing,
        }
    }
}

/// What a client answers to say what it is; for `quiverctl` and tests.
pub fn terminal_type_answer(name: &str) -> Vec<u8> {
    let mut answer = vec![IAC, SB, TERMINAL_TYPE, IS];
    answer.extend(name.bytes().filter(|byte| *byte != IAC));
    answer.extend([IAC, SE]);
    answer
}

/// Takes the telnet commands out of what a server sends; for `quiverctl`.
#[derive(Debug, Default)]
pub struct Filter(Decoder);

impl Filter {
    /// The data byte that `byte` is or completes, if any.
    pub fn push(&mut self, byte: u8) -> Option<u8> {
        match self.0.push(byte) {
            Item::Byte(byte) => Some(byte),
            _ => None,
        }
    }
}
