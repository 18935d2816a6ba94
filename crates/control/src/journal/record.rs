//! The bytes of a record: length and checksum (CRC-32 of length and text), four bytes each, the lowest first, and the text: an operation
//! as JSON, or several of which each has a line. They are there together or not at all.

use quiver_command::change_log::Record;

/// How a file begins.
pub const MAGIC: &[u8; 16] = b"quiver-journal1\n";
const HEAD: usize = 8;
/// Bytes of a record at most, one with many operations: a length above is none.
const MOST: usize = 1 << 30;

fn text(record: &Record) -> Vec<u8> {
    // A name and JSON: it can always be written.
    serde_json::to_vec(record).unwrap_or_default()
}

fn checksum(length: [u8; 4], text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(text);
    hasher.finalize()
}

/// Appends a record.
pub fn append(bytes: &mut Vec<u8>, record: &Record) {
    append_text(bytes, &text(record));
}

/// Appends an operation to those that come to stand in one record.
pub fn append_line(lines: &mut Vec<u8>, record: &Record) {
    lines.extend_from_slice(&text(record));
    lines.push(b'\n');
}

/// Appends lines of operations as one record.
pub fn append_text(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = (text.len() as u32).to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&checksum(length, text).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// Bytes of a record.
pub fn length(record: &Record) -> u64 {
    (HEAD + text(record).len()) as u64
}

/// How what was read ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With a whole record; what follows was reserved and not written.
    Whole,
    /// With a record that is not whole, or bytes that are none.
    Torn,
}

/// The records of a file, and where the last whole one ends.
pub fn read(bytes: &[u8]) -> (Vec<Record>, usize, End) {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        let end = if bytes.iter().all(|byte| *byte == 0) { End::Whole } else { End::Torn };
        return (Vec::new(), 0, end);
    };
    let mut records = Vec::new();
    while let Some((some, length)) = one(rest) {
        records.extend(some);
        rest = &rest[length..];
    }
    let end = if rest.iter().all(|byte| *byte == 0) { End::Whole } else { End::Torn };
    (records, bytes.len() - rest.len(), end)
}

/// The operations of the first record, and its length.
fn one(bytes: &[u8]) -> Option<(Vec<Record>, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*length) as usize;
    let text = rest.get(..count).filter(|_| (1..=MOST).contains(&count))?;
    if checksum(*length, text) != u32::from_le_bytes(*sum) {
        return None;
    }
    // JSON has no line ends but those between two operations.
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let records: Result<Vec<Record>, _> = lines.map(serde_json::from_slice).collect();
    Some((records.ok()?, HEAD + count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: usize) -> Record {
        let request = serde_json::value::to_raw_value(&serde_json::json!({"n": n, "text": "é\"\\"})).unwrap();
        Record { operation: format!("op{n}"), request }
    }

    fn file(count: usize) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        (0..count).for_each(|n| append(&mut bytes, &record(n)));
        bytes
    }

    #[test]
    fn records_read_back_and_reserved_space_is_no_record() {
        for zeros in [0, 1, 7, 8, 9, 4096] {
            let mut bytes = file(3);
            let end = bytes.len();
            bytes.resize(end + zeros, 0);
            let (records, at, how) = read(&bytes);
            assert_eq!((records.len(), at, how), (3, end, End::Whole));
            assert_eq!(records[2].operation, "op2");
            assert_eq!(records[2].request.get(), record(2).request.get());
        }
        assert_eq!(read(&[]).2, End::Whole);
        assert_eq!(length(&record(0)) as usize, file(1).len() - MAGIC.len());
    }

    #[test]
    fn a_torn_record_ends_the_file_wherever_it_is_torn() {
        let (two, three) = (file(2), file(3));
        for cut in two.len() + 1..three.len() {
            let (records, at, end) = read(&three[..cut]);
            assert_eq!((records.len(), at), (2, two.len()), "{cut}");
            assert_eq!(end, End::Torn);
            // The disk had the space, but not all of the text.
            let mut bytes = three[..cut].to_vec();
            bytes.resize(three.len() + 100, 0);
            assert!(read(&bytes).0.len() == 2, "{cut}");
        }
    }

    #[test]
    fn operations_of_one_record_are_there_together_or_not_at_all() {
        let (mut bytes, mut lines) = (file(1), Vec::new());
        (1..4).for_each(|n| append_line(&mut lines, &record(n)));
        append_text(&mut bytes, &lines);
        append(&mut bytes, &record(4));
        let (records, _, end) = read(&bytes);
        let names: Vec<&str> = records.iter().map(|record| record.operation.as_str()).collect();
        assert_eq!((names.as_slice(), end), (&["op0", "op1", "op2", "op3", "op4"][..], End::Whole));
        let four = bytes.len() - length(&record(4)) as usize;
        for cut in file(1).len()..four {
            assert_eq!(read(&bytes[..cut]).0.len(), 1, "{cut}");
        }
    }

    #[test]
    fn any_wrong_byte_is_noticed() {
        let whole = file(3);
        let two = file(2).len();
        for at in two..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            assert_eq!(read(&bytes).0.len(), 2, "{at}");
        }
    }
}
