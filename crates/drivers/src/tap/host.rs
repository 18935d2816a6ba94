//! The host's end of a TAP device: namespace, address, size, routes, set by netlink when it is made.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

/// From linux/if_link.h, linux/if_addr.h, linux/rtnetlink.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
/// `IF_OPER_DORMANT` of linux/if.h.
const DORMANT: u8 = 5;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
/// How long the kernel may take to answer, ms.
const PATIENCE: c_int = 2000;

/// An address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network.
    pub prefix_len: u8,
}

fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

/// What is changed of the host's end of a device; `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostChange {
    /// Hardware address.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet, bytes.
    pub mtu: Option<u32>,
    /// Administratively up.
    pub up: Option<bool>,
}

/// What is changed of a device; `None`: nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkChange {
    pub mac: Option<[u8; 6]>,
    pub mtu: Option<u32>,
    pub queue_length: Option<u32>,
    pub master: Option<u32>,
    pub up: Option<bool>,
    /// The kernel makes no link-local IPv6 address up: one of a TUN device would be random.
    pub no_link_local: bool,
    /// Out of operation until its carrier comes back.
    pub dormant: bool,
}

/// Changes a device of the netlink socket's namespace.
pub(super) fn change_link(netlink: &OwnedFd, index: u32, change: LinkChange) -> io::Result<()> {
    let flag = |on: bool| if on { libc::IFF_UP as u32 } else { 0 };
    let (up, mask) = (flag(change.up == Some(true)), flag(change.up.is_some()));
    let mut m = Message::new(libc::RTM_NEWLINK, 0);
    m.put(&[libc::AF_UNSPEC as u8, 0, 0, 0]).put(&index.to_ne_bytes()).put(&up.to_ne_bytes()).put(&mask.to_ne_bytes());
    if let Some(mac) = change.mac {
        m.attribute(IFLA_ADDRESS, &mac);
    }
    for (kind, value) in [(IFLA_MTU, change.mtu), (IFLA_TXQLEN, change.queue_length), (IFLA_MASTER, change.master)] {
        if let Some(value) = value {
            m.attribute(kind, &value.to_ne_bytes());
        }
    }
    if change.no_link_local {
        m.attribute(IFLA_AF_SPEC, &nested(libc::AF_INET6 as u16, &nested(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE])));
    }
    if change.dormant {
        m.attribute(IFLA_OPERSTATE, &[DORMANT]);
    }
    m.request(netlink)
}

/// Adds an address to a device of the netlink socket's namespace; `replace`: in place of the same one with other properties.
pub(super) fn add_address(netlink: &OwnedFd, index: u32, host: HostAddress, replace: bool) -> io::Result<()> {
    let flag = if replace { libc::NLM_F_REPLACE } else { libc::NLM_F_EXCL };
    let mut m = Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | flag);
    m.put(&[family(host.address), host.prefix_len, 0, 0]).put(&index.to_ne_bytes());
    m.attribute(IFA_LOCAL, &bytes(host.address)).attribute(IFA_ADDRESS, &bytes(host.address));
    m.request(netlink)
}

/// Takes an address from a device of the netlink socket's namespace.
pub(super) fn remove_address(netlink: &OwnedFd, index: u32, host: HostAddress) -> io::Result<()> {
    let mut m = Message::new(libc::RTM_DELADDR, 0);
    m.put(&[family(host.address), host.prefix_len, 0, 0]).put(&index.to_ne_bytes());
    m.attribute(IFA_LOCAL, &bytes(host.address)).attribute(IFA_ADDRESS, &bytes(host.address));
    m.request(netlink)
}

/// Adds a default route over a device of the netlink socket's namespace.
pub(super) fn add_default_route(netlink: &OwnedFd, index: u32, gateway: IpAddr) -> io::Result<()> {
    let mut m = Message::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
    m.put(&[family(gateway), 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, libc::RT_SCOPE_UNIVERSE, RTN_UNICAST]).put(&[0; 4]);
    m.attribute(RTA_GATEWAY, &bytes(gateway)).attribute(RTA_OIF, &index.to_ne_bytes());
    m.request(netlink)
}

/// An attribute inside another one.
fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut inner = Message(Vec::new());
    inner.attribute(kind, value);
    inner.0
}

/// A netlink request: header, fixed part, attributes.
struct Message(Vec<u8>);

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

impl Message {
    fn new(kind: u16, flags: c_int) -> Self {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.resize(HEADER, 0);
        Self(bytes)
    }

    fn put(&mut self, part: &[u8]) -> &mut Self {
        self.0.extend(part);
        self
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.0.extend(((value.len() + 4) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Sends it and waits for the kernel's word on it.
    fn request(mut self, socket: &OwnedFd) -> io::Result<()> {
        let len = (self.0.len() as u32).to_ne_bytes();
        self.0[..4].copy_from_slice(&len);
        // An answer that came too late for the request before.
        while sys::wait_readable(socket, 0)? {
            receive(socket)?;
        }
        // SAFETY: pointer and length describe the message; an unconnected netlink socket sends to the kernel.
        let sent = unsafe { libc::send(socket.as_raw_fd(), self.0.as_ptr().cast(), self.0.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        if !sys::wait_readable(socket, PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let answer = receive(socket)?;
        // NLMSG_ERROR: the negative error number follows the header, 0 for success.
        match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// The next message; a short one is an error.
fn receive(socket: &OwnedFd) -> io::Result<[u8; 1024]> {
    let mut answer = [0_u8; 1024];
    // SAFETY: pointer and length describe `answer`.
    let got = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    if got < (HEADER + 4) as isize {
        return Err(io::Error::other("a short answer from netlink"));
    }
    Ok(answer)
}
