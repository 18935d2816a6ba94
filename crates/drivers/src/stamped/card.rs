//! The clock of a network card: whether there is one, and having it give frames their times.

use std::io;

use super::StampError;
use crate::netdev::NetDevices;

/// `HWTSTAMP_TX_ON` and `HWTSTAMP_FILTER_ALL` of linux/net_tstamp.h.
const TX_ON: i32 = 1;
const RX_ALL: i32 = 1;

/// What a card's driver says of its times (`ETHTOOL_GET_TS_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// `SOF_TIMESTAMPING_…`.
    pub flags: u32,
    /// Number of its clock among the machine's (`/dev/ptpN`); below 0 where it has none.
    pub clock: i32,
    /// Bit n for the setting n of what is sent, and of what is received.
    pub tx: u32,
    /// See `tx`.
    pub rx: u32,
}

/// Which times a card gives (`struct hwtstamp_config`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Setting {
    pub flags: i32,
    pub tx: i32,
    pub rx: i32,
}

impl Abilities {
    /// Which frames get no time, where some do not.
    fn lacks(&self) -> Option<&'static str> {
        let has = |flag: libc::c_uint| self.flags & flag != 0;
        if self.clock < 0 || !has(libc::SOF_TIMESTAMPING_RAW_HARDWARE) {
            Some("frames")
        } else if !has(libc::SOF_TIMESTAMPING_TX_HARDWARE) || self.tx & 1 << TX_ON == 0 {
            Some("frames that it sends")
        } else if !has(libc::SOF_TIMESTAMPING_RX_HARDWARE) || self.rx & 1 << RX_ALL == 0 {
            Some("all frames that it receives")
        } else {
            None
        }
    }
}

/// A card that gives all frames times for as long as this lives; then it does what it did before.
#[derive(Debug)]
pub struct CardClock {
    devices: NetDevices,
    name: String,
    before: Setting,
    number: i32,
}

impl CardClock {
    /// Has the card of a device give its frames times.
    ///
    /// # Errors
    /// The card cannot, or we may not (it takes CAP_NET_ADMIN).
    pub fn switch_on(device: &str) -> Result<Self, StampError> {
        let failed = |error| StampError::Device { device: device.to_owned(), error };
        let devices = NetDevices::open().map_err(failed)?;
        devices.get(device).map_err(failed)?;
        // A driver that does not know the question has no times.
        let abilities = devices.abilities(device).unwrap_or(Abilities { clock: -1, ..Abilities::default() });
        if let Some(what) = abilities.lacks() {
            return Err(StampError::Card { device: device.to_owned(), what });
        }
        let switch = |error: io::Error| StampError::Switch { device: device.to_owned(), error };
        let before = devices.timestamps(device).unwrap_or_default();
        devices.set_timestamps(device, Setting { flags: 0, tx: TX_ON, rx: RX_ALL }).map_err(switch)?;
        Ok(Self { devices, name: device.to_owned(), before, number: abilities.clock })
    }

    /// Number of the clock among the machine's (`/dev/ptpN`): times of two cards can be compared where it is the same.
    pub fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for CardClock {
    fn drop(&mut self) {
        // A device that is gone has nothing to go back to.
        let _ = self.devices.set_timestamps(&self.name, self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_gives_some_frames_no_time_is_refused_with_which() {
        let all = Abilities {
            flags: libc::SOF_TIMESTAMPING_TX_HARDWARE | libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE,
            clock: 0,
            tx: 0b11,
            rx: 0b11,
        };
        assert_eq!(all.lacks(), None);
        assert_eq!(Abilities { clock: -1, ..all }.lacks(), Some("frames"));
        assert_eq!(Abilities { tx: 0b01, ..all }.lacks(), Some("frames that it sends"));
        // Frames of PTP only.
        assert_eq!(Abilities { rx: 1 | 1 << 12, ..all }.lacks(), Some("all frames that it receives"));
        assert_eq!(Abilities { flags: libc::SOF_TIMESTAMPING_TX_SOFTWARE, ..all }.lacks(), Some("frames"));
    }
}
