//! A client of the router's binary API that only reads: interfaces and their events.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use quiver_api::defs::{
    ControlPing, ControlPingReply, InterfaceIndex, SockclntCreateReply, SwInterfaceDetails, SwInterfaceDump, SwInterfaceEvent,
    WantInterfaceEvents, WantInterfaceEventsReply,
};
use quiver_api::frame::{self, Front};
use quiver_api::{Catalog, Entry, Message, Reader, Wire};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes before the fields of an answer: its number and context.
const ANSWER: usize = 6;

/// Why the router does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens, or the connection ended.
    #[error("{0}")]
    Gone(#[from] io::Error),
    /// Not what a router says.
    #[error("the answer cannot be understood: {0}")]
    Malformed(&'static str),
    /// The router refuses this client.
    #[error("the router refuses: code {0}")]
    Refused(i32),
}

/// A connection to a router.
pub struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    numbers: Numbers,
    has_events: bool,
}

/// Numbers of messages, which each router chooses.
#[derive(Default)]
struct Numbers {
    dump: u16,
    details: u16,
    ping: u16,
    ping_reply: u16,
    want: u16,
    want_reply: u16,
    event: u16,
}

impl Client {
    /// Connects, and asks for events of interfaces.
    ///
    /// # Errors
    /// Nobody listens there, or it is no router.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, input: Vec::new(), numbers: Numbers::default(), has_events: false };
        let mut name = [0; 64];
        name[..11].copy_from_slice(b"quiver-snmp");
        // Number, context, name: the one message whose number is known beforehand.
        client.send(|out| out.extend(frame::CREATE.to_be_bytes().iter().chain(&[0; 4]).chain(&name)))?;
        let reply = client.receive()?;
        let reply: SockclntCreateReply = fields(&reply, 10)?;
        if reply.response != 0 {
            return Err(Error::Refused(reply.response));
        }
        let (catalog, all) = (Catalog::default(), &mut client.numbers);
        for (info, number) in [
            (SwInterfaceDump::INFO, &mut all.dump),
            (SwInterfaceDetails::INFO, &mut all.details),
            (ControlPing::INFO, &mut all.ping),
            (ControlPingReply::INFO, &mut all.ping_reply),
            (WantInterfaceEvents::INFO, &mut all.want),
            (WantInterfaceEventsReply::INFO, &mut all.want_reply),
            (SwInterfaceEvent::INFO, &mut all.event),
        ] {
            // By name and CRC: its fields are as they are declared here, or there is no such message.
            let name = catalog.named(info.name).map(Entry::table_name).unwrap_or_default();
            *number = reply.message_table.iter().find(|row| row.name.0 == name).map_or(0, |row| row.index);
        }
        let all = &client.numbers;
        if [all.dump, all.details, all.ping, all.ping_reply, all.want, all.want_reply, all.event].contains(&0) {
            return Err(Error::Malformed("it has no interfaces that this program understands"));
        }
        let number = all.want;
        client.request(number, &WantInterfaceEvents { enable_disable: 1, pid: std::process::id() })?;
        loop {
            let message = client.receive()?;
            if number_of(&message) == client.numbers.want_reply {
                let reply: WantInterfaceEventsReply = fields(&message, ANSWER)?;
                return if reply.retval == 0 { Ok(client) } else { Err(Error::Refused(reply.retval)) };
            }
            client.keep(&message);
        }
    }

    /// What becomes readable when there is an event.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// All interfaces.
    ///
    /// # Errors
    /// The router is gone or does not answer.
    pub fn interfaces(&mut self) -> Result<Vec<SwInterfaceDetails>, Error> {
        let (dump, ping) = (self.numbers.dump, self.numbers.ping);
        self.request(dump, &SwInterfaceDump { sw_if_index: InterfaceIndex(u32::MAX), ..SwInterfaceDump::default() })?;
        self.request(ping, &ControlPing::default())?;
        let mut all = Vec::new();
        loop {
            let message = self.receive()?;
            match number_of(&message) {
                number if number == self.numbers.details => all.push(fields(&message, ANSWER)?),
                number if number == self.numbers.ping_reply => return Ok(all),
                _ => self.keep(&message),
            }
        }
    }

    /// Takes the events that have come, after [`as_fd`](Self::as_fd) has become readable; says whether there were any. What they say is
    /// not kept: all is read anew.
    ///
    /// # Errors
    /// The router is gone.
    pub fn take_events(&mut self) -> Result<bool, Error> {
        self.fill()?;
        while let Some(message) = self.whole()? {
            self.keep(&message);
        }
        Ok(std::mem::take(&mut self.has_events))
    }

    /// Notes an event that came while something else was waited for: the answer to that may be older or newer.
    fn keep(&mut self, message: &[u8]) {
        self.has_events |= number_of(message) == self.numbers.event;
    }

    /// Whether there was an event in the meantime.
    pub fn has_events(&mut self) -> bool {
        std::mem::take(&mut self.has_events)
    }

    fn request(&mut self, number: u16, message: &impl Message) -> Result<(), Error> {
        self.send(|out| {
            // Number, client, context.
            out.extend(number.to_be_bytes().iter().chain(&[0; 8]));
            message.write(out);
        })
    }

    fn send(&mut self, message: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        let mut out = Vec::new();
        frame::push(&mut out, message);
        Ok(self.stream.write_all(&out)?)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(message);
            }
            self.fill()?;
        }
    }

    fn whole(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match frame::front(&self.input) {
            Front::Message(message, used) => {
                let message = message.to_vec();
                self.input.drain(..used);
                Ok(Some(message))
            }
            Front::Partial(_) => Ok(None),
            Front::TooLong(_) => Err(Error::Malformed("a message is too long")),
        }
    }

    fn fill(&mut self) -> Result<(), Error> {
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(())
            }
        }
    }
}

fn number_of(message: &[u8]) -> u16 {
    u16::get(&mut Reader::new(message)).unwrap_or(0)
}

fn fields<M: Message>(message: &[u8], before: usize) -> Result<M, Error> {
    let bytes = message.get(before..).ok_or(Error::Malformed("a message is too short"))?;
    M::read(&mut Reader::new(bytes)).map_err(|_| Error::Malformed("a message is too short"))
}
