//! LACP data units as bytes (IEEE 802.1AX-2014, 6.4.2.3): what an actor says of itself and of its partner.

use quiver_net::restart::{Damaged, Load, Save};
use quiver_wire::MacAddr;

/// Where they are sent, and markers too.
pub const SLOW_PROTOCOLS: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 2]);
/// Bytes behind the Ethernet header.
pub const LEN: usize = 110;
/// Subtype of LACP.
pub const LACP: u8 = 1;
/// Subtype of the marker protocol.
pub const MARKER: u8 = 2;
/// Version that is sent. Higher ones are read as this one (6.4.2.3, c).
const VERSION: u8 = 1;

/// Bits of a state.
pub mod state {
    /// Speaks without being spoken to.
    pub const ACTIVITY: u8 = 1;
    /// Wants to hear every second, not every 30.
    pub const TIMEOUT: u8 = 1 << 1;
    /// Can be one of several links.
    pub const AGGREGATION: u8 = 1 << 2;
    /// Belongs to the right aggregate.
    pub const SYNCHRONIZATION: u8 = 1 << 3;
    /// Takes what is received.
    pub const COLLECTING: u8 = 1 << 4;
    /// Sends.
    pub const DISTRIBUTING: u8 = 1 << 5;
    /// Knows of its partner by default only.
    pub const DEFAULTED: u8 = 1 << 6;
    /// Has not heard its partner for too long.
    pub const EXPIRED: u8 = 1 << 7;

    /// The bits' names, from the lowest on.
    pub const NAMES: [&str; 8] =
        ["activity", "timeout", "aggregation", "synchronization", "collecting", "distributing", "defaulted", "expired"];
}

/// What is said of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Priority of the system; lower is better.
    pub system_priority: u16,
    /// The system.
    pub system: MacAddr,
    /// Ports with the same key can be together.
    pub key: u16,
    /// Priority of the port; lower is better.
    pub port_priority: u16,
    /// The port.
    pub port: u16,
    /// Bits of [`state`].
    pub state: u8,
}

impl Info {
    /// Whether a bit of its state is set.
    pub const fn has(&self, bit: u8) -> bool {
        self.state & bit != 0
    }

    /// Sets a bit of its state, or clears it.
    pub const fn set(&mut self, bit: u8, on: bool) {
        self.state = if on { self.state | bit } else { self.state & !bit };
    }

    /// The same without the state, but for whether it can be one of several.
    pub fn identity(&self) -> Self {
        Self { state: self.state & state::AGGREGATION, ..*self }
    }

    /// Writes it for another process.
    pub fn save(self, save: &mut Save) {
        save.raw(&self.to_bytes());
    }

    /// Reads what [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// There are fewer bytes.
    pub fn load(load: &mut Load<'_>) -> Result<Self, Damaged> {
        load.raw(15)?.first_chunk().map(Self::parse).ok_or(Damaged)
    }

    fn parse(bytes: &[u8; 15]) -> Self {
        let [p0, p1, a, b, c, d, e, f, k0, k1, q0, q1, n0, n1, state] = *bytes;
        Self {
            system_priority: u16::from_be_bytes([p0, p1]),
            system: MacAddr([a, b, c, d, e, f]),
            key: u16::from_be_bytes([k0, k1]),
            port_priority: u16::from_be_bytes([q0, q1]),
            port: u16::from_be_bytes([n0, n1]),
            state,
        }
    }

    fn to_bytes(self) -> [u8; 15] {
        let mut bytes = [0; 15];
        bytes[..2].copy_from_slice(&self.system_priority.to_be_bytes());
        bytes[2..8].copy_from_slice(&self.system.0);
        bytes[8..10].copy_from_slice(&self.key.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.port_priority.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.port.to_be_bytes());
        bytes[14] = self.state;
        bytes
    }
}

/// A data unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pdu {
    /// Of the sender.
    pub actor: Info,
    /// Of whom the sender takes for its partner.
    pub partner: Info,
}

/// Type and length of the parts: actor, partner, collector.
const ACTOR: [u8; 2] = [1, 20];
const PARTNER: [u8; 2] = [2, 20];
const COLLECTOR: [u8; 2] = [3, 16];

impl Pdu {
    /// Reads what stands behind the Ethernet header. `None`: it is too short, or its parts are not where they must be.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = bytes.first_chunk()?;
        let part = |at: usize, head: [u8; 2]| {
            let of_part = bytes.get(at..at + 17)?;
            (of_part[..2] == head).then(|| of_part[2..].first_chunk::<15>().map(Info::parse))?
        };
        if bytes[0] != LACP || bytes[1] == 0 {
            return None;
        }
        Some(Self { actor: part(2, ACTOR)?, partner: part(22, PARTNER)? })
    }

    /// What stands behind the Ethernet header.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&[LACP, VERSION]);
        bytes[2..4].copy_from_slice(&ACTOR);
        bytes[4..19].copy_from_slice(&self.actor.to_bytes());
        bytes[22..24].copy_from_slice(&PARTNER);
        bytes[24..39].copy_from_slice(&self.partner.to_bytes());
        // Its delay is 0: nothing is held back.
        bytes[42..44].copy_from_slice(&COLLECTOR);
        bytes
    }
}

/// Makes the answer of a marker (6.5), behind the Ethernet header. `false`: it is none that has to be answered.
pub fn answer_marker(bytes: &mut [u8]) -> bool {
    match bytes.get_mut(..4) {
        Some([MARKER, 1..=u8::MAX, kind @ 1, 16]) => {
            *kind = 2;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data unit as Linux sends it.
    const LINUX: [u8; 64] = [
        0x01, 0x01, 0x01, 0x14, 0xff, 0xff, 0x9e, 0x12, 0x34, 0x56, 0x78, 0x9a, 0x00, 0x0f, 0x00, 0xff, 0x00, 0x02, 0x4f, 0, 0,
        0, //
        0x02, 0x14, 0x80, 0x00, 0x02, 0xfe, 0, 0, 0, 1, 0x00, 0x01, 0x00, 0x80, 0x00, 0x03, 0x3d, 0, 0, 0, //
        0x03, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn linux() -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..LINUX.len()].copy_from_slice(&LINUX);
        bytes
    }

    #[test]
    fn a_unit_of_another_system_is_read_and_written_as_it_was() {
        let pdu = Pdu::parse(&linux()).unwrap();
        let actor = Info {
            system_priority: 0xffff,
            system: MacAddr([0x9e, 0x12, 0x34, 0x56, 0x78, 0x9a]),
            key: 15,
            port_priority: 255,
            port: 2,
            state: 0x4f,
        };
        assert_eq!(pdu.actor, actor);
        assert_eq!((pdu.partner.system, pdu.partner.port, pdu.partner.state), (MacAddr([2, 0xfe, 0, 0, 0, 1]), 3, 0x3d));
        assert_eq!(pdu.to_bytes(), linux());
    }

    #[test]
    fn what_is_no_unit_is_refused() {
        for len in 0..LEN {
            assert_eq!(Pdu::parse(&linux()[..len]), None, "{len} bytes");
        }
        for (at, value) in [(0, 2), (1, 0), (2, 2), (3, 19), (22, 1), (23, 21)] {
            let mut bytes = linux();
            bytes[at] = value;
            assert_eq!(Pdu::parse(&bytes), None, "byte {at}");
        }
        let mut newer = linux();
        newer[1] = 2;
        assert!(Pdu::parse(&newer).is_some(), "higher versions are read");
    }

    #[test]
    fn a_marker_is_answered_and_its_answer_is_not() {
        let mut marker = [MARKER, 1, 1, 16, 0, 3, 9, 9, 9, 9, 9, 9, 1, 2, 3, 4];
        let before = marker;
        assert!(answer_marker(&mut marker));
        assert_eq!((marker[2], &marker[3..]), (2, &before[3..]));
        assert!(!answer_marker(&mut marker));
        assert!(!answer_marker(&mut [MARKER, 1, 1]));
        assert!(!answer_marker(&mut [LACP, 1, 1, 16]));
    }
}
