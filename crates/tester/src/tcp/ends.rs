//! Client and server: who says what when over a connection.
//!
//! ```text
//!   client                       server
//!     │ connect ────────────────► accept
//!     │ request ────────────────► read whole, and compared
//!     │ read whole, compared ◄─── response          as often as the profile says, with a pause of the client's between
//!     │ close ──────────────────► close
//! ```

use std::sync::Arc;

use smoltcp::socket::tcp::{Socket, State};

use super::account::{Account, Failure};
use super::profile::{Message, Profile};
use super::stack::{App, Ending};

/// Bytes of a message that are written.
#[derive(Debug, Default)]
struct Writer(u64);

impl Writer {
    /// Writes what there is room for; whether that was the end of it.
    fn write(&mut self, message: &Message, socket: &mut Socket<'static>) -> bool {
        while self.0 < message.len() && socket.can_send() {
            let written = socket.send(|area| {
                let n = message.fill(self.0, area);
                (n, n)
            });
            match written {
                Ok(n) if n > 0 => self.0 += n as u64,
                _ => break,
            }
        }
        self.0 >= message.len()
    }
}

/// Bytes of a message that are read.
#[derive(Debug, Default)]
struct Reader(u64);

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// More is to come.
    Part,
    /// That was the end of it.
    Whole,
    /// It is not what was sent.
    Wrong,
}

impl Reader {
    /// Reads what has come of a message, and compares it; `bytes` counts what was read.
    fn read(&mut self, message: &Message, socket: &mut Socket<'static>, bytes: &mut u64) -> Read {
        while self.0 < message.len() && socket.can_recv() {
            let left = usize::try_from(message.len() - self.0).unwrap_or(usize::MAX);
            let read = socket.recv(|area| {
                let n = area.len().min(left);
                (n, (n, message.has(self.0, &area[..n])))
            });
            match read {
                Ok((n, true)) if n > 0 => {
                    self.0 += n as u64;
                    *bytes += n as u64;
                }
                Ok((_, false)) => return Read::Wrong,
                _ => break,
            }
        }
        if self.0 < message.len() { Read::Part } else { Read::Whole }
    }
}

/// What a client does.
#[derive(Debug)]
enum Stage {
    Connecting,
    Asking(Writer),
    Reading(Reader),
    /// Until then.
    Thinking(u64),
    Closing,
}

/// Who opens a connection.
#[derive(Debug)]
pub struct Client {
    profile: Arc<Profile>,
    kind: usize,
    stage: Stage,
    /// When the connection was opened, then when its last request began.
    since: u64,
    /// Exchanges that are done.
    done: u32,
    failure: Option<Failure>,
}

impl Client {
    /// Of a kind of connections that is opened now.
    pub fn new(profile: Arc<Profile>, kind: usize, now: u64) -> Self {
        Self { profile, kind, stage: Stage::Connecting, since: now, done: 0, failure: None }
    }

    fn give_up(&mut self, why: Failure, socket: &mut Socket<'static>) -> Option<u64> {
        self.failure.get_or_insert(why);
        socket.abort();
        None
    }
}

impl App for Client {
    type Account = Account;

    fn turn(&mut self, socket: &mut Socket<'static>, now: u64, account: &mut Account) -> Option<u64> {
        let profile = self.profile.clone();
        let template = &profile.connections[self.kind];
        let account = account.of(self.kind);
        while self.failure.is_none() {
            match &mut self.stage {
                Stage::Connecting => {
                    if !socket.may_send() {
                        return None;
                    }
                    account.counts.established += 1;
                    account.connect.add(now.saturating_sub(self.since));
                    self.since = now;
                    self.stage = Stage::Asking(Writer::default());
                }
                Stage::Asking(writer) => {
                    if !writer.write(&template.request, socket) {
                        return None;
                    }
                    self.stage = Stage::Reading(Reader::default());
                }
                Stage::Reading(reader) => match reader.read(&template.response, socket, &mut account.counts.response_bytes) {
                    // The other side has closed: no server of ours does.
                    Read::Part if socket.state() == State::CloseWait => return self.give_up(Failure::Reset, socket),
                    Read::Part => return None,
                    Read::Wrong => return self.give_up(Failure::Corrupted, socket),
                    Read::Whole => {
                        account.counts.exchanges += 1;
                        account.exchange.add(now.saturating_sub(self.since));
                        self.done += 1;
                        if self.done == template.exchanges {
                            socket.close();
                            self.stage = Stage::Closing;
                        } else {
                            self.stage = Stage::Thinking(now + template.think.0);
                        }
                    }
                },
                Stage::Thinking(until) if now < *until => return Some(*until),
                Stage::Thinking(_) => {
                    self.since = now;
                    self.stage = Stage::Asking(Writer::default());
                }
                // Nothing is to come any more.
                Stage::Closing if socket.can_recv() => return self.give_up(Failure::Corrupted, socket),
                Stage::Closing => return None,
            }
        }
        None
    }

    fn ended(&mut self, how: Ending, state: State, _now: u64, account: &mut Account) {
        // Whoever closes first waits for copies in the end: without that, the other side has not closed.
        let completed = matches!(self.stage, Stage::Closing) && state == State::TimeWait;
        match (self.failure, how) {
            (Some(failure), _) => account.failed(self.kind, failure),
            (None, Ending::Reset) => account.failed(self.kind, Failure::Reset),
            (None, Ending::Closed) if completed => account.of(self.kind).counts.completed += 1,
            (None, Ending::Closed) => account.failed(self.kind, Failure::TimedOut),
        }
    }
}

/// Who answers. What fails is the client's to say, but for a request that is not what was sent: its answer is a reset.
#[derive(Debug)]
pub struct Server {
    profile: Arc<Profile>,
    kind: usize,
    stage: Serving,
}

/// What a server does.
#[derive(Debug)]
enum Serving {
    Reading(Reader),
    Answering(Writer),
    Closing,
}

impl Server {
    /// Of connections of a kind.
    pub fn new(profile: Arc<Profile>, kind: usize) -> Self {
        Self { profile, kind, stage: Serving::Reading(Reader::default()) }
    }
}

impl App for Server {
    type Account = Account;

    fn turn(&mut self, socket: &mut Socket<'static>, _now: u64, account: &mut Account) -> Option<u64> {
        let profile = self.profile.clone();
        let template = &profile.connections[self.kind];
        let account = account.of(self.kind);
        loop {
            match &mut self.stage {
                Serving::Reading(reader) => match reader.read(&template.request, socket, &mut account.counts.request_bytes) {
                    Read::Whole => self.stage = Serving::Answering(Writer::default()),
                    Read::Wrong => {
                        account.refused += 1;
                        socket.abort();
                        return None;
                    }
                    // The client has closed.
                    Read::Part if socket.state() == State::CloseWait => {
                        socket.close();
                        self.stage = Serving::Closing;
                    }
                    Read::Part => return None,
                },
                Serving::Answering(writer) => {
                    if !writer.write(&template.response, socket) {
                        return None;
                    }
                    self.stage = Serving::Reading(Reader::default());
                }
                Serving::Closing => return None,
            }
        }
    }

    fn ended(&mut self, _how: Ending, _state: State, _now: u64, _account: &mut Account) {}
}
