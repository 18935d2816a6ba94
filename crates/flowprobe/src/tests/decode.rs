//! A collector's view of IPFIX (RFC 7011), written without a look at what the exporter does: templates as they come, records by them.

use std::collections::BTreeMap;

/// A record: values by number of the information element.
pub type Record = BTreeMap<u16, Vec<u8>>;

/// What a collector has heard of one stream.
#[derive(Default)]
pub struct Collector {
    templates: BTreeMap<(u32, u16), Vec<(u16, usize)>>,
    /// The sequence number that the next message of a domain must have.
    expected: BTreeMap<u32, u32>,
    /// Records of flows.
    pub records: Vec<Record>,
    /// Records of options.
    pub options: Vec<Record>,
    /// Template records.
    pub announced: usize,
    /// Records that the numbers say were lost.
    pub lost: u32,
    options_templates: Vec<u16>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The number that a value of a record is.
pub fn number(record: &Record, element: u16) -> u64 {
    record[&element].iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

impl Collector {
    pub fn hear(&mut self, message: &[u8]) {
        assert_eq!((u16_at(message, 0), usize::from(u16_at(message, 2))), (10, message.len()), "version and length");
        let (sequence, domain) = (u32_at(message, 8), u32_at(message, 12));
        let expected = self.expected.entry(domain).or_insert(sequence);
        self.lost += sequence.wrapping_sub(*expected);
        let mut next = sequence;
        let mut at = 16;
        while at < message.len() {
            let (id, len) = (u16_at(message, at), usize::from(u16_at(message, at + 2)));
            let set = &message[at + 4..at + len];
            match id {
                2 => self.template(domain, set, false),
                3 => self.template(domain, set, true),
                _ => next = next.wrapping_add(self.data(domain, id, set)),
            }
            at += len;
        }
        assert_eq!(at, message.len(), "sets fill the message");
        self.expected.insert(domain, next);
    }

    fn template(&mut self, domain: u32, mut set: &[u8], is_options: bool) {
        while !set.is_empty() {
            let (id, count) = (u16_at(set, 0), usize::from(u16_at(set, 2)));
            let start = if is_options { 6 } else { 4 };
            let fields = (0..count).map(|n| (u16_at(set, start + 4 * n), u16_at(set, start + 4 * n + 2).into())).collect();
            if is_options {
                self.options_templates.push(id);
            }
            self.templates.insert((domain, id), fields);
            self.announced += 1;
            set = &set[start + 4 * count..];
        }
    }

    fn data(&mut self, domain: u32, id: u16, mut set: &[u8]) -> u32 {
        let template = self.templates.get(&(domain, id)).unwrap_or_else(|| panic!("no template {id} yet"));
        let mut count = 0;
        while !set.is_empty() {
            let mut record = Record::new();
            for (element, len) in template {
                record.insert(*element, set[..*len].to_vec());
                set = &set[*len..];
            }
            if self.options_templates.contains(&id) {
                self.options.push(record)
            } else {
                self.records.push(record)
            }
            count += 1;
        }
        count
    }
}
