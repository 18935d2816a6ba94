//! Messages by which hosts tell routers and switches which groups they listen to: IGMP for IPv4 (RFC 1112 appendix I, RFC 2236,
//! RFC 3376), MLD for IPv6 (RFC 2710, RFC 3810). They say the same in two forms, so that what they say has one type here.
//!
//! Queries are read, reports are written. Checksums are left at zero: MLD's covers a pseudo-header, which is not known here.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Sources of a query that are kept; a query for more is as one for the group as a whole, which asks for no less.
pub const SOURCES_MAX: usize = 16;

/// Type numbers of IGMP.
pub mod igmp_type {
    /// Query, of all versions.
    pub const QUERY: u8 = 0x11;
    /// Report, version 1.
    pub const REPORT_V1: u8 = 0x12;
    /// Report, version 2.
    pub const REPORT_V2: u8 = 0x16;
    /// Leave, version 2.
    pub const LEAVE: u8 = 0x17;
    /// Report, version 3.
    pub const REPORT_V3: u8 = 0x22;
}

/// Type numbers of MLD among ICMPv6's.
pub mod mld_type {
    /// Query, of both versions.
    pub const QUERY: u8 = 130;
    /// Report, version 1.
    pub const REPORT_V1: u8 = 131;
    /// Done, version 1.
    pub const DONE: u8 = 132;
    /// Report, version 2.
    pub const REPORT_V2: u8 = 143;
}

/// Version of the protocol, in the order of IGMP's; MLD has no first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// IGMPv1.
    First,
    /// IGMPv2 and MLDv1.
    Second,
    /// IGMPv3 and MLDv2.
    Third,
}

/// Addresses of one family, at most [`SOURCES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    list: [IpAddr; SOURCES_MAX],
    len: usize,
}

impl Sources {
    /// None.
    pub const NONE: Self = Self { list: [IpAddr::V4(Ipv4Addr::UNSPECIFIED); SOURCES_MAX], len: 0 };

    /// All of them.
    pub fn as_slice(&self) -> &[IpAddr] {
        self.list.get(..self.len).unwrap_or_default()
    }
}

/// A question of a router: who listens?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Version that the router speaks.
    pub version: Version,
    /// To this group; `None`: to any (a general query).
    pub group: Option<IpAddr>,
    /// Answers come within so many milliseconds.
    pub max_response_ms: u32,
    /// The router's robustness variable: how often a change is told. 0 where it says none.
    pub robustness: u8,
    /// Seconds between its general queries. 0 where it says none.
    pub interval_s: u32,
    /// Only from these sources; none: from any.
    pub sources: Sources,
}

/// Why a query is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// It ends before its fields do.
    TooShort,
    /// It asks for an address that is no group.
    NoGroup,
}

/// A floating-point code (RFC 3376, 4.1.1; RFC 3810, 5.1.3) with `bits` of mantissa below three of exponent and a one.
const fn code(value: u32, bits: u32) -> u32 {
    if value >> (bits + 3) == 0 {
        return value;
    }
    let mantissa = value & ((1 << bits) - 1) | 1 << bits;
    mantissa << ((value >> bits & 7) + 3)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn address4(bytes: &[u8], at: usize) -> Option<IpAddr> {
    Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?).into())
}

fn address6(bytes: &[u8], at: usize) -> Option<IpAddr> {
    Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?).into())
}

fn group(address: IpAddr) -> Result<Option<IpAddr>, QueryError> {
    match (address.is_unspecified(), address.is_multicast()) {
        (true, _) => Ok(None),
        (_, true) => Ok(Some(address)),
        _ => Err(QueryError::NoGroup),
    }
}

impl Query {
    /// Reads a query of IGMP, from its type byte to the end that the IP header says.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn parse_igmp(message: &[u8]) -> Result<Self, QueryError> {
        let address = address4(message, 4).ok_or(QueryError::TooShort)?;
        let max = u32::from(message.get(1).copied().unwrap_or(0));
        let old = |version, tenths| {
            let group = group(address)?;
            Ok(Self { version, group, max_response_ms: tenths * 100, robustness: 0, interval_s: 0, sources: Sources::NONE })
        };
        match message.len() {
            // RFC 3376, 7.1. Version 1 says no time; it is ten seconds (RFC 2236, 4).
            8 if max == 0 => old(Version::First, 100),
            8 => old(Version::Second, max),
            _ => Self::parse_behind(message, 8, address, code(max, 4) * 100, 4, address4),
        }
    }

    /// Reads a query of MLD, from its type byte to the end that the IP header says.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn parse_mld(message: &[u8]) -> Result<Self, QueryError> {
        let address = address6(message, 8).ok_or(QueryError::TooShort)?;
        let max = u32::from(u16_at(message, 4).unwrap_or(0));
        match message.len() {
            // RFC 3810, 8.1
            24 => {
                let (version, group) = (Version::Second, group(address)?);
                Ok(Self { version, group, max_response_ms: max, robustness: 0, interval_s: 0, sources: Sources::NONE })
            }
            _ => Self::parse_behind(message, 24, address, code(max, 12), 16, address6),
        }
    }

    /// What the last version has behind the group, which begins at `at` and is the same in both protocols.
    fn parse_behind(
        message: &[u8],
        at: usize,
        address: IpAddr,
        max_response_ms: u32,
        size: usize,
        read: fn(&[u8], usize) -> Option<IpAddr>,
    ) -> Result<Self, QueryError> {
        let (flags, interval) = match message.get(at..) {
            Some([flags, interval, _, _, ..]) => (*flags, *interval),
            _ => return Err(QueryError::TooShort),
        };
        let count = usize::from(u16_at(message, at + 2).ok_or(QueryError::TooShort)?);
        let list = message.get(at + 4..at + 4 + count * size).ok_or(QueryError::TooShort)?;
        let mut sources = Sources::NONE;
        if count <= SOURCES_MAX {
            sources.len = count;
            for (n, to) in sources.list.iter_mut().take(count).enumerate() {
                *to = read(list, n * size).ok_or(QueryError::TooShort)?;
            }
        }
        let group = group(address)?;
        let interval_s = code(interval.into(), 4);
        Ok(Self { version: Version::Third, group, max_response_ms, robustness: flags & 7, interval_s, sources })
    }
}

/// What a record of a report says (RFC 3376, 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Only these sources are listened to.
    IsInclude = 1,
    /// All but these.
    IsExclude = 2,
    /// From now on only these; none: the group is left.
    ToInclude = 3,
    /// From now on all but these; none: the group is joined.
    ToExclude = 4,
}

/// What is listened to of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// Group.
    pub group: IpAddr,
    /// Sources, of the same family.
    pub sources: Vec<IpAddr>,
}

fn push(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => bytes.extend(a.octets()),
        IpAddr::V6(a) => bytes.extend(a.octets()),
    }
}

impl Record {
    /// Bytes of the record in a report.
    pub fn wire_len(&self) -> usize {
        let size = if self.group.is_ipv4() { 4 } else { 16 };
        4 + size * (1 + self.sources.len())
    }
}

/// A report of the last version with these records, which are of one family (the first one's).
pub fn report(records: &[Record]) -> Vec<u8> {
    let is_v4 = records.first().is_some_and(|record| record.group.is_ipv4());
    let kind = if is_v4 { igmp_type::REPORT_V3 } else { mld_type::REPORT_V2 };
    let mut bytes = vec![kind, 0, 0, 0, 0, 0];
    bytes.extend((records.len() as u16).to_be_bytes());
    for Record { kind, group, sources } in records {
        bytes.extend([*kind as u8, 0]);
        bytes.extend((sources.len() as u16).to_be_bytes());
        push(&mut bytes, *group);
        sources.iter().for_each(|source| push(&mut bytes, *source));
    }
    bytes
}

/// A report (or, with `leave`, the contrary) of an older version.
pub fn old_report(version: Version, group: IpAddr, leave: bool) -> Vec<u8> {
    let mut bytes = match (group, leave) {
        (IpAddr::V4(_), true) => vec![igmp_type::LEAVE, 0, 0, 0],
        (IpAddr::V4(_), false) if version == Version::First => vec![igmp_type::REPORT_V1, 0, 0, 0],
        (IpAddr::V4(_), false) => vec![igmp_type::REPORT_V2, 0, 0, 0],
        (IpAddr::V6(_), true) => vec![mld_type::DONE, 0, 0, 0, 0, 0, 0, 0],
        (IpAddr::V6(_), false) => vec![mld_type::REPORT_V1, 0, 0, 0, 0, 0, 0, 0],
    };
    push(&mut bytes, group);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP4: [u8; 4] = [239, 1, 2, 3];

    fn igmp(code: u8, group: [u8; 4], rest: &[u8]) -> Vec<u8> {
        [&[igmp_type::QUERY, code, 0xa5, 0xa5][..], &group, rest].concat()
    }

    fn mld(code: u16, group: &str, rest: &[u8]) -> Vec<u8> {
        let group: Ipv6Addr = group.parse().unwrap();
        [&[mld_type::QUERY, 0, 0xa5, 0xa5][..], &code.to_be_bytes(), &[0, 0], &group.octets(), rest].concat()
    }

    #[test]
    fn the_version_of_a_query_is_told_by_its_length_and_time() {
        let of = |message: &[u8]| Query::parse_igmp(message).map(|q| (q.version, q.max_response_ms, q.group.is_some()));
        assert_eq!(of(&igmp(0, [0; 4], &[])), Ok((Version::First, 10_000, false)));
        assert_eq!(of(&igmp(25, GROUP4, &[])), Ok((Version::Second, 2_500, true)));
        assert_eq!(of(&igmp(25, GROUP4, &[2, 125, 0, 0])), Ok((Version::Third, 2_500, true)));
        let of = |message: &[u8]| Query::parse_mld(message).map(|q| (q.version, q.max_response_ms, q.group.is_some()));
        assert_eq!(of(&mld(40_000, "::", &[])), Ok((Version::Second, 40_000, false)), "version 1 has no exponent");
        assert_eq!(of(&mld(1000, "ff02::5", &[2, 125, 0, 0])), Ok((Version::Third, 1000, true)));
    }

    #[test]
    fn long_times_are_floating_point() {
        // 1 | exponent 2 | mantissa 5: (16 + 5) << (2 + 3) tenths of a second.
        let query = Query::parse_igmp(&igmp(0xa5, [0; 4], &[0x0a, 0xa5, 0, 0])).unwrap();
        assert_eq!((query.max_response_ms, query.interval_s, query.robustness), (67_200, 672, 2));
        let query = Query::parse_mld(&mld(0xffff, "::", &[7, 0xff, 0, 0])).unwrap();
        assert_eq!((query.max_response_ms, query.interval_s, query.robustness), (0x1fff << 10, 0x1f << 10, 7));
    }

    #[test]
    fn more_sources_than_are_kept_ask_for_the_group_and_missing_ones_are_an_error() {
        let sources = |n: usize| [&[2, 125, 0, n as u8][..], &[10; 4 * 17]].concat();
        let query = Query::parse_igmp(&igmp(1, GROUP4, &sources(16))).unwrap();
        assert_eq!(query.sources.as_slice(), [IpAddr::from([10, 10, 10, 10]); 16]);
        assert_eq!(Query::parse_igmp(&igmp(1, GROUP4, &sources(17))).unwrap().sources, Sources::NONE);
        assert_eq!(Query::parse_igmp(&igmp(1, GROUP4, &sources(18))), Err(QueryError::TooShort));
        assert_eq!(Query::parse_mld(&mld(1, "ff02::5", &[2, 125, 0, 1])), Err(QueryError::TooShort));
    }

    #[test]
    fn a_query_for_a_host_and_a_cut_one_are_none() {
        assert_eq!(Query::parse_igmp(&igmp(1, [10, 0, 0, 1], &[])), Err(QueryError::NoGroup));
        assert_eq!(Query::parse_mld(&mld(1, "fe80::1", &[])), Err(QueryError::NoGroup));
        let (four, six) = (igmp(1, GROUP4, &[2, 125, 0, 0]), mld(1, "ff02::5", &[2, 125, 0, 0]));
        for len in [0, 1, 7, 9, 11] {
            assert_eq!(Query::parse_igmp(&four[..len]), Err(QueryError::TooShort), "{len} bytes");
        }
        for len in [0, 8, 23, 25, 27] {
            assert_eq!(Query::parse_mld(&six[..len]), Err(QueryError::TooShort), "{len} bytes");
        }
    }

    #[test]
    fn reports_have_the_form_of_their_version() {
        let group = IpAddr::from(GROUP4);
        let record = Record { kind: RecordKind::IsInclude, group, sources: vec![IpAddr::from([10, 0, 0, 1])] };
        assert_eq!(report(std::slice::from_ref(&record)), [0x22, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 239, 1, 2, 3, 10, 0, 0, 1]);
        assert_eq!(record.wire_len(), 12);
        let old = |version, leave| old_report(version, group, leave);
        assert_eq!(old(Version::First, false), [0x12, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(old(Version::Second, false), [0x16, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(old(Version::Second, true), [0x17, 0, 0, 0, 239, 1, 2, 3]);
        let six: IpAddr = "ff02::12".parse().unwrap();
        let done = old_report(Version::Second, six, true);
        assert_eq!((done.len(), done[0], done[23]), (24, mld_type::DONE, 0x12));
        let joined = report(&[Record { kind: RecordKind::ToExclude, group: six, sources: Vec::new() }]);
        assert_eq!((joined.len(), joined[0], joined[7], joined[8], joined[27]), (28, mld_type::REPORT_V2, 1, 4, 0x12));
    }
}
