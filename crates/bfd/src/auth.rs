//! Authentication of control packets (RFC 5880, 4.2 to 4.4 and 6.7).
//!
//! ```text
//!   control packet, 24 bytes │ type │ length │ key ID │ reserved │ sequence number │ digest
//!   ◄──────────────── digest over all of it, with the key in the digest's place ──────────────►
//! ```
//!
//! A simple password has neither reserved byte nor sequence number; the password stands in the digest's place.

use quiver_command::grammar::Args;
use quiver_command::operation::OpError;
use quiver_command::request::{Argument, Value};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha1::Digest as _;
use subtle::ConstantTimeEq as _;

mod kept;

pub use kept::Kept;

use crate::packet::{Control, LEN};

/// Bytes of a section before password or digest, by whether it has a sequence number.
const HEAD: [usize; 2] = [3, 8];
/// Most bytes of a secret, and of a digest.
const SECRET_MAX: usize = 20;
/// Most bytes of a control packet with its section.
pub const SEALED_MAX: usize = LEN + HEAD[1] + SECRET_MAX;

quiver_command::words! {
    /// How packets are authenticated.
    pub enum Kind {
        /// The password stands in the packet.
        Password = "simple-password",
        /// MD5 over packet and key; the sequence number rises now and then.
        Md5 = "keyed-md5",
        /// MD5 over packet and key; the sequence number rises with each packet.
        MeticulousMd5 = "meticulous-keyed-md5",
        /// SHA1 over packet and key; the sequence number rises now and then.
        Sha1 = "keyed-sha1",
        /// SHA1 over packet and key; the sequence number rises with each packet.
        MeticulousSha1 = "meticulous-keyed-sha1",
    }
}

impl Kind {
    const ALL: [Self; 5] = [Self::Password, Self::Md5, Self::MeticulousMd5, Self::Sha1, Self::MeticulousSha1];

    /// The number in packets (RFC 5880, 4.1).
    pub const fn number(self) -> u8 {
        match self {
            Self::Password => 1,
            Self::Md5 => 2,
            Self::MeticulousMd5 => 3,
            Self::Sha1 => 4,
            Self::MeticulousSha1 => 5,
        }
    }

    /// The type with this number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// As commands name it.
    pub fn name(self) -> &'static str {
        <Self as Value>::WORDS.get(usize::from(self.number()) - 1).copied().unwrap_or_default()
    }

    /// Most bytes of a secret (RFC 5880, 4.2 to 4.4).
    pub const fn secret_max(self) -> usize {
        if self.is_sha1() { SECRET_MAX } else { 16 }
    }

    const fn is_sha1(self) -> bool {
        matches!(self, Self::Sha1 | Self::MeticulousSha1)
    }

    const fn is_meticulous(self) -> bool {
        matches!(self, Self::MeticulousMd5 | Self::MeticulousSha1)
    }

    const fn has_sequence(self) -> bool {
        !matches!(self, Self::Password)
    }
}

/// A shared secret, at most 20 bytes. Its debug text does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    bytes: [u8; SECRET_MAX],
    len: u8,
}

impl Secret {
    /// A secret of 1 to 20 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut secret = Self { bytes: [0; SECRET_MAX], len: u8::try_from(bytes.len()).ok()? };
        secret.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(secret)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn of_text(text: &str) -> Result<Self, &'static str> {
        let digits = text.as_bytes();
        let pairs: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).ok().filter(|_| pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit)))
            .map(|pair| u8::from_str_radix(pair?, 16).ok())
            .collect();
        pairs.and_then(|bytes| Self::new(&bytes)).ok_or("2 to 40 hexadecimal digits, two for each byte")
    }

    fn to_text(self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Value for Secret {
    const KIND: &'static str = "hexadecimal digits";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        let word = args.word(argument.what())?;
        // The error does not repeat the word: it goes to logs.
        Self::of_text(&word).map_err(|expected| OpError::invalid(argument.what(), "…", expected))
    }

    fn text(&self) -> String {
        self.to_text()
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_text())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::of_text(&text).map_err(|expected| D::Error::custom(format!("expected {expected}")))
    }
}

/// A configured key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// How it is used.
    pub kind: Kind,
    /// The secret.
    pub secret: Secret,
}

/// A key of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The key.
    pub key: Key,
    /// Its number in packets.
    pub id: u8,
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is authenticated, and the session is not.
    Unexpected,
    /// It is not authenticated, and the session is.
    Missing,
    /// Another type than the session's key has.
    Kind,
    /// Another key ID than the session's.
    KeyId,
    /// The section has another length than its type has.
    Length,
    /// The sequence number is one that was there before, or too far ahead.
    Sequence,
    /// Password or digest is wrong.
    Digest,
}

/// A control packet with its section.
#[derive(Clone, Copy)]
pub struct Sealed {
    bytes: [u8; SEALED_MAX],
    len: usize,
}

impl Sealed {
    /// A packet, authenticated by a key where one is in use.
    pub fn new(control: &Control, by: Option<&InUse>, sequence: u32) -> Self {
        let mut sealed = Self { bytes: [0; SEALED_MAX], len: LEN };
        sealed.bytes[..LEN].copy_from_slice(&Control { authenticated: by.is_some(), ..*control }.to_bytes());
        let Some(InUse { key: Key { kind, secret }, id }) = by else { return sealed };
        let head = LEN + HEAD[usize::from(kind.has_sequence())];
        sealed.len = head + if kind.has_sequence() { kind.digest_len() } else { secret.bytes().len() };
        sealed.bytes[3] = sealed.len as u8;
        sealed.bytes[LEN..LEN + 3].copy_from_slice(&[kind.number(), (sealed.len - LEN) as u8, *id]);
        if kind.has_sequence() {
            sealed.bytes[LEN + 4..LEN + 8].copy_from_slice(&sequence.to_be_bytes());
            sealed.bytes[head..].copy_from_slice(&secret.bytes);
            let (digest, len) = kind.digest(&sealed.bytes[..sealed.len]);
            sealed.bytes[head..head + len].copy_from_slice(&digest[..len]);
        } else {
            sealed.bytes[head..sealed.len].copy_from_slice(secret.bytes());
        }
        sealed
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Kind {
    const fn digest_len(self) -> usize {
        if self.is_sha1() { 20 } else { 16 }
    }

    /// The digest of a packet, and how many bytes it has.
    fn digest(self, packet: &[u8]) -> ([u8; SECRET_MAX], usize) {
        let (mut out, len) = ([0; SECRET_MAX], self.digest_len());
        if self.is_sha1() {
            out[..len].copy_from_slice(&sha1::Sha1::digest(packet));
        } else {
            out[..len].copy_from_slice(&md5::Md5::digest(packet));
        }
        (out, len)
    }
}

impl InUse {
    /// Checks a packet that ends with its section; gives its sequence number, where it has one. `window` says which may come.
    fn check(&self, packet: &[u8], window: impl FnOnce(u32) -> bool) -> Result<Option<u32>, Refused> {
        let Key { kind, secret } = self.key;
        let Some([number, len, id, ..]) = packet.get(LEN..) else { return Err(Refused::Length) };
        if *number != kind.number() {
            return Err(Refused::Kind);
        }
        if *id != self.id {
            return Err(Refused::KeyId);
        }
        if LEN + usize::from(*len) != packet.len() {
            return Err(Refused::Length);
        }
        if !kind.has_sequence() {
            let password = packet.get(LEN + HEAD[0]..).unwrap_or_default();
            let mut padded = [0; SECRET_MAX];
            let Some(place) = padded.get_mut(..password.len()) else { return Err(Refused::Length) };
            place.copy_from_slice(password);
            let same = padded.ct_eq(&secret.bytes) & password.len().ct_eq(&secret.bytes().len());
            return if same.into() { Ok(None) } else { Err(Refused::Digest) };
        }
        let head = LEN + HEAD[1];
        if packet.len() != head + kind.digest_len() {
            return Err(Refused::Length);
        }
        let sequence = packet.get(LEN + 4..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word));
        // Before the digest: a packet that was recorded costs no hash.
        if !window(sequence) {
            return Err(Refused::Sequence);
        }
        let mut keyed = [0; SEALED_MAX];
        keyed[..head].copy_from_slice(&packet[..head]);
        keyed[head..].copy_from_slice(&secret.bytes);
        let (digest, len) = kind.digest(&keyed[..packet.len()]);
        if digest[..len].ct_eq(&packet[head..]).into() { Ok(Some(sequence)) } else { Err(Refused::Digest) }
    }
}

/// What the peer's next packet may be numbered (RFC 5880, 6.7.3 and 6.7.4).
#[derive(Clone, Copy, Debug)]
struct Received {
    sequence: u32,
    /// Twice the detection time after the last packet, ns: then any number may come.
    forgotten: u64,
}

/// Authentication of one session.
#[derive(Clone, Debug)]
pub struct Authentication {
    current: Option<InUse>,
    /// What the peer's first packet of that kind puts into use.
    next: Option<Option<InUse>>,
    /// Number of the packet that was sent last.
    sequence: u32,
    sent: Option<Control>,
    received: Option<Received>,
}

impl Authentication {
    /// Packets are numbered from `sequence` on: a random number.
    pub fn new(by: Option<InUse>, sequence: u32) -> Self {
        Self { current: by, next: None, sequence, sent: None, received: None }
    }

    /// Another key or none; `delayed`: as soon as the peer uses it.
    pub fn set(&mut self, by: Option<InUse>, delayed: bool) {
        self.next = (delayed && by != self.current).then_some(by);
        if !delayed && by != self.current {
            (self.current, self.received) = (by, None);
        }
    }

    /// Waits for the peer to use a new key, or none.
    pub fn is_pending(&self) -> bool {
        self.next.is_some()
    }

    /// Whether the peer may have sent this; `packet` is trimmed to its length field.
    ///
    /// # Errors
    /// See [`Refused`]; of a change that is pending, what the old key says.
    pub fn check(&mut self, control: &Control, packet: &[u8], now: u64) -> Result<(), Refused> {
        let received = self.received.filter(|received| now < received.forgotten);
        let window = |by: &InUse, sequence: u32| {
            let Some(received) = received else { return true };
            let ahead = sequence.wrapping_sub(received.sequence);
            (u32::from(by.key.kind.is_meticulous())..=3 * u32::from(control.detect_mult)).contains(&ahead)
        };
        let sequence = match (check(self.current, control, packet, window), self.next) {
            (Ok(sequence), _) => sequence,
            (Err(why), Some(next)) => {
                let sequence = check(next, control, packet, |_, _| true).map_err(|_| why)?;
                (self.current, self.next) = (next, None);
                sequence
            }
            (Err(why), None) => return Err(why),
        };
        self.received = sequence.map(|sequence| Received { sequence, forgotten: u64::MAX });
        Ok(())
    }

    /// A packet was taken; the detection time is now this long, ns.
    pub fn taken(&mut self, now: u64, detection_time: u64) {
        if let Some(received) = &mut self.received {
            received.forgotten = now.saturating_add(2 * detection_time);
        }
    }

    /// The packet as it is sent.
    pub fn seal(&mut self, control: &Control) -> Sealed {
        if let Some(by) = &self.current
            && (by.key.kind.is_meticulous() || self.sent != Some(*control))
        {
            self.sequence = self.sequence.wrapping_add(1);
            self.sent = Some(*control);
        }
        Sealed::new(control, self.current.as_ref(), self.sequence)
    }
}

fn check(
    by: Option<InUse>,
    control: &Control,
    packet: &[u8],
    window: impl FnOnce(&InUse, u32) -> bool,
) -> Result<Option<u32>, Refused> {
    match (by, control.authenticated) {
        (None, false) => Ok(None),
        (None, true) => Err(Refused::Unexpected),
        (Some(_), false) => Err(Refused::Missing),
        (Some(by), true) => by.check(packet, |sequence| window(&by, sequence)),
    }
}
