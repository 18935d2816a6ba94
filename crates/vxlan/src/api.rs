//! `vxlan`: the messages of VPP's plugin.

use quiver_api::defs::{Address, InterfaceIndex};
use quiver_api::module;
use quiver_api::module::*;
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::api::{Handlers, address, from_address, perform, reference};
use quiver_net::ops::done;

use crate::header::PORT;
use crate::ops::{ChangeTunnel, DecapNext, TunnelInfo, shown};

module! {
    vxlan "2.1.0"
    messages {
        client VxlanAddDelTunnel "vxlan_add_del_tunnel" -> vxlan_add_del_tunnel_reply { is_add: bool => "true", instance: u32, src_address: Address, dst_address: Address, mcast_sw_if_index: InterfaceIndex, encap_vrf_id: u32, decap_next_index: u32, vni: u32 }
        client VxlanAddDelTunnelV2 "vxlan_add_del_tunnel_v2" -> vxlan_add_del_tunnel_v2_reply { is_add: bool => "true", instance: u32 => "4294967295", src_address: Address, dst_address: Address, src_port: u16, dst_port: u16, mcast_sw_if_index: InterfaceIndex, encap_vrf_id: u32, decap_next_index: u32, vni: u32 }
        client VxlanAddDelTunnelV3 "vxlan_add_del_tunnel_v3" -> vxlan_add_del_tunnel_v3_reply { is_add: bool => "true", instance: u32 => "4294967295", src_address: Address, dst_address: Address, src_port: u16, dst_port: u16, mcast_sw_if_index: InterfaceIndex, encap_vrf_id: u32, decap_next_index: u32, vni: u32, is_l3: bool => "false" }
        context VxlanAddDelTunnelReply "vxlan_add_del_tunnel_reply" { retval: i32, sw_if_index: InterfaceIndex }
        context VxlanAddDelTunnelV2Reply "vxlan_add_del_tunnel_v2_reply" { retval: i32, sw_if_index: InterfaceIndex }
        context VxlanAddDelTunnelV3Reply "vxlan_add_del_tunnel_v3_reply" { retval: i32, sw_if_index: InterfaceIndex }
        client VxlanTunnelDump "vxlan_tunnel_dump" => vxlan_tunnel_details { sw_if_index: InterfaceIndex }
        client VxlanTunnelV2Dump "vxlan_tunnel_v2_dump" => vxlan_tunnel_v2_details { sw_if_index: InterfaceIndex }
        context VxlanTunnelDetails "vxlan_tunnel_details" { sw_if_index: InterfaceIndex, instance: u32, src_address: Address, dst_address: Address, mcast_sw_if_index: InterfaceIndex, encap_vrf_id: u32, decap_next_index: u32, vni: u32 }
        context VxlanTunnelV2Details "vxlan_tunnel_v2_details" { sw_if_index: InterfaceIndex, instance: u32, src_address: Address, dst_address: Address, src_port: u16, dst_port: u16, mcast_sw_if_index: InterfaceIndex, encap_vrf_id: u32, decap_next_index: u32, vni: u32 }
    }
}

/// No interface, any free number, the usual next node.
const NONE: u32 = u32::MAX;
/// The index of `l2-input` among the next nodes of VPP's `vxlan4-input`.
const L2: u32 = 1;

/// A message of an older version as the newest one, with these ports.
macro_rules! newest {
    ($m:ident, $src_port:expr, $dst_port:expr) => {
        VxlanAddDelTunnelV3 {
            is_add: $m.is_add,
            instance: $m.instance,
            src_address: $m.src_address,
            dst_address: $m.dst_address,
            src_port: $src_port,
            dst_port: $dst_port,
            mcast_sw_if_index: $m.mcast_sw_if_index,
            encap_vrf_id: $m.encap_vrf_id,
            decap_next_index: $m.decap_next_index,
            vni: $m.vni,
            is_l3: false,
        }
    };
}

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(vxlan());
    handlers.reply::<VxlanAddDelTunnel, VxlanAddDelTunnelReply>(|router, m| {
        change(router, &newest!(m, 0, 0)).map(|sw_if_index| VxlanAddDelTunnelReply { retval: 0, sw_if_index })
    });
    handlers.reply::<VxlanAddDelTunnelV2, VxlanAddDelTunnelV2Reply>(|router, m| {
        change(router, &newest!(m, m.src_port, m.dst_port)).map(|sw_if_index| VxlanAddDelTunnelV2Reply { retval: 0, sw_if_index })
    });
    handlers.reply::<VxlanAddDelTunnelV3, VxlanAddDelTunnelV3Reply>(|router, m| {
        change(router, &m).map(|sw_if_index| VxlanAddDelTunnelV3Reply { retval: 0, sw_if_index })
    });
    handlers.dump::<VxlanTunnelDump>(|router, m, send| {
        for tunnel in tunnels(router, &m.sw_if_index) {
            let VxlanTunnelV2Details { sw_if_index, instance, src_address, dst_address, mcast_sw_if_index, .. } = details(&tunnel);
            let (encap_vrf_id, decap_next_index, vni) = (tunnel.table, L2, tunnel.vni);
            send(&VxlanTunnelDetails {
                sw_if_index,
                instance,
                src_address,
                dst_address,
                mcast_sw_if_index,
                encap_vrf_id,
                decap_next_index,
                vni,
            });
        }
    });
    handlers.dump::<VxlanTunnelV2Dump>(|router, m, send| {
        tunnels(router, &m.sw_if_index).iter().for_each(|tunnel| send(&details(tunnel)));
    });
}

fn change(router: &mut Router, m: &VxlanAddDelTunnelV3) -> Result<InterfaceIndex, OpError> {
    if m.is_l3 {
        let text = "packets without an Ethernet header are not carried (RFC 7348 knows frames only)";
        return Err(OpError::new(retval::UNSUPPORTED, text).key("is_l3"));
    }
    if ![L2, NONE].contains(&m.decap_next_index) {
        return Err(OpError::new(retval::UNSUPPORTED, "frames go to layer 2 or are routed").key("decap_next_index"));
    }
    let (dst, port) = (from_address(&m.dst_address), |port| if port == 0 { PORT } else { port });
    let group = dst.is_multicast();
    let interface = (group && m.mcast_sw_if_index.0 != NONE).then(|| reference(router, &m.mcast_sw_if_index)).transpose()?;
    let request = ChangeTunnel {
        src: from_address(&m.src_address),
        dst: (!group).then_some(dst),
        group: group.then_some(dst),
        interface,
        vni: m.vni,
        instance: Some(m.instance).filter(|instance| *instance != NONE),
        encap_vrf_id: m.encap_vrf_id,
        decap_next: DecapNext::L2,
        src_port: port(m.src_port),
        dst_port: port(m.dst_port),
        del: !m.is_add,
    };
    let made = done(perform::<ChangeTunnel>(router, request)?)?;
    Ok(InterfaceIndex(made.0.interfaces.first().map_or(NONE, |made| made.sw_if_index)))
}

fn tunnels(router: &Router, one: &InterfaceIndex) -> Vec<TunnelInfo> {
    shown(router, Some(IfIndex(one.0)).filter(|one| one.0 != NONE)).unwrap_or_default()
}

fn details(tunnel: &TunnelInfo) -> VxlanTunnelV2Details {
    VxlanTunnelV2Details {
        sw_if_index: InterfaceIndex(tunnel.sw_if_index),
        instance: tunnel.instance,
        src_address: address(tunnel.src),
        dst_address: address(tunnel.dst),
        src_port: tunnel.src_port,
        dst_port: tunnel.dst_port,
        mcast_sw_if_index: InterfaceIndex(tunnel.mcast_sw_if_index.unwrap_or(NONE)),
        encap_vrf_id: tunnel.table,
        decap_next_index: L2,
        vni: tunnel.vni,
    }
}
