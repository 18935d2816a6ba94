//! Who gets packets for this router that none of its nodes takes: read by packets, written by the main thread.

use std::sync::Arc;

use quiver_graph::{IfIndex, Verdict};
use quiver_wire::ipv4::IpProtocol;

use crate::local::table::SlotTable;

/// What happens to a packet that no node of the router takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Punted {
    /// It is answered by an error, as for any host.
    No = 0,
    /// It goes to `ip4-punt`, and there by a redirect or nowhere.
    Punt = 1,
}

impl Punted {
    const fn of(value: u16) -> Self {
        match value {
            0 => Self::No,
            _ => Self::Punt,
        }
    }

    /// Slot of the node, of which the first in [`NODES`] has this one.
    pub fn verdict(self, first: u16) -> Option<Verdict> {
        match self {
            Self::No => None,
            Self::Punt => Some(Verdict::slot(first)),
        }
    }
}

/// The nodes behind `ip4-` or `ip6-`, in the order of [`Punted`].
pub(crate) const NODES: [&str; 1] = ["punt"];

/// Which upper layer's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum L4 {
    /// Datagrams.
    Udp,
    /// Segments, which no node of the router takes.
    Tcp,
}

/// Entries of [`PuntTables::whole`].
const REDIRECTS: u16 = 2;

/// The tables of one family. Shared by all nodes.
#[derive(Clone, Debug)]
pub(crate) struct PuntTables {
    protocols: SlotTable,
    ports: [SlotTable; 2],
    /// All ports of UDP, all of TCP; whether there are redirects.
    whole: SlotTable,
}

impl PuntTables {
    pub fn new() -> Self {
        let ports = || SlotTable::new(1 << 16);
        Self { protocols: SlotTable::new(256), ports: [ports(), ports()], whole: SlotTable::new(3) }
    }

    pub fn set_port(&self, l4: L4, port: u16, punted: Punted) {
        self.ports[l4 as usize].set(port, punted as u16);
    }

    pub fn set_protocol(&self, protocol: IpProtocol, punted: Punted) {
        self.protocols.set(protocol.0.into(), punted as u16);
    }

    pub fn set_all_ports(&self, l4: L4, punted: Punted) {
        self.whole.set(l4 as u16, punted as u16);
    }

    pub fn set_has_redirects(&self, on: bool) {
        self.whole.set(REDIRECTS, on.into());
    }

    /// What happens to a port's packets.
    pub fn port(&self, l4: L4, port: u16) -> Punted {
        match self.ports[l4 as usize].get(port) {
            0 => Punted::of(self.whole.get(l4 as u16)),
            value => Punted::of(value),
        }
    }

    /// What happens to a packet by what was asked for it, not regarding redirects. `upper`: its bytes from the upper layer on.
    pub fn asked(&self, protocol: IpProtocol, upper: &[u8]) -> Punted {
        let of_protocol = Punted::of(self.protocols.get(protocol.0.into()));
        match (of_protocol, protocol, upper) {
            (Punted::No, IpProtocol::TCP, [_, _, high, low, ..]) => self.port(L4::Tcp, u16::from_be_bytes([*high, *low])),
            (Punted::No, IpProtocol::UDP, [_, _, high, low, ..]) => self.port(L4::Udp, u16::from_be_bytes([*high, *low])),
            _ => of_protocol,
        }
    }

    /// What happens to a packet of a protocol that no node takes. Where there are redirects, `ip4-punt` knows whether there is
    /// one for it.
    #[cold]
    pub fn unknown(&self, protocol: IpProtocol, upper: &[u8]) -> Punted {
        match self.asked(protocol, upper) {
            Punted::No if self.whole.get(REDIRECTS) != 0 => Punted::Punt,
            punted => punted,
        }
    }
}

/// Load-balances by the interface that punted packets came in on.
#[derive(Clone, Debug, Default)]
pub(crate) struct RedirectTable {
    by_interface: std::collections::HashMap<IfIndex, u32>,
    any: Option<u32>,
}

impl RedirectTable {
    pub fn new(redirects: impl Iterator<Item = (Option<IfIndex>, u32)>) -> Arc<Self> {
        let mut table = Self::default();
        for (interface, lb) in redirects {
            match interface {
                Some(interface) => drop(table.by_interface.insert(interface, lb)),
                None => table.any = Some(lb),
            }
        }
        Arc::new(table)
    }

    pub fn find(&self, interface: IfIndex) -> Option<u32> {
        self.by_interface.get(&interface).copied().or(self.any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_punted_by_its_own_entry_or_with_all_and_other_protocols_where_there_are_redirects() {
        let tables = PuntTables::new();
        let to = |port: u16| [[0, 0], port.to_be_bytes()].concat();
        tables.set_port(L4::Udp, 4500, Punted::Punt);
        assert_eq!([4500, 500].map(|port| tables.port(L4::Udp, port)), [Punted::Punt, Punted::No]);
        tables.set_all_ports(L4::Tcp, Punted::Punt);
        assert_eq!(tables.asked(IpProtocol::TCP, &to(179)), Punted::Punt);
        assert_eq!(tables.asked(IpProtocol::UDP, &to(179)), Punted::No);
        assert_eq!(tables.asked(IpProtocol::TCP, &[0; 3]), Punted::No, "no port");
        assert_eq!(tables.unknown(IpProtocol(89), &[]), Punted::No);
        tables.set_has_redirects(true);
        assert_eq!(tables.unknown(IpProtocol(89), &[]), Punted::Punt);
        assert_eq!(tables.asked(IpProtocol(89), &[]), Punted::No);
    }
}
