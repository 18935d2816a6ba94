//! Information elements (RFC 7012, IANA's registry of IPFIX), templates and records.

use std::net::IpAddr;

use quiver_ipfix::message::{FIRST, template_len};

use crate::flows::Flow;
use crate::key::{Key, Record, Variant, Way};

/// How many there can be: by kind of flow and what is told of it.
pub const COUNT: usize = Variant::ALL.len() * 8;
/// Number of the options template that tells how packets were chosen.
pub const SAMPLING: u16 = FIRST + 64;

/// A template: which fields records of a kind of flow have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    variant: Variant,
    record: Record,
}

/// Why a record is exported (information element 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// No packet for the passive timeout.
    Idle = 1,
    /// The flow goes on; the active timeout has come.
    Active = 2,
    /// Nothing is recorded any more.
    Forced = 4,
}

/// Number and bytes of an information element.
type Field = (u16, u16);

/// What all records begin with.
static COMMON: [Field; 7] = [
    (10, 4),  // ingressInterface
    (14, 4),  // egressInterface
    (61, 1),  // flowDirection
    (136, 1), // flowEndReason
    (2, 8),   // packetDeltaCount
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
];
/// Bytes of IP packets.
static OCTETS: [Field; 1] = [(1, 8)]; // octetDeltaCount
/// Bytes of frames.
static FRAME_OCTETS: [Field; 1] = [(352, 8)]; // layer2OctetDeltaCount
static LINK: [Field; 3] = [
    (56, 6),  // sourceMacAddress
    (80, 6),  // destinationMacAddress
    (256, 2), // ethernetType
];
static IP4: [Field; 3] = [
    (8, 4),  // sourceIPv4Address
    (12, 4), // destinationIPv4Address
    (4, 1),  // protocolIdentifier
];
static IP6: [Field; 3] = [
    (27, 16), // sourceIPv6Address
    (28, 16), // destinationIPv6Address
    (4, 1),   // protocolIdentifier
];
static TRANSPORT: [Field; 3] = [
    (7, 2),  // sourceTransportPort
    (11, 2), // destinationTransportPort
    (6, 1),  // tcpControlBits, by reduced-size encoding (RFC 7011, 6.2)
];
/// How packets are chosen (RFC 5477, 8.2): scope, then what holds there.
const SAMPLING_SCOPE: [Field; 1] = [(302, 4)]; // selectorId
const SAMPLING_FIELDS: [Field; 3] = [
    (304, 2), // selectorAlgorithm
    (305, 4), // samplingPacketInterval
    (306, 4), // samplingPacketSpace
];
/// Systematic count-based sampling (RFC 5477, 8.2.3).
const COUNT_BASED: u16 = 1;
/// Number of the only selector.
const SELECTOR: u32 = 1;

/// Bytes of the options record.
pub const SAMPLING_LEN: usize = 14;

impl Template {
    /// That of a flow.
    pub fn of(key: &Key) -> Self {
        Self { variant: key.variant(), record: key.record() }
    }

    /// The one with these numbers; none where nothing is told of flows.
    pub fn new(variant: Variant, record: Record) -> Option<Self> {
        (!record.is_empty()).then_some(Self { variant, record })
    }

    /// Its place among all, below [`COUNT`].
    pub fn index(self) -> usize {
        self.variant as usize * 8 + usize::from(self.record.bits())
    }

    /// The one at a place.
    pub fn at(index: usize) -> Option<Self> {
        Self::new(*Variant::ALL.get(index / 8)?, Record::from_bits((index % 8) as u8))
    }

    /// Its number, which is the number of sets of its records too.
    pub fn id(self) -> u16 {
        FIRST + self.index() as u16
    }

    fn groups(self) -> impl Iterator<Item = &'static [Field]> {
        let Self { variant, record } = self;
        let is_ip = variant.is_ip4() || variant.is_ip6();
        let network = if variant.is_ip4() { &IP4[..] } else { &IP6[..] };
        [
            (true, &COMMON[..]),
            (is_ip, &OCTETS[..]),
            (variant.is_l2(), &FRAME_OCTETS[..]),
            (record.l2(), &LINK[..]),
            (is_ip && record.l3(), network),
            (is_ip && record.l4(), &TRANSPORT[..]),
        ]
        .into_iter()
        .filter_map(|(has, group)| has.then_some(group))
    }

    fn fields(self) -> impl Iterator<Item = Field> {
        self.groups().flatten().copied()
    }

    /// Bytes of its template record.
    pub fn template_len(self) -> usize {
        template_len(self.fields().count())
    }

    /// Bytes of a record.
    pub fn record_len(self) -> usize {
        self.fields().map(|(_, len)| usize::from(len)).sum()
    }

    /// Appends the template record.
    pub fn write(self, out: &mut Vec<u8>) {
        put_u16(out, self.id());
        put_u16(out, self.fields().count() as u16);
        self.fields().for_each(|field| put_field(out, field));
    }

    /// Appends a record of a flow. `unix`: ns since 1970 that are added to the router's clock.
    pub fn write_record(self, flow: &Flow, reason: Reason, unix: u64, out: &mut Vec<u8>) {
        let (key, Self { variant, record }) = (&flow.key, self);
        let millis = |time: u64| time.saturating_add(unix) / 1_000_000;
        let is_ip = variant.is_ip4() || variant.is_ip6();
        out.extend(key.ingress().to_be_bytes());
        out.extend(key.egress().to_be_bytes());
        out.extend([u8::from(key.way() == Way::Tx), reason as u8]);
        out.extend(flow.packets.to_be_bytes());
        out.extend(millis(flow.start).to_be_bytes());
        out.extend(millis(flow.last).to_be_bytes());
        if is_ip {
            out.extend(flow.octets.to_be_bytes());
        }
        if variant.is_l2() {
            out.extend(flow.frame_octets.to_be_bytes());
        }
        if record.l2() {
            let (src, dst) = key.macs();
            out.extend(src.0);
            out.extend(dst.0);
            put_u16(out, key.ether_type());
        }
        if let Some((src, dst)) = key.addresses() {
            if record.l3() {
                put_address(out, src);
                put_address(out, dst);
                out.push(key.protocol());
            }
            if record.l4() {
                let (src, dst) = key.ports();
                put_u16(out, src);
                put_u16(out, dst);
                out.push(flow.tcp_flags);
            }
        }
    }
}

/// Bytes of the options template record.
pub const SAMPLING_TEMPLATE_LEN: usize = 6 + 4 * (SAMPLING_SCOPE.len() + SAMPLING_FIELDS.len());

/// Appends the options template record (RFC 7011, 3.4.2.2).
pub fn write_sampling_template(out: &mut Vec<u8>) {
    put_u16(out, SAMPLING);
    put_u16(out, (SAMPLING_SCOPE.len() + SAMPLING_FIELDS.len()) as u16);
    put_u16(out, SAMPLING_SCOPE.len() as u16);
    SAMPLING_SCOPE.into_iter().chain(SAMPLING_FIELDS).for_each(|field| put_field(out, field));
}

/// Appends the options record: one packet in `rate` is chosen.
pub fn write_sampling(rate: u32, out: &mut Vec<u8>) {
    out.extend(SELECTOR.to_be_bytes());
    put_u16(out, COUNT_BASED);
    out.extend(1_u32.to_be_bytes());
    out.extend(rate.saturating_sub(1).to_be_bytes());
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend(value.to_be_bytes());
}

fn put_field(out: &mut Vec<u8>, (id, len): Field) {
    put_u16(out, id);
    put_u16(out, len);
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}
