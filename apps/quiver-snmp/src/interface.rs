//! An interface as IF-MIB describes it, from the router's binary API and its statistics.

use std::collections::HashMap;

use quiver_api::defs::{IfStatusFlags, IfType, SwInterfaceDetails};
use quiver_segment::{Error, View};

/// ifOperStatus (RFC 2863).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oper {
    /// Packets pass.
    Up = 1,
    /// None do.
    #[default]
    Down = 2,
    /// It is up, and the interface that it runs on is not.
    LowerLayerDown = 7,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes, as the router counts them: without FCS.
    pub bytes: u64,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received.
    pub rx: Traffic,
    /// Sent.
    pub tx: Traffic,
    /// Of the packets received, those for one host, and those whose kind is not counted.
    pub rx_unicast: u64,
    /// For a group.
    pub rx_multicast: u64,
    /// For all.
    pub rx_broadcast: u64,
    /// Of the packets sent, those for one host, and those whose kind is not counted.
    pub tx_unicast: u64,
    /// For a group.
    pub tx_multicast: u64,
    /// For all.
    pub tx_broadcast: u64,
    /// Received here and dropped, for whatever reason; those that the device lost, and those for which there was no buffer.
    pub rx_discards: u64,
    /// Arrived damaged.
    pub rx_errors: u64,
    /// Could not be sent.
    pub tx_errors: u64,
}

/// A row of ifTable and ifXTable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// ifIndex: the router's index and 1, since 0 is none.
    pub index: u32,
    /// ifDescr and ifName: the router's name for it.
    pub name: String,
    /// ifAlias: the interface's tag.
    pub alias: String,
    /// ifType: a number of IANAifType-MIB.
    pub kind: i32,
    /// ifMtu: the greatest layer-3 packet, bytes.
    pub mtu: u32,
    /// ifSpeed and ifHighSpeed, bit/s; 0: not known.
    pub speed_bps: u64,
    /// ifPhysAddress.
    pub mac: [u8; 6],
    /// ifAdminStatus.
    pub is_admin_up: bool,
    /// ifOperStatus.
    pub oper: Oper,
    /// The interface below it, by ifIndex.
    pub parent: Option<u32>,
    /// ifConnectorPresent: it is a device of the machine.
    pub has_connector: bool,
    /// ifLastChange: sysUpTime of the last change of its state, 0 where it was before this program.
    pub last_change: u32,
    /// ifCounterDiscontinuityTime: sysUpTime at which its counters began again, 0 where they have not.
    pub discontinuity: u32,
    /// Its counters.
    pub counters: Counters,
}

/// IANAifType by the router's name of the device.
fn kind_of(details: &SwInterfaceDetails) -> i32 {
    const ETHERNET_CSMACD: i32 = 6;
    const SOFTWARE_LOOPBACK: i32 = 24;
    const PROP_VIRTUAL: i32 = 53;
    const L2_VLAN: i32 = 135;
    const IEEE8023AD_LAG: i32 = 161;
    if details.r#type == IfType::IF_API_TYPE_SUB {
        return L2_VLAN;
    }
    match details.interface_dev_type.as_str() {
        "Loopback" => SOFTWARE_LOOPBACK,
        "bond" => IEEE8023AD_LAG,
        "local" | "pg" | "pcap" => PROP_VIRTUAL,
        _ => ETHERNET_CSMACD,
    }
}

impl Interface {
    /// From what the API says of it; without counters and times.
    pub fn of(details: &SwInterfaceDetails) -> Self {
        let has = |flag: IfStatusFlags| details.flags.0 & flag.0 != 0;
        let is_sub = details.r#type == IfType::IF_API_TYPE_SUB && details.sup_sw_if_index != details.sw_if_index.0;
        let is_admin_up = has(IfStatusFlags::IF_STATUS_API_FLAG_ADMIN_UP);
        let has_link = has(IfStatusFlags::IF_STATUS_API_FLAG_LINK_UP);
        Self {
            index: details.sw_if_index.0.saturating_add(1),
            name: details.interface_name.0.clone(),
            // DisplayString (SIZE (0..64)): the API's text is no longer.
            alias: details.tag.0.clone(),
            kind: kind_of(details),
            mtu: details.mtu[0],
            speed_bps: u64::from(details.link_speed) * 1000,
            mac: details.l2_address.0,
            is_admin_up,
            oper: match (is_admin_up, has_link) {
                (true, true) => Oper::Up,
                (true, false) if is_sub => Oper::LowerLayerDown,
                _ => Oper::Down,
            },
            parent: is_sub.then(|| details.sup_sw_if_index.saturating_add(1)),
            has_connector: !is_sub && matches!(details.interface_dev_type.as_str(), "dpdk" | "af-packet" | "af_xdp"),
            ..Self::default()
        }
    }

    /// Whether packets pass.
    pub fn is_up(&self) -> bool {
        self.oper == Oper::Up
    }

    /// Carries on what was before: times of changes. `now` is sysUpTime.
    pub fn follow(&mut self, before: Option<&Self>, now: u32) {
        let Some(before) = before.filter(|before| before.name == self.name) else {
            // A row of this index that was another interface's has counters of its own.
            (self.last_change, self.discontinuity) = (now, now);
            return;
        };
        let has_changed = (before.is_admin_up, before.oper) != (self.is_admin_up, self.oper);
        self.last_change = if has_changed { now } else { before.last_change };
        let (old, new) = (&before.counters, &self.counters);
        let is_cleared = new.rx.packets < old.rx.packets || new.tx.packets < old.tx.packets || new.rx_discards < old.rx_discards;
        self.discontinuity = if is_cleared { now } else { before.discontinuity };
    }
}

/// Counters of all interfaces, by the router's index.
pub struct Columns {
    combined: HashMap<&'static str, Vec<[u64; 2]>>,
    simple: HashMap<&'static str, Vec<u64>>,
}

impl Columns {
    /// Copies them.
    ///
    /// # Errors
    /// The segment's.
    pub fn of(view: &View<'_>) -> Result<Self, Error> {
        const COMBINED: [&str; 6] =
            ["/if/rx", "/if/tx", "/if/rx-multicast", "/if/rx-broadcast", "/if/tx-multicast", "/if/tx-broadcast"];
        const SIMPLE: [&str; 5] = ["/if/drops", "/if/rx-miss", "/if/rx-no-buf", "/if/rx-error", "/if/tx-error"];
        Ok(Self {
            combined: COMBINED.into_iter().map(|name| Ok((name, view.combined(name)?))).collect::<Result<_, Error>>()?,
            simple: SIMPLE.into_iter().map(|name| Ok((name, view.simple(name)?))).collect::<Result<_, Error>>()?,
        })
    }

    /// Those of an interface, by ifIndex.
    pub fn counters(&self, index: u32) -> Counters {
        let place = index.saturating_sub(1) as usize;
        let traffic = |name| {
            let [packets, bytes] = self.combined.get(name).and_then(|column| column.get(place)).copied().unwrap_or_default();
            Traffic { packets, bytes }
        };
        let simple = |name| self.simple.get(name).and_then(|column| column.get(place)).copied().unwrap_or_default();
        let (rx, tx) = (traffic("/if/rx"), traffic("/if/tx"));
        let (rx_multicast, rx_broadcast) = (traffic("/if/rx-multicast").packets, traffic("/if/rx-broadcast").packets);
        let (tx_multicast, tx_broadcast) = (traffic("/if/tx-multicast").packets, traffic("/if/tx-broadcast").packets);
        Counters {
            rx,
            tx,
            // What is not counted as another kind: the three together are all packets.
            rx_unicast: rx.packets.saturating_sub(rx_multicast.saturating_add(rx_broadcast)),
            rx_multicast,
            rx_broadcast,
            tx_unicast: tx.packets.saturating_sub(tx_multicast.saturating_add(tx_broadcast)),
            tx_multicast,
            tx_broadcast,
            rx_discards: simple("/if/drops").wrapping_add(simple("/if/rx-miss")).wrapping_add(simple("/if/rx-no-buf")),
            rx_errors: simple("/if/rx-error"),
            tx_errors: simple("/if/tx-error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(flags: u32) -> SwInterfaceDetails {
        SwInterfaceDetails {
            sw_if_index: quiver_api::defs::InterfaceIndex(3),
            sup_sw_if_index: 3,
            flags: IfStatusFlags(flags),
            link_speed: 10_000_000,
            mtu: [9000, 0, 0, 0],
            interface_name: "host-eth0".into(),
            interface_dev_type: "af-packet".into(),
            ..SwInterfaceDetails::default()
        }
    }

    #[test]
    fn states_follow_from_both_flags() {
        assert_eq!([0, 1, 2, 3].map(|flags| Interface::of(&details(flags)).oper), [Oper::Down, Oper::Down, Oper::Down, Oper::Up]);
        let sub = SwInterfaceDetails { sup_sw_if_index: 1, r#type: IfType::IF_API_TYPE_SUB, ..details(1) };
        let sub = Interface::of(&sub);
        assert_eq!((sub.oper, sub.parent, sub.kind, sub.has_connector), (Oper::LowerLayerDown, Some(2), 135, false));
        let card = Interface::of(&details(3));
        assert_eq!((card.index, card.kind, card.mtu, card.speed_bps, card.has_connector), (4, 6, 9000, 10_000_000_000, true));
    }

    #[test]
    fn times_stay_until_something_changes() {
        let mut one = Interface::of(&details(3));
        one.follow(None, 5);
        assert_eq!((one.last_change, one.discontinuity), (5, 5));
        one.counters.rx.packets = 9;
        let mut same = one.clone();
        same.follow(Some(&one), 6);
        assert_eq!((same.last_change, same.discontinuity), (5, 5));
        let mut down = Interface { counters: one.counters, ..Interface::of(&details(1)) };
        down.follow(Some(&one), 7);
        assert_eq!((down.last_change, down.discontinuity), (7, 5));
        let mut cleared = Interface::of(&details(3));
        cleared.follow(Some(&one), 8);
        assert_eq!((cleared.last_change, cleared.discontinuity), (5, 8));
        let mut other = Interface { name: "loop0".to_owned(), ..one.clone() };
        other.follow(Some(&one), 9);
        assert_eq!((other.last_change, other.discontinuity), (9, 9));
    }
}
