//! `show ip groups`, `show interface secondary-mac-address`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_wire::MacAddr;
use quiver_wire::group::Version;
use serde::Serialize;

use crate::interface::ops::resolve;
use crate::ip::FamilyId;
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowGroups>().declare::<ShowMacs>();
}

request! {
    /// Shows which groups interfaces listen to, and how routers and switches are told (IGMP, MLD).
    pub read ShowGroups "ip_groups_show" ["show ip groups"] {
        /// This interface; else all that listen to groups.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// A group.
#[derive(Debug, Clone, Serialize)]
pub struct GroupReply {
    /// Group.
    pub group: IpAddr,
    /// Who listens to it.
    pub users: Vec<&'static str>,
}

/// An interface and a family.
#[derive(Debug, Clone, Serialize)]
pub struct GroupsReply {
    /// Interface.
    pub interface: String,
    /// Protocol that it speaks: an older one where an older router asks.
    pub protocol: &'static str,
    /// Queries of routers heard.
    pub queries: u64,
    /// Reports sent.
    pub reports: u64,
    /// Groups.
    pub groups: Vec<GroupReply>,
}

impl Text for GroupsReply {
    fn text(&self, out: &mut String, _view: &View) {
        let Self { interface, protocol, queries, reports, groups } = self;
        let _ = writeln!(out, "{interface} {protocol}, queries {queries}, reports {reports}");
        for GroupReply { group, users } in groups {
            let _ = writeln!(out, "  {group} {}", users.join(" "));
        }
    }
}

fn reply(router: &Router, index: IfIndex, family: FamilyId) -> Option<GroupsReply> {
    let figures = router.group_figures(index, family)?;
    let protocol = match (family, figures.version) {
        (FamilyId::V4, Version::First) => "IGMPv1",
        (FamilyId::V4, Version::Second) => "IGMPv2",
        (FamilyId::V4, Version::Third) => "IGMPv3",
        (FamilyId::V6, Version::Third) => "MLDv2",
        (FamilyId::V6, _) => "MLDv1",
    };
    let groups = router.groups(index, family).into_iter().map(|g| GroupReply { group: g.group, users: g.users }).collect();
    let interface = router.interfaces.name(index);
    Some(GroupsReply { interface, protocol, queries: figures.heard, reports: figures.sent, groups })
}

impl Execute<Router> for ShowGroups {
    type Reply = Vec<GroupsReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<GroupsReply>>, OpError> {
        let all: Vec<IfIndex> = match &self.interface {
            Some(name) => vec![resolve(router, name)?],
            None => router.interfaces.iter().map(|i| i.index).collect(),
        };
        let both = all.into_iter().flat_map(|index| [(index, FamilyId::V4), (index, FamilyId::V6)]);
        Ok(Outcome::Done(both.filter_map(|(index, family)| reply(router, index, family)).collect()))
    }
}

request! {
    /// Shows MAC addresses that interfaces accept beside their own: of groups that they listen to, and of virtual routers.
    pub read ShowMacs "interface_secondary_macs_show" ["show interface secondary-mac-address"] {
        /// This interface; else all.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// An interface's MAC addresses.
#[derive(Debug, Clone, Serialize)]
pub struct MacsReply {
    /// Interface.
    pub interface: String,
    /// Administratively up.
    pub admin_up: bool,
    /// MAC addresses beside its own.
    pub macs: Vec<String>,
}

impl Text for MacsReply {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "{} {}", self.interface, if self.admin_up { "up" } else { "dn" });
        for mac in &self.macs {
            let _ = writeln!(out, "  {mac}");
        }
    }
}

fn macs(router: &Router, index: IfIndex) -> Option<MacsReply> {
    let interface = router.interfaces.get(index)?;
    let groups = [FamilyId::V4, FamilyId::V6].into_iter().flat_map(|family| router.groups(index, family));
    let mac = |group: IpAddr| match group {
        IpAddr::V4(a) => MacAddr::from_ipv4_multicast(a),
        IpAddr::V6(a) => MacAddr::from_ipv6_multicast(a),
    };
    let all: BTreeSet<MacAddr> = groups.map(|listened| mac(listened.group)).chain(router.more_macs.get().of(index)).collect();
    let macs = all.into_iter().map(|mac| mac.to_string()).collect();
    Some(MacsReply { interface: interface.name.clone(), admin_up: interface.admin_up, macs })
}

impl Execute<Router> for ShowMacs {
    type Reply = Vec<MacsReply>;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Vec<MacsReply>>, OpError> {
        let all: Vec<IfIndex> = match &self.interface {
            Some(name) => vec![resolve(router, name)?],
            None => router.interfaces.iter().map(|i| i.index).collect(),
        };
        Ok(Outcome::Done(all.into_iter().filter_map(|index| macs(router, index)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::run;
    use crate::testing::Harness;

    #[test]
    fn groups_are_shown_with_who_listens_and_their_mac_addresses() {
        let mut h = Harness::new();
        let x = h.interface(0);
        assert_eq!(run(&mut h.router, "show ip groups"), "");
        h.router.add_address(x, "fe80::1".parse().unwrap(), 128).unwrap();
        let group = "224.0.0.18".parse().unwrap();
        h.router.want_groups(x, crate::ip::FamilyId::V4, "test", &[group].into());
        assert_eq!(
            run(&mut h.router, "show ip groups x0"),
            "x0 IGMPv3, queries 0, reports 0\n  224.0.0.18 test\nx0 MLDv2, queries 0, reports 0\n  ff02::2 ip6-nd\n  \
             ff02::16 ip6-nd\n  ff02::1:ff00:1 ip6-nd\n  ff05::2 ip6-nd\n"
        );
        assert_eq!(
            run(&mut h.router, "show interface secondary-mac-address x0"),
            "x0 up\n  01:00:5e:00:00:12\n  33:33:00:00:00:02\n  33:33:00:00:00:16\n  33:33:ff:00:00:01\n"
        );
    }
}
