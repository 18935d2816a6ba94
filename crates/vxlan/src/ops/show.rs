//! What is shown of tunnels.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::operation::{OpError, Outcome, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::{IfIndex, Router};
use serde::Serialize;

use crate::control::{Tunnel, Vxlan};

request! {
    /// Shows VXLAN tunnels.
    pub read ShowTunnels "vxlan_tunnels_show" ["show vxlan tunnel"] {}
}

/// A tunnel.
#[derive(Debug, Clone, Serialize)]
pub struct TunnelInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Number in the name.
    pub instance: u32,
    /// Own address.
    pub src: IpAddr,
    /// The other end's, or a group.
    pub dst: IpAddr,
    /// Own UDP port.
    pub src_port: u16,
    /// The other end's.
    pub dst_port: u16,
    /// Network identifier.
    pub vni: u32,
    /// Table of the outer addresses.
    pub table: u32,
    /// Number of that table in the FIB.
    pub fib_index: u32,
    /// Number of the group's interface.
    pub mcast_sw_if_index: Option<u32>,
}

fn info(router: &Router, index: IfIndex, tunnel: &Tunnel) -> TunnelInfo {
    let config = tunnel.config;
    TunnelInfo {
        interface: router.interfaces.name(index),
        sw_if_index: index.0,
        instance: tunnel.instance,
        src: config.src,
        dst: config.dst,
        src_port: config.src_port,
        dst_port: config.dst_port,
        vni: config.vni,
        table: config.table,
        fib_index: tunnel.key.fib,
        mcast_sw_if_index: config.group_interface.map(|interface| interface.0),
    }
}

/// One tunnel, or all.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router, one: Option<IfIndex>) -> Result<Vec<TunnelInfo>, OpError> {
    let chosen = router.state::<Vxlan>()?.iter().filter(|(index, _)| one.is_none_or(|one| one == *index));
    Ok(chosen.map(|(index, tunnel)| info(router, index, tunnel)).collect())
}

/// The answer of [`ShowTunnels`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Shown(Vec<TunnelInfo>);

impl Execute<Router> for ShowTunnels {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        Ok(Outcome::Done(Shown(shown(router, None)?)))
    }
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        if self.0.is_empty() {
            out.push_str("No vxlan tunnels configured...\n");
        }
        for (n, tunnel) in self.0.iter().enumerate() {
            let TunnelInfo { instance, src, dst, src_port, dst_port, vni, fib_index, sw_if_index, .. } = tunnel;
            let _ = write!(out, "[{n}] instance {instance} src {src} dst {dst} src_port {src_port} dst_port {dst_port} vni {vni} ");
            let _ = write!(out, "fib-idx {fib_index} sw-if-idx {sw_if_index} ");
            if let Some(group) = tunnel.mcast_sw_if_index {
                let _ = write!(out, "mcast-sw-if-idx {group} ");
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
}
