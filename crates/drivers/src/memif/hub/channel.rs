//! Control connections: made, listened to, ended.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{CHANNEL, Channel, Hub};
use crate::memif::background::{Given, Heard};
use crate::memif::connection::Rings;
use crate::memif::inherit::Connection;
use crate::memif::message::{Init, Message};
use crate::memif::session::{Means, Session, Step};
use crate::memif::{Key, Role, socket};

impl Hub {
    pub(in crate::memif) fn channel_fd(&self, token: u64) -> Option<i32> {
        self.channels.get(&token).map(|c| c.fd.as_raw_fd())
    }

    /// The file of a channel on which packets flow.
    pub(in crate::memif) fn running_channel(&self, token: u64) -> Option<&OwnedFd> {
        self.channels.get(&token).filter(|c| c.session.is_running()).map(|c| &*c.fd)
    }

    /// Goes on with a connection of the process before this one, when its memory is ready.
    pub(super) fn adopt(&mut self, key: Key, connection: Connection) {
        let token = self.token();
        let servers = self.servers();
        let Some(socket) = self.sockets.get(&key.socket) else { return };
        let limits = socket.config.limits.shared_by(servers);
        let (fd, remote, name, memory) = connection.split();
        let session = Session::inherited(key, remote, name);
        let background = socket.background.clone();
        socket.background.prepare(token, Box::new(move || memory.map(limits, &background)));
        let channel = Channel { fd: Arc::new(fd), receiving: None, held: true, socket: key.socket, session, since: Instant::now() };
        self.channels.insert(token, channel);
        if let Some(interface) = self.interfaces.get_mut(&key) {
            interface.channel = Some(token);
        }
    }

    pub(super) fn begin(&mut self, key: Key) {
        let Some(interface) = self.interfaces.get_mut(&key) else { return };
        if !std::mem::take(&mut interface.held) {
            return;
        }
        let (up, channel) = (interface.up, interface.channel);
        if let Some(socket) = self.sockets.get_mut(&key.socket)
            && std::mem::take(&mut socket.shared)
            && let Some((token, listener)) = &socket.listener
            && let Err(error) = epoll::add(&self.epoll, listener, EventData::new_u64(*token), EventFlags::IN)
        {
            // The next tick tries again.
            socket.paused = Some(error.to_string());
        }
        if let Some((token, channel)) = channel.and_then(|token| Some((token, self.channels.get_mut(&token)?)))
            && std::mem::take(&mut channel.held)
        {
            let watched = epoll::add(&self.epoll, &*channel.fd, EventData::new_u64(token), CHANNEL);
            let end = if up { watched.err().map(|error| error.to_string()) } else { Some("interface is down".to_owned()) };
            if let Some(reason) = end {
                self.end(token, Some(&reason));
            }
        }
        self.dial(key);
    }

    pub(super) fn add_channel(&mut self, fd: OwnedFd, socket: u32, session: Session) -> Option<u64> {
        let token = self.token();
        let fd = Arc::new(fd);
        if epoll::add(&self.epoll, &*fd, EventData::new_u64(token), CHANNEL).is_err() {
            self.sockets.get(&socket)?.background.discard(fd);
            return None;
        }
        self.channels.insert(token, Channel { fd, receiving: None, held: false, socket, session, since: Instant::now() });
        Some(token)
    }

    /// Client: tries to connect.
    pub(super) fn dial(&mut self, key: Key) {
        let Some(interface) = self.interfaces.get(&key) else { return };
        if interface.config.role != Role::Client || !interface.up || interface.held || interface.channel.is_some() {
            return;
        }
        let Some(socket) = self.sockets.get(&key.socket) else { return };
        let dialled = socket::dial(&socket.config.path);
        let channel = match dialled {
            Ok(fd) => self.add_channel(fd, key.socket, Session::client(key)),
            Err(error) => {
                self.note(key, &format!("cannot connect: {error}"));
                None
            }
        };
        if let Some(interface) = self.interfaces.get_mut(&key) {
            interface.channel = channel;
        }
    }

    pub(super) fn note(&mut self, key: Key, reason: &str) {
        if let Some(interface) = self.interfaces.get_mut(&key) {
            reason.clone_into(&mut interface.reason);
        }
    }

    /// Has the message received that waits on a control connection.
    pub(super) fn receive(&mut self, token: u64, hung_up: bool) {
        let Some(channel) = self.channels.get_mut(&token) else { return };
        let Some(socket) = self.sockets.get(&channel.socket) else { return };
        if hung_up && socket.background.is_saturated() {
            // Nobody may have time for its last words.
            self.note_end(token, "peer is gone");
            return self.end(token, None);
        }
        channel.receiving = Some(Instant::now());
        socket.background.receive(token, channel.fd.clone());
    }

    /// Takes the messages that were received.
    pub(super) fn hear(&mut self) {
        let all: Vec<_> = self.sockets.values().flat_map(|s| s.background.heard()).collect();
        for (token, heard) in all {
            // Not where the connection has ended meanwhile.
            let Some(channel) = self.channels.get_mut(&token) else { continue };
            match heard {
                // No message was received: one may just be.
                Heard::Prepared(result) => {
                    let step = result.map(|rings| channel.session.prepared(*rings)).map_err(str::to_owned);
                    self.follow(token, step);
                    continue;
                }
                Heard::Bytes(bytes, given) => self.message(token, &bytes, given),
                Heard::Nothing => {}
                Heard::End => {
                    self.note_end(token, "peer is gone");
                    self.end(token, None);
                }
            }
            if let Some(channel) = self.channels.get_mut(&token) {
                channel.receiving = None;
                let _ = epoll::modify(&self.epoll, &*channel.fd, EventData::new_u64(token), CHANNEL);
            }
        }
    }

    pub(super) fn message(&mut self, token: u64, bytes: &[u8], given: Option<Given>) {
        let servers = self.servers();
        let Some(channel) = self.channels.get_mut(&token) else { return };
        let Some(socket) = self.sockets.get(&channel.socket) else { return };
        let config = channel.session.key.and_then(|k| self.interfaces.get(&k)).map(|i| &i.config);
        let means = Means {
            config,
            lending: socket.lending.as_ref().filter(|_| config.is_some_and(|c| c.zero_copy)),
            limits: socket.config.limits.shared_by(servers),
            background: &socket.background,
        };
        let step = match Message::parse(bytes) {
            Ok(message) => channel.session.on(message, given, &means),
            Err(error) => Err(error.to_string()),
        };
        self.follow(token, step);
    }

    /// Does what a session asks for, or ends it.
    pub(super) fn follow(&mut self, token: u64, step: Result<Step, String>) {
        if let Err(reason) = step.and_then(|step| self.do_step(token, step)) {
            self.note_end(token, &reason);
            self.end(token, Some(&reason));
        }
    }

    /// Does what a session asks for. `Err`: what to tell the peer before the end.
    pub(super) fn do_step(&mut self, token: u64, step: Step) -> Result<(), String> {
        match step {
            Step::Wait => Ok(()),
            Step::Send(message, fd) => self.send(token, &message, fd.as_ref().map(OwnedFd::as_fd)),
            Step::Wants(init) => {
                let answer = self.give_interface(token, &init)?;
                self.send(token, &answer, None)
            }
            Step::Prepare(work) => {
                let background = self.channels.get(&token).and_then(|c| self.sockets.get(&c.socket)).map(|s| &s.background);
                if let Some(background) = background {
                    background.prepare(token, work);
                }
                Ok(())
            }
            Step::Stands(rings, remote) => {
                let key = self.channels.get(&token).and_then(|c| c.session.key).ok_or("no interface")?;
                self.connected(token, key, rings, remote);
                self.send(token, &Message::Connected(key.to_string()), None)
            }
            Step::Runs(rings, remote) => {
                let key = self.channels.get(&token).and_then(|c| c.session.key).ok_or("no interface")?;
                self.connected(token, key, rings, remote);
                Ok(())
            }
            Step::Ended(reason) => {
                self.note_end(token, &format!("peer says: {reason}"));
                self.end(token, None);
                Ok(())
            }
        }
    }

    pub(super) fn send(&mut self, token: u64, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let Some(channel) = self.channels.get(&token) else { return Ok(()) };
        socket::send(&channel.fd, message, fd).map_err(|error| format!("cannot send: {error}"))
    }

    /// Server: finds the interface that a client wants.
    pub(super) fn give_interface(&mut self, token: u64, init: &Init) -> Result<Message, String> {
        let Some(channel) = self.channels.get_mut(&token) else { return Err("gone".into()) };
        let key = Key { socket: channel.socket, id: init.id };
        let interface = self.interfaces.get_mut(&key).ok_or("unknown interface id")?;
        if !interface.up {
            return Err("interface is down".into());
        }
        if interface.channel.is_some() {
            return Err("interface is connected already".into());
        }
        let answer = channel.session.accept(init, &interface.config)?;
        interface.channel = Some(token);
        Ok(answer)
    }

    /// Hands the rings to the queues: packets may flow.
    pub(super) fn connected(&mut self, token: u64, key: Key, mut rings: Rings, remote_interface: String) {
        let Some(interface) = self.interfaces.get_mut(&key) else { return };
        rings.begin();
        let Rings { regions, rx, tx } = rings;
        let mut shares: Vec<Vec<_>> = interface.rx.iter().map(|_| Vec::new()).collect();
        let queues = shares.len();
        rx.into_iter().enumerate().for_each(|(k, ring)| shares[k % queues].push(ring));
        interface.rx.iter().zip(shares).for_each(|(slot, rings)| drop(slot.exchange(rings)));
        drop(interface.tx.exchange(tx));
        interface.regions = Some(regions);
        interface.remote_interface = remote_interface;
        interface.reason.clear();
        let _ = interface.shared.take();
        if let Some(channel) = self.channels.get(&token) {
            if let Some(rights) = self.rights.as_ref().filter(|_| channel.held) {
                rights.note(key.to_string(), Ok(()));
            }
            interface.remote.clone_from(&channel.session.remote);
        }
        self.changed.insert(key);
        self.wake_caller();
    }

    pub(super) fn note_end(&mut self, token: u64, reason: &str) {
        if let Some(key) = self.channels.get(&token).and_then(|c| c.session.key) {
            self.note(key, reason);
        }
    }

    /// Ends a control connection and all that came with it.
    pub(super) fn end(&mut self, token: u64, reason: Option<&str>) {
        let Some(channel) = self.channels.remove(&token) else { return };
        if let (Some(rights), true, Some(reason), Some(key)) = (&self.rights, channel.held, reason, channel.session.key) {
            rights.note(key.to_string(), Err(reason.to_owned()));
        }
        if let Some(reason) = reason
            && !channel.held
        {
            let _ = socket::send(&channel.fd, &Message::Disconnect { code: 0, reason: reason.to_owned() }, None);
        }
        let _ = epoll::delete(&self.epoll, &*channel.fd);
        let (key, background) = (channel.session.key, self.sockets.get(&channel.socket).map(|s| &s.background));
        // The channel may still hold messages that were not read, with memory that the peer wanted to share.
        if let Some(background) = background {
            background.discard(channel);
        }
        let Some(key) = key else { return };
        let Some(interface) = self.interfaces.get_mut(&key).filter(|i| i.channel == Some(token)) else { return };
        interface.channel = None;
        interface.remote.clear();
        interface.remote_interface.clear();
        if let Some(reason) = reason
            && interface.reason.is_empty()
        {
            reason.clone_into(&mut interface.reason);
        }
        interface.rx.iter().for_each(|slot| drop(slot.exchange(Vec::new())));
        drop(interface.tx.exchange(Vec::new()));
        if interface.regions.take().is_some() {
            self.changed.insert(key);
            self.wake_caller();
        }
    }
}
