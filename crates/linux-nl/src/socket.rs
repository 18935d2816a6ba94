//! A netlink socket for reading the state of a namespace: membership, requests for dumps, datagrams.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send, socket_with, sockopt};

use crate::message::{AF_INET, AF_INET6, HEADER, flag, kind};

/// Bits of the multicast groups (linux/rtnetlink.h): links, neighbours, addresses, routes of both families, next-hop objects.
const GROUPS: u32 = bit(1) | bit(3) | bit(5) | bit(7) | bit(9) | bit(11) | bit(32);

const fn bit(group: u32) -> u32 {
    1 << (group - 1)
}

/// The kernel fills datagrams of a dump up to so many bytes.
const DATAGRAM: usize = 64 << 10;

/// What can be listed, in the order in which it is needed: routes lead to objects, objects to links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Links.
    Links,
    /// Addresses.
    Addresses,
    /// Neighbours.
    Neighbors,
    /// Next-hop objects.
    NextHops,
    /// IPv4 routes.
    Routes4,
    /// IPv6 routes.
    Routes6,
}

impl List {
    /// All.
    pub const ALL: [Self; 6] = [Self::Links, Self::Addresses, Self::Neighbors, Self::NextHops, Self::Routes4, Self::Routes6];

    /// Type of the request, its address family, and bytes of its fixed part.
    const fn request(self) -> (u16, u8, usize) {
        match self {
            Self::Links => (kind::GET_LINK, 0, 16),
            Self::Addresses => (kind::GET_ADDRESS, 0, 8),
            Self::Neighbors => (kind::GET_NEIGHBOR, 0, 12),
            Self::NextHops => (kind::GET_NEXT_HOP, 0, 8),
            Self::Routes4 => (kind::GET_ROUTE, AF_INET, 12),
            Self::Routes6 => (kind::GET_ROUTE, AF_INET6, 12),
        }
    }
}

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes of the buffer.
    Datagram(usize),
    /// Nothing waits.
    Empty,
    /// The kernel had more to say than the socket could hold: something is lost.
    Overrun,
}

/// The socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    receive_buffer: usize,
}

impl Socket {
    /// A socket in the namespace of this process.
    ///
    /// # Errors
    /// The operating system's.
    pub fn here() -> io::Result<OwnedFd> {
        // Protocol 0 is NETLINK_ROUTE.
        Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
    }

    /// A TCP socket in the namespace of this process.
    ///
    /// # Errors
    /// The operating system's.
    pub fn stream_here() -> io::Result<OwnedFd> {
        Ok(socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
    }

    /// Has a fresh netlink socket announce changes from now on, with room for so many bytes of them.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(fd: OwnedFd, receive_buffer: usize) -> io::Result<Self> {
        if sockopt::set_socket_recv_buffer_size_force(&fd, receive_buffer).is_err() {
            sockopt::set_socket_recv_buffer_size(&fd, receive_buffer)?;
        }
        let receive_buffer = sockopt::socket_recv_buffer_size(&fd)?;
        bind(&fd, &SocketAddrNetlink::new(0, GROUPS))?;
        // From now on only the kernel is heard.
        connect(&fd, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { fd, buffer: vec![0; DATAGRAM], receive_buffer })
    }

    /// What is polled.
    pub const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Bytes that the kernel lets wait, by its own count, which includes its bookkeeping.
    pub const fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Asks for a list; the answer has this number.
    ///
    /// # Errors
    /// The operating system's.
    pub fn request(&self, list: List, sequence: u32) -> io::Result<()> {
        let (kind, family, fixed) = list.request();
        let length = HEADER + fixed;
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flag::REQUEST | flag::DUMP).to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes[HEADER] = family;
        send(&self.fd, &bytes, SendFlags::empty())?;
        Ok(())
    }

    /// Reads a datagram; never waits.
    ///
    /// # Errors
    /// The operating system's.
    pub fn read(&mut self) -> io::Result<Read> {
        match recv(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((n, whole)) if whole > n => Ok(Read::Overrun),
            Ok((n, _)) => Ok(Read::Datagram(n)),
            Err(Errno::AGAIN) => Ok(Read::Empty),
            Err(Errno::INTR) => Ok(Read::Datagram(0)),
            Err(Errno::NOBUFS) => Ok(Read::Overrun),
            Err(error) => Err(error.into()),
        }
    }

    /// The bytes that were read last.
    pub fn bytes(&self, n: usize) -> &[u8] {
        self.buffer.get(..n).unwrap_or_default()
    }
}
