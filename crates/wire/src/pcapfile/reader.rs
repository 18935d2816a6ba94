//! Reading classic pcap (both byte orders, µs and ns) and pcapng (section header, interface description, enhanced and simple
//! packet blocks; others are passed over).

use super::{CapturedPacket, LinkType, MAGIC_NS, MAGIC_US, MAX_PACKET};
use core::fmt;
use std::io::{self, Read};

/// Why a file cannot be read (on).
#[derive(Debug)]
pub enum PcapError {
    /// The first bytes are those of neither format
    NotACapture,
    /// The file ends within a header or packet
    Truncated,
    /// A packet or block is longer than [`MAX_PACKET`] allows
    TooLong(u32),
    /// A block's lengths contradict each other
    BadBlock,
    /// A packet names an interface that no block described
    NoInterface(u32),
    /// Reading failed
    Io(io::Error),
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => f.write_str("not a pcap or pcapng file"),
            Self::Truncated => f.write_str("the file ends within a packet"),
            Self::TooLong(len) => {
                write!(f, "a packet of {len} bytes is longer than the {MAX_PACKET} that can be read")
            }
            Self::BadBlock => f.write_str("the lengths of a block contradict each other"),
            Self::NoInterface(id) => write!(f, "a packet names interface {id}, not in the file"),
            Self::Io(error) => write!(f, "reading failed: {error}"),
        }
    }
}

impl core::error::Error for PcapError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for PcapError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

/// Blocks besides packets may hold long texts; this bounds what one may take.
const MAX_BLOCK: u32 = MAX_PACKET as u32 + 4096;
/// How many interfaces a section may describe.
const MAX_INTERFACES: usize = 4096;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Reads the packets of a capture file one by one; ends after the first error.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    big_endian: bool,
    format: Format,
    failed: bool,
}

#[derive(Debug)]
enum Format {
    Classic { nanos: bool, link_type: LinkType },
    Ng { interfaces: Vec<Interface> },
}

#[derive(Clone, Debug)]
struct Interface {
    link_type: LinkType,
    snap_len: u32,
    /// Time units a second
    units: u128,
    /// Seconds to add to every stamp
    offset: i64,
}

impl<R: Read> Reader<R> {
    /// Reads the file header.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(|error| match PcapError::from(error) {
            PcapError::Truncated => PcapError::NotACapture,
            other => other,
        })?;
        let (big_endian, nanos) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (SECTION_HEADER, _) => {
                let format = Format::Ng { interfaces: Vec::new() };
                let mut reader = Self { input, big_endian: false, format, failed: false };
                reader.section_header()?;
                return Ok(reader);
            }
            (MAGIC_US, _) => (false, false),
            (MAGIC_NS, _) => (false, true),
            (_, MAGIC_US) => (true, false),
            (_, MAGIC_NS) => (true, true),
            _ => return Err(PcapError::NotACapture),
        };
        let mut rest = [0; 20];
        input.read_exact(&mut rest)?;
        let link = word(big_endian, &rest, 16)?;
        // The upper bits tell the length of a trailing FCS
        let format = Format::Classic { nanos, link_type: LinkType(link & 0xffff) };
        Ok(Self { input, big_endian, format, failed: false })
    }

    /// Fills `bytes`; false at the end of the file, where no byte is left.
    fn read_or_end(&mut self, bytes: &mut [u8]) -> Result<bool, PcapError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(PcapError::Truncated),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    fn next_packet(&mut self) -> Result<Option<CapturedPacket>, PcapError> {
        match self.format {
            Format::Classic { nanos, link_type } => self.next_classic(nanos, link_type),
            Format::Ng { .. } => self.next_ng(),
        }
    }

    fn next_classic(&mut self, nanos: bool, link_type: LinkType) -> Result<Option<CapturedPacket>, PcapError> {
        let mut record = [0; 16];
        if !self.read_or_end(&mut record)? {
            return Ok(None);
        }
        let field = |at| word(self.big_endian, &record, at);
        let (seconds, fraction, len, original_len) = (field(0)?, field(4)?, field(8)?, field(12)?);
        if len as usize > MAX_PACKET {
            return Err(PcapError::TooLong(len));
        }
        let mut bytes = vec![0; len as usize];
        self.input.read_exact(&mut bytes)?;
        let scale = if nanos { 1 } else { 1000 };
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * scale;
        Ok(Some(CapturedPacket { time_ns, link_type, original_len, bytes }))
    }

    /// The rest of a section header, whose type has been read: from here on, byte order and interfaces are new.
    fn section_header(&mut self) -> Result<(), PcapError> {
        let mut start = [0; 8];
        self.input.read_exact(&mut start)?;
        self.big_endian = match word(true, &start, 4)? {
            BYTE_ORDER_MAGIC => true,
            magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => false,
            _ => return Err(PcapError::NotACapture),
        };
        let len = word(self.big_endian, &start, 0)?;
        // type, length and magic are read; version, section length and the length again are the least that follows
        self.block_rest(len, 12, 16)?;
        self.format = Format::Ng { interfaces: Vec::new() };
        Ok(())
    }

    /// Reads the rest of a block of `len` bytes, `consumed` of which are read, and takes off the length at its end.
    fn block_rest(&mut self, len: u32, consumed: u32, least: u32) -> Result<Vec<u8>, PcapError> {
        if len > MAX_BLOCK {
            return Err(PcapError::TooLong(len));
        }
        if !len.is_multiple_of(4) || len < consumed + least {
            return Err(PcapError::BadBlock);
        }
        let mut body = vec![0; (len - consumed) as usize];
        self.input.read_exact(&mut body)?;
        if word(self.big_endian, &body, body.len() - 4)? != len {
            return Err(PcapError::BadBlock);
        }
        body.truncate(body.len() - 4);
        Ok(body)
    }

    fn next_ng(&mut self) -> Result<Option<CapturedPacket>, PcapError> {
        loop {
            let mut kind = [0; 4];
            if !self.read_or_end(&mut kind)? {
                return Ok(None);
            }
            let kind = word(self.big_endian, &kind, 0)?;
            if kind == SECTION_HEADER {
                self.section_header()?;
                continue;
            }
            let mut len = [0; 4];
            self.input.read_exact(&mut len)?;
            let len = word(self.big_endian, &len, 0)?;
            let body = self.block_rest(len, 8, 4)?;
            match kind {
                1 => self.describe_interface(&body)?,
                3 => return self.simple_packet(&body).map(Some),
                6 => return self.enhanced_packet(&body).map(Some),
                _ => {}
            }
        }
    }

    fn describe_interface(&mut self, body: &[u8]) -> Result<(), PcapError> {
        let link = half(self.big_endian, body, 0)?;
        let mut interface =
            Interface { link_type: LinkType(link.into()), snap_len: word(self.big_endian, body, 4)?, units: 1_000_000, offset: 0 };
        let mut at = 8;
        // Options that do not fit are as good as none: the interface stands without them
        while let (Ok(code), Ok(len)) = (half(self.big_endian, body, at), half(self.big_endian, body, at + 2)) {
            let value = body.get(at + 4..at + 4 + usize::from(len)).unwrap_or_default();
            match (code, value) {
                (0, _) => break,
                (9, [resolution]) => interface.units = units_a_second(*resolution),
                (14, value) if let Ok(bytes) = <[u8; 8]>::try_from(value) => {
                    let order = if self.big_endian { i64::from_be_bytes } else { i64::from_le_bytes };
                    interface.offset = order(bytes);
                }
                _ => {}
            }
            at += 4 + usize::from(len).next_multiple_of(4);
        }
        if let Format::Ng { interfaces } = &mut self.format {
            if interfaces.len() >= MAX_INTERFACES {
                return Err(PcapError::BadBlock);
            }
            interfaces.push(interface);
        }
        Ok(())
    }

    fn interface(&self, id: u32) -> Result<&Interface, PcapError> {
        match &self.format {
            Format::Ng { interfaces } => interfaces.get(id as usize),
            Format::Classic { .. } => None,
        }
        .ok_or(PcapError::NoInterface(id))
    }

    fn enhanced_packet(&self, body: &[u8]) -> Result<CapturedPacket, PcapError> {
        let field = |at| word(self.big_endian, body, at);
        let interface = self.interface(field(0)?)?;
        let stamp = u128::from(field(4)?) << 32 | u128::from(field(8)?);
        let (len, original_len) = (field(12)?, field(16)?);
        let bytes = body.get(20..).and_then(|data| data.get(..len as usize));
        let bytes = bytes.ok_or(PcapError::BadBlock)?.to_vec();
        Ok(CapturedPacket { time_ns: interface.nanos(stamp), link_type: interface.link_type, original_len, bytes })
    }

    fn simple_packet(&self, body: &[u8]) -> Result<CapturedPacket, PcapError> {
        let interface = self.interface(0)?;
        let original_len = word(self.big_endian, body, 0)?;
        let limit = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let data = &body[4..];
        let bytes = data.get(..original_len.min(limit) as usize).ok_or(PcapError::BadBlock)?;
        let bytes = bytes.to_vec();
        Ok(CapturedPacket { time_ns: 0, link_type: interface.link_type, original_len, bytes })
    }
}

impl Interface {
    /// Nanoseconds since 1970; what does not fit becomes the nearest that does.
    fn nanos(&self, stamp: u128) -> u64 {
        // stamp < 2^64, so the product stays far under 2^128
        let nanos = (stamp * 1_000_000_000 / self.units) as i128;
        let nanos = nanos + i128::from(self.offset) * 1_000_000_000;
        nanos.clamp(0, u64::MAX.into()) as u64
    }
}

/// Units a second of `if_tsresol`: a negative power of 10, or of 2 with the top bit. What no stamp can need is taken for
/// the finest that counts here.
fn units_a_second(resolution: u8) -> u128 {
    let power = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10u128.pow(power.min(30)) } else { 1 << power.min(100) }
}

fn word(big_endian: bool, bytes: &[u8], at: usize) -> Result<u32, PcapError> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let bytes = *bytes.ok_or(PcapError::BadBlock)?;
    Ok(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

fn half(big_endian: bool, bytes: &[u8], at: usize) -> Result<u16, PcapError> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>());
    let bytes = *bytes.ok_or(PcapError::BadBlock)?;
    Ok(if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<CapturedPacket, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let packet = self.next_packet();
        self.failed = packet.is_err();
        packet.transpose()
    }
}
