//! Operations and commands.

mod lacp;
mod show;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::document::Shape;
use quiver_command::grammar::{Command, IfRef};
use quiver_command::operation::{Argument, Invocation, OpError, Outcome, Registry};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_net::interface::ops::{Change, Created, DeleteInterface, SetInterface, resolve};
use quiver_net::rss::HashInput;
use quiver_net::{IfIndex, Router};
use quiver_wire::MacAddr;

use crate::control::{self, BOND, Bonds, ID_MAX, NewBond};
use crate::lacp::lag::PortConfig;
use crate::nodes::Choice;
pub use lacp::{PortInfo, ShowLacp, ports};
pub use show::{BondInfo, MemberInfo, ShowBonds, shown};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "create bond mode xor load-balance l34",
    "create bond mode active-backup hw-addr 02:fe:00:00:00:01 id 5",
    "bond add BondEthernet0 host-eth1",
    "bond del host-eth1",
    "set interface bond host-eth1 weight 10",
    "delete bond BondEthernet0",
    "show bond details",
    "create bond mode lacp load-balance l34",
    "bond add BondEthernet0 host-eth1 long-timeout",
    "show lacp details",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] = &[
    ("create bond", &["bond_create", "bond_create2"]),
    ("delete bond", &["bond_delete"]),
    ("bond add", &["bond_add_member", "bond_enslave"]),
    ("bond del", &["bond_detach_member", "bond_detach_slave"]),
    ("set interface bond", &["sw_interface_set_bond_weight"]),
    ("show bond", &["sw_bond_interface_dump", "sw_interface_bond_dump", "sw_member_interface_dump", "sw_interface_slave_dump"]),
    ("show lacp", &["sw_interface_lacp_dump"]),
];
/// Arguments of commands that are parsed by hand: path; syntax, field, meaning of each.
const ARGUMENTS: &[(&str, &[Argument])] = &[("delete bond", &[("<if>", "interface", "A bond")])];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).arguments(ARGUMENTS).messages(MESSAGES);
    registry.declare::<CreateBond>().declare::<AddMember>().declare::<RemoveMember>().declare::<SetWeight>();
    registry.declare::<ShowBonds>().declare::<ShowLacp>();
    registry.command_of::<DeleteInterface>(Command {
        path: "delete bond",
        syntax: "<if>",
        help: "Removes a bond; its members are interfaces of their own again",
        parse: |args, _| {
            args.take_keyword("sw_if_index");
            Ok(Invocation::new::<DeleteInterface>(DeleteInterface::of(&BOND, args.interface()?)))
        },
    });
    registry.shapes(Stage::Interfaces, MADE).shapes(Stage::Links, MEMBERS);
    registry.configuration(Stage::Links, |router| each(numbers(router), members)).covers(&[
        "bond_create",
        "bond_member_add",
        "bond_member_remove",
        "bond_weight_set",
    ]);
}

fn numbers(router: &Router) -> Vec<IfIndex> {
    router.state::<Bonds>().map(|state| state.iter().map(|(index, _)| index).collect()).unwrap_or_default()
}

/// Members in their order: the bond has the MAC address of the first one.
fn members(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(bond) = router.state::<Bonds>().ok().and_then(|state| state.get(*index)) else { return };
    let name = IfRef(router.interfaces.name(*index));
    for member in &bond.members {
        let interface = IfRef(router.interfaces.name(member.interface));
        if member.own_mac != member.device_mac {
            let set = |mac: MacAddr| SetInterface { interface: interface.clone(), change: Change::Mac { mac: mac.0 } };
            out.push(&set(member.own_mac)).undo(&set(member.device_mac)).replaced();
        }
        let add = AddMember {
            bond: name.clone(),
            member: interface.clone(),
            passive: member.config.passive,
            long_timeout: member.config.long_timeout,
        };
        let known = format!("member {}", interface.as_str());
        let undo = RemoveMember { member: interface.clone() };
        out.push(&add).undo(&undo).makes(known.clone()).in_list(format!("members of {}", name.as_str()));
        if member.weight != 0 {
            let set = |weight| SetWeight { member: interface.clone(), weight };
            out.push(&set(member.weight)).undo(&set(0)).replaced().needs(known);
        }
    }
}

words! {
    /// How a bond gives packets to its members.
    pub enum Mode {
        /// To one after the other.
        RoundRobin = "round-robin",
        /// To one of them; the others stand by.
        ActiveBackup = "active-backup",
        /// Each flow to one.
        Xor = "xor",
        /// A copy to each.
        Broadcast = "broadcast",
        /// Each flow to one of those on which the other side agrees, by LACP.
        Lacp = "lacp",
    }
}

words! {
    /// By what flows are told apart.
    pub enum Balance {
        /// MAC addresses.
        L2 = "l2",
        /// IP addresses.
        L23 = "l23",
        /// IP addresses and ports.
        L34 = "l34",
    }
}

impl Mode {
    /// How packets choose a member.
    pub(crate) fn choice(self, balance: Balance) -> Choice {
        match (self, balance) {
            (Self::RoundRobin, _) => Choice::RoundRobin,
            (Self::Broadcast, _) => Choice::Broadcast,
            // There is but one.
            (Self::ActiveBackup, _) | (_, Balance::L2) => Choice::L2,
            (_, Balance::L23) => Choice::Flow(HashInput { symmetric: false, l4: false }),
            (_, Balance::L34) => Choice::Flow(HashInput { symmetric: false, l4: true }),
        }
    }

    /// Whether flows choose members.
    pub(crate) const fn balances(self) -> bool {
        matches!(self, Self::Xor | Self::Lacp)
    }
}

request! {
    /// Makes a bond, an interface that has several links, and prints its name.
    pub change CreateBond "bond_create" ["create bond"] {
        /// How packets are given to members.
        pub mode: Mode = "mode round-robin|active-backup|xor|broadcast|lacp",
        /// By what flows choose a member, in modes xor and lacp: MAC addresses, IP addresses, or these with ports.
        pub load_balance: Balance = "load-balance l2|l23|l34" default(Balance::L2),
        /// MAC address; that of the first member where absent.
        pub mac: Option<[u8; 6]> = "hw-addr <mac>" unicast(),
        /// Number in the name; the lowest free one where absent.
        pub id: Option<u32> = "id <n>" range(0..=ID_MAX as u64),
    } ignores {
        /// Super-frames are cut and checksums finished where a member's device cannot do so.
        "gso",
    }
}

impl Execute<Router> for CreateBond {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        let Self { id, mode, load_balance, mac } = self;
        if load_balance != Balance::L2 && !mode.balances() {
            let error = OpError::new(quiver_command::operation::retval::INVALID_ARGUMENT, "only modes xor and lacp balance flows");
            return Err(error.key("load-balance"));
        }
        let index = control::create(router, NewBond { id, mode, balance: load_balance, mac: mac.map(MacAddr) })?;
        let id = router.state::<Bonds>()?.get(index).map(|bond| bond.id);
        router.made_by(index, &Self { id, ..self });
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

request! {
    /// Makes an interface a member of a bond.
    pub change AddMember "bond_member_add" ["bond add"] {
        /// The bond.
        pub bond: IfRef = "<bond>" name("interface"),
        /// The interface; what it receives is the bond's.
        pub member: IfRef = "<if>" name("interface"),
        /// LACP: does not speak unless the other side does.
        pub passive: bool = "passive",
        /// LACP: the other side may send every 30 s and is lost after 90 s, not every second and after 3 s.
        pub long_timeout: bool = "long-timeout",
    }
}

impl Execute<Router> for AddMember {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let (bond, member) = (resolve(router, &self.bond)?, resolve(router, &self.member)?);
        let config = PortConfig { passive: self.passive, long_timeout: self.long_timeout };
        control::add_member(router, bond, member, config).map(Outcome::Done)
    }
}

request! {
    /// Takes an interface out of its bond; it has its own MAC address again.
    pub change RemoveMember "bond_member_remove" ["bond del"] {
        /// The member.
        pub member: IfRef = "<if>" name("interface"),
    }
}

impl Execute<Router> for RemoveMember {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let member = resolve(router, &self.member)?;
        control::remove_member(router, member).map(Outcome::Done)
    }
}

request! {
    /// Sets how much a member of an active-backup bond is preferred: the one with the largest weight that works is active.
    pub change SetWeight "bond_weight_set" ["set interface bond"] {
        /// The member.
        pub member: IfRef = "<if>" name("interface"),
        /// Weight.
        pub weight: u32 = "weight <n>",
    }
}

impl Execute<Router> for SetWeight {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let member = resolve(router, &self.member)?;
        control::set_weight(router, member, self.weight).map(Outcome::Done)
    }
}

/// Where bonds stand in a document.
const MADE: &[Shape] =
    &[Shape::new("interfaces/BondEthernet{id#}/bond", r#"{"*":"*"}"#, "bond_create", r#"{"id":"{id#}","*":"*"}"#)
        .doc("Several links as one interface; its name is BondEthernet and a number.")];

/// Members of bonds.
const MEMBERS: &[Shape] = &[
    Shape::new(
        "interfaces/{bond}/members/{member}",
        r#"{"*":"*"}"#,
        "bond_member_add",
        r#"{"bond":"{bond}","member":"{member}","*":"*"}"#,
    )
    .doc("A member of a bond, in order.")
    .makes(&["member {member}"]),
    Shape::new(
        "interfaces/{member}/bond_weight",
        r#""{weight#}""#,
        "bond_weight_set",
        r#"{"member":"{member}","weight":"{weight#}"}"#,
    )
    .doc("The member with the highest weight is preferred."),
];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
