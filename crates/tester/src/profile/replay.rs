//! Packets of a capture, sent as they are but for the signature, where they have room for one.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use quiver_wire::pcapfile::{LinkType, Reader};
use serde::Deserialize;

use super::Signing;
use crate::room::{self, NoRoom};

/// Most packets: what the numbers of templates can tell apart.
const PACKETS: usize = 1 << 16;
/// Most bytes of all packets together.
const BYTES: usize = 256 << 20;
/// Longest packet that is sent, without FCS.
const LONGEST: usize = super::size::MAX as usize - 4;

/// The packets, in the order of the capture.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Replay {
    packets: Arc<[Box<[u8]>]>,
    ethernet: bool,
    /// Packets without room for a signature, and the first of them, counted from 1.
    without: usize,
    first: Option<(usize, NoRoom)>,
}

impl Replay {
    /// The packets; at least one.
    pub fn packets(&self) -> &[Box<[u8]>] {
        &self.packets
    }

    /// Whether they begin with an Ethernet header rather than with an IP header.
    pub fn ethernet(&self) -> bool {
        self.ethernet
    }

    /// How many of them have room for a signature.
    pub fn signing(&self) -> Signing {
        match self.without {
            0 => Signing::Full,
            n if n == self.packets.len() => Signing::None,
            _ => Signing::Part,
        }
    }

    /// The first packet that has no room for a signature, counted from 1, and why.
    pub fn without_room(&self) -> Option<(usize, NoRoom)> {
        self.first
    }

    /// Mean size of their frames with FCS, bytes.
    pub fn mean(&self) -> f64 {
        let around = if self.ethernet { 4 } else { 18 };
        let sizes = self.packets.iter().map(|p| (p.len() + around).max(super::size::MIN.into()));
        sizes.sum::<usize>() as f64 / self.packets.len() as f64
    }

    /// Bytes of the longest frame without FCS, on a port of Ethernet.
    pub fn longest(&self) -> usize {
        let header = if self.ethernet { 0 } else { 14 };
        self.packets.iter().map(|p| p.len() + header).max().unwrap_or(0)
    }

    /// Reads a capture.
    fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        // A pipe that nobody writes to would never end.
        if !path.metadata().map_err(|e| failed(&e))?.is_file() {
            return Err(format!("{name} is no file"));
        }
        let reader = Reader::new(File::open(path).map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
        let (mut packets, mut link, mut bytes) = (Vec::new(), None, 0);
        for packet in reader {
            let packet = packet.map_err(|e| failed(&e))?;
            let n = packets.len() + 1;
            if *link.get_or_insert(packet.link_type) != packet.link_type {
                return Err(format!("{name}, packet {n}: it has another kind of link than those before"));
            }
            if packet.bytes.len() < packet.original_len as usize {
                return Err(format!("{name}, packet {n}: it was cut to {} of {} bytes", packet.bytes.len(), packet.original_len));
            }
            let least = if packet.link_type == LinkType::ETHERNET { 14 } else { 20 };
            if !(least..=LONGEST).contains(&packet.bytes.len()) {
                return Err(format!("{name}, packet {n}: {} bytes; {least} to {LONGEST} can be sent", packet.bytes.len()));
            }
            bytes += packet.bytes.len();
            if n > PACKETS || bytes > BYTES {
                return Err(format!("{name} has more than {PACKETS} packets, or more than {BYTES} bytes of them"));
            }
            packets.push(packet.bytes.into_boxed_slice());
        }
        let ethernet = match link {
            Some(LinkType::ETHERNET) => true,
            Some(LinkType::RAW_IP) => false,
            Some(LinkType(other)) => {
                return Err(format!("{name}: packets of link type {other}; Ethernet (1) and IP (101) can be sent"));
            }
            None => return Err(format!("{name} has no packet")),
        };
        let packets: Arc<[Box<[u8]>]> = packets.into();
        let mut bare = packets.iter().enumerate().filter_map(|(i, p)| Some((i + 1, room::find(p, ethernet).err()?)));
        let first = bare.next();
        let without = bare.count() + usize::from(first.is_some());
        Ok(Self { packets, ethernet, without, first })
    }
}

impl TryFrom<String> for Replay {
    type Error = String;

    fn try_from(file: String) -> Result<Self, String> {
        Self::read(Path::new(&file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::{MakeError, Maker, Surroundings};
    use crate::profile::Profile;
    use crate::receiver::{Flow, Kind, Receiver};
    use crate::signature::{self, Reading, Signature};
    use crate::tracker::FIRST;
    use quiver_wire::MacAddr;
    use quiver_wire::build::Packet;
    use quiver_wire::pcapfile::Writer;

    /// A capture's file of a test's own, gone with it.
    struct Capture(std::path::PathBuf);

    impl Capture {
        fn new(name: &str, link: LinkType, packets: &[Vec<u8>], cut: usize) -> Self {
            let path = std::env::temp_dir().join(format!("quiver-replay-{}-{name}.pcap", std::process::id()));
            let mut writer = Writer::new(File::create(&path).unwrap(), link).unwrap();
            packets.iter().for_each(|p| writer.write(0, p, p.len() + cut).unwrap());
            writer.finish().unwrap();
            Self(path)
        }

        fn profile(&self, more: &str) -> Result<Profile, String> {
            let text = format!("name: p\nstreams:\n- name: s\n  pcap: {}\n  {more}\n", self.0.display());
            Profile::of_yaml("p", &text).map_err(|e| e.to_string())
        }
    }

    impl Drop for Capture {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn around(ethernet: bool) -> Surroundings {
        let [src, dst] = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
        Surroundings { src, dst: Some(dst), ethernet, id: 0, tag: 1, seed: 1 }
    }

    fn udp(len: usize) -> Vec<u8> {
        Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6])).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(5, 6).payload_len(len).build()
    }

    #[test]
    fn packets_go_out_as_they_are_in_their_order_and_over_again() {
        let packets = [udp(300), udp(20), udp(9), udp(300)];
        let capture = Capture::new("order", LinkType::ETHERNET, &packets, 0);
        let profile = capture.profile("signature: none").unwrap();
        let mut maker = Maker::new(&profile.streams[0], None, &around(true)).unwrap();
        for n in 0..12 {
            let (made, mut wanted) = (maker.make_bytes(5), packets[n % 4].clone());
            // As short as a frame can be at least.
            wanted.resize(wanted.len().max(60), 0);
            assert_eq!(made, wanted, "{n}");
        }
        assert_eq!(maker.largest(), 342);
        let replay = profile.streams[0].pcap.as_ref().unwrap();
        assert_eq!((replay.mean(), replay.longest()), ((346.0 + 66.0 + 64.0 + 346.0) / 4.0, 342));
    }

    #[test]
    fn packets_with_room_are_signed_and_nothing_else_of_them_changes() {
        let v6 =
            Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6])).ipv6([0x2001, 2, 0, 0, 0, 0, 0, 1], [0x2001, 2, 0, 0, 0, 0, 0, 2]);
        let mut padded = udp(19);
        padded.extend([0xa9; 21]);
        let mut wrong = udp(60);
        wrong[40] ^= 0x5a;
        let mut bare = udp(33);
        bare[40..42].fill(0);
        let tagged = Packet::ethernet(MacAddr([2; 6]), MacAddr([4; 6])).vlan(9).ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let packets = [
            udp(18),
            v6.clone().tcp(5, 6, quiver_wire::tcp::TcpFlags::ACK).payload_len(31).build(),
            padded,
            udp(17),
            wrong,
            v6.echo_request(1, 2).payload_len(19).build(),
            bare,
            tagged.echo_request(3, 4).ttl(9).payload_len(40).build(),
        ];
        let capture = Capture::new("signed", LinkType::ETHERNET, &packets, 0);
        let stream = &capture.profile("signature: auto").unwrap().streams[0];
        assert_eq!(stream.signing(), Signing::Part);
        let mut maker = Maker::new(stream, None, &around(true)).unwrap();
        let among: Vec<u64> = [0, 3, 4, 8, 11, 12].map(|n| maker.signed().among(n)).into();
        assert_eq!(among, [0, 3, 3, 7, 10, 10]);
        let mut receiver = Receiver::new(1, 0, vec![Flow::new(24)], true, true);
        for n in 0..24_u32 {
            let packet = &packets[n as usize % 8];
            let mut made = maker.make_bytes(1000);
            maker.restamp(&mut made, 2000 + u64::from(n));
            let Ok(room) = room::find(packet, true) else {
                assert_eq!(made[..packet.len()], packet[..], "as it is");
                assert_eq!(receiver.frame(&made, 3000), Kind::Unsigned);
                continue;
            };
            let signature = Signature { tag: 1, stream: 0, sequence: FIRST.wrapping_add(n), time: 2000 + u64::from(n) };
            let end = room.at + signature::LEN;
            assert_eq!(Signature::read(&made[..end]), Reading::Valid(signature));
            assert_eq!(receiver.frame(&made, 3000), Kind::Ours, "found where the receiver looks, {n}");
            let sum_of_whole = {
                let mut cleared = made.clone();
                let sum = room.clear(&mut cleared);
                let same = |from: usize, to: usize| assert_eq!(made.get(from..to), packet.get(from..to), "{n}");
                let at = room.checksum.unwrap_or(room.at);
                same(0, at);
                same(at + 2, if room.checksum.is_some() { room.at } else { at + 2 });
                same(end, packet.len());
                sum
            };
            let Some(at) = room.checksum else { continue };
            let tail = quiver_wire::checksum::Sum::of(&made[room.at..end]).folded();
            let tail = if (room.at - room.l4).is_multiple_of(2) { tail } else { tail.swap_bytes() };
            let field = u16::from_be_bytes([made[at], made[at + 1]]);
            assert!(sum_of_whole.add_u16(tail).add_u16(field).is_valid(), "{n}");
        }
        assert_eq!((receiver.flows()[0].arrivals().received, receiver.received(), receiver.corrupted()), (21, 21, 0));
    }

    #[test]
    fn packets_without_a_link_header_get_the_ports() {
        let packets = [udp(50)[14..].to_vec()];
        let capture = Capture::new("raw", LinkType::RAW_IP, &packets, 0);
        let profile = capture.profile("signature: none").unwrap();
        assert_eq!(profile.streams[0].signing(), Signing::None);
        let signed = capture.profile("signature: full").unwrap();
        let made = Maker::new(&signed.streams[0], None, &around(true)).unwrap().make_bytes(7);
        assert!(matches!(Signature::read(&made), Reading::Valid(s) if s.time == 7) && made[14..42 - 2] == packets[0][..26]);
        let made = Maker::new(&profile.streams[0], None, &around(true)).unwrap().make_bytes(0);
        assert_eq!(made[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(made[14..], packets[0]);
        assert_eq!(Maker::new(&profile.streams[0], None, &around(false)).unwrap().make_bytes(0), packets[0]);
        let capture = Capture::new("ether", LinkType::ETHERNET, &[udp(50)], 0);
        let error = Maker::new(&capture.profile("signature: none").unwrap().streams[0], None, &around(false)).unwrap_err();
        assert_eq!(error, MakeError::NeedsEthernet("s".to_owned()));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_in_one_line() {
        let whole = Capture::new("whole", LinkType::ETHERNET, &[udp(50), udp(9)], 0);
        for (more, words) in [
            ("share: 1", "packet 2 of the capture has no room for a signature: its payload is 9 bytes"),
            ("share: 1", "`signature: auto' has such packets counted only, `none' all"),
            ("signature: none\n  size: 64", "has sizes and headers of its own"),
            ("signature: none\n  ipv4: {}", "has sizes and headers of its own"),
            ("signature: none\nbidirectional: true", "cannot be exchanged"),
            ("signature: auto\n- name: t\n  ipv4: {}", "must be alone in its direction"),
        ] {
            let error = whole.profile(more).unwrap_err();
            assert!(!error.contains('\n') && error.contains(words), "{more}: {error}");
        }
        for (name, link, packets, cut, words) in [
            ("cut", LinkType::ETHERNET, vec![udp(50)], 7, "packet 1: it was cut to 92 of 99 bytes"),
            ("none", LinkType::ETHERNET, vec![], 0, "has no packet"),
            ("short", LinkType::ETHERNET, vec![vec![0; 9]], 0, "packet 1: 9 bytes"),
            ("link", LinkType(113), vec![udp(50)], 0, "packets of link type 113"),
        ] {
            let error = Capture::new(name, link, &packets, cut).profile("signature: none").unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        let error = Capture("/nonexistent/x.pcap".into()).profile("signature: none").unwrap_err();
        assert!(error.contains("/nonexistent/x.pcap: No such file"), "{error}");
    }
}
