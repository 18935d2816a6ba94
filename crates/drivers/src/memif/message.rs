//! Messages of the control channel: 128 bytes each, in host byte order, since both ends run on one machine.
//!
//! ```text
//!   server                     client
//!     │ ── HELLO ─────────────────► │    what the server can do
//!     │ ◄────────────────── INIT ── │    which interface, which mode, the secret
//!     │ ◄───────────── ADD_REGION ─ │    memory, with its descriptor; once for each region
//!     │ ◄─────────────── ADD_RING ─ │    a ring in it, with its event descriptor; once for each ring
//!     │ ◄──────────────── CONNECT ─ │    (each of these but CONNECT is answered by ACK)
//!     │ ── CONNECTED ─────────────► │    packets may flow
//!     │ ◄─────── DISCONNECT ──────► │    either side, at any time
//! ```
//!
//! Nothing in a message is trusted: [`Message::parse`] accepts any bytes, and what it returns are numbers and printable
//! text that the reader still has to check against its own state.

/// Bytes of every message.
pub const MESSAGE_BYTES: usize = 128;
/// The version of the protocol: major 2, minor 0.
pub const VERSION: u16 = 2 << 8;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = 24;
/// Bytes of a name.
const NAME_BYTES: usize = 32;
/// Bytes of the reason for a disconnection.
const REASON_BYTES: usize = 96;

/// Interface mode "Ethernet" on the wire.
pub const MODE_ETHERNET: u8 = 0;
/// Interface mode "IP" on the wire.
pub const MODE_IP: u8 = 1;

/// What the server can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Name of the program.
    pub name: String,
    /// Lowest version that it speaks.
    pub min_version: u16,
    /// Highest version that it speaks.
    pub max_version: u16,
    /// Highest region number.
    pub max_region: u16,
    /// Highest number of a ring from server to client.
    pub max_to_client_ring: u16,
    /// Highest number of a ring from client to server.
    pub max_to_server_ring: u16,
    /// Largest ring, as a power of two.
    pub max_log2_ring_size: u8,
}

/// Which interface a client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// Version of the protocol.
    pub version: u16,
    /// Number of the interface on this socket.
    pub id: u32,
    /// [`MODE_ETHERNET`] or [`MODE_IP`].
    pub mode: u8,
    /// Secret, padded with zeros.
    pub secret: [u8; SECRET_BYTES],
    /// Name of the program.
    pub name: String,
}

/// A ring in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddRing {
    /// Packets go from client to server.
    pub to_server: bool,
    /// Number among the rings of its direction.
    pub index: u16,
    /// Region.
    pub region: u16,
    /// Where in the region.
    pub offset: u32,
    /// Size as a power of two.
    pub log2_size: u8,
    /// Bytes before each packet for the peers' own use.
    pub private_header: u16,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The last message was taken.
    Ack,
    /// Server's first.
    Hello(Hello),
    /// Client's first.
    Init(Init),
    /// Memory; the descriptor comes beside it.
    AddRegion {
        /// Number.
        index: u16,
        /// Bytes.
        size: u64,
    },
    /// A ring; the event descriptor comes beside it.
    AddRing(AddRing),
    /// Client has said all; its interface's name.
    Connect(String),
    /// Server agrees; its interface's name.
    Connected(String),
    /// The end.
    Disconnect {
        /// Number of the reason; peers send 0.
        code: u32,
        /// Reason in words.
        reason: String,
    },
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not 128 bytes.
    #[error("a message of {0} bytes instead of 128")]
    Size(usize),
    /// No such type.
    #[error("a message of unknown type {0}")]
    Type(u16),
}

/// Reads fields one after the other; past the end it reads zeros.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        out[..n].copy_from_slice(head);
        self.0 = rest;
        out
    }
    fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }
    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }
    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }
    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes())
    }
    /// Text up to the first NUL, fit to be printed.
    fn text<const N: usize>(&mut self) -> String {
        let bytes = self.bytes::<N>();
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(N);
        printable(&String::from_utf8_lossy(&bytes[..end]))
    }
}

/// Text of a peer with everything that could upset a terminal or a log replaced.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '?' } else { c }).collect()
}

/// Writes fields one after the other; what does not fit is left out.
struct Writer {
    bytes: [u8; MESSAGE_BYTES],
    at: usize,
}

impl Writer {
    fn put(mut self, bytes: &[u8]) -> Self {
        let room = &mut self.bytes[self.at..];
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.at += n;
        self
    }
    fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }
    fn u16(self, value: u16) -> Self {
        self.put(&value.to_ne_bytes())
    }
    fn u32(self, value: u32) -> Self {
        self.put(&value.to_ne_bytes())
    }
    fn u64(self, value: u64) -> Self {
        self.put(&value.to_ne_bytes())
    }
    /// Text in a field of `N` bytes, cut between characters, always with a NUL behind it.
    fn text<const N: usize>(self, text: &str) -> Self {
        let mut end = text.len().min(N - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut field = [0; N];
        field[..end].copy_from_slice(&text.as_bytes()[..end]);
        self.put(&field)
    }
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// Wrong size or unknown type; nothing else is judged here.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() != MESSAGE_BYTES {
            return Err(MessageError::Size(bytes.len()));
        }
        let mut r = Reader(bytes);
        Ok(match r.u16() {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: r.text::<NAME_BYTES>(),
                min_version: r.u16(),
                max_version: r.u16(),
                max_region: r.u16(),
                max_to_client_ring: r.u16(),
                max_to_server_ring: r.u16(),
                max_log2_ring_size: r.u8(),
            }),
            3 => Self::Init(Init { version: r.u16(), id: r.u32(), mode: r.u8(), secret: r.bytes(), name: r.text::<NAME_BYTES>() }),
            4 => Self::AddRegion { index: r.u16(), size: r.u64() },
            5 => {
                let flags = r.u16();
                Self::AddRing(AddRing {
                    to_server: flags & 1 != 0,
                    index: r.u16(),
                    region: r.u16(),
                    offset: r.u32(),
                    log2_size: r.u8(),
                    private_header: r.u16(),
                })
            }
            6 => Self::Connect(r.text::<NAME_BYTES>()),
            7 => Self::Connected(r.text::<NAME_BYTES>()),
            8 => Self::Disconnect { code: r.u32(), reason: r.text::<REASON_BYTES>() },
            other => return Err(MessageError::Type(other)),
        })
    }

    /// Writes the message.
    pub fn emit(&self) -> [u8; MESSAGE_BYTES] {
        let w = Writer { bytes: [0; MESSAGE_BYTES], at: 0 };
        let w = match self {
            Self::Ack => w.u16(1),
            Self::Hello(h) => w
                .u16(2)
                .text::<NAME_BYTES>(&h.name)
                .u16(h.min_version)
                .u16(h.max_version)
                .u16(h.max_region)
                .u16(h.max_to_client_ring)
                .u16(h.max_to_server_ring)
                .u8(h.max_log2_ring_size),
            Self::Init(i) => w.u16(3).u16(i.version).u32(i.id).u8(i.mode).put(&i.secret).text::<NAME_BYTES>(&i.name),
            Self::AddRegion { index, size } => w.u16(4).u16(*index).u64(*size),
            Self::AddRing(a) => {
                w.u16(5).u16(a.to_server.into()).u16(a.index).u16(a.region).u32(a.offset).u8(a.log2_size).u16(a.private_header)
            }
            Self::Connect(name) => w.u16(6).text::<NAME_BYTES>(name),
            Self::Connected(name) => w.u16(7).text::<NAME_BYTES>(name),
            Self::Disconnect { code, reason } => w.u16(8).u32(*code).text::<REASON_BYTES>(reason),
        };
        w.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_stand_where_the_protocol_has_them() {
        let hello = Message::Hello(Hello { name: "x".into(), max_log2_ring_size: 14, max_region: 0x0102, ..Hello::default() });
        let bytes = hello.emit();
        assert_eq!((bytes[0], bytes[2], bytes[44]), (2, b'x', 14));
        assert_eq!(u16::from_ne_bytes([bytes[38], bytes[39]]), 0x0102);
        let init = Message::Init(Init { id: 7, mode: 1, secret: [9; 24], name: "n".into(), version: VERSION });
        let bytes = init.emit();
        assert_eq!((bytes[0], bytes[4], bytes[8], bytes[9], bytes[32], bytes[33]), (3, 7, 1, 9, 9, b'n'));
        let ring = AddRing { to_server: true, index: 1, region: 2, offset: 3, log2_size: 4, private_header: 5 };
        assert_eq!(&Message::AddRing(ring).emit()[..15], &[5, 0, 1, 0, 1, 0, 2, 0, 3, 0, 0, 0, 4, 5, 0]);
        assert_eq!(&Message::AddRegion { index: 1, size: 2 }.emit()[..12], &[4, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let end = Message::Disconnect { code: 1, reason: "no".into() }.emit();
        assert_eq!(&end[..9], &[8, 0, 1, 0, 0, 0, b'n', b'o', 0]);
    }

    #[test]
    fn long_text_is_cut_between_characters_and_control_characters_are_replaced() {
        let Ok(Message::Connect(name)) = Message::parse(&Message::Connect("é".repeat(40)).emit()) else { panic!() };
        assert_eq!(name, "é".repeat(15));
        let Ok(Message::Connect(name)) = Message::parse(&Message::Connect("a\x1b[2J\n".into()).emit()) else { panic!() };
        assert_eq!(name, "a?[2J?");
        let Ok(Message::Disconnect { reason, .. }) = Message::parse(&[&[8, 0, 0, 0, 0, 0][..], &[0xff; 122]].concat()) else {
            panic!()
        };
        assert_eq!(reason, "?".repeat(96));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error_and_what_is_a_message_stays_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u16..10, exact in any::<bool>()) {
            let mut bytes = bytes;
            if exact {
                bytes.resize(MESSAGE_BYTES, 0);
                bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            }
            if let Ok(message) = Message::parse(&bytes) {
                let once = Message::parse(&message.emit()).unwrap();
                let twice = Message::parse(&once.emit()).unwrap();
                prop_assert_eq!(once, twice);
            }
        }
    }
}
