//! Operations and commands.

mod show;

use std::net::IpAddr;

use quiver_command::configuration::Stage;
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_net::interface::ops::{Created, resolve};
use quiver_net::{IfIndex, Router};
use serde::Serialize;

use crate::control::{self, Config, INSTANCE_MAX, Vxlan};
use crate::header::{PORT, VNI_MAX};
pub use show::{ShowTunnels, TunnelInfo, shown};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "create vxlan tunnel src 192.0.2.1 dst 192.0.2.2 vni 13",
    "create vxlan tunnel src 192.0.2.1 dst 192.0.2.2 vni 13 del",
    "create vxlan tunnel src 2001:db8::1 dst 2001:db8::2 vni 7 instance 3 encap-vrf-id 10",
    "create vxlan tunnel src 192.0.2.1 group 239.1.1.1 host-eth1 vni 13",
    "show vxlan tunnel",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] = &[
    ("create vxlan tunnel", &["vxlan_add_del_tunnel_v3", "vxlan_add_del_tunnel_v2", "vxlan_add_del_tunnel"]),
    ("show vxlan tunnel", &["vxlan_tunnel_v2_dump", "vxlan_tunnel_dump"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<ChangeTunnel>().declare::<ShowTunnels>();
    registry.shapes(Stage::Interfaces, MADE).covers(&["vxlan_tunnel_add_del"]);
}

words! {
    /// Where frames go that come out of a tunnel.
    pub enum DecapNext {
        /// Where frames of the interface go.
        L2 = "l2",
    }
}

request! {
    /// Makes a VXLAN tunnel, an interface that is up, and prints its name; or removes one.
    pub change ChangeTunnel "vxlan_tunnel_add_del" ["create vxlan tunnel"] {
        /// Own address.
        pub src: IpAddr = "src <ip>",
        /// The other end's.
        pub dst: Option<IpAddr> = "dst <ip>",
        /// In place of the other end a group of multicast; its interface follows.
        pub group: Option<IpAddr> = "group <ip>",
        /// Interface of the group.
        pub interface: Option<IfRef> = "<if>",
        /// Network identifier.
        pub vni: u32 = "vni <n>" range(0..=VNI_MAX as u64),
        /// Number in the name; the lowest free one where absent.
        pub instance: Option<u32> = "instance <n>" range(0..=INSTANCE_MAX as u64),
        /// Table of the outer addresses; made where there is none.
        pub encap_vrf_id: u32 = "encap-vrf-id <id>" default(0),
        /// Where frames go that come out of the tunnel; there is nothing to choose.
        pub decap_next: DecapNext = "decap-next l2" default(DecapNext::L2),
        /// Own UDP port, on which packets come in.
        pub src_port: u16 = "src_port <port>" default(PORT) range(1..=65_535),
        /// UDP port of the other end.
        pub dst_port: u16 = "dst_port <port>" default(PORT) range(1..=65_535),
        /// Removes it.
        pub del: bool = "del",
    }
}

impl ChangeTunnel {
    fn config(&self, router: &Router) -> Result<Config, OpError> {
        let wrong = |text: &str, key| OpError::new(retval::INVALID_ARGUMENT, text).key(key);
        let dst = match (self.dst, self.group) {
            (Some(dst), None) | (None, Some(dst)) => dst,
            (None, None) => return Err(wrong("tunnel dst address not specified", "dst")),
            (Some(_), Some(_)) => return Err(wrong("a tunnel goes to one end or to a group", "group")),
        };
        if self.group.is_some_and(|group| !group.is_multicast()) {
            return Err(wrong("tunnel group address not multicast", "group"));
        }
        let interface = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        if interface.is_some() && self.group.is_none() {
            return Err(wrong("only a group has an interface", "interface"));
        }
        Ok(Config {
            src: self.src,
            dst,
            vni: self.vni,
            table: self.encap_vrf_id,
            src_port: self.src_port,
            dst_port: self.dst_port,
            group_interface: interface,
        })
    }
}

/// The answer of [`ChangeTunnel`]: what was made.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Changed(pub Created);

impl Text for Changed {
    fn text(&self, out: &mut String, view: &View) {
        if !self.0.interfaces.is_empty() {
            self.0.text(out, view);
        }
    }
}

impl Execute<Router> for ChangeTunnel {
    type Reply = Changed;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Changed>, OpError> {
        let config = self.config(router)?;
        if self.del {
            let index = control::find(router, &config)?;
            router.delete_interface(index)?;
            return Ok(Outcome::Done(Changed(Created { interfaces: Vec::new() })));
        }
        let index = control::create(router, config, self.instance)?;
        let instance = instance_of(router, index);
        router.made_by(index, &Self { instance, ..self });
        Ok(Outcome::Done(Changed(Created::one(router, index))))
    }
}

fn instance_of(router: &Router, index: IfIndex) -> Option<u32> {
    router.state::<Vxlan>().ok()?.iter().find(|(other, _)| *other == index).map(|(_, tunnel)| tunnel.instance)
}

/// Where tunnels stand in a document.
const MADE: &[Shape] = &[Shape::new(
    "interfaces/vxlan_tunnel{instance#}/vxlan",
    r#"{"*":"*"}"#,
    "vxlan_tunnel_add_del",
    r#"{"instance":"{instance#}","del":false,"*":"*"}"#,
)
.doc("A VXLAN tunnel; its name is vxlan_tunnel and a number.")];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
