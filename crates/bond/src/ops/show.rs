//! What is shown of bonds.

use std::fmt::Write as _;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{Align, OpError, Outcome, Text, TextTable, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use quiver_wire::MacAddr;
use serde::Serialize;

use super::{Balance, Mode};
use crate::control::{Bond, Bonds};

request! {
    /// Shows bonds and their members.
    pub read ShowBonds "bonds_show" ["show bond"] {
        /// One bond; all where absent.
        pub interface: Option<IfRef> = "<if>",
        /// With all that is known of each.
        pub details: bool = "details",
    }
}

/// A bond.
#[derive(Debug, Clone, Serialize)]
pub struct BondInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Number in the name.
    pub id: u32,
    /// How packets are given to members.
    pub mode: Mode,
    /// By what flows choose a member, where they do.
    pub load_balance: Option<Balance>,
    /// MAC address.
    pub mac: MacAddr,
    /// Members, in order of adding.
    pub members: Vec<MemberInfo>,
}

/// A member.
#[derive(Debug, Clone, Serialize)]
pub struct MemberInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// It sends.
    pub active: bool,
    /// How much it is preferred, in an active-backup bond.
    pub weight: u32,
    /// The MAC address that it has on its own.
    pub own_mac: MacAddr,
    /// LACP: does not speak unless the other side does.
    pub passive: bool,
    /// LACP: the other side is lost after 90 s, not after 3 s.
    pub long_timeout: bool,
}

impl BondInfo {
    /// Members that send.
    pub fn active(&self) -> impl Iterator<Item = &MemberInfo> {
        self.members.iter().filter(|member| member.active)
    }

    /// The word for how flows are balanced.
    fn balance(&self) -> &'static str {
        match (self.mode, self.load_balance) {
            (_, Some(Balance::L2)) => "l2",
            (_, Some(Balance::L23)) => "l23",
            (_, Some(Balance::L34)) => "l34",
            (Mode::RoundRobin, _) => "round-robin",
            (Mode::Broadcast, _) => "broadcast",
            _ => "active-backup",
        }
    }
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::RoundRobin => "round-robin",
        Mode::ActiveBackup => "active-backup",
        Mode::Xor => "xor",
        Mode::Broadcast => "broadcast",
        Mode::Lacp => "lacp",
    }
}

/// The answer of [`ShowBonds`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Shown {
    /// By number of the interface.
    pub bonds: Vec<BondInfo>,
    #[serde(skip)]
    details: bool,
}

fn info(router: &Router, index: IfIndex, bond: &Bond) -> BondInfo {
    let members = bond.members.iter().map(|member| MemberInfo {
        interface: router.interfaces.name(member.interface),
        sw_if_index: member.interface.0,
        active: bond.working().any(|working| working.interface == member.interface),
        weight: member.weight,
        own_mac: member.own_mac,
        passive: member.config.passive,
        long_timeout: member.config.long_timeout,
    });
    BondInfo {
        interface: router.interfaces.name(index),
        sw_if_index: index.0,
        id: bond.id,
        mode: bond.mode,
        load_balance: bond.mode.balances().then_some(bond.balance),
        mac: router.interfaces.get(index).map_or(MacAddr::ZERO, |interface| interface.mac),
        members: members.collect(),
    }
}

/// One bond, or all.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router, one: Option<IfIndex>) -> Result<Vec<BondInfo>, OpError> {
    let chosen = router.state::<Bonds>()?.iter().filter(|(index, _)| one.is_none_or(|one| one == *index));
    Ok(chosen.map(|(index, bond)| info(router, index, bond)).collect())
}

impl Execute<Router> for ShowBonds {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        let one = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        if let Some(one) = one {
            crate::control::expect(router, one)?;
        }
        Ok(Outcome::Done(Shown { bonds: shown(router, one)?, details: self.details }))
    }
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        if self.details {
            return self.bonds.iter().for_each(|bond| details(bond, out));
        }
        let table = TextTable::new()
            .column_with("interface name", Align::Left, 16, Align::Left)
            .column_with("sw_if_index", Align::Left, 12, Align::Left)
            .column_with("mode", Align::Left, 13, Align::Left)
            .column_with("load balance", Align::Left, 13, Align::Left)
            .column_with("active members", Align::Left, 14, Align::Left)
            .column_with("members", Align::Left, 0, Align::Left)
            .gap(1);
        table.heading(out);
        for bond in &self.bonds {
            let (active, all) = (bond.active().count(), bond.members.len());
            table.row(out, &[&bond.interface, &bond.sw_if_index, &word(bond.mode), &bond.balance(), &active, &all]);
        }
    }
}

fn details(bond: &BondInfo, out: &mut String) {
    let _ = writeln!(out, "{}\n  mode: {}\n  load balance: {}", bond.interface, word(bond.mode), bond.balance());
    let _ = writeln!(out, "  MAC address: {}", bond.mac);
    let _ = writeln!(out, "  number of active members: {}", bond.active().count());
    for member in bond.active() {
        let _ = writeln!(out, "    {}", member.interface);
        if bond.mode == Mode::ActiveBackup {
            let _ = writeln!(out, "      weight: {}, sw_if_index: {}", member.weight, member.sw_if_index);
        }
    }
    let _ = writeln!(out, "  number of members: {}", bond.members.len());
    for member in &bond.members {
        let _ = writeln!(out, "    {}, own MAC address {}", member.interface, member.own_mac);
    }
    let _ = writeln!(out, "  interface id: {}\n  sw_if_index: {}", bond.id, bond.sw_if_index);
}
