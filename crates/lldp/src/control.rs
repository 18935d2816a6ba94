//! Ports that speak LLDP, on the main thread: switched on and off, what they say, what follows from changes of interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded};
use quiver_command::operation::{OpError, retval};
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_net::interface::{Kind, L2Mode};
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, Interface, PluginState, Router};
use quiver_wire::MacAddr;

use crate::agent::{Agent, Allowance, SECOND};
use crate::node::{self, Bell, FEATURE, Heard, Inbox, Inboxes};
use crate::pdu::write::{self, Local, given};
use crate::pdu::{Capability, OID_MAX, TEXT_MAX};
use crate::process;

/// Most ports.
pub const PORTS_MAX: usize = 8192;
/// Intervals that a unit holds for (`msgTxHold`, 9.2.5.6).
pub const HOLD: u32 = 4;
/// Seconds between units (`msgTxInterval`, 9.2.5.7).
pub const INTERVAL: u32 = 30;
/// Lines about neighbours of a port in the log at once; another one every ten seconds.
const LINES: u32 = 10;

/// What a port says of itself, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Description of the port.
    pub port_desc: Option<String>,
    /// Where the router is managed.
    pub mgmt_ip4: Option<Ipv4Addr>,
    /// The same over IPv6.
    pub mgmt_ip6: Option<Ipv6Addr>,
    /// Object that the addresses belong to.
    pub mgmt_oid: Option<String>,
}

impl Settings {
    /// The OID as it is sent: dotted numbers encoded, other text as it is.
    fn oid(&self) -> Vec<u8> {
        let Some(text) = &self.mgmt_oid else { return Vec::new() };
        write::encoded(text).unwrap_or_else(|| text.as_bytes().to_vec())
    }

    fn check(&self) -> Result<(), OpError> {
        if let Some(text) = self.port_desc.as_ref().filter(|text| text.len() > TEXT_MAX) {
            return Err(OpError::invalid("port-desc", text, "at most 255 bytes"));
        }
        match &self.mgmt_oid {
            Some(text) if self.oid().len() > OID_MAX || text.len() > OID_MAX => {
                Err(OpError::invalid("mgmt-oid", text, "at most 128 bytes"))
            }
            _ => Ok(()),
        }
    }
}

/// A port that speaks LLDP.
pub struct Port {
    /// What it says, as configured.
    pub settings: Settings,
    /// When it sends, and whom it knows.
    pub agent: Agent,
    /// What workers have counted of it.
    pub inbox: Arc<Inbox>,
    pub(crate) mail: Receiver<Heard>,
    /// When main may empty its box; `u64::MAX`: nothing is in it.
    pub(crate) mail_due: u64,
    /// When main has last emptied it.
    pub(crate) emptied: u64,
    pub(crate) lines: Allowance,
    /// Lines that the log did not get.
    pub(crate) unsaid: u64,
    queued: u64,
}

/// The plugin's state.
pub struct Lldp {
    pub(crate) ports: BTreeMap<u32, Port>,
    /// When each of them is next due.
    pub(crate) queue: BTreeSet<(u64, u32)>,
    inboxes: Published<Inboxes>,
    /// Ports whose box is no longer empty.
    pub(crate) bell: Receiver<IfIndex>,
    /// Name of the router; that of the host where absent.
    pub system_name: Option<String>,
    /// Intervals that a unit holds for.
    pub hold: u32,
    /// Seconds between units.
    pub interval: u32,
    /// Who the router is: a MAC address of its own, the same on all ports.
    pub chassis: Option<MacAddr>,
}

impl PluginState for Lldp {
    const OFF: &'static str = "the plugin lldp is off";
    const KEY: Option<&'static str> = Some("lldp");
}

impl Lldp {
    /// Ports by number of their interface.
    pub fn ports(&self) -> impl Iterator<Item = (IfIndex, &Port)> {
        self.ports.iter().map(|(index, port)| (IfIndex(*index), port))
    }

    /// Seconds that what is sent holds for (`txTTL`, 9.2.5.22).
    pub fn ttl(&self) -> u16 {
        (self.hold * self.interval + 1).min(u16::MAX.into()) as u16
    }

    /// The name that is sent.
    pub fn name(&self) -> Option<String> {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Some(self.system_name.clone().unwrap_or_else(host)).filter(|name| !name.is_empty())
    }

    /// Notes when a port is due.
    pub(crate) fn settle(&mut self, index: u32) {
        let Some(port) = self.ports.get_mut(&index) else { return };
        let due = port.agent.due().min(port.mail_due);
        if due != port.queued {
            self.queue.remove(&(port.queued, index));
            port.queued = due;
            if due < u64::MAX {
                self.queue.insert((due, index));
            }
        }
    }

    fn publish(&self, index: IfIndex, inbox: Option<Arc<Inbox>>) {
        let mut inboxes = Inboxes::clone(&self.inboxes.get());
        *inboxes.get_mut(index.0 as usize) = inbox;
        self.inboxes.publish(inboxes);
    }
}

/// Adds node and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let (sender, bell) = bounded(PORTS_MAX);
    let inboxes = Published::new(Inboxes::default());
    node::declare(router, &inboxes, Bell { sender, signal: router.process_signal(process::NAME) })?;
    router.add_part(Lldp {
        ports: BTreeMap::new(),
        queue: BTreeSet::new(),
        inboxes,
        bell,
        system_name: None,
        hold: HOLD,
        interval: INTERVAL,
        chassis: None,
    });
    router.add_process(process::NAME, process::run);
    router.listen(on_interface);
    router.at_stop(stop_all);
    Ok(())
}

/// Changes a port, and has the process look at it.
fn touch(router: &mut Router, index: IfIndex, change: impl FnOnce(&mut Port, u64)) {
    let now = router.graph.clock().timer_now();
    let Ok(lldp) = router.state_mut::<Lldp>() else { return };
    let Some(port) = lldp.ports.get_mut(&index.0) else { return };
    change(port, now);
    lldp.settle(index.0);
    router.wake_process(process::NAME, now);
}

/// Why an interface is no port: LLDP is about one link.
fn refusal(interface: &Interface) -> Option<&'static str> {
    match &interface.kind {
        Kind::Local => Some("has no packets"),
        Kind::Sub(_) => Some("is a sub-interface: LLDP belongs on the whole link"),
        kind if kind.is_loop() => Some("is a loopback, which has no link"),
        Kind::Virtual(kind) if kind.name == "bond" => Some("is a bond: LLDP belongs on each of its members"),
        _ if !interface.has_link_layer() => Some("carries IP packets without Ethernet headers"),
        _ => None,
    }
}

fn is_up(interface: &Interface) -> bool {
    interface.admin_up && interface.link.up
}

/// The router's MAC address: that of its first interface with one, as it is when it is first asked for.
fn chassis(router: &Router) -> Option<MacAddr> {
    let mut ports = router.interfaces.iter().filter(|interface| refusal(interface).is_none() && !interface.mac.is_zero());
    ports.next().map(Interface::link_mac)
}

/// Switches LLDP on on an interface, or has it say something else.
///
/// # Errors
/// The interface is no port, or there are too many. Nothing has changed then.
pub fn set(router: &mut Router, index: IfIndex, settings: Settings) -> Result<(), OpError> {
    settings.check()?;
    let interface = router.interfaces.expect(index)?;
    if let Some(why) = refusal(interface) {
        let text = format!("{} {why}", interface.name);
        return Err(OpError::new(retval::INVALID_INTERFACE, text).key("interface").value(&interface.name));
    }
    let (up, chassis) = (is_up(interface), chassis(router));
    let lldp = router.state_mut::<Lldp>()?;
    if !lldp.ports.contains_key(&index.0) {
        if lldp.ports.len() >= PORTS_MAX {
            return Err(
                OpError::new(retval::LIMIT_EXCEEDED, format!("LLDP can be on on at most {PORTS_MAX} interfaces")).key("interface")
            );
        }
        lldp.chassis = lldp.chassis.or(chassis);
        let (inbox, mail) = Inbox::new();
        let port = Port {
            settings: Settings::default(),
            agent: Agent::default(),
            inbox: inbox.clone(),
            mail,
            mail_due: u64::MAX,
            emptied: 0,
            lines: Allowance::new(LINES, 10 * SECOND),
            unsaid: 0,
            queued: u64::MAX,
        };
        lldp.ports.insert(index.0, port);
        lldp.publish(index, Some(inbox));
        if let Err(error) = router.graph.set_feature(FEATURE.0, FEATURE.1, index, true) {
            forget(router, index);
            return Err(graph_error(&error));
        }
    }
    let settings = Settings { mgmt_ip4: given(settings.mgmt_ip4), mgmt_ip6: given(settings.mgmt_ip6), ..settings };
    touch(router, index, |port, now| {
        if port.settings != settings {
            port.settings = settings;
            port.agent.changed(now);
        }
        port.agent.set_up(up, now);
    });
    Ok(())
}

/// Switches LLDP off on an interface; its neighbours are told. Where it is off this does nothing.
///
/// # Errors
/// No such interface.
pub fn unset(router: &mut Router, index: IfIndex) -> Result<(), OpError> {
    router.interfaces.expect(index)?;
    say_last(router, index);
    forget(router, index);
    Ok(())
}

fn forget(router: &mut Router, index: IfIndex) {
    let Ok(lldp) = router.state_mut::<Lldp>() else { return };
    let Some(port) = lldp.ports.remove(&index.0) else { return };
    lldp.queue.remove(&(port.queued, index.0));
    lldp.publish(index, None);
    // It is declared, so that this cannot fail.
    let _ = router.graph.set_feature(FEATURE.0, FEATURE.1, index, false);
}

/// Sets name and timing for all ports.
///
/// # Errors
/// The plugin is off, or a name is too long.
pub fn configure(router: &mut Router, name: Option<String>, hold: Option<u32>, interval: Option<u32>) -> Result<(), OpError> {
    if let Some(name) = name.as_ref().filter(|name| name.len() > TEXT_MAX) {
        return Err(OpError::invalid("system-name", name, "at most 255 bytes"));
    }
    let lldp = router.state_mut::<Lldp>()?;
    if let Some(name) = name {
        lldp.system_name = Some(name).filter(|name| !name.is_empty());
    }
    lldp.hold = hold.unwrap_or(lldp.hold);
    lldp.interval = interval.unwrap_or(lldp.interval);
    let ports: Vec<u32> = lldp.ports.keys().copied().collect();
    for index in ports {
        touch(router, IfIndex(index), |port, now| port.agent.changed(now));
    }
    Ok(())
}

/// What a port says now.
pub(crate) fn local(router: &Router, index: IfIndex) -> Option<Local> {
    let (lldp, interface) = (router.state::<Lldp>().ok()?, router.interfaces.get(index)?);
    let settings = &lldp.ports.get(&index.0)?.settings;
    let is = if interface.l2 == L2Mode::L3 { Capability::Router.bit() } else { Capability::Bridge.bit() };
    /// Header and FCS.
    const AROUND: u32 = 18;
    Some(Local {
        chassis: lldp.chassis.unwrap_or(interface.mac),
        port: interface.name.clone(),
        ttl: lldp.ttl(),
        port_description: settings.port_desc.clone(),
        system_name: lldp.name(),
        system_description: Some(concat!("Quiver ", env!("CARGO_PKG_VERSION")).to_owned()),
        capabilities: (Capability::Router.bit() | Capability::Bridge.bit(), is),
        ip4: settings.mgmt_ip4,
        ip6: settings.mgmt_ip6,
        mac: interface.link_mac(),
        interface: index.0,
        oid: settings.oid(),
        largest_frame: u16::try_from(interface.mtu.l3 + AROUND).ok(),
    })
}

/// A port says that it speaks no more.
fn say_last(router: &mut Router, index: IfIndex) {
    let Some(local) = local(router, index) else { return };
    let Some(src) = router.interfaces.get(index).map(Interface::link_mac) else { return };
    let Some(port) = router.state_mut::<Lldp>().ok().and_then(|lldp| lldp.ports.get_mut(&index.0)) else { return };
    if port.agent.is_up() {
        port.agent.counts.sent += 1;
        router.send_frames(vec![(index, local.last_frame(src))]);
    }
}

/// The program stops.
fn stop_all(router: &mut Router) {
    let ports: Vec<u32> = router.state::<Lldp>().map(|lldp| lldp.ports.keys().copied().collect()).unwrap_or_default();
    for index in &ports {
        say_last(router, IfIndex(*index));
    }
    if !ports.is_empty() {
        // Each thread goes through its nodes once more.
        router.graph.fleet().each(|worker| worker.step());
    }
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    match *event {
        IfEvent::Deleted(index) => forget(router, index),
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) => {
            let Some(up) = router.interfaces.get(index).map(is_up) else { return };
            touch(router, index, |port, now| port.agent.set_up(up, now));
        }
        IfEvent::Mac(index) | IfEvent::Mtu(index) | IfEvent::L2(index) => touch(router, index, |port, now| port.agent.changed(now)),
        _ => {}
    }
}
