//! Changing interfaces.

use quiver_command::grammar::{Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::{interface_error, resolve};
use crate::Router;
use crate::interface::{L2Mode, Mtu};
use crate::ip::ops::address_error;
use crate::ops::graph_error;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.operation::<SetInterface>();
    for command in commands() {
        registry.command(command);
    }
}

fn invoke(interface: IfRef, change: Change) -> Result<Invocation<Router>, OpError> {
    Ok(Invocation::new::<SetInterface>(SetInterfaceRequest { interface, change }))
}

fn commands() -> Vec<Command<Router>> {
    vec![
        Command {
            path: "set interface state",
            syntax: "<if> up|down",
            help: "Brings an interface up or down",
            parse: |args, _| {
                let interface = args.interface()?;
                // VPP's `punt' and `enable' are not taken: they mean what no interface here can do.
                let up = args.expect_one_of(&[("up", true), ("down", false)])?;
                invoke(interface, Change::State { up })
            },
        },
        Command {
            path: "set interface mtu",
            syntax: "[packet|ip4|ip6|mpls] <n> <if>",
            help: "Sets the largest packet, of all protocols or of one, in bytes without the link header",
            parse: |args, _| {
                let which = args.take_one_of(&[
                    ("packet", MtuKind::Packet),
                    ("ip4", MtuKind::Ip4),
                    ("ip6", MtuKind::Ip6),
                    ("mpls", MtuKind::Mpls),
                ]);
                let bytes = args.number("mtu")?;
                let interface = args.interface()?;
                invoke(interface, Change::Mtu { which: which.unwrap_or(MtuKind::Packet), bytes })
            },
        },
        Command {
            path: "set interface mac address",
            syntax: "<if> <mac>",
            help: "Sets the link address",
            parse: |args, _| {
                let interface = args.interface()?;
                let mac = args.mac("link address")?;
                invoke(interface, Change::Mac { mac })
            },
        },
        Command {
            path: "set interface promiscuous",
            syntax: "on|off <if>",
            help: "Accepts frames to any link address",
            parse: |args, _| {
                let on = args.expect_one_of(&[("on", true), ("off", false)])?;
                let interface = args.interface()?;
                invoke(interface, Change::Promiscuous { on })
            },
        },
        Command {
            path: "set interface ip directed-broadcast",
            syntax: "<if> enable|disable",
            help: "Broadcasts packets to the broadcast addresses of an interface's prefixes there, or drops them (RFC 2644)",
            parse: |args, _| {
                let interface = args.interface()?;
                let on = args.expect_one_of(&[("enable", true), ("disable", false)])?;
                invoke(interface, Change::DirectedBroadcast { on })
            },
        },
        Command {
            path: "set interface name",
            syntax: "<if> <name>",
            help: "Gives an interface another name",
            parse: |args, _| {
                let interface = args.interface()?;
                let name = args.word("name")?.into_owned();
                invoke(interface, Change::Name { name })
            },
        },
        Command {
            path: "set interface tag",
            syntax: "<if> <text>",
            help: "Attaches a text of the user's to an interface",
            parse: |args, _| {
                let interface = args.interface()?;
                let text = args.rest().to_owned();
                invoke(interface, Change::Tag { text })
            },
        },
        Command {
            path: "set interface feature",
            syntax: "<if> <feature> arc <arc> [disable]",
            help: "Switches a feature on or off on an interface",
            parse: |args, _| {
                let interface = args.interface()?;
                let feature = args.word("feature")?.into_owned();
                args.expect_keyword("arc")?;
                let arc = args.word("arc")?.into_owned();
                let on = !args.take_keyword("disable");
                invoke(interface, Change::Feature { feature, arc, on })
            },
        },
        Command {
            path: "set interface l2 xconnect",
            syntax: "<if> <peer>",
            help: "Sends every frame of an interface out of its peer; issue it for both directions",
            parse: |args, _| {
                let interface = args.interface()?;
                let peer = args.interface()?;
                invoke(interface, Change::CrossConnect { peer })
            },
        },
        Command {
            path: "set interface l3",
            syntax: "<if>",
            help: "Ends the layer-2 use of an interface: its packets are routed again",
            parse: |args, _| {
                let interface = args.interface()?;
                invoke(interface, Change::Route)
            },
        },
    ]
}

/// Changes one thing about an interface.
pub struct SetInterface;

/// What [`SetInterface`] changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetInterfaceRequest {
    /// Interface.
    pub interface: IfRef,
    /// Change.
    pub change: Change,
}

/// Protocol that an MTU is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MtuKind {
    /// All that have none of their own.
    Packet,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// MPLS.
    Mpls,
}

/// A change.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Link address.
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

impl Operation<Router> for SetInterface {
    const NAME: &'static str = "interface_set";
    const ACCESS: Access = Access::Change;
    type Request = SetInterfaceRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetInterfaceRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let result = match request.change {
            Change::State { up } => router.set_interface_up(index, up),
            Change::Mac { mac } => router.set_mac(index, MacAddr(mac)),
            Change::Promiscuous { on } => router.set_promiscuous(index, on),
            Change::DirectedBroadcast { on } => {
                return router.set_directed_broadcast(index, on).map(Outcome::Done).map_err(|e| address_error(&e));
            }
            Change::Name { name } => router.rename(index, &name),
            Change::Tag { text } => {
                if let Some(interface) = router.interfaces.get_mut(index) {
                    interface.tag = (!text.is_empty()).then_some(text);
                }
                Ok(())
            }
            Change::Feature { feature, arc, on } => {
                router.graph.set_feature(&arc, &feature, index, on).map_err(|e| graph_error(&e))?;
                if let Some(interface) = router.interfaces.get_mut(index) {
                    interface.features.insert((arc, feature), on);
                }
                Ok(())
            }
            Change::CrossConnect { peer } => {
                let peer = resolve(router, &peer)?;
                router.set_l2(index, L2Mode::CrossConnect(peer))
            }
            Change::Route => router.set_l2(index, L2Mode::L3),
            Change::Mtu { which, bytes } => {
                let mtu = router.interfaces.expect(index).map_err(|e| interface_error(&e))?.mtu;
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
        result.map_err(|e| interface_error(&e))?;
        Ok(Outcome::Done(()))
    }
}
