//! IPFIX messages as bytes (RFC 7011, 3): a header, then sets of records of one kind each.

/// Bytes of a message's header.
pub const HEADER: usize = 16;
/// Bytes of a set's header.
pub const SET: usize = 4;
/// Version of the protocol.
const VERSION: u16 = 10;
/// Number of sets of templates.
pub const TEMPLATES: u16 = 2;
/// Number of sets of options templates.
pub const OPTIONS: u16 = 3;

/// A message that is put together.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
    /// The set that is open: where it begins, and its number.
    set: Option<(usize, u16)>,
    /// Data records in it.
    records: u32,
}

impl Message {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Data records in it.
    pub const fn records(&self) -> u32 {
        self.records
    }

    /// Whether `len` more bytes fit into a set of this number, where the message may have `most` bytes.
    pub fn fits(&self, set: u16, len: usize, most: usize) -> bool {
        let header = if self.set.is_some_and(|(_, open)| open == set) { 0 } else { SET };
        self.bytes.len().max(HEADER) + header + len <= most
    }

    /// Appends a record to a set of this number. Sets from 256 on have data records.
    pub fn push(&mut self, set: u16, record: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER, 0);
        }
        if self.set.is_none_or(|(_, open)| open != set) {
            self.close_set();
            self.set = Some((self.bytes.len(), set));
            self.bytes.extend(set.to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        record(&mut self.bytes);
        self.records += u32::from(set >= crate::template::FIRST);
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        if let Some(place) = self.bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    fn close_set(&mut self) {
        if let Some((at, _)) = self.set.take() {
            let len = (self.bytes.len() - at) as u16;
            self.put_u16(at + 2, len);
        }
    }

    /// Completes it: `seconds` since 1970, `sequence`: data records of the stream before it. The message is empty again, with `room` for the
    /// next one.
    pub fn finish(&mut self, seconds: u32, sequence: u32, domain: u32, room: Vec<u8>) -> Vec<u8> {
        self.close_set();
        self.records = 0;
        let mut bytes = std::mem::replace(&mut self.bytes, room);
        self.bytes.clear();
        let len = bytes.len() as u16;
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&VERSION.to_be_bytes());
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[4..8].copy_from_slice(&seconds.to_be_bytes());
        header[8..12].copy_from_slice(&sequence.to_be_bytes());
        header[12..].copy_from_slice(&domain.to_be_bytes());
        if let Some(place) = bytes.get_mut(..HEADER) {
            place.copy_from_slice(&header);
        }
        bytes
    }
}
