//! What the program and we share: the maps, and the bits of their words. The other half is `bpf/fast_path.h`.

/// Slots for devices, by the low bits of their index.
pub(super) const INPUTS: u32 = 1024;
/// Ports, of which number 0 is none.
pub const PORTS: u32 = 256;
/// Sockets of a port.
pub(super) const QUEUES: u32 = 64;
/// Load-balances that can lead a packet out.
pub const PATHS: u32 = 65_536;
/// Destinations of each family.
pub const DESTINATIONS: usize = 65_536;

/// Takes IPv4.
pub(super) const ACCEPTS4: u32 = 1;
/// Takes IPv6.
pub(super) const ACCEPTS6: u32 = 2;
/// A kernel at the other end leaves checksums unfinished.
pub(super) const UNFINISHED: u32 = 4;

/// Bit of a port's second word: its device takes frames from programs in the driver hook.
pub(super) const TAKES: u64 = 1 << 16;

/// Bit of the same word: frames with a socket buffer go straight to the other end of its veth.
pub(super) const DIRECT: u64 = 1 << 17;

/// The programs by name, in the order in which their descriptors are handed over: in the driver hook; a packet socket's filter, and the
/// ingress hook that does what the filter says.
pub const PROGRAMS: [&str; 3] = ["forward", "choose", "hand_on"];

/// The maps by name, in the order in which their descriptors are handed over.
pub const MAPS: [&str; 12] = [
    "controls",
    "inputs",
    "ports",
    "paths",
    "decisions4",
    "decisions6",
    "received",
    "sent",
    "used",
    "sockets",
    "devices",
    "questions",
];

/// Bytes of an entry of `inputs`.
pub(super) const INPUT: usize = 32;
/// Bytes of an entry of `ports`.
pub(super) const PORT: usize = 16;
/// Bytes of an entry of `received`.
pub(super) const RECEIVED: usize = 24;
/// Bytes of an entry of `sent` and `used`.
pub(super) const TRAFFIC: usize = 16;
/// Bytes of a question.
pub(super) const QUESTION: usize = 24;

/// The bits of a MAC address in a word, in memory order.
pub(super) fn mac_word(mac: [u8; 6], upper: u16) -> u64 {
    let [a, b, c, d, e, f] = mac;
    let [low, high] = upper.to_le_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, low, high])
}
