//! Connections that pass from one process to the next: the peer does not notice.
//!
//! Control channel, memory and events are descriptors. All positions are in the shared memory, where each end has its own index: the
//! new process reads them when it touches a ring for the first time, which it does when the old one has stopped. Nobody but the old
//! process reads the control channel until then, and nothing is said on it.
//!
//! **What does not pass**: memory that is sealed against new mappings (`F_SEAL_FUTURE_WRITE`). That seal is what keeps a peer from taking
//! pages out of it, so these are all connections but those on huge pages that cannot be sealed and those of sockets that are
//! `unsealed`. Neither do zero-copy connections: which buffer of the pool lies in which slot is in private memory. These peers see the
//! old process end, and connect again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::background::Background;
use super::connection::Rings;
use super::event::{Event, is_event};
use super::hub::Hub;
use super::memory::{COOKIE, Limits, Region, Regions, Ring};
use super::rx::RxRing;
use super::tx::TxRing;
use super::{Buffers, Key, Mode, REGIONS_MAX, RINGS_MAX, Role};
use crate::passed::{Reader, Words};
use crate::rights::Rights;

/// What the descriptors are, with the version of that: a router that knows another one does not ask for these.
pub(crate) const KIND: &str = "memif-1";
/// Most descriptors of a connection: those of an interface pass in one message.
const FDS_MAX: usize = 200;
/// Longest name of a peer.
const NAME_MAX: usize = 256;

/// There was no connection, or there was one.
const NONE: u32 = 0;
const STOOD: u32 = 1;
/// Why a connection does not pass.
pub(super) const CANNOT_PASS: &str = "no other process can map its memory (docs/restart.md), so the peer connects again";

fn name(key: Key, path: &str) -> String {
    format!("{KIND} {key} {path}")
}

/// What an interface gets from the process before.
#[derive(Default)]
pub(super) struct Inherited {
    /// The socket on which it listened.
    pub listener: Option<OwnedFd>,
    pub connection: Option<Connection>,
    /// There was one that does not pass.
    pub lost: bool,
}

/// A connection that stands.
pub(super) struct Connection {
    pub channel: OwnedFd,
    pub remote: String,
    pub remote_interface: String,
    memory: Memory,
}

/// Its memory, not yet mapped.
pub(super) struct Memory {
    is_server: bool,
    regions: Vec<(OwnedFd, u64)>,
    rx: Vec<Announced>,
    tx: Vec<Announced>,
}

/// A ring, and where a client's buffers behind it lie.
struct Announced {
    region: u16,
    offset: u32,
    log2_size: u8,
    own: Option<Own>,
    event: Option<OwnedFd>,
}

#[derive(Clone, Copy)]
struct Own {
    region: u16,
    offset: u32,
    stride: u32,
    size: u32,
}

impl Announced {
    fn of(ring: &Ring, own: Option<&Buffers>) -> io::Result<Self> {
        let (region, offset) = ring.place();
        let own = own.map(|own| {
            let first = ring.regions().get(usize::from(own.region)).map_or(0, |home| home.address(0) as usize);
            let offset = (own.base.as_ptr() as usize).wrapping_sub(first) as u32;
            Own { region: own.region, offset, stride: own.stride, size: own.size }
        });
        let event = ring.event().and_then(|event| event.fd()).map(|fd| fd.try_clone_to_owned()).transpose()?;
        Ok(Self { region, offset, log2_size: ring.log2_size(), own, event })
    }

    fn put(&self, words: &mut Words) {
        words.put(self.region.into()).put(self.offset).put(self.log2_size.into());
        let own = self.own.unwrap_or(Own { region: 0, offset: 0, stride: 0, size: 0 });
        words.put(own.region.into()).put(own.offset).put(own.stride).put(own.size);
    }

    fn read(words: &mut Reader, is_server: bool) -> Option<Self> {
        let (region, offset) = (words.word()?.try_into().ok()?, words.word()?);
        let log2_size = words.word()?.try_into().ok()?;
        let own = Own { region: words.word()?.try_into().ok()?, offset: words.word()?, stride: words.word()?, size: words.word()? };
        Some(Self { region, offset, log2_size, own: (!is_server).then_some(own), event: None })
    }

    /// The ring in these regions. It goes on where its indices stand.
    fn ring(self, regions: &Regions, background: &Background) -> Result<(Ring, Option<Buffers>), &'static str> {
        let fd = self.event.filter(is_event).ok_or("event descriptor is not an eventfd")?;
        let event = match self.own {
            // Its own, which nobody keeps from being closed.
            Some(_) => Event::of_fd(fd),
            None => Event::of_peer(fd, background.clone()),
        };
        let ring = Ring::new(regions, self.region, self.offset, self.log2_size, Some(Arc::new(event)))?;
        if ring.cookie().load(Ordering::Relaxed) != COOKIE {
            return Err("no ring at the place announced");
        }
        let own = self.own.map(|own| own.buffers(regions, self.log2_size)).transpose()?;
        Ok((ring, own))
    }
}

impl Own {
    fn buffers(self, regions: &Regions, log2_size: u8) -> Result<Buffers, &'static str> {
        const OUTSIDE: &str = "buffers do not fit their region";
        let home = regions.get(usize::from(self.region)).ok_or(OUTSIDE)?;
        let end = u64::from(self.offset) + (u64::from(self.stride) << log2_size);
        if end > home.len() as u64 || self.size > self.stride {
            return Err(OUTSIDE);
        }
        let base = NonNull::new(home.address(self.offset as usize)).ok_or(OUTSIDE)?;
        Ok(Buffers { base, region: self.region, stride: self.stride, size: self.size })
    }
}

impl Memory {
    /// Maps everything, with the checks of a new connection.
    pub(super) fn map(self, limits: Limits, background: &Background) -> Result<Box<Rings>, &'static str> {
        let mut regions: Vec<Region> = Vec::new();
        for (fd, size) in self.regions {
            let region = if self.is_server { Region::of_peer(fd, size, background)? } else { Region::own_again(fd, size)? };
            if self.is_server && limits.admit(&regions, &region).is_err() {
                return Err("more memory than is allowed");
            }
            regions.push(region);
        }
        if !limits.unsealed {
            regions.iter().try_for_each(Region::seal)?;
        }
        let regions: Regions = regions.into();
        let rx = self.rx.into_iter().map(|a| a.ring(&regions, background).map(|(ring, own)| RxRing::going_on(ring, own)));
        let rx = rx.collect::<Result<_, _>>()?;
        let tx = self.tx.into_iter().map(|a| a.ring(&regions, background).map(|(ring, own)| TxRing::going_on(ring, own)));
        Ok(Box::new(Rings { rx, tx: tx.collect::<Result<_, _>>()?, regions }))
    }
}

fn put_text(words: &mut Words, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(NAME_MAX)];
    words.put(bytes.len() as u32);
    for byte in bytes {
        words.put((*byte).into());
    }
}

fn read_text(words: &mut Reader) -> Option<String> {
    let length = words.word().filter(|n| *n as usize <= NAME_MAX)?;
    let bytes: Option<Vec<u8>> = (0..length).map(|_| words.word()?.try_into().ok()).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

/// What the process before had for this interface; `None` where nobody is taken over from.
pub(super) fn take(rights: &dyn Rights, key: Key, path: &str, role: Role, mode: Mode) -> Option<Inherited> {
    let mut fds = rights.inherited(&name(key, path))?.into_iter();
    // What cannot be read is not there: the interface is made, and its peer connects again.
    Some(read(&mut fds, role, mode).unwrap_or_default())
}

fn read(fds: &mut std::vec::IntoIter<OwnedFd>, role: Role, mode: Mode) -> Option<Inherited> {
    let mut words = Reader::of(fds.next()?)?;
    let is_same = words.word()? == u32::from(role == Role::Server) && words.word()? == u32::from(mode == Mode::Ip);
    if !is_same {
        return None;
    }
    let listener = if words.word()? != 0 { Some(fds.next()?) } else { None };
    let stood = words.word()? != NONE;
    let connection = if stood { read_connection(&mut words, fds, role == Role::Server) } else { None };
    Some(Inherited { lost: stood && connection.is_none(), listener, connection })
}

fn read_connection(words: &mut Reader, fds: &mut std::vec::IntoIter<OwnedFd>, is_server: bool) -> Option<Connection> {
    let channel = fds.next()?;
    let (remote, remote_interface) = (read_text(words)?, read_text(words)?);
    let count = |words: &mut Reader, most: usize| words.word().filter(|n| *n as usize <= most);
    let regions = (0..count(words, REGIONS_MAX)?).map(|_| {
        let size = u64::from(words.word()?) | u64::from(words.word()?) << 32;
        Some((fds.next()?, size))
    });
    let regions = regions.collect::<Option<Vec<_>>>()?;
    let mut rings = || -> Option<Vec<Announced>> {
        let n = count(words, RINGS_MAX)?;
        (0..n).map(|_| Some(Announced { event: Some(fds.next()?), ..Announced::read(words, is_server)? })).collect()
    };
    let (rx, tx) = (rings()?, rings()?);
    Some(Connection { channel, remote, remote_interface, memory: Memory { is_server, regions, rx, tx } })
}

impl Connection {
    /// The control channel, and what is to be mapped.
    pub(super) fn split(self) -> (OwnedFd, String, String, Memory) {
        (self.channel, self.remote, self.remote_interface, self.memory)
    }
}

impl Hub {
    /// What the process before this one has of an interface.
    pub(super) fn inherited(&self, key: Key, role: Role, mode: Mode) -> Option<Inherited> {
        take(&**self.rights.as_ref()?, key, &self.sockets.get(&key.socket)?.config.path, role, mode)
    }

    /// What the next process gets of an interface.
    pub(super) fn inheritance(&self, key: Key) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        let (Some(interface), Some(socket)) = (self.interfaces.get(&key), self.sockets.get(&key.socket)) else { return Ok(None) };
        let mut words = Words::default();
        words.put((interface.config.role == Role::Server).into()).put((interface.config.mode == Mode::Ip).into());
        let mut fds = Vec::new();
        let listener = socket.listener.as_ref().map(|(_, fd)| fd.try_clone()).transpose()?;
        words.put(listener.is_some().into());
        fds.extend(listener);
        let connection = self.connection_to_pass(key)?;
        words.put(if interface.regions.is_some() { STOOD } else { NONE });
        // Without more words than this it does not pass.
        if let Some((channel, memory)) = connection {
            fds.push(channel);
            put_text(&mut words, &interface.remote);
            put_text(&mut words, &interface.remote_interface);
            words.put(memory.regions.len() as u32);
            for (fd, size) in memory.regions {
                words.put(size as u32).put((size >> 32) as u32);
                fds.push(fd);
            }
            for rings in [memory.rx, memory.tx] {
                words.put(rings.len() as u32);
                for mut ring in rings {
                    ring.put(&mut words);
                    fds.extend(ring.event.take());
                }
            }
        }
        fds.insert(0, words.into_file()?);
        Ok(Some((name(key, &socket.config.path), fds)))
    }

    /// A connection that another process can go on with.
    fn connection_to_pass(&self, key: Key) -> io::Result<Option<(OwnedFd, Memory)>> {
        let Some(interface) = self.interfaces.get(&key).filter(|i| !i.config.zero_copy) else { return Ok(None) };
        let (Some(regions), Some(token)) = (&interface.regions, interface.channel) else { return Ok(None) };
        let Some(channel) = self.running_channel(token) else { return Ok(None) };
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        let queues = interface.rx.len();
        for (queue, slot) in interface.rx.iter().enumerate() {
            let take = |(k, ring): (usize, &RxRing)| (queue + k * queues, Announced::of(&ring.ring, ring.own()));
            slot.with(|rings| rx.extend(rings.iter().enumerate().map(take)));
        }
        rx.sort_by_key(|(number, _)| *number);
        interface.tx.each(|_, ring| tx.push(Announced::of(&ring.ring, ring.own())));
        let rx = rx.into_iter().map(|(_, ring)| ring).collect::<io::Result<Vec<_>>>()?;
        let tx = tx.into_iter().collect::<io::Result<Vec<_>>>()?;
        let is_whole = rx.iter().chain(&tx).all(|ring| ring.event.is_some()) && regions.iter().all(Region::can_be_mapped_again);
        if !is_whole || regions.len() + rx.len() + tx.len() > FDS_MAX {
            return Ok(None);
        }
        let copies = regions.iter().filter_map(|r| r.fd().map(|fd| fd.try_clone().map(|fd| (fd, r.len() as u64))));
        let regions = copies.collect::<io::Result<Vec<_>>>()?;
        let channel = channel.as_fd().try_clone_to_owned()?;
        Ok(Some((channel, Memory { is_server: interface.config.role == Role::Server, regions, rx, tx })))
    }
}
