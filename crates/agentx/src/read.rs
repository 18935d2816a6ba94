//! What a master agent sends.

use crate::oid::{LONGEST as LONGEST_OID, Oid};
use crate::{Error, HEADER, LONGEST, flag, kind};

/// Which variables are asked for (RFC 2741, 5.2): from a start to before an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The start; for `Get` the variable itself.
    pub start: Oid,
    /// Whether the start itself may be the answer.
    pub include: bool,
    /// What lies before it may be the answer; null: anything.
    pub end: Oid,
}

/// A PDU of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// Which session.
    pub session: u32,
    /// Number of the transaction, for the response.
    pub transaction: u32,
    /// Number of the PDU, for the response.
    pub packet: u32,
    /// What it wants.
    pub request: Request,
}

/// What a PDU wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The values of these variables.
    Get(Vec<Range>),
    /// For each range the first variable in it.
    GetNext(Vec<Range>),
    /// As `GetNext` for the first ranges, repeated for the others.
    GetBulk {
        /// How many ranges are not repeated.
        non_repeaters: u16,
        /// How often the others are.
        max_repetitions: u16,
        /// All of them.
        ranges: Vec<Range>,
    },
    /// Whether these variables could be written.
    TestSet,
    /// The steps after a test.
    Commit,
    /// The end of a set, which is not answered.
    Cleanup,
    /// The session ends, for this reason (RFC 2741, 6.2.2).
    Close(u8),
    /// An answer to what was sent.
    Response {
        /// The master's `sysUpTime`, hundredths of a second.
        uptime: u32,
        /// One of [`crate::status`].
        error: u16,
    },
    /// A type that masters do not send to subagents.
    Unknown(u8),
}

/// What stands at the front of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// Not yet a whole PDU.
    Partial,
    /// A PDU of so many bytes.
    Whole(usize),
}

/// Looks at the front of received bytes.
///
/// # Errors
/// What is there is no PDU: the stream cannot be read any further.
pub fn front(bytes: &[u8]) -> Result<Front, Error> {
    let Some(head) = bytes.first_chunk::<HEADER>() else { return Ok(Front::Partial) };
    if head[0] != 1 {
        return Err(Error::Version(head[0]));
    }
    let mut length = Reader { bytes: &head[16..], network: head[2] & flag::NETWORK_BYTE_ORDER != 0 };
    let length = length.u32()?;
    if length as usize > LONGEST || !length.is_multiple_of(4) {
        return Err(Error::Length(length));
    }
    let end = HEADER + length as usize;
    Ok(if bytes.len() < end { Front::Partial } else { Front::Whole(end) })
}

impl Pdu {
    /// Reads a whole PDU; bytes behind it are not looked at.
    ///
    /// # Errors
    /// It is none, or its payload cannot be read.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let Front::Whole(end) = front(bytes)? else { return Err(Error::Short) };
        let (kind, flags) = (bytes[1], bytes[2]);
        let mut reader = Reader { bytes: &bytes[4..end], network: flags & flag::NETWORK_BYTE_ORDER != 0 };
        let (session, transaction, packet) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.u32()?;
        let ranges = |reader: &mut Reader<'_>| {
            let mut all = Vec::new();
            while !reader.bytes.is_empty() {
                all.push(reader.range()?);
            }
            Ok::<_, Error>(all)
        };
        if flags & flag::NON_DEFAULT_CONTEXT != 0 && matches!(kind, kind::GET..=kind::TEST_SET) {
            // Which context is the master's affair: it sends what was registered.
            reader.octets()?;
        }
        let request = match kind {
            kind::GET => Request::Get(ranges(&mut reader)?),
            kind::GET_NEXT => Request::GetNext(ranges(&mut reader)?),
            kind::GET_BULK => {
                let (non_repeaters, max_repetitions) = (reader.u16()?, reader.u16()?);
                Request::GetBulk { non_repeaters, max_repetitions, ranges: ranges(&mut reader)? }
            }
            kind::TEST_SET => Request::TestSet,
            kind::COMMIT_SET | kind::UNDO_SET => Request::Commit,
            kind::CLEANUP_SET => Request::Cleanup,
            kind::CLOSE => Request::Close(reader.take(4)?[0]),
            kind::RESPONSE => Request::Response { uptime: reader.u32()?, error: reader.u16()? },
            other => Request::Unknown(other),
        };
        Ok(Self { session, transaction, packet, request })
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    network: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Error::Short)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Error::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, Error> {
        let bytes = self.chunk()?;
        Ok(if self.network { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Result<u32, Error> {
        let bytes = self.chunk()?;
        Ok(if self.network { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Octets, filled up to a multiple of 4 (RFC 2741, 5.3).
    fn octets(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u32()? as usize;
        let padded = length.checked_next_multiple_of(4).ok_or(Error::Short)?;
        Ok(&self.take(padded)?[..length])
    }

    /// An object identifier, and whether it is included (RFC 2741, 5.1).
    fn oid(&mut self) -> Result<(Oid, bool), Error> {
        let [count, prefix, include, _] = self.chunk()?;
        // Not 0: the first parts are 1.3.6.1 and this one.
        let mut parts = if prefix == 0 { Vec::new() } else { vec![1, 3, 6, 1, prefix.into()] };
        if parts.len() + usize::from(count) > LONGEST_OID {
            return Err(Error::Oid);
        }
        for _ in 0..count {
            parts.push(self.u32()?);
        }
        Ok((Oid::new(&parts), include != 0))
    }

    fn range(&mut self) -> Result<Range, Error> {
        let (start, include) = self.oid()?;
        let (end, _) = self.oid()?;
        Ok(Range { start, include, end })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A PDU as net-snmp's master sends it: little-endian, a prefix for `internet`.
    fn get_next() -> Vec<u8> {
        let mut bytes = vec![1, kind::GET_NEXT, 0, 0];
        for number in [7_u32, 8, 9, 28] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([3, 2, 1, 0]);
        for part in [1_u32, 2, 2] {
            bytes.extend(part.to_le_bytes());
        }
        bytes.extend([1, 2, 0, 0]);
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn ranges_are_read_in_either_byte_order() {
        // The null identifier behind the range is the start of one that has no end.
        assert_eq!(Pdu::read(&get_next()), Err(Error::Short));
        let mut bytes = get_next();
        bytes[16] = 24;
        let expected = Range { start: Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2]), include: true, end: Oid::new(&[1, 3, 6, 1, 2, 2]) };
        let pdu = Pdu::read(&bytes).unwrap();
        assert_eq!(pdu, Pdu { session: 7, transaction: 8, packet: 9, request: Request::GetNext(vec![expected]) });
        assert_eq!(front(&bytes), Ok(Front::Whole(44)));
        assert_eq!(front(&bytes[..43]), Ok(Front::Partial));
        let swap = |bytes: &mut [u8]| bytes.chunks_mut(4).for_each(<[u8]>::reverse);
        swap(&mut bytes[4..20]);
        swap(&mut bytes[24..36]);
        swap(&mut bytes[40..44]);
        bytes[2] = flag::NETWORK_BYTE_ORDER;
        assert_eq!(Pdu::read(&bytes), Ok(pdu));
    }

    #[test]
    fn what_no_master_sends_is_refused() {
        let mut bytes = get_next();
        bytes[0] = 2;
        assert_eq!(front(&bytes), Err(Error::Version(2)));
        bytes[0] = 1;
        bytes[16] = 29;
        assert_eq!(front(&bytes), Err(Error::Length(29)));
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(front(&bytes), Err(Error::Length(u32::MAX)));
        let mut long = vec![1, kind::GET, 0, 0];
        for number in [0_u32, 0, 0, 4 + 129 * 4] {
            long.extend(number.to_le_bytes());
        }
        long.extend([129, 0, 0, 0]);
        long.resize(HEADER + 4 + 129 * 4, 0);
        assert_eq!(Pdu::read(&long), Err(Error::Oid));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..20_u8, flags: u8) {
            let mut pdu = vec![1, kind, flags, 0];
            pdu.extend([0; 12]);
            let length = (bytes.len() as u32).next_multiple_of(4);
            pdu.extend(if flags & flag::NETWORK_BYTE_ORDER == 0 { length.to_le_bytes() } else { length.to_be_bytes() });
            pdu.extend(&bytes);
            pdu.resize(HEADER + length as usize, 0);
            let _ = Pdu::read(&pdu);
            let _ = front(&bytes);
        }
    }
}
