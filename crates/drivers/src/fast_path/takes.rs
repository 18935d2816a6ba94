//! Whether a device takes frames from programs of other devices: a question of the kernel's family `netdev` (Linux 6.3).
//!
//! A frame that is redirected to a device that does not is lost, and no error says so. On a veth it depends on the other end, which may
//! change at any time: its NAPI must run, so it has an XDP program or GRO on.

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;

use super::netlink::{Questions, attribute, find};

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
/// Bytes of `struct genlmsghdr`.
const HEADER: usize = 4;

/// Asks the kernel, in the network namespace in which it was made.
pub struct Takers {
    questions: Questions,
    family: u16,
}

impl Takers {
    /// A socket for questions.
    ///
    /// # Errors
    /// The kernel is older than 6.3, or the operating system's.
    pub fn open() -> io::Result<Self> {
        let mut takers = Self { questions: Questions::open(NETLINK_GENERIC)?, family: CONTROLLER };
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
        let answer = self.questions.ask(self.family, &[&[command, 1, 0, 0], attributes].concat())?;
        answer.get(HEADER..).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        // Kernels before 6.3 know nothing of it.
        let Ok(takers) = Takers::open() else { return };
        assert_eq!(takers.takes(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        // A loopback device takes nothing.
        assert!(!takers.takes(1).unwrap_or(false));
    }
}
