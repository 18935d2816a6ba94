//! What all drivers of Ethernet devices need: how large a frame may be, and addresses for interfaces.

use std::io;

use quiver_wire::ethernet::EtherType;

use crate::virtio_net::LinkLayer;

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// What frames a device takes. The kernel does not check that on the ways that drivers use, and a veth loses what is too
/// long without a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimit {
    /// Largest frame without a tag.
    pub plain: usize,
    /// What frames begin with.
    pub link: LinkLayer,
}

impl FrameLimit {
    /// Of a device with this MTU.
    pub(crate) fn of_mtu(mtu: u32, link: LinkLayer) -> Self {
        let header = if link == LinkLayer::Ethernet { ETHERNET_HEADER } else { 0 };
        Self { plain: mtu as usize + header, link }
    }

    /// Whether a frame of `len` bytes that begins so is too long. As in the kernel, one tag does not count.
    #[inline(always)]
    pub(crate) fn refuses(self, len: usize, frame: &[u8]) -> bool {
        len > self.plain && !(self.link == LinkLayer::Ethernet && len <= self.plain + 4 && is_tagged(frame))
    }
}

#[cold]
fn is_tagged(frame: &[u8]) -> bool {
    frame.get(12..14).is_some_and(|t| EtherType(u16::from_be_bytes([t[0], t[1]])).is_vlan())
}

/// `02:fe` and four random bytes: locally administered, as VPP's interfaces on devices of the kernel have them.
pub(crate) fn random_mac() -> io::Result<[u8; 6]> {
    let mut mac = [0x02, 0xfe, 0, 0, 0, 0];
    // SAFETY: pointer and length describe the last four bytes of `mac`.
    let got = unsafe { libc::getrandom(mac[2..].as_mut_ptr().cast(), 4, 0) };
    if got == 4 { Ok(mac) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tag_does_not_count_against_the_mtu() {
        let limit = FrameLimit::of_mtu(1500, LinkLayer::Ethernet);
        let mut frame = [0; 64];
        let mut refused = |tpid: [u8; 2], len| {
            frame[12..14].copy_from_slice(&tpid);
            limit.refuses(len, &frame)
        };
        assert!(!refused([8, 0], 1514) && refused([8, 0], 1515));
        for tpid in [[0x81, 0], [0x88, 0xa8]] {
            assert!(!refused(tpid, 1518) && refused(tpid, 1519));
        }
        assert!(limit.refuses(1515, &[0; 3]));
        assert!(FrameLimit::of_mtu(1500, LinkLayer::Ip).refuses(1501, &frame));
    }

    #[test]
    fn drawn_addresses_are_local_and_differ() {
        let (a, b) = (random_mac().unwrap(), random_mac().unwrap());
        assert_eq!((a[0], a[1], b[0], b[1]), (2, 0xfe, 2, 0xfe));
        assert_ne!(a, b);
    }
}
