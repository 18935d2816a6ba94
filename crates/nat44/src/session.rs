//! A session: one cache line that says how a flow's packets are changed in both directions.
//!
//! ```text
//!   word 0, 1   what packets from inside look like:  addresses; ports, protocol, FIB
//!   word 2, 3   what packets from outside look like: addresses; ports, protocol, FIB
//!   word 4      last heard (s, 32) | TCP state (8) | flags (8) | output interface (16)
//!   word 5, 6   bytes, packets
//!   word 7      change of the IP checksum (16) | of the layer-4 checksum (16) | -
//! ```
//!
//! The two keys say it all: a packet from inside is given the outside key's addresses and ports, the other way round, and vice
//! versa. So source NAT, destination NAT and both at once are the same to the data path. Addresses and ports are kept as they
//! are in packets (network order), so that they are copied and compared without being turned.

use std::net::Ipv4Addr;

/// An address and a port as a user sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address.
    pub addr: u32,
    /// Port, or identifier of an ICMP query.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint.
    pub const fn new(addr: u32, port: u16) -> Self {
        Self { addr, port }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", Ipv4Addr::from_bits(self.addr), self.port)
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From an inside interface.
    In2Out,
    /// From an outside interface.
    Out2In,
}

/// What a packet is looked up by: its 6-tuple (addresses, ports, protocol, FIB) and its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(pub [u64; 2]);

impl Key {
    /// From raw words: addresses (source in the first four bytes), ports, as they lie in the packet.
    #[inline(always)]
    pub const fn raw(addrs: u64, ports: u32, proto: u8, direction: Direction, fib: u16) -> Self {
        Self([addrs, ports as u64 | (proto as u64) << 32 | (direction as u64) << 40 | (fib as u64) << 48])
    }

    /// From values.
    pub fn new(src: Endpoint, dst: Endpoint, proto: u8, direction: Direction, fib: u16) -> Self {
        let addrs = u64::from(src.addr.to_be()) | u64::from(dst.addr.to_be()) << 32;
        let ports = u32::from(src.port.to_be()) | u32::from(dst.port.to_be()) << 16;
        Self::raw(native64(addrs), native32(ports), proto, direction, fib)
    }

    /// Source.
    pub fn src(self) -> Endpoint {
        Endpoint::new(u32::from_be(native64(self.0[0]) as u32), u16::from_be(native32(self.0[1] as u32) as u16))
    }

    /// Destination.
    pub fn dst(self) -> Endpoint {
        Endpoint::new(u32::from_be((native64(self.0[0]) >> 32) as u32), u16::from_be((native32(self.0[1] as u32) >> 16) as u16))
    }

    /// Protocol number.
    pub const fn proto(self) -> u8 {
        (self.0[1] >> 32) as u8
    }

    /// The key where `is_whole`, else one that no session has.
    #[inline(always)]
    pub const fn whole(self, is_whole: bool) -> Self {
        Self([self.0[0], self.0[1] | (!is_whole as u64) << 41])
    }

    /// Whether a session may have it.
    #[inline(always)]
    pub const fn is_whole(self) -> bool {
        self.0[1] & 1 << 41 == 0
    }

    /// Which way the key's packets go.
    #[inline(always)]
    pub const fn direction(self) -> Direction {
        if self.0[1] & 1 << 40 == 0 { Direction::In2Out } else { Direction::Out2In }
    }

    /// FIB index.
    #[inline(always)]
    pub const fn fib(self) -> u16 {
        (self.0[1] >> 48) as u16
    }

    /// Addresses of a packet of this key that goes the other way, raw.
    #[inline(always)]
    pub const fn back_addrs(self) -> u64 {
        self.0[0].rotate_left(32)
    }

    /// Ports of a packet of this key that goes the other way, raw.
    #[inline(always)]
    pub const fn back_ports(self) -> u32 {
        (self.0[1] as u32).rotate_left(16)
    }
}

/// Bytes in memory order as a number whose low byte is the first one: the same on every machine.
const fn native64(x: u64) -> u64 {
    if cfg!(target_endian = "big") { x.rotate_left(32) } else { x }
}

const fn native32(x: u32) -> u32 {
    if cfg!(target_endian = "big") { x.rotate_left(16) } else { x }
}

/// Adds 16-bit words in ones' complement.
#[inline(always)]
pub const fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// What is added to a ones' complement sum when `old` words become `new` ones (RFC 1624).
#[inline(always)]
pub const fn change(old: u64, new: u64) -> u16 {
    let (sum, carry) = new.overflowing_add(!old);
    fold(sum.wrapping_add(carry as u64))
}

/// A checksum field after its data has changed by `change` (RFC 1624, equation 3).
#[inline(always)]
pub const fn update(checksum: u16, change: u16) -> u16 {
    let sum = (!checksum) as u32 + change as u32;
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// TCP as far as it is followed (RFC 5382, RFC 7857): who has sent SYN, FIN, RST.
pub mod tcp {
    /// SYN from inside, from outside.
    pub const SYN: [u8; 2] = [1, 2];
    /// FIN from inside, from outside.
    pub const FIN: [u8; 2] = [4, 8];
    /// RST from either.
    pub const RST: u8 = 16;
    const BOTH_SYN: u8 = SYN[0] | SYN[1];
    const BOTH_FIN: u8 = FIN[0] | FIN[1];

    /// Whether both have opened and none has reset or both closed.
    pub const fn is_established(state: u8) -> bool {
        state & BOTH_SYN == BOTH_SYN && state & RST == 0 && state & BOTH_FIN != BOTH_FIN
    }

    /// Whether a segment with these flags begins a new connection over the ports of one that has ended (RFC 5382, section 5).
    pub const fn begins_anew(state: u8, flags: u8) -> bool {
        flags & 2 != 0 && state & (RST | BOTH_FIN) != 0
    }

    /// The state after a segment with these flags (FIN 1, SYN 2, RST 4).
    pub const fn next(state: u8, flags: u8, from_outside: bool) -> u8 {
        let side = from_outside as usize;
        let mut state = if begins_anew(state, flags) { 0 } else { state };
        if flags & 2 != 0 {
            state |= SYN[side];
        }
        if flags & 1 != 0 {
            state |= FIN[side];
        }
        if flags & 4 != 0 {
            state |= RST;
        }
        state
    }
}

/// Properties of a session.
pub mod flag {
    /// By a static mapping.
    pub const STATIC: u8 = 1;
    /// To an address of ours: the packet goes on to the other direction's node.
    pub const HAIRPIN: u8 = 1 << 1;
    /// The source is changed on the way in too.
    pub const TWICE: u8 = 1 << 2;
    /// Its outside endpoint is the inside endpoint's for all remote ones.
    pub const INDEPENDENT: u8 = 1 << 3;
}

/// A session as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Packets from inside.
    pub i2o: Key,
    /// Packets from outside.
    pub o2i: Key,
    /// Seconds of timer time.
    pub last_heard: u32,
    /// See [`tcp`].
    pub tcp: u8,
    /// See [`flag`].
    pub flags: u8,
    /// Bytes, both directions.
    pub bytes: u64,
    /// Packets, both directions.
    pub packets: u64,
    /// The interface with the output feature that its packets from inside leave by, and are counted by; 0: none.
    pub output: u16,
}

/// A record in the table.
pub type Words = [u64; 8];

impl Session {
    /// A session that has carried nothing yet.
    pub const fn new(i2o: Key, o2i: Key, flags: u8, now: u32) -> Self {
        Self { i2o, o2i, last_heard: now, tcp: 0, flags, bytes: 0, packets: 0, output: 0 }
    }

    /// As a record.
    pub fn pack(&self) -> Words {
        let ip = change(self.i2o.0[0], self.o2i.back_addrs());
        let ports = change(u64::from(self.i2o.0[1] as u32), u64::from(self.o2i.back_ports()));
        let l4 = fold(u64::from(ip) + u64::from(ports));
        // An ICMP query has no pseudo-header: only its identifier changes the checksum.
        let l4 = if self.i2o.proto() == 1 { ports } else { l4 };
        [
            self.i2o.0[0],
            self.i2o.0[1],
            self.o2i.0[0],
            self.o2i.0[1],
            u64::from(self.last_heard) | u64::from(self.tcp) << 32 | u64::from(self.flags) << 40 | u64::from(self.output) << 48,
            self.bytes,
            self.packets,
            u64::from(ip) | u64::from(l4) << 16,
        ]
    }

    /// From a record.
    pub const fn unpack(w: &Words) -> Self {
        Self {
            i2o: Key([w[0], w[1]]),
            o2i: Key([w[2], w[3]]),
            last_heard: w[4] as u32,
            tcp: (w[4] >> 32) as u8,
            flags: (w[4] >> 40) as u8,
            bytes: w[5],
            packets: w[6],
            output: (w[4] >> 48) as u16,
        }
    }

    /// The endpoint that is inside.
    pub fn inside(&self) -> Endpoint {
        self.i2o.src()
    }

    /// What it looks like from outside.
    pub fn outside(&self) -> Endpoint {
        self.o2i.dst()
    }

    /// Whether a static mapping made it: the sessions of forwarded packets have the flag, too, and change nothing.
    pub fn is_static(&self) -> bool {
        self.flags & flag::STATIC != 0 && self.inside() != self.outside()
    }

    /// The other end, as it is outside.
    pub fn remote(&self) -> Endpoint {
        self.o2i.src()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(a: u32, p: u16, b: u32, q: u16) -> Key {
        Key::new(Endpoint::new(a, p), Endpoint::new(b, q), 17, Direction::In2Out, 7)
    }

    #[test]
    fn a_key_is_what_lies_in_the_packet() {
        let k = key(0x0a00_0001, 1025, 0x3000_0001, 12);
        assert_eq!(k.0[0].to_ne_bytes(), [10, 0, 0, 1, 48, 0, 0, 1]);
        assert_eq!((k.0[1] as u32).to_ne_bytes(), [4, 1, 0, 12]);
        assert_eq!((k.src(), k.dst()), (Endpoint::new(0x0a00_0001, 1025), Endpoint::new(0x3000_0001, 12)));
        assert_eq!((k.proto(), k.fib()), (17, 7));
        assert_eq!(k.back_addrs().to_ne_bytes(), [48, 0, 0, 1, 10, 0, 0, 1]);
        assert_eq!(k.back_ports().to_ne_bytes(), [0, 12, 4, 1]);
    }

    #[test]
    fn a_record_keeps_the_session() {
        let mut s = Session::new(key(1, 2, 3, 4), Key([5, 6]), flag::STATIC | flag::TWICE, 77);
        (s.tcp, s.bytes, s.packets, s.output) = (19, u64::MAX, 1 << 40, 0xfedc);
        assert_eq!(Session::unpack(&s.pack()), s);
    }

    #[test]
    fn an_updated_checksum_is_the_one_of_the_new_data() {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..10_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (old, new) = (x, x.rotate_left(29) ^ x >> 7);
            let other = x >> 40;
            let sum = |data: u64| (0..64).step_by(16).map(|at| data >> at & 0xffff).sum::<u64>();
            let of = |data: u64| !fold(sum(data) + sum(other));
            let updated = update(of(old), change(old, new));
            // 0 and 0xffff are the same number.
            assert!(updated == of(new) || updated ^ of(new) == 0xffff, "{old:x} {new:x}");
        }
    }

    #[test]
    fn a_connection_is_established_between_both_syns_and_both_fins() {
        let after = |steps: &[(u8, bool)]| steps.iter().fold(0, |s, (f, out)| tcp::next(s, *f, *out));
        let opened = [(2, false), (2, true)];
        assert!(!tcp::is_established(after(&opened[..1])) && tcp::is_established(after(&opened)));
        let half = [opened.as_slice(), &[(1, true)]].concat();
        assert!(tcp::is_established(after(&half)), "half closed: the other side may go on");
        let closed = [half.as_slice(), &[(1, false)]].concat();
        assert!(!tcp::is_established(after(&closed)));
        assert!(!tcp::is_established(after(&[opened.as_slice(), &[(4, true)]].concat())));
        let again = [closed.as_slice(), &opened].concat();
        assert!(tcp::is_established(after(&again)), "the ports are used again");
    }
}
