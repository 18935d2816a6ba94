//! A routing daemon that only says what it is told: routes as messages of netlink, to the kernel, or as zebra sends them to a forwarding
//! plane manager (FPM). For loads and rates that no real daemon makes.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::host::Host;
use crate::sys::check;

/// Bytes that are written at once.
const CHUNK: usize = 32 << 10;
/// From linux/netlink.h and linux/rtnetlink.h.
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
const REQUEST: u16 = 0x1;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const DST: u16 = 1;
const OIF: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const MAIN: u8 = 254;
const BGP: u8 = 186;
const METRIC: u32 = 20;

/// A route. Addresses have 4 bytes or 16.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// Network.
    pub network: &'a [u8],
    /// Its length, bits.
    pub len: u8,
    /// Number of the link that it leaves by, in the host's namespace.
    pub link: u32,
    /// Next hop.
    pub via: &'a [u8],
}

enum Listener {
    Kernel(OwnedFd),
    Fpm(TcpStream),
}

/// Who says it.
pub struct Announcer {
    to: Listener,
    bytes: Vec<u8>,
}

impl Announcer {
    /// To the kernel of a host.
    ///
    /// # Errors
    /// The operating system's.
    pub fn to_kernel(host: &Host) -> io::Result<Self> {
        let socket = host.enter(|| {
            // SAFETY: socket takes no pointers.
            let fd = check(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) })?;
            // SAFETY: the descriptor is new and nobody else's.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })?;
        Ok(Self { to: Listener::Kernel(socket), bytes: Vec::with_capacity(CHUNK) })
    }

    /// To a forwarding plane manager that listens in a host.
    ///
    /// # Errors
    /// The operating system's: nobody listens there.
    pub fn to_fpm(host: &Host, address: &str) -> io::Result<Self> {
        let stream = host.enter(|| TcpStream::connect(address))?;
        Ok(Self { to: Listener::Fpm(stream), bytes: Vec::with_capacity(CHUNK) })
    }

    /// A route is there, in place of one that the prefix may have.
    ///
    /// # Errors
    /// The listener's.
    pub fn announce(&mut self, route: &Announcement<'_>) -> io::Result<()> {
        self.say(NEW_ROUTE, REQUEST | CREATE | REPLACE, route)
    }

    /// A route has gone.
    ///
    /// # Errors
    /// The listener's.
    pub fn withdraw(&mut self, route: &Announcement<'_>) -> io::Result<()> {
        self.say(DEL_ROUTE, REQUEST, route)
    }

    fn say(&mut self, kind: u16, flags: u16, route: &Announcement<'_>) -> io::Result<()> {
        let message = message(kind, flags, route);
        if let Listener::Fpm(_) = self.to {
            let length = (message.len() + 4) as u16;
            self.bytes.extend([1, 1]);
            self.bytes.extend(length.to_be_bytes());
        }
        self.bytes.extend(message);
        if self.bytes.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Has all that was said heard.
    ///
    /// # Errors
    /// The listener's.
    pub fn flush(&mut self) -> io::Result<()> {
        let done = match &mut self.to {
            Listener::Fpm(stream) => stream.write_all(&self.bytes),
            Listener::Kernel(socket) if !self.bytes.is_empty() => {
                let (start, len) = (self.bytes.as_ptr().cast(), self.bytes.len());
                // SAFETY: pointer and length describe the buffer, which the kernel reads.
                check(unsafe { libc::send(socket.as_raw_fd(), start, len, 0) } as libc::c_int).map(drop)
            }
            Listener::Kernel(_) => Ok(()),
        };
        self.bytes.clear();
        done
    }
}

fn message(kind: u16, flags: u16, route: &Announcement<'_>) -> Vec<u8> {
    let family = if route.network.len() == 4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    let mut bytes = vec![0; 16];
    // Family, length, source's length, type of service, table, protocol, scope, unicast, flags.
    bytes.extend([family, route.len, 0, 0, MAIN, BGP, 0, 1, 0, 0, 0, 0]);
    let mut attribute = |kind: u16, value: &[u8]| {
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    };
    attribute(DST, route.network);
    attribute(PRIORITY, &METRIC.to_ne_bytes());
    if kind == NEW_ROUTE {
        attribute(OIF, &route.link.to_ne_bytes());
        attribute(GATEWAY, route.via);
    }
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_its_own_length_and_ends_on_a_word() {
        for (network, via, len) in [(&[10, 0, 0, 0][..], &[192, 0, 2, 1][..], 60), (&[0x20; 16][..], &[0xfe; 16][..], 84)] {
            let route = Announcement { network, len: 8, link: 7, via };
            let new = message(NEW_ROUTE, REQUEST | CREATE, &route);
            assert_eq!((new.len(), u32::from_ne_bytes(new[..4].try_into().unwrap())), (len, len as u32));
            assert_eq!(message(DEL_ROUTE, REQUEST, &route).len(), len - 8 - 4 - via.len());
        }
    }
}
