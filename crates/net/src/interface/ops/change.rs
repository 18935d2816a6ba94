//! Changing interfaces.

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request::{Execute, Value as _};
use quiver_command::{commands, words};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::resolve;
use crate::Router;
use crate::interface::{L2Mode, Mtu};
use crate::ops::graph_error;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetInterface>();
}

commands! {
    change SetInterface "interface_set" {
        /// Brings an interface up or down.
        // VPP's `punt' and `enable' are not taken: they mean what no interface here can do.
        ["set interface state"] { interface: IfRef = "<if>", up: bool = "up|down" required() } => { interface, change: Change::State { up } },
        /// Sets the MTU, of all protocols or of one, in bytes without the Ethernet header.
        ["set interface mtu"] "[packet|ip4|ip6|mpls] <n> <if>" by parse_mtu => mtu_command,
        /// Sets the MAC address.
        ["set interface mac address"] { interface: IfRef = "<if>", mac: [u8; 6] = "<mac>" name("MAC address") }
            => { interface, change: Change::Mac { mac } },
        /// Accepts frames to any MAC address.
        ["set interface promiscuous"] "on|off <if>" by parse_promiscuous => promiscuous_command,
        /// Broadcasts packets to the broadcast addresses of an interface's prefixes there, or drops them (RFC 2644).
        ["set interface ip directed-broadcast"] { interface: IfRef = "<if>", on: bool = "enable|disable" required() }
            => { interface, change: Change::DirectedBroadcast { on } },
        /// Gives an interface another name.
        ["set interface name"] { interface: IfRef = "<if>", name: String = "<name>" } => { interface, change: Change::Name { name } },
        /// Attaches a text to an interface.
        ["set interface tag"] "<if> <text>" by parse_tag => tag_command,
        /// Switches a feature on or off on an interface.
        ["set interface feature"] {
            interface: IfRef = "<if>",
            feature: String = "<feature>",
            arc: String = "arc <arc>",
            on: bool = "disable" default(true),
        } => { interface, change: Change::Feature { feature, arc, on } },
        /// Sends every frame of an interface out of its peer; issue it for both directions.
        ["set interface l2 xconnect"] { interface: IfRef = "<if>", peer: IfRef = "<peer>" name("interface") }
            => { interface, change: Change::CrossConnect { peer } },
        /// Takes an interface out of bridging and cross-connects: its packets are routed again.
        ["set interface l3"] { interface: IfRef = "<if>" } => { interface, change: Change::Route },
    }
}

// Where the interface comes last its place says what it is: its name may be one of the words before it.

fn parse_mtu(args: &mut Args<'_>) -> Result<SetInterface, OpError> {
    use MtuKind::{Ip4, Ip6, Mpls, Packet};
    let which = args.take_one_of(&[("packet", Packet), ("ip4", Ip4), ("ip6", Ip6), ("mpls", Mpls)]).unwrap_or(Packet);
    let bytes = args.number("mtu")?;
    Ok(SetInterface { interface: args.interface()?, change: Change::Mtu { which, bytes } })
}

fn mtu_command(request: &SetInterface) -> Option<String> {
    let Change::Mtu { which, bytes } = &request.change else { return None };
    Some(format!("set interface mtu {} {bytes} {}", which.text(), quote(request.interface.as_str())))
}

fn parse_promiscuous(args: &mut Args<'_>) -> Result<SetInterface, OpError> {
    let on = args.expect_one_of(&[("on", true), ("off", false)])?;
    Ok(SetInterface { interface: args.interface()?, change: Change::Promiscuous { on } })
}

fn promiscuous_command(request: &SetInterface) -> Option<String> {
    let Change::Promiscuous { on } = request.change else { return None };
    let on = if on { "on" } else { "off" };
    Some(format!("set interface promiscuous {on} {}", quote(request.interface.as_str())))
}

/// A tag is the rest of the line.
fn parse_tag(args: &mut Args<'_>) -> Result<SetInterface, OpError> {
    let interface = args.interface()?;
    Ok(SetInterface { interface, change: Change::Tag { text: args.rest().to_owned() } })
}

fn tag_command(request: &SetInterface) -> Option<String> {
    let Change::Tag { text } = &request.change else { return None };
    Some(format!("set interface tag {} {text}", quote(request.interface.as_str())))
}

/// Changes one thing about an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetInterface {
    /// Interface.
    pub interface: IfRef,
    /// Change.
    pub change: Change,
}

words! {
    /// Protocol that an MTU is for.
    pub enum MtuKind {
        /// All that have none of their own.
        Packet = "packet",
        /// IPv4.
        Ip4 = "ip4",
        /// IPv6.
        Ip6 = "ip6",
        /// MPLS.
        Mpls = "mpls",
    }
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Up or down.
    State {
        /// Up.
        up: bool,
    },
    /// Largest packet, bytes.
    Mtu {
        /// Protocol.
        which: MtuKind,
        /// Bytes; 0 takes a protocol's own value back.
        bytes: u32,
    },
    /// MAC address.
    Mac {
        /// Address.
        mac: [u8; 6],
    },
    /// Accept all frames.
    Promiscuous {
        /// On.
        on: bool,
    },
    /// Packets to broadcast addresses of its prefixes.
    DirectedBroadcast {
        /// Broadcast there.
        on: bool,
    },
    /// Name.
    Name {
        /// New name.
        name: String,
    },
    /// User's text; empty removes it.
    Tag {
        /// Text.
        text: String,
    },
    /// Feature on an arc.
    Feature {
        /// Node.
        feature: String,
        /// Arc.
        arc: String,
        /// On.
        on: bool,
    },
    /// Every frame to a peer.
    CrossConnect {
        /// Peer.
        peer: IfRef,
    },
    /// Routed again.
    Route,
}

impl Execute<Router> for SetInterface {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let result = match self.change {
            Change::State { up } => router.set_interface_up(index, up),
            Change::Mac { mac } => router.set_mac(index, MacAddr(mac)),
            Change::Promiscuous { on } => router.set_promiscuous(index, on),
            Change::DirectedBroadcast { on } => {
                return router.set_directed_broadcast(index, on).map(Outcome::Done).map_err(OpError::from);
            }
            Change::Name { name } => router.rename(index, &name),
            Change::Tag { text } => {
                if let Some(interface) = router.interfaces.get_mut(index) {
                    interface.tag = (!text.is_empty()).then_some(text);
                }
                Ok(())
            }
            Change::Feature { feature, arc, on } => {
                let changed = router.graph.set_feature(&arc, &feature, index, on).map_err(|e| graph_error(&e))?;
                if let Some(interface) = router.interfaces.get_mut(index) {
                    interface.note_feature((arc, feature), on, changed);
                }
                Ok(())
            }
            Change::CrossConnect { peer } => {
                let peer = resolve(router, &peer)?;
                router.set_l2(index, L2Mode::CrossConnect(peer))
            }
            Change::Route => router.set_l2(index, L2Mode::L3),
            Change::Mtu { which, bytes } => {
                let mtu = router.interfaces.expect(index)?.mtu;
                router.set_mtu(
                    index,
                    match which {
                        MtuKind::Packet => Mtu { l3: bytes, ..mtu },
                        MtuKind::Ip4 => Mtu { ip4: bytes, ..mtu },
                        MtuKind::Ip6 => Mtu { ip6: bytes, ..mtu },
                        MtuKind::Mpls => Mtu { mpls: bytes, ..mtu },
                    },
                )
            }
        };
        result?;
        Ok(Outcome::Done(()))
    }
}
