//! Whether a frame may be handed straight to the other end of a veth in another network namespace: the kernel then leaves out a queue and an
//! interrupt, which costs more than all the rest of forwarding.
//!
//! It also leaves out what the device and its other end do in between: an XDP program there would not see the frame.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::netlink::{Questions, attribute, find, number};

/// Bytes of `struct ifinfomsg`.
const HEADER: usize = 16;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
/// Of a question: the namespace in which the device is.
const IFLA_TARGET_NETNSID: u16 = 46;

/// Asks the kernel, in the network namespace in which it was made.
pub struct Peers(Questions);

impl Peers {
    /// A socket for questions.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open() -> io::Result<Self> {
        Questions::open(NETLINK_ROUTE).map(Self)
    }

    /// Whether the device is a veth whose other end is in another network namespace and runs no XDP program; `false` where the kernel does not
    /// say.
    pub fn takes_directly(&self, device: u32) -> bool {
        self.look(device).unwrap_or(false)
    }

    fn look(&self, device: u32) -> io::Result<bool> {
        let here = self.link(device, None)?;
        let kind = find(&here, IFLA_LINKINFO).and_then(|info| find(info, IFLA_INFO_KIND));
        let (Some(peer), Some(namespace)) = (number(&here, IFLA_LINK), number(&here, IFLA_LINK_NETNSID)) else { return Ok(false) };
        if kind.is_none_or(|kind| !kind.starts_with(b"veth")) {
            return Ok(false);
        }
        let there = self.link(peer, Some(namespace))?;
        let attached = find(&there, IFLA_XDP).and_then(|xdp| find(xdp, IFLA_XDP_ATTACHED));
        Ok(attached == Some(&[0]))
    }

    /// Attributes of a device.
    fn link(&self, device: u32, namespace: Option<u32>) -> io::Result<Vec<u8>> {
        let mut question = vec![0; HEADER];
        question[4..8].copy_from_slice(&device.to_ne_bytes());
        if let Some(namespace) = namespace {
            question.extend(attribute(IFLA_TARGET_NETNSID, &namespace.to_ne_bytes()));
        }
        let answer = self.0.ask(libc::RTM_GETLINK, &question)?;
        answer.get(HEADER..).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_veth_takes_nothing_directly() {
        let peers = Peers::open().unwrap();
        assert!(!peers.takes_directly(1), "the loopback device");
        assert!(!peers.takes_directly(u32::MAX >> 1), "none");
        assert_eq!(peers.link(u32::MAX >> 1, None).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
