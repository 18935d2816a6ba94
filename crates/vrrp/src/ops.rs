//! Operations and commands.

mod show;
mod tracked;

use std::net::IpAddr;

use quiver_command::configuration::{Configuration, Stage, each};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use quiver_net::ip::FamilyId;

use crate::control::{self, Settings};
use crate::machine::Config;
use crate::thread::Key;
pub use show::{RouterInfo, Routers, ShowRouters};
pub use tracked::{Change, SetTracked, Tracked};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "vrrp vr add host-eth1 vr_id 51 priority 200 accept_mode 10.0.0.100",
    "vrrp vr add host-eth1 vr_id 51 ipv6 priority 200 fe80::100 2001:db8::100",
    "vrrp vr track-if add host-eth1 vr_id 51 track-index local0 priority 50",
    "vrrp proto start host-eth1 vr_id 51",
    "vrrp peers host-eth1 vr_id 52 10.0.0.2 10.0.0.3",
    "vrrp vr del host-eth1 vr_id 51",
    "show vrrp vr",
];

/// Messages by the commands that do the same.
const MESSAGES: &[(&str, &[&str])] = &[
    ("vrrp vr add", &["vrrp_vr_add_del", "vrrp_vr_update"]),
    ("vrrp vr del", &["vrrp_vr_add_del", "vrrp_vr_del"]),
    ("vrrp proto", &["vrrp_vr_start_stop"]),
    ("vrrp peers", &["vrrp_vr_set_peers"]),
    ("vrrp vr track-if", &["vrrp_vr_track_if_add_del"]),
    ("show vrrp vr", &["vrrp_vr_dump", "vrrp_vr_peer_dump", "vrrp_vr_track_if_dump"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES).messages_without_command(&["want_vrrp_vr_events"]);
    registry.declare::<AddRouter>().declare::<UpdateRouter>().declare::<DeleteRouter>();
    registry.declare::<SetProtocol>().declare::<SetPeers>().declare::<SetTracked>().declare::<ShowRouters>();
    registry.shapes(Stage::Services, SHAPES);
    registry.configuration(Stage::Services, |router| each(keys(router), configuration)).covers(&[
        "vrrp_vr_add",
        "vrrp_vr_update",
        "vrrp_vr_delete",
        "vrrp_protocol_set",
        "vrrp_peers_set",
        "vrrp_tracked_set",
    ]);
}

fn keys(router: &Router) -> Vec<Key> {
    router.state::<control::Vrrp>().map(|vrrp| vrrp.routers().map(|(key, _)| *key).collect()).unwrap_or_default()
}

fn configuration(router: &Router, key: &Key, out: &mut Configuration<Router>) {
    let Some(configured) = router.state::<control::Vrrp>().ok().and_then(|vrrp| vrrp.routers.get(key)) else { return };
    let (interface, vr_id, ipv6) = (IfRef(router.interfaces.name(key.interface)), key.vr_id, key.family == FamilyId::V6);
    let Settings { config: Config { priority, interval, preempt }, accept, unicast, addresses } = configured.settings.clone();
    let name = format!("vrrp {} {vr_id} {ipv6}", interface.as_str());
    let add = AddRouter {
        vr_id,
        interface: interface.clone(),
        ipv6,
        priority,
        interval,
        no_preempt: !preempt,
        accept_mode: accept,
        unicast,
        addresses,
    };
    let update = UpdateRouter::of(add.clone());
    let delete = DeleteRouter { vr_id, interface: interface.clone(), ipv6 };
    out.push(&add).undo(&delete).replaced_by(&update).makes(name.clone());
    let peers = |peers| SetPeers { vr_id, interface: interface.clone(), ipv6, peers };
    if !configured.peers.is_empty() {
        let all = configured.peers.iter().map(|(peer, _)| *peer).collect();
        out.push(&peers(all)).undo(&peers(Vec::new())).replaced().needs(name.clone());
    }
    for (tracked, priority) in &configured.tracked {
        let tracked = Tracked { interface: IfRef(router.interfaces.name(*tracked)), priority: *priority };
        let request = |change| SetTracked { vr_id, interface: interface.clone(), ipv6, change, tracked: vec![tracked.clone()] };
        out.push(&request(Change::Add)).undo(&request(Change::Delete)).needs(name.clone());
    }
    if configured.started {
        let request = |action| SetProtocol { action, vr_id, interface: interface.clone(), ipv6 };
        out.push(&request(Action::Start)).undo(&request(Action::Stop)).needs(name);
    }
}

/// What a command calls a virtual router. Addresses of IPv6 say it, too.
fn key(router: &Router, interface: &IfRef, vr_id: u8, ipv6: bool, addresses: &[IpAddr]) -> Result<Key, OpError> {
    let ipv6 = ipv6 || !addresses.is_empty() && addresses.iter().all(IpAddr::is_ipv6);
    let family = if ipv6 { FamilyId::V6 } else { FamilyId::V4 };
    Ok(Key { interface: resolve(router, interface)?, family, vr_id })
}

request! {
    /// Adds a virtual router, which `vrrp proto start` starts.
    pub change AddRouter "vrrp_vr_add" ["vrrp vr add"] {
        /// Number of the virtual router on its link.
        pub vr_id: u8 = "vr_id <n>" range(1..=255),
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Of IPv6, also where the addresses do not say it.
        pub ipv6: bool = "ipv6",
        /// Priority; the highest one becomes the master. 255: the addresses are the interface's own.
        pub priority: u8 = "priority <value>" default(100) range(1..=255),
        /// Interval of advertisements, hundredths of a second.
        pub interval: u16 = "interval <value>" default(100) range(1..=4095),
        /// It does not take the place of a master of lower priority.
        pub no_preempt: bool = "no_preempt",
        /// Packets to the addresses are accepted, so that they answer pings; without it they are only a way through.
        pub accept_mode: bool = "accept_mode",
        /// Advertisements go to the peers that `vrrp peers` sets, not to the group of all VRRP routers.
        pub unicast: bool = "unicast",
        /// Virtual addresses; hosts have one of them as default gateway.
        pub addresses: Vec<IpAddr> = "<ip>",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

impl Execute<Router> for AddRouter {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let (key, settings) = UpdateRouter::of(self).wanted(router)?;
        control::add(router, key, settings)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Changes a virtual router without a new election.
    pub change UpdateRouter "vrrp_vr_update" [] {
        /// Number of the virtual router on its link.
        pub vr_id: u8 = "vr_id <n>" range(1..=255),
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Of IPv6.
        pub ipv6: bool = "ipv6",
        /// Priority.
        pub priority: u8 = "priority <value>" default(100) range(1..=255),
        /// Interval of advertisements, hundredths of a second.
        pub interval: u16 = "interval <value>" default(100) range(1..=4095),
        /// It does not take the place of a master of lower priority.
        pub no_preempt: bool = "no_preempt",
        /// Packets to the addresses are accepted.
        pub accept_mode: bool = "accept_mode",
        /// Advertisements go to peers.
        pub unicast: bool = "unicast",
        /// Virtual addresses.
        pub addresses: Vec<IpAddr> = "<ip>",
    }
}

impl UpdateRouter {
    /// To what this one makes.
    fn of(add: AddRouter) -> Self {
        let AddRouter { vr_id, interface, ipv6, priority, interval, no_preempt, accept_mode, unicast, addresses } = add;
        Self { vr_id, interface, ipv6, priority, interval, no_preempt, accept_mode, unicast, addresses }
    }

    /// Which virtual router, and what it is to be.
    fn wanted(self, router: &Router) -> Result<(Key, Settings), OpError> {
        let key = key(router, &self.interface, self.vr_id, self.ipv6, &self.addresses)?;
        let config = Config { priority: self.priority, interval: self.interval, preempt: !self.no_preempt };
        Ok((key, Settings { config, accept: self.accept_mode, unicast: self.unicast, addresses: self.addresses }))
    }
}

impl Execute<Router> for UpdateRouter {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let (key, settings) = self.wanted(router)?;
        control::update(router, key, settings)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Removes a virtual router. A master tells the others, so that one of them takes over at once.
    pub change DeleteRouter "vrrp_vr_delete" ["vrrp vr del"] {
        /// Number of the virtual router on its link.
        pub vr_id: u8 = "vr_id <n>" range(1..=255),
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Of IPv6.
        pub ipv6: bool = "ipv6",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

impl Execute<Router> for DeleteRouter {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = key(router, &self.interface, self.vr_id, self.ipv6, &[])?;
        control::remove(router, &key).map(Outcome::Done)
    }
}

words! {
    /// What becomes of the protocol.
    pub enum Action {
        /// It begins.
        Start = "start",
        /// It ends.
        Stop = "stop",
    }
}

request! {
    /// Starts the protocol of a virtual router, or ends it; a master that ends tells the others.
    pub change SetProtocol "vrrp_protocol_set" ["vrrp proto"] {
        /// It begins or ends.
        pub action: Action = "start|stop",
        /// Number of the virtual router on its link.
        pub vr_id: u8 = "vr_id <n>" range(1..=255),
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Of IPv6.
        pub ipv6: bool = "ipv6",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

impl Execute<Router> for SetProtocol {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = key(router, &self.interface, self.vr_id, self.ipv6, &[])?;
        control::set_started(router, &key, self.action == Action::Start).map(Outcome::Done)
    }
}

request! {
    /// Sets the peers of a unicast virtual router.
    pub change SetPeers "vrrp_peers_set" ["vrrp peers"] {
        /// Number of the virtual router on its link.
        pub vr_id: u8 = "vr_id <n>" range(1..=255),
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Of IPv6, also where the addresses do not say it.
        pub ipv6: bool = "ipv6",
        /// Addresses of the other routers on the link; none: it has no peers any more.
        pub peers: Vec<IpAddr> = "<ip>",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

impl Execute<Router> for SetPeers {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let key = key(router, &self.interface, self.vr_id, self.ipv6, &self.peers)?;
        control::set_peers(router, &key, &self.peers).map(Outcome::Done)
    }
}

/// Where the virtual routers of address families stand in a document.
macro_rules! shapes {
    ($( $family:literal is $ipv6:literal ),+) => {
        &[$(
            Shape::new(
                concat!("vrrp/{interface}/", $family, "/{vr_id#}"),
                r#"{"*":"*"}"#,
                "vrrp_vr_add",
                concat!(r#"{"vr_id":"{vr_id#}","interface":"{interface}","ipv6":"#, $ipv6, r#","*":"*"}"#),
            )
            .doc("A virtual router, under its interface, family and number."),
            Shape::new(
                concat!("vrrp/{interface}/", $family, "/{vr_id#}/peers"),
                r#""{peers}""#,
                "vrrp_peers_set",
                concat!(r#"{"vr_id":"{vr_id#}","interface":"{interface}","ipv6":"#, $ipv6, r#","peers":"{peers}"}"#),
            )
            .doc("Peers that advertisements go to, where these are unicast."),
            Shape::new(
                concat!("vrrp/{interface}/", $family, "/{vr_id#}/tracked/{tracked}"),
                r#""{priority#}""#,
                "vrrp_tracked_set",
                concat!(
                    r#"{"vr_id":"{vr_id#}","interface":"{interface}","ipv6":"#,
                    $ipv6,
                    r#","change":"add","tracked":[{"interface":"{tracked}","priority":"{priority#}"}]}"#
                ),
            )
            .doc("A tracked interface, and what it takes from the priority while it is down.")
            .types(&[("priority", r#"{"type":"integer","minimum":1,"maximum":254}"#)]),
            Shape::new(
                concat!("vrrp/{interface}/", $family, "/{vr_id#}/started"),
                "true",
                "vrrp_protocol_set",
                concat!(r#"{"vr_id":"{vr_id#}","interface":"{interface}","ipv6":"#, $ipv6, r#","action":"start"}"#),
            )
            .doc("The protocol runs."),
        )+]
    };
}

const SHAPES: &[Shape] = shapes!("ip4" is false, "ip6" is true);

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
