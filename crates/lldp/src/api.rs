//! `lldp`: the messages of VPP.

use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_api::defs::{InterfaceIndex, Ip4Address, Ip6Address};
use quiver_api::module;
use quiver_api::module::*;
use quiver_net::Router;
use quiver_net::api::{Flow, Handlers, perform, reference};
use quiver_net::ops::done;

use crate::ops::{NeighborInfo, PortInfo, SetInterfaceLldp, SetLldp, Shown, shown};
use crate::pdu::Identifier;

module! {
    lldp "2.0.0"
    enums {
        PortIdSubtype "port_id_subtype": u32 { PORT_ID_SUBTYPE_RESERVED = 0, PORT_ID_SUBTYPE_INTF_ALIAS = 1, PORT_ID_SUBTYPE_PORT_COMP = 2, PORT_ID_SUBTYPE_MAC_ADDR = 3, PORT_ID_SUBTYPE_NET_ADDR = 4, PORT_ID_SUBTYPE_INTF_NAME = 5, PORT_ID_SUBTYPE_AGENT_CIRCUIT_ID = 6, PORT_ID_SUBTYPE_LOCAL = 7 }
        ChassisIdSubtype "chassis_id_subtype": u32 { CHASSIS_ID_SUBTYPE_RESERVED = 0, CHASSIS_ID_SUBTYPE_CHASSIS_COMP = 1, CHASSIS_ID_SUBTYPE_INTF_ALIAS = 2, CHASSIS_ID_SUBTYPE_PORT_COMP = 3, CHASSIS_ID_SUBTYPE_MAC_ADDR = 4, CHASSIS_ID_SUBTYPE_NET_ADDR = 5, CHASSIS_ID_SUBTYPE_INTF_NAME = 6, CHASSIS_ID_SUBTYPE_LOCAL = 7 }
    }
    messages {
        client LldpConfig "lldp_config" -> lldp_config_reply { tx_hold: u32, tx_interval: u32, system_name: String }
        context LldpConfigReply "lldp_config_reply" { retval: i32 }
        client SwInterfaceSetLldp "sw_interface_set_lldp" -> sw_interface_set_lldp_reply { sw_if_index: InterfaceIndex, mgmt_ip4: Ip4Address, mgmt_ip6: Ip6Address, mgmt_oid: Bytes<128>, enable: bool => "True", port_desc: String }
        context SwInterfaceSetLldpReply "sw_interface_set_lldp_reply" { retval: i32 }
        client LldpDump "lldp_dump" -> lldp_dump_reply => lldp_details { cursor: u32 }
        context LldpDumpReply "lldp_dump_reply" { retval: i32, cursor: u32 }
        context LldpDetails "lldp_details" { sw_if_index: InterfaceIndex, last_heard: f64, last_sent: f64, chassis_id: Bytes<64>, chassis_id_len: u8, port_id: Bytes<64>, port_id_len: u8, ttl: u16, port_id_subtype: PortIdSubtype, chassis_id_subtype: ChassisIdSubtype }
    }
}

/// The end of the list.
const END: u32 = u32::MAX;

pub(crate) fn add(handlers: &mut Handlers) {
    handlers.module(lldp());
    handlers.act::<LldpConfig, LldpConfigReply>(|router, m| {
        // What is 0 or empty stays as it is.
        let number = |number: u32| Some(number).filter(|number| *number != 0);
        let system_name = Some(m.system_name).filter(|name| !name.is_empty());
        let request = SetLldp { system_name, tx_hold: number(m.tx_hold), tx_interval: number(m.tx_interval) };
        done(perform::<SetLldp>(router, request)?)
    });
    handlers.act::<SwInterfaceSetLldp, SwInterfaceSetLldpReply>(|router, m| {
        let oid = m.mgmt_oid.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let request = SetInterfaceLldp {
            interface: reference(router, &m.sw_if_index)?,
            port_desc: text(m.port_desc),
            mgmt_ip4: Some(Ipv4Addr::from(m.mgmt_ip4.0)).filter(|address| !address.is_unspecified()),
            mgmt_ip6: Some(Ipv6Addr::from(m.mgmt_ip6.0)).filter(|address| !address.is_unspecified()),
            mgmt_oid: text(String::from_utf8_lossy(oid).into_owned()),
            disable: !m.enable,
        };
        done(perform::<SetInterfaceLldp>(router, request)?)
    });
    handlers.call::<LldpDump>(|call, m| {
        // The cursor is the interface to go on with.
        let details = shown(call.router, false).map(|shown| all(call.router, &shown, m.cursor)).unwrap_or_default();
        details.iter().for_each(|one| call.send(one));
        call.send(&LldpDumpReply { retval: 0, cursor: END });
        Flow::Done
    });
    handlers.reads::<LldpDump>();
}

/// One for each neighbour, and one for each interface without.
fn all(router: &Router, shown: &Shown, from: u32) -> Vec<LldpDetails> {
    let now = router.graph.clock().timer_now() as f64 / 1e9;
    let ports = shown.ports.iter().filter(|port| port.sw_if_index >= from);
    ports
        .flat_map(|port| {
            let known = port.neighbors.iter().map(Some);
            let none = port.neighbors.is_empty().then_some(None);
            known.chain(none).map(move |known| details(port, known, now))
        })
        .collect()
}

/// Bytes of an identifier that the message has room for.
const ID_ROOM: usize = 64;

fn details(port: &PortInfo, known: Option<&NeighborInfo>, now: f64) -> LldpDetails {
    let heard_ago = known.map(|known| known.heard_ago).or(port.heard_ago);
    let (chassis, of) = known.map(|known| (&known.info.chassis, &known.info.port)).unzip();
    let bytes = |id: Option<&Identifier>| id.map(|id| id.bytes.clone()).unwrap_or_default();
    let (chassis_id, port_id) = (bytes(chassis), bytes(of));
    LldpDetails {
        sw_if_index: InterfaceIndex(port.sw_if_index),
        last_heard: heard_ago.map_or(0.0, |ago| now - ago),
        last_sent: port.sent_ago.map_or(0.0, |ago| now - ago),
        chassis_id_len: chassis_id.len().min(ID_ROOM) as u8,
        chassis_id: Bytes::from(&*chassis_id),
        port_id_len: port_id.len().min(ID_ROOM) as u8,
        port_id: Bytes::from(&*port_id),
        ttl: known.map_or(0, |known| known.info.ttl),
        port_id_subtype: PortIdSubtype(of.map_or(0, |id| id.subtype.into())),
        chassis_id_subtype: ChassisIdSubtype(chassis.map_or(0, |id| id.subtype.into())),
    }
}
