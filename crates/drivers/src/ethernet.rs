//! What all drivers of Ethernet devices need: how large a frame may be, and addresses for interfaces.

use std::io;
use std::sync::OnceLock;

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

/// What tells this router from others, as one number.
static IDENTITY: OnceLock<u32> = OnceLock::new();

/// Sets what MAC addresses are derived from: bytes that are the same at each start of this router, and that no other router of the
/// same link has. Only the first call counts.
pub fn set_identity(identity: &[u8]) {
    let _ = IDENTITY.set(crc32fast::hash(identity));
}

/// `02:fe` and four bytes, locally administered, as VPP's interfaces on devices of the kernel have them. The bytes follow from the
/// router's identity, the interface's kind and name, and the address of the device below it, so hosts keep their neighbors and
/// routes when the router starts again. They are random where there is no identity.
pub(crate) fn default_mac(kind: &str, name: &str, device: Option<[u8; 6]>) -> io::Result<[u8; 6]> {
    let Some(identity) = IDENTITY.get() else { return random_mac() };
    Ok(derived_mac(*identity, kind, name, device))
}

fn derived_mac(identity: u32, kind: &str, name: &str, device: Option<[u8; 6]>) -> [u8; 6] {
    let mut hash = crc32fast::Hasher::new_with_initial(identity);
    for part in [kind.as_bytes(), &[0], name.as_bytes(), &[0], &device.unwrap_or_default()] {
        hash.update(part);
    }
    let [a, b, c, d] = hash.finalize().to_be_bytes();
    [0x02, 0xfe, a, b, c, d]
}

/// `02:fe` and four random bytes.
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

    #[test]
    fn derived_addresses_stay_and_differ_by_router_kind_name_and_device() {
        let mac = |identity: &[u8], kind, name, device| derived_mac(crc32fast::hash(identity), kind, name, device);
        let first = mac(b"one", "host", "eth1", None);
        assert_eq!(first, mac(b"one", "host", "eth1", None));
        assert_eq!(first[..2], [0x02, 0xfe]);
        let others = [
            mac(b"two", "host", "eth1", None),
            mac(b"one", "xdp", "eth1", None),
            mac(b"one", "host", "eth2", None),
            mac(b"one", "host", "eth1", Some([2, 0, 0, 0, 0, 1])),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
    }
}
