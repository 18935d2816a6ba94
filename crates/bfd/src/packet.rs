//! BFD control packets (RFC 5880, 4.1) as bytes.

/// Bytes of a control packet without authentication.
pub const LEN: usize = 24;

/// State of a session (RFC 5880, 4.1), by its number in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// Held down by an administrator.
    AdminDown = 0,
    /// Nothing is heard of the other side, or it has just been lost.
    #[default]
    Down = 1,
    /// The other side is heard; it is not known to hear this one.
    Init = 2,
    /// Each side hears the other.
    Up = 3,
}

impl State {
    const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    /// As `show bfd sessions` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdminDown => "AdminDown",
            Self::Down => "Down",
            Self::Init => "Init",
            Self::Up => "Up",
        }
    }
}

/// Diagnostic codes (RFC 5880, 4.1).
pub mod diagnostic {
    /// None.
    pub const NONE: u8 = 0;
    /// Nothing was heard for the detection time.
    pub const TIME_EXPIRED: u8 = 1;
    /// Echo packets did not come back.
    pub const ECHO_FAILED: u8 = 2;
    /// The other side has said that the session is down.
    pub const NEIGHBOR_DOWN: u8 = 3;
    /// An administrator holds the session down.
    pub const ADMIN_DOWN: u8 = 7;

    const NAMES: [&str; 9] = [
        "No Diagnostic",
        "Control Detection Time Expired",
        "Echo Function Failed",
        "Neighbor Signaled Session Down",
        "Forwarding Plane Reset",
        "Path Down",
        "Concatenated Path Down",
        "Administratively Down",
        "Reverse Concatenated Path Down",
    ];

    /// A code in words.
    pub fn name(code: u8) -> &'static str {
        NAMES.get(usize::from(code)).copied().unwrap_or("reserved")
    }
}

/// Why bytes are no control packet (RFC 5880, 6.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Fewer bytes than a packet has, or than its length field says.
    Length,
    /// Another version than 1.
    Version,
    /// A detection multiplier of 0.
    DetectMult,
    /// The multipoint bit is set.
    Multipoint,
    /// The sender's discriminator is 0.
    MyDiscriminator,
    /// No discriminator of the receiver, though the sender's state says that it knows one.
    YourDiscriminator,
}

/// A control packet but for its authentication section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Why the sender's session was last down, see [`diagnostic`].
    pub diagnostic: u8,
    /// The sender's state.
    pub state: State,
    /// Asks for an answer.
    pub poll: bool,
    /// Answers one that asks.
    pub is_final: bool,
    /// The sender's BFD does not depend on its control plane.
    pub independent: bool,
    /// An authentication section follows.
    pub authenticated: bool,
    /// The sender works in demand mode.
    pub demand: bool,
    /// How many packets in a row must be lost.
    pub detect_mult: u8,
    /// The sender's number for the session.
    pub my_discriminator: u32,
    /// The receiver's number for it; 0 where the sender does not know that.
    pub your_discriminator: u32,
    /// Interval at which the sender would like to send, µs.
    pub desired_min_tx: u32,
    /// Interval at which it can receive, µs; 0: it wants none.
    pub required_min_rx: u32,
    /// Interval at which it can return echo packets, µs; 0: not at all.
    pub required_min_echo_rx: u32,
}

fn word(bytes: &[u8; LEN], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

impl Control {
    /// Reads the data of a UDP datagram, with all checks that need no session.
    ///
    /// # Errors
    /// See [`Invalid`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Invalid> {
        let fixed: &[u8; LEN] = bytes.first_chunk().ok_or(Invalid::Length)?;
        let [first, flags, detect_mult, length, ..] = *fixed;
        if first >> 5 != 1 {
            return Err(Invalid::Version);
        }
        let authenticated = flags & 0x04 != 0;
        // An authentication section has a type and a length at least.
        let least = LEN + if authenticated { 2 } else { 0 };
        if usize::from(length) < least || usize::from(length) > bytes.len() {
            return Err(Invalid::Length);
        }
        let control = Self {
            diagnostic: first & 0x1f,
            state: State::ALL[usize::from(flags >> 6)],
            poll: flags & 0x20 != 0,
            is_final: flags & 0x10 != 0,
            independent: flags & 0x08 != 0,
            authenticated,
            demand: flags & 0x02 != 0,
            detect_mult,
            my_discriminator: word(fixed, 4),
            your_discriminator: word(fixed, 8),
            desired_min_tx: word(fixed, 12),
            required_min_rx: word(fixed, 16),
            required_min_echo_rx: word(fixed, 20),
        };
        if detect_mult == 0 {
            return Err(Invalid::DetectMult);
        }
        if flags & 0x01 != 0 {
            return Err(Invalid::Multipoint);
        }
        if control.my_discriminator == 0 {
            return Err(Invalid::MyDiscriminator);
        }
        if control.your_discriminator == 0 && matches!(control.state, State::Init | State::Up) {
            return Err(Invalid::YourDiscriminator);
        }
        Ok(control)
    }

    /// The packet that was parsed, without what the datagram has behind it.
    pub fn trimmed(bytes: &[u8]) -> &[u8] {
        bytes.get(3).and_then(|len| bytes.get(..usize::from(*len))).unwrap_or(bytes)
    }

    /// The packet, without an authentication section.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        let flags = (self.state as u8) << 6
            | flag(self.poll, 0x20)
            | flag(self.is_final, 0x10)
            | flag(self.independent, 0x08)
            | flag(self.authenticated, 0x04)
            | flag(self.demand, 0x02);
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&[1 << 5 | self.diagnostic & 0x1f, flags, self.detect_mult, LEN as u8]);
        let words =
            [self.my_discriminator, self.your_discriminator, self.desired_min_tx, self.required_min_rx, self.required_min_echo_rx];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// What this router puts into its echo packets (RFC 5881, 4 leaves that open): the layout is VPP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Of the session.
    pub discriminator: u32,
    /// When it was sent, ns of the router's clock.
    pub sent: u64,
    /// Shows that this router has sent it.
    pub proof: u64,
}

impl Echo {
    /// Bytes of an echo packet.
    pub const LEN: usize = 20;

    /// Reads the data of a UDP datagram.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let (discriminator, rest) = bytes.split_first_chunk()?;
        let (sent, proof) = rest.split_first_chunk()?;
        Some(Self {
            discriminator: u32::from_be_bytes(*discriminator),
            sent: u64::from_be_bytes(*sent),
            proof: u64::from_be_bytes(*proof.first_chunk()?),
        })
    }

    /// The packet.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.discriminator.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sent.to_be_bytes());
        bytes[12..].copy_from_slice(&self.proof.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first packet of a session that receives every 10 ms.
    const FIRST: [u8; LEN] =
        [0x20, 0x48, 3, 24, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0, 0, 0x27, 0x10, 0, 0, 0, 0];

    fn changed(at: usize, value: u8) -> Result<Control, Invalid> {
        let mut bytes = FIRST;
        bytes[at] = value;
        Control::parse(&bytes)
    }

    #[test]
    fn fields_lie_where_the_rfc_has_them() {
        let control = Control::parse(&FIRST).unwrap();
        let expected = Control {
            state: State::Down,
            independent: true,
            detect_mult: 3,
            my_discriminator: 0x1234_5678,
            desired_min_tx: 1_000_000,
            required_min_rx: 10_000,
            ..Control::default()
        };
        assert_eq!(control, expected);
        assert_eq!(control.to_bytes(), FIRST);
    }

    #[test]
    fn each_rule_of_reception_refuses() {
        assert_eq!(Control::parse(&FIRST[..23]), Err(Invalid::Length));
        assert_eq!(changed(0, 0x40), Err(Invalid::Version));
        assert_eq!(changed(3, 23), Err(Invalid::Length));
        assert_eq!(changed(3, 25), Err(Invalid::Length));
        assert_eq!(changed(2, 0), Err(Invalid::DetectMult));
        assert_eq!(changed(1, 0x41), Err(Invalid::Multipoint));
        assert_eq!(changed(1, 0xc0), Err(Invalid::YourDiscriminator));
        assert_eq!(changed(1, 0x80), Err(Invalid::YourDiscriminator));
        assert_eq!(changed(1, 0x44), Err(Invalid::Length), "no room for the authentication that it claims");
        let mut bytes = FIRST;
        bytes[4..8].fill(0);
        assert_eq!(Control::parse(&bytes), Err(Invalid::MyDiscriminator));
    }

    #[test]
    fn an_echo_packet_has_its_length_only() {
        let echo = Echo { discriminator: 0x0102_0304, sent: 0x1112_1314_1516_1718, proof: 0x2122_2324_2526_2728 };
        let bytes = echo.to_bytes();
        assert_eq!((bytes[..5].to_vec(), Echo::parse(&bytes)), (vec![1, 2, 3, 4, 0x11], Some(echo)));
        assert_eq!((Echo::parse(&bytes[1..]), Echo::parse(&[&bytes[..], &[0]].concat())), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(control) = Control::parse(&bytes)
                && !control.authenticated
            {
                let again = Control::parse(&control.to_bytes());
                prop_assert_eq!(again, Ok(control));
            }
        }
    }
}
