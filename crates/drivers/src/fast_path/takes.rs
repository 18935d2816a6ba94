//! Whether a device takes frames from programs of other devices: a question of the kernel's family `netdev` (Linux 6.3).
//!
//! A frame that is redirected to a device that does not is lost, and no error says so. On a veth it depends on the other end, which may
//! change at any time: its NAPI must run, so it has an XDP program or GRO on.

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use crate::sys;

/// The controller of families (`GENL_ID_CTRL`).
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const NDO_XMIT: u64 = 1 << 2;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// Bytes of `struct nlmsghdr` and of `struct genlmsghdr`.
const HEADER: usize = 16 + 4;
/// The kernel answers at once; a bound for one that does not, ms.
const PATIENCE: libc::c_int = 1000;

/// Asks the kernel, in the network namespace in which it was made.
pub struct Takers {
    socket: Socket,
    family: u16,
}

impl Takers {
    /// A socket for questions.
    ///
    /// # Errors
    /// The kernel is older than 6.3, or the operating system's.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        let mut takers = Self { socket, family: CONTROLLER };
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
        let answer = takers.ask(CTRL_CMD_GETFAMILY, &name)?;
        let family = find(&answer, CTRL_ATTR_FAMILY_ID).and_then(|bytes| Some(u16::from_ne_bytes(bytes.try_into().ok()?)));
        takers.family = family.ok_or_else(|| io::Error::other("the kernel's answer has no number of the family"))?;
        Ok(takers)
    }

    /// Whether the device takes frames now.
    ///
    /// # Errors
    /// No such device, or the operating system's.
    pub fn takes(&self, device: u32) -> io::Result<bool> {
        let answer = self.ask(NETDEV_CMD_DEV_GET, &attribute(NETDEV_A_DEV_IFINDEX, &device.to_ne_bytes()))?;
        let features = find(&answer, NETDEV_A_DEV_XDP_FEATURES).and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?)));
        Ok(features.unwrap_or(0) & NDO_XMIT != 0)
    }

    /// The attributes of an answer.
    fn ask(&self, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        let mut message = Vec::with_capacity(HEADER + attributes.len());
        message.extend(((HEADER + attributes.len()) as u32).to_ne_bytes());
        message.extend(self.family.to_ne_bytes());
        message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
        // Sequence number and port: there is one question at a time.
        message.extend([0; 8]);
        message.extend([command, 1, 0, 0]);
        message.extend(attributes);
        self.socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
        if !sys::wait_readable(&self.socket, PATIENCE)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (answer, _) = self.socket.recv_from_full()?;
        let kind = answer.get(4..6).and_then(|kind| Some(u16::from_ne_bytes(kind.try_into().ok()?)));
        if kind == Some(ERROR) {
            let code = answer.get(16..20).and_then(|code| Some(i32::from_ne_bytes(code.try_into().ok()?)));
            return Err(io::Error::from_raw_os_error(code.unwrap_or(-libc::EIO).wrapping_neg()));
        }
        answer.get(HEADER..).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len());
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of a kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    while let [l0, l1, k0, k1, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes([k0, k1]) & 0x3fff == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_nonsense_is_not() {
        let all = [attribute(1, b"abc"), attribute(3, &7_u64.to_ne_bytes())].concat();
        assert_eq!(find(&all, 1), Some(&b"abc"[..]));
        assert_eq!(find(&all, 3), Some(&7_u64.to_ne_bytes()[..]));
        assert_eq!(find(&all, 2), None);
        for odd in [&[][..], &[1], &[0, 0, 0, 0], &[3, 0, 1, 0], &[200, 0, 1, 0, 1]] {
            assert_eq!(find(odd, 1), None, "{odd:?}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        // Kernels before 6.3 know nothing of it.
        let Ok(takers) = Takers::open() else { return };
        assert_eq!(takers.takes(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        // A loopback device takes nothing.
        assert!(!takers.takes(1).unwrap_or(false));
    }
}
