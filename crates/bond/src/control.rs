//! Bonds and their members on the main thread: making, changing and removing them.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_graph::stats::MAX_THREADS;
use quiver_graph::{GraphError, IfIndex, NodeSpec, Published};
use quiver_net::interface::{InterfaceKind, Kind, L2Mode, NewInterface, Tx};
use quiver_net::ops::graph_error;
use quiver_net::{Interface, PluginState, Router};
use quiver_wire::MacAddr;

use crate::lacp::lag::PortConfig;
use crate::lacp::thread::Shared;
use crate::members::{MEMBERS_MAX, Masks, Member as MemberOfNodes, Members, Way, Ways};
use crate::nodes::{self, Outputs, Parts};
use crate::ops::{Balance, Mode};
use crate::{follow, machines, restart};

/// Their kind.
pub const BOND: InterfaceKind = InterfaceKind { name: "bond", called: "a bond", device_type: "bond" };

/// Most bonds.
pub const ID_MAX: u32 = 65_535;
/// Largest frame of a bond without members, bytes without FCS.
pub const MAX_FRAME: u32 = 9216;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: u32 = 14;

/// A bond to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewBond {
    /// Number in the name; the lowest free one where absent.
    pub id: Option<u32>,
    /// How packets are given to members.
    pub mode: Mode,
    /// By which flows choose a member.
    pub balance: Balance,
    /// MAC address; that of the first member where absent.
    pub mac: Option<MacAddr>,
}

/// A bond.
pub struct Bond {
    /// Number in its name.
    pub id: u32,
    /// How packets are given to members.
    pub mode: Mode,
    /// By which flows choose a member.
    pub balance: Balance,
    /// It takes no member's MAC address.
    pub(crate) fixed_mac: bool,
    /// The MAC address that it has without members.
    pub(crate) first_mac: MacAddr,
    /// In order of adding.
    pub members: Vec<Member>,
    /// The member that an active-backup bond uses.
    pub active: Option<IfIndex>,
    pub(crate) masks: Arc<Masks>,
    /// Members that sent when main looked last.
    pub(crate) noted: u32,
    ways: Published<Ways>,
    /// Of LACP: the thread that has the machines, and members whose link it knows to be up.
    pub(crate) lacp: Option<Machines>,
}

/// What main knows of the machines of LACP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machines {
    pub owner: usize,
    pub ready: u32,
}

/// A member of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The interface.
    pub interface: IfIndex,
    /// Its bit in the masks.
    pub place: u8,
    /// Which member of an active-backup bond is preferred: the one with the largest weight.
    pub weight: u32,
    /// The MAC address that it gets back.
    pub own_mac: MacAddr,
    /// The MAC address that its device had at first.
    pub device_mac: MacAddr,
    /// How it takes part in LACP.
    pub config: PortConfig,
}

/// The plugin's state.
pub struct Bonds {
    bonds: BTreeMap<u32, Bond>,
    by_member: BTreeMap<u32, IfIndex>,
    pub(crate) parts: Parts,
    seed: u64,
}

impl PluginState for Bonds {
    const OFF: &'static str = "the plugin of bonds is off";
}

impl Bonds {
    /// All bonds, by number of their interface.
    pub fn iter(&self) -> impl Iterator<Item = (IfIndex, &Bond)> {
        self.bonds.iter().map(|(index, bond)| (IfIndex(*index), bond))
    }

    /// A bond.
    pub fn get(&self, index: IfIndex) -> Option<&Bond> {
        self.bonds.get(&index.0)
    }

    pub(crate) fn get_mut(&mut self, index: IfIndex) -> Option<&mut Bond> {
        self.bonds.get_mut(&index.0)
    }

    /// The bond of a member.
    pub fn of_member(&self, member: IfIndex) -> Option<IfIndex> {
        self.by_member.get(&member.0).copied()
    }

    /// A member.
    pub fn member(&self, member: IfIndex) -> Option<&Member> {
        self.get(self.of_member(member)?)?.member(member)
    }

    pub(crate) fn publish_members(&self) {
        let mut all = Members::new();
        for (index, bond) in self.iter() {
            for member in &bond.members {
                let of_nodes = MemberOfNodes {
                    bond: index,
                    place: member.place,
                    masks: bond.masks.clone(),
                    lacp: bond.lacp.map(|machines| machines.owner),
                };
                all.insert(member.interface, of_nodes);
            }
        }
        self.parts.members.publish(all);
    }
}

impl Bond {
    /// A member.
    pub fn member(&self, interface: IfIndex) -> Option<&Member> {
        self.members.iter().find(|member| member.interface == interface)
    }

    pub(crate) fn member_mut(&mut self, interface: IfIndex) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.interface == interface)
    }

    /// Members that send.
    pub fn working(&self) -> impl Iterator<Item = &Member> {
        let sending = self.masks.sending();
        self.members.iter().filter(move |member| sending >> member.place & 1 != 0)
    }

    fn free_place(&self) -> Option<u8> {
        (0..MEMBERS_MAX as u8).find(|place| self.members.iter().all(|member| member.place != *place))
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let signal = router.process_signal(machines::PROCESS);
    let parts = Parts {
        members: Published::new(Members::new()),
        outputs: Published::new(Outputs::new()),
        threads: (0..MAX_THREADS).map(|_| Shared::new(signal.clone())).collect(),
    };
    nodes::declare(router, &parts)?;
    let seed = router.graph.clock().ticks() ^ u64::from(std::process::id()).rotate_left(40);
    router.add_part(Bonds { bonds: BTreeMap::new(), by_member: BTreeMap::new(), parts, seed });
    router.add_process(machines::PROCESS, machines::process);
    router.listen(follow::on_interface);
    router.listen_workers(machines::on_worker);
    restart::init(router);
    Ok(())
}

fn wrong(code: i32, text: String, name: &str) -> OpError {
    OpError::new(code, text).key("interface").value(name)
}

/// Makes a bond without members.
///
/// # Errors
/// The number is taken, there is no room for another interface, a MAC address that no interface can have.
pub fn create(router: &mut Router, new: NewBond) -> Result<IfIndex, OpError> {
    let state = router.state::<Bonds>()?;
    let taken = |id: &u32| state.bonds.values().any(|bond| bond.id == *id);
    let id = match new.id {
        Some(id) if taken(&id) => {
            return Err(OpError::new(retval::INSTANCE_IN_USE, format!("there is a bond {id} already")).key("id").value(id));
        }
        Some(id) => id,
        None => (0..=ID_MAX).find(|id| !taken(id)).unwrap_or(0),
    };
    let seed = state.seed;
    // As VPP's: locally administered, and another one for each.
    let random = (seed.rotate_left(17) ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let mac = new.mac.unwrap_or(MacAddr([2, 0xfe, random[0], random[1], random[2], random[3]]));
    let (masks, ways) = (Arc::new(Masks::default()), Published::new(Ways::new()));
    let (choice, counters) = (new.mode.choice(new.balance), router.graph.interfaces().clone());
    let (of_node, snapshot) = (masks.clone(), ways.snapshot());
    let make = move |bond, name: String| {
        let output = nodes::Output::new(bond, choice, seed, snapshot, of_node, counters);
        NodeSpec::node(name, output).traced(nodes::trace)
    };
    let index = router.create_interface(NewInterface {
        name: format!("BondEthernet{id}"),
        kind: Kind::Virtual(&BOND),
        mac,
        mtu: MAX_FRAME - ETHERNET,
        max_frame: MAX_FRAME,
        tx: Tx::Node(Box::new(make)),
    })?;
    let bond = Bond {
        id,
        mode: new.mode,
        balance: new.balance,
        fixed_mac: new.mac.is_some(),
        first_mac: mac,
        members: Vec::new(),
        active: None,
        masks,
        noted: 0,
        ways,
        lacp: None,
    };
    router.state_mut::<Bonds>()?.bonds.insert(index.0, bond);
    if new.mode == Mode::Lacp {
        machines::begin(router, index, mac);
    }
    follow::update(router, index);
    Ok(index)
}

/// Why an interface cannot be a member.
fn refusal(router: &Router, interface: &Interface) -> Option<&'static str> {
    let state = router.state::<Bonds>().ok()?;
    match &interface.kind {
        Kind::Local => return Some("has no packets"),
        Kind::Sub(_) => return Some("is a sub-interface: a bond consists of whole links"),
        kind if kind.is_loop() => return Some("is a loopback, which has no link"),
        _ => {}
    }
    if state.get(interface.index).is_some() {
        return Some("is a bond itself");
    }
    if !interface.has_link_layer() {
        return Some("carries IP packets without Ethernet headers");
    }
    if !interface.addresses.is_empty() || interface.unnumbered.is_some() {
        return Some("has addresses: they belong on the bond");
    }
    if interface.l2 != L2Mode::L3 {
        return Some("is a port of a bridge or cross-connect: the bond can be one");
    }
    router.interfaces.subs(interface.index).next().map(|_| "has sub-interfaces: they belong on the bond")
}

/// A bond that is named.
///
/// # Errors
/// The interface is none.
pub fn expect(router: &Router, index: IfIndex) -> Result<&Bond, OpError> {
    let name = router.interfaces.name(index);
    let none = || wrong(retval::INVALID_INTERFACE, format!("{name} is not a bond"), &name);
    router.state::<Bonds>()?.get(index).ok_or_else(none)
}

/// Makes an interface a member of a bond.
///
/// # Errors
/// No such bond or interface; it is a member already, or cannot be one. Nothing has changed then.
pub fn add_member(router: &mut Router, bond: IfIndex, interface: IfIndex, config: PortConfig) -> Result<(), OpError> {
    let mode = expect(router, bond)?.mode;
    let member = router.interfaces.expect(interface)?;
    let name = member.name.clone();
    if let Some(other) = router.state::<Bonds>()?.of_member(interface) {
        let text = format!("{name} is a member of {} already", router.interfaces.name(other));
        return Err(wrong(retval::VALUE_EXIST, text, &name));
    }
    if let Some(why) = refusal(router, member) {
        return Err(wrong(retval::INVALID_INTERFACE, format!("{name} {why}"), &name));
    }
    if mode != Mode::Lacp && config != PortConfig::default() {
        let text = "only members of bonds with LACP are passive or have timeouts".to_owned();
        return Err(wrong(retval::INVALID_ARGUMENT, text, &name));
    }
    let (own_mac, device_mac, output) = (member.mac, member.origin.mac, member.output);
    let Some(place) = expect(router, bond)?.free_place() else {
        let text = format!("a bond has {MEMBERS_MAX} members at most");
        return Err(OpError::new(retval::LIMIT_EXCEEDED, text).key("members"));
    };
    let tx = router.interfaces.expect(bond)?.tx;
    let slot = router.graph.edge(tx, output).map_err(|error| graph_error(&error))?;
    router.graph.set_feature(nodes::INPUT.0, nodes::INPUT.1, interface, true).map_err(|error| graph_error(&error))?;
    let state = router.state_mut::<Bonds>()?;
    state.by_member.insert(interface.0, bond);
    if let Some(bond) = state.get_mut(bond) {
        bond.members.push(Member { interface, place, weight: 0, own_mac, device_mac, config });
        let mut ways = Ways::clone(&bond.ways.get());
        ways.resize(ways.len().max(usize::from(place) + 1), None);
        ways[usize::from(place)] = Some(Way { interface, slot });
        bond.ways.publish(ways);
    }
    state.publish_members();
    if mode == Mode::Lacp {
        machines::add_member(router, bond, interface)?;
    }
    follow::take_mac(router, bond);
    follow::give_mac(router, bond, interface);
    follow::resize(router, bond);
    follow::update(router, bond);
    Ok(())
}

/// Takes a member out of its bond.
///
/// # Errors
/// The interface is no member.
pub fn remove_member(router: &mut Router, interface: IfIndex) -> Result<(), OpError> {
    let name = router.interfaces.name(interface);
    let state = router.state_mut::<Bonds>()?;
    let Some(index) = state.of_member(interface) else {
        return Err(wrong(retval::INVALID_INTERFACE, format!("{name} is not a member of a bond"), &name));
    };
    release(router, index, interface);
    follow::take_mac(router, index);
    follow::resize(router, index);
    follow::update(router, index);
    Ok(())
}

/// Ends a membership; the interface has its own MAC address again.
fn release(router: &mut Router, index: IfIndex, interface: IfIndex) {
    let Ok(state) = router.state_mut::<Bonds>() else { return };
    state.by_member.remove(&interface.0);
    let Some(bond) = state.get_mut(index) else { return };
    let Some(at) = bond.members.iter().position(|member| member.interface == interface) else { return };
    let member = bond.members.remove(at);
    let speaks = bond.lacp.is_some();
    // No packet goes there from the next vector on.
    let mut ways = Ways::clone(&bond.ways.get());
    if let Some(way) = ways.get_mut(usize::from(member.place)) {
        *way = None;
    }
    bond.ways.publish(ways);
    state.publish_members();
    if speaks {
        machines::remove_member(router, index, &member);
    }
    // It is declared, so that this cannot fail.
    let _ = router.graph.set_feature(nodes::INPUT.0, nodes::INPUT.1, interface, false);
    if let Some(interface) = router.interfaces.get_mut(interface) {
        interface.origin.mac = member.device_mac;
        interface.member_mac = None;
    }
    let _ = router.set_mac(interface, member.own_mac);
}

/// Sets how much a member of an active-backup bond is preferred.
///
/// # Errors
/// The interface is no member, or its bond is of another mode.
pub fn set_weight(router: &mut Router, interface: IfIndex, weight: u32) -> Result<(), OpError> {
    let name = router.interfaces.name(interface);
    let state = router.state_mut::<Bonds>()?;
    let Some(index) = state.of_member(interface) else {
        return Err(wrong(retval::INVALID_INTERFACE, format!("{name} is not a member of a bond"), &name));
    };
    let Some(bond) = state.get_mut(index) else { return Ok(()) };
    if bond.mode != Mode::ActiveBackup {
        let error = wrong(retval::INVALID_ARGUMENT, "only members of active-backup bonds have weights".into(), &name);
        return Err(error);
    }
    if let Some(member) = bond.member_mut(interface) {
        member.weight = weight;
    }
    follow::update(router, index);
    Ok(())
}

/// A bond or a member goes.
pub(crate) fn forget(router: &mut Router, index: IfIndex) {
    let Ok(state) = router.state::<Bonds>() else { return };
    if state.of_member(index).is_some() {
        let _ = remove_member(router, index);
        return;
    }
    let members: Vec<IfIndex> = state.get(index).map(|b| b.members.iter().map(|m| m.interface).collect()).unwrap_or_default();
    for member in members {
        release(router, index, member);
    }
    machines::end(router, index);
    if let Ok(state) = router.state_mut::<Bonds>() {
        state.bonds.remove(&index.0);
    }
}
