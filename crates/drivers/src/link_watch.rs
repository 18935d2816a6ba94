//! Changes of the kernel's network devices, as they happen: one netlink socket for all ports of a network namespace.
//!
//! ```text
//!   kernel ── RTNLGRP_LINK ──► LinkWatch: table of links ──► changes ──► the control side refreshes the ports of that name
//! ```
//!
//! The table is filled by a dump at the start and kept by what the kernel tells. When it told more than the socket could
//! hold (`ENOBUFS`), a new dump is compared with the table, so no change stays unknown; of several changes of a link in
//! between only the sum is seen.
//!
//! All use of the netlink crates is in this module: their interface changes several times a year.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::sys;

/// What the socket holds, bytes; a link's message takes 1 to 2 kB.
const QUEUE_BYTES: libc::c_int = 4 << 20;
/// The kernel fills messages of a dump up to so many bytes.
const READ_BYTES: usize = 64 << 10;
/// How long one part of a dump may take, ms.
const DUMP_PATIENCE: libc::c_int = 2000;
/// How often a dump that the kernel calls inconsistent is repeated.
const DUMP_TRIES: u32 = 5;
/// Flag of a message from a dump during which something changed (NLM_F_DUMP_INTR).
const INTERRUPTED: u16 = 0x10;

/// A link as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Carries.
    pub carrier: bool,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Hardware address, where it has six bytes.
    pub mac: Option<[u8; 6]>,
}

/// What happened to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// It is new here.
    New(LinkInfo),
    /// Something about it is different; the name may be.
    Changed {
        /// As it was.
        before: LinkInfo,
        /// As it is.
        now: LinkInfo,
    },
    /// It is no longer here.
    Gone(LinkInfo),
    /// The kernel said something that was not understood: any link may have changed.
    Unclear,
}

impl LinkChange {
    /// Whether it concerns a device of this name, before or now.
    pub fn concerns(&self, name: &str) -> bool {
        match self {
            Self::New(link) | Self::Gone(link) => link.name == name,
            Self::Changed { before, now } => before.name == name || now.name == name,
            Self::Unclear => true,
        }
    }
}

/// Watches the links of the network namespace in which it was opened.
pub struct LinkWatch {
    socket: Socket,
    links: BTreeMap<u32, LinkInfo>,
    buffer: Vec<u8>,
    sequence: u32,
}

/// How reading ended.
enum Read {
    Empty,
    DumpDone,
    Overrun,
}

/// A dump under way.
struct Dump {
    seen: BTreeSet<u32>,
    interrupted: bool,
}

impl LinkWatch {
    /// Starts watching; what is there now is in [`LinkWatch::links`].
    ///
    /// # Errors
    /// The operating system's.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        sys::set_queue_bytes(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, QUEUE_BYTES)?;
        // Membership first, then the dump: a change in between is seen twice rather than never.
        socket.add_membership(libc::RTNLGRP_LINK)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let mut watch = Self { socket, links: BTreeMap::new(), buffer: Vec::with_capacity(READ_BYTES), sequence: 0 };
        watch.dump(&mut Vec::new())?;
        Ok(watch)
    }

    /// All links as last seen.
    pub fn links(&self) -> impl Iterator<Item = &LinkInfo> {
        self.links.values()
    }

    /// What has happened since the last call; never waits.
    ///
    /// # Errors
    /// The operating system's.
    pub fn changes(&mut self) -> io::Result<Vec<LinkChange>> {
        let mut changes = Vec::new();
        match self.read(&mut changes, None)? {
            Read::Empty | Read::DumpDone => {}
            Read::Overrun => self.dump(&mut changes)?,
        }
        Ok(changes)
    }

    /// Compares the table with all that there is.
    fn dump(&mut self, changes: &mut Vec<LinkChange>) -> io::Result<()> {
        for _ in 0..DUMP_TRIES {
            self.sequence = self.sequence.wrapping_add(1).max(1);
            self.request()?;
            let mut dump = Dump { seen: BTreeSet::new(), interrupted: false };
            loop {
                match self.read(changes, Some(&mut dump))? {
                    Read::DumpDone => break,
                    // What was lost may be part of the dump's meantime: once more.
                    Read::Overrun => dump.interrupted = true,
                    Read::Empty => {
                        if !sys::wait_readable(&self.socket, DUMP_PATIENCE)? {
                            return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel did not finish its list of links"));
                        }
                    }
                }
            }
            if !dump.interrupted {
                let gone: Vec<u32> = self.links.keys().copied().filter(|i| !dump.seen.contains(i)).collect();
                changes.extend(gone.into_iter().filter_map(|i| self.links.remove(&i)).map(LinkChange::Gone));
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's list of links changed faster than it could be read"))
    }

    fn request(&self) -> io::Result<()> {
        let payload = NetlinkPayload::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Reads until nothing waits or a dump is complete.
    fn read(&mut self, changes: &mut Vec<LinkChange>, mut dump: Option<&mut Dump>) -> io::Result<Read> {
        loop {
            self.buffer.clear();
            let mut buffer = std::mem::take(&mut self.buffer);
            let result = self.socket.recv(&mut buffer, 0);
            let done = result.as_ref().is_ok_and(|_| self.take(&buffer, changes, dump.as_deref_mut()));
            self.buffer = buffer;
            match result {
                Ok(_) if done => return Ok(Read::DumpDone),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Empty),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => return Ok(Read::Overrun),
                Err(e) => return Err(e),
            }
        }
    }

    /// Takes in the messages of one datagram; `true` when the dump is complete.
    fn take(&mut self, mut bytes: &[u8], changes: &mut Vec<LinkChange>, mut dump: Option<&mut Dump>) -> bool {
        let mut done = false;
        while !bytes.is_empty() {
            let Some(len) = NetlinkBuffer::new_checked(&bytes).ok().map(|b| b.length() as usize).filter(|l| *l > 0) else {
                changes.push(LinkChange::Unclear);
                break;
            };
            let (message, rest) = bytes.split_at(len.min(bytes.len()));
            // Messages stand on multiples of four bytes.
            bytes = rest.get(len.next_multiple_of(4) - len..).unwrap_or_default();
            let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) else {
                changes.push(LinkChange::Unclear);
                continue;
            };
            let ours = message.header.sequence_number == self.sequence;
            if let Some(dump) = dump.as_deref_mut() {
                dump.interrupted |= message.header.flags & INTERRUPTED != 0;
            }
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) if is_whole(&link) => {
                    let now = info(&link);
                    if let Some(dump) = dump.as_deref_mut() {
                        dump.seen.insert(now.index);
                    }
                    self.put(now, changes);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) if is_of_link(&link) => {
                    changes.extend(self.links.remove(&link.header.index).map(LinkChange::Gone));
                }
                NetlinkPayload::Done(_) | NetlinkPayload::Error(_) if ours => done = true,
                _ => {}
            }
        }
        done
    }

    fn put(&mut self, now: LinkInfo, changes: &mut Vec<LinkChange>) {
        match self.links.insert(now.index, now.clone()) {
            None => changes.push(LinkChange::New(now)),
            Some(before) if before != now => changes.push(LinkChange::Changed { before, now }),
            Some(_) => {}
        }
    }
}

impl AsFd for LinkWatch {
    /// Readable when there are changes to take.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

impl AsRawFd for LinkWatch {
    /// Readable when there are changes to take.
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Whether a message is about the link itself: a port that leaves a bridge is a "deleted link" of that family.
fn is_of_link(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

/// Whether a message describes the whole link: wireless events, for instance, carry only their own attribute.
fn is_whole(message: &LinkMessage) -> bool {
    is_of_link(message) && message.attributes.iter().any(|a| matches!(a, LinkAttribute::Mtu(_)))
}

fn info(message: &LinkMessage) -> LinkInfo {
    let flags = message.header.flags;
    let up = flags.contains(LinkFlags::Up);
    // As `NetDevices' asks it: `Running' follows the link with up to a second of delay.
    let carrier = up && flags.contains(LinkFlags::LowerUp);
    let mut link = LinkInfo { index: message.header.index, name: String::new(), up, carrier, mtu: 0, mac: None };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(address) => link.mac = address.as_slice().try_into().ok(),
            _ => {}
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_in_the_table_and_nonsense_is_unclear() {
        let mut watch = LinkWatch::open().unwrap();
        assert!(watch.links().any(|l| l.name == "lo" && l.mtu > 1500));
        let mut changes = Vec::new();
        for bytes in [&[1_u8][..], &[0; 16], &[16, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[0xff; 64]] {
            changes.clear();
            assert!(!watch.take(bytes, &mut changes, None));
            assert_eq!(changes, [LinkChange::Unclear], "{bytes:?}");
        }
        assert!(changes[0].concerns("anything"));
    }

    #[test]
    fn a_second_dump_finds_what_the_table_missed() {
        let mut watch = LinkWatch::open().unwrap();
        let lo = watch.links().find(|l| l.name == "lo").cloned().unwrap();
        let ghost = LinkInfo { index: u32::MAX, name: "ghost".into(), ..lo.clone() };
        watch.links.insert(ghost.index, ghost.clone());
        watch.links.get_mut(&lo.index).unwrap().mtu = 1;
        let mut changes = Vec::new();
        watch.dump(&mut changes).unwrap();
        assert!(changes.contains(&LinkChange::Gone(ghost)), "{changes:?}");
        assert!(changes.iter().any(|c| matches!(c, LinkChange::Changed { before, now } if before.mtu == 1 && *now == lo)));
    }
}
