//! The bytes of a snapshot.
//!
//! ```text
//!   magic (16) │ version (4) │ length of all (8) │ sections … │ CRC-32 of all before it (4)
//!   section:  length of name (1) │ name │ version (2) │ length (8) │ what its subject wrote
//! ```
//!
//! Numbers have the lowest byte first. Everything is checked before anything is used: length, version and checksum of the whole, then each
//! section's bounds. What a subject finds in its section is checked by [`Load`]: it never reads beyond the section, and what it
//! refuses costs that subject alone.

use std::net::IpAddr;

use quiver_wire::MacAddr;

use super::Round;

/// How a snapshot begins.
pub const MAGIC: &[u8; 16] = b"quiver-snapshot\n";
/// Version of the format of the whole; sections have versions of their own.
pub const VERSION: u32 = 1;
const HEAD: usize = MAGIC.len() + 4 + 8;
const TAIL: usize = 4;

/// Why a snapshot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It does not begin as one.
    #[error("it is no snapshot")]
    NoSnapshot,
    /// Another format.
    #[error("its format is version {0}, this router knows {VERSION}")]
    Version(u32),
    /// It was cut, or something was added.
    #[error("it has {is} bytes and says {said}")]
    Length {
        /// What its head says.
        said: u64,
        /// What there is.
        is: u64,
    },
    /// Bytes were changed.
    #[error("its checksum is wrong")]
    Checksum,
    /// A section goes beyond its end.
    #[error("its sections contradict its length")]
    Sections,
}

/// What a subject reads makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its section is damaged")]
pub struct Damaged;

/// A snapshot that is being written.
#[derive(Debug)]
pub struct Save {
    bytes: Vec<u8>,
    round: Round,
}

impl Save {
    /// A snapshot for this time of loading.
    pub fn new(round: Round) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        Self { bytes, round }
    }

    /// Which time this will be loaded: what was said ahead need not be said again.
    pub fn round(&self) -> Round {
        self.round
    }

    /// Writes a section.
    pub fn section(&mut self, name: &str, version: u16, write: impl FnOnce(&mut Self)) {
        let name = &name.as_bytes()[..name.len().min(255)];
        self.bytes.push(name.len() as u8);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(&version.to_le_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        write(self);
        let length = (self.bytes.len() - at - 8) as u64;
        self.bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
    }

    /// The whole.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let length = (self.bytes.len() + TAIL) as u64;
        self.bytes[HEAD - 8..HEAD].copy_from_slice(&length.to_le_bytes());
        let sum = crc32fast::hash(&self.bytes);
        self.bytes.extend_from_slice(&sum.to_le_bytes());
        self.bytes
    }

    /// A number.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// A number.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// A number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// A number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    /// Bytes whose number the reader knows.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A text, of at most 65,535 bytes.
    pub fn text(&mut self, text: &str) -> &mut Self {
        let bytes = text.as_bytes().get(..usize::from(u16::MAX)).unwrap_or(text.as_bytes());
        self.u16(bytes.len() as u16).raw(bytes)
    }

    /// A MAC address.
    pub fn mac(&mut self, mac: MacAddr) -> &mut Self {
        self.raw(&mac.0)
    }

    /// An IP address.
    pub fn ip(&mut self, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(a) => self.u8(4).raw(&a.octets()),
            IpAddr::V6(a) => self.u8(6).raw(&a.octets()),
        }
    }
}

/// A section of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its subject.
    pub name: &'a str,
    /// Version of what the subject wrote.
    pub version: u16,
    /// What it wrote.
    pub bytes: &'a [u8],
}

/// Checks a snapshot and takes it apart.
///
/// # Errors
/// Why it cannot be used.
pub fn sections(bytes: &[u8]) -> Result<Vec<Section<'_>>, Unusable> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Unusable::NoSnapshot)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Unusable::NoSnapshot)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(Unusable::Version(version));
    }
    let (said, _) = rest.split_first_chunk::<8>().ok_or(Unusable::NoSnapshot)?;
    let (said, is) = (u64::from_le_bytes(*said), bytes.len() as u64);
    let (whole, sum) = bytes.split_last_chunk::<TAIL>().ok_or(Unusable::NoSnapshot)?;
    if said != is || whole.len() < HEAD {
        return Err(Unusable::Length { said, is });
    }
    if crc32fast::hash(whole) != u32::from_le_bytes(*sum) {
        return Err(Unusable::Checksum);
    }
    let mut load = Load::new(&whole[HEAD..]);
    let mut all = Vec::new();
    while !load.is_empty() {
        all.push(section(&mut load).map_err(|Damaged| Unusable::Sections)?);
    }
    Ok(all)
}

fn section<'a>(load: &mut Load<'a>) -> Result<Section<'a>, Damaged> {
    let length = usize::from(load.u8()?);
    let name = std::str::from_utf8(load.raw(length)?).map_err(|_| Damaged)?;
    let version = load.u16()?;
    let length = usize::try_from(load.u64()?).map_err(|_| Damaged)?;
    Ok(Section { name, version, bytes: load.raw(length)? })
}

/// Reads what [`Save`] wrote.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    rest: &'a [u8],
}

impl<'a> Load<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether all is read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// So many bytes.
    ///
    /// # Errors
    /// There are fewer.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], Damaged> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Damaged)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Damaged)?;
        self.rest = rest;
        Ok(*head)
    }

    /// A number.
    ///
    /// # Errors
    /// The section ends.
    pub fn u8(&mut self) -> Result<u8, Damaged> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number.
    ///
    /// # Errors
    /// The section ends.
    pub fn u16(&mut self) -> Result<u16, Damaged> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number.
    ///
    /// # Errors
    /// The section ends.
    pub fn u32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number.
    ///
    /// # Errors
    /// The section ends.
    pub fn u64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many things follow, of which each has so many bytes at least: never more than there can be, so it may be reserved for.
    ///
    /// # Errors
    /// There cannot be so many.
    pub fn count(&mut self, each: usize) -> Result<usize, Damaged> {
        let n = usize::try_from(self.u64()?).map_err(|_| Damaged)?;
        if n > self.rest.len() / each.max(1) { Err(Damaged) } else { Ok(n) }
    }

    /// A text.
    ///
    /// # Errors
    /// The section ends, or it is none.
    pub fn text(&mut self) -> Result<&'a str, Damaged> {
        let n = usize::from(self.u16()?);
        std::str::from_utf8(self.raw(n)?).map_err(|_| Damaged)
    }

    /// A MAC address.
    ///
    /// # Errors
    /// The section ends.
    pub fn mac(&mut self) -> Result<MacAddr, Damaged> {
        self.array().map(MacAddr)
    }

    /// An IP address.
    ///
    /// # Errors
    /// The section ends, or it is none.
    pub fn ip(&mut self) -> Result<IpAddr, Damaged> {
        match self.u8()? {
            4 => self.array::<4>().map(IpAddr::from),
            6 => self.array::<16>().map(IpAddr::from),
            _ => Err(Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot() -> Vec<u8> {
        let mut save = Save::new(Round::Ahead);
        save.section("first", 3, |save| {
            save.u8(1).u16(2).u32(3).u64(4).text("five").mac(MacAddr([6; 6]));
            save.ip(IpAddr::from([10, 0, 0, 7])).ip("2001:db8::8".parse().unwrap());
        });
        save.section("empty", 1, |_| ());
        save.finish()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = snapshot();
        let all = sections(&bytes).unwrap();
        let head: Vec<_> = all.iter().map(|s| (s.name, s.version, s.bytes.is_empty())).collect();
        assert_eq!(head, [("first", 3, false), ("empty", 1, true)]);
        let mut load = Load::new(all[0].bytes);
        assert_eq!((load.u8(), load.u16(), load.u32(), load.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!((load.text(), load.mac()), (Ok("five"), Ok(MacAddr([6; 6]))));
        assert_eq!(load.ip(), Ok(IpAddr::from([10, 0, 0, 7])));
        assert_eq!(load.ip(), Ok("2001:db8::8".parse().unwrap()));
        assert!(load.is_empty() && load.u8() == Err(Damaged) && load.ip() == Err(Damaged));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
        let whole = snapshot();
        for n in 0..whole.len() {
            assert!(sections(&whole[..n]).is_err(), "{n} bytes");
            let mut changed = whole.clone();
            changed[n] ^= 0x10;
            assert!(sections(&changed).is_err(), "byte {n}");
        }
        let longer = [whole.as_slice(), b"x"].concat();
        assert!(matches!(sections(&longer), Err(Unusable::Length { .. })));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = snapshot();
        bytes[MAGIC.len()] = 9;
        let error = sections(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "its format is version 9, this router knows 1");
        assert_eq!(sections(b"").unwrap_err().to_string(), "it is no snapshot");
    }

    #[test]
    fn a_section_that_goes_beyond_the_end_is_found_though_the_checksum_is_right() {
        let mut save = Save::new(Round::Ahead);
        save.section("s", 1, |save| {
            save.u32(7);
        });
        let at = save.bytes.len() - 12;
        save.bytes[at] = 200;
        assert_eq!(sections(&save.finish()), Err(Unusable::Sections));
    }

    #[test]
    fn a_number_of_things_is_never_more_than_there_can_be() {
        let count = |bytes: &[u8], each| Load::new(bytes).count(each);
        let head = |n: u64| [&n.to_le_bytes()[..], &[0; 30]].concat();
        assert_eq!((count(&head(3), 10), count(&head(4), 10), count(&head(u64::MAX), 1)), (Ok(3), Err(Damaged), Err(Damaged)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = sections(&bytes);
            let _ = sections(&[MAGIC.as_slice(), &VERSION.to_le_bytes(), &bytes].concat());
        }
    }
}
