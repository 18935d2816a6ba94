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

/// The least number of a template, and so of a set of data records (RFC 7011, 3.4.1).
pub const FIRST: u16 = 256;

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
        self.records += u32::from(set >= FIRST);
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        if let Some(place) = self.bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Appends a template record (RFC 7011, 3.4.1): its number, then number and bytes of each information element.
    pub fn push_template(&mut self, id: u16, fields: &[(u16, u16)]) {
        self.push(TEMPLATES, |out| {
            let count = fields.len() as u16;
            let words = [id, count].into_iter().chain(fields.iter().flat_map(|(element, len)| [*element, *len]));
            words.for_each(|word| out.extend(word.to_be_bytes()));
        });
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

/// Bytes of a template record of so many information elements.
pub const fn template_len(fields: usize) -> usize {
    4 + 4 * fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_lengths_and_only_data_records_are_counted() {
        let mut message = Message::default();
        message.push_template(256, &[(323, 8), (230, 1)]);
        message.push(256, |out| out.extend([7; 9]));
        message.push(256, |out| out.extend([8; 9]));
        assert_eq!(message.records(), 2);
        let bytes = message.finish(0x0102_0304, 9, 5, Vec::new());
        let mut expected = vec![0, 10, 0, 54, 1, 2, 3, 4, 0, 0, 0, 9, 0, 0, 0, 5];
        expected.extend([0, 2, 0, 16, 1, 0, 0, 2, 1, 67, 0, 8, 0, 230, 0, 1]);
        expected.extend([1, 0, 0, 22]);
        expected.extend([[7; 9], [8; 9]].concat());
        assert_eq!(bytes, expected);
        assert!(message.is_empty() && message.records() == 0);
        assert!(message.fits(256, 10, HEADER + SET + 10) && !message.fits(256, 11, HEADER + SET + 10));
    }
}
