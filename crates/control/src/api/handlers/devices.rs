//! `af_packet`, `af_xdp`, `tapv2`: devices of the host.

use std::net::IpAddr;

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::from_message;
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use quiver_net::api::{ALL, Details, Handlers, said};
use quiver_net::interface::Kind;
use quiver_net::interface::api::{delete, given};
use quiver_net::interface::ops::DeleteInterface;
use serde_json::Value;

use crate::ops::af_xdp::{AF_XDP, CreateAfXdp};
use crate::ops::host_interface::{CreateHost, HOST, device_of, interface_on};
use crate::ops::tap::{CreateTap, Gateway, HostAddressRequest, TAP, TapInfo};

pub(super) fn add(handlers: &mut Handlers) {
    let host = |_: &Router, m: AfPacketCreate| {
        let mac = own(m.use_random_hw_addr, &m.hw_addr);
        from_message!(said, m => CreateHost { name = host_if_name, mac: mac })
    };
    handlers.run::<CreateHost, _, _>(host, |_, _, made| Ok(AfPacketCreateReply { retval: 0, sw_if_index: number(&made?) }));
    let host = |_: &Router, m: AfPacketCreateV2| {
        from_message!(said, m => CreateHost {
            name = host_if_name,
            mac: own(m.use_random_hw_addr, &m.hw_addr),
            rx_queues = num_rx_queues,
            rx_per_block = rx_frames_per_block,
            tx_per_block = tx_frames_per_block,
        })
    };
    handlers.run::<CreateHost, _, _>(host, |_, _, made| Ok(AfPacketCreateV2Reply { retval: 0, sw_if_index: number(&made?) }));
    let host = |_: &Router, m: AfPacketCreateV3| {
        let has = |flag: AfPacketFlags| m.flags.0 & flag.0 != 0;
        from_message!(said, m => CreateHost {
            name = host_if_name,
            mac: own(m.use_random_hw_addr, &m.hw_addr),
            rx_queues = num_rx_queues,
            rx_per_block = rx_frames_per_block,
            tx_per_block = tx_frames_per_block,
            mode_ip: m.mode == AfPacketMode::AF_PACKET_API_MODE_IP,
            qdisc_bypass: Some(has(AfPacketFlags::AF_PACKET_API_FLAG_QDISC_BYPASS)),
            cksum_gso: Some(has(AfPacketFlags::AF_PACKET_API_FLAG_CKSUM_GSO)),
        })
    };
    handlers.run::<CreateHost, _, _>(host, |_, _, made| Ok(AfPacketCreateV3Reply { retval: 0, sw_if_index: number(&made?) }));
    let host = |router: &Router, m: AfPacketDelete| Ok(DeleteInterface::of(&HOST, interface_on(router, m.host_if_name.as_str())));
    handlers.run::<DeleteInterface, _, _>(host, |_, _, removed| removed.map(|_| AfPacketDeleteReply::default()));
    handlers.dump::<AfPacketDump>(|router, _, send| {
        for interface in router.interfaces.iter().filter(|i| i.kind == Kind::Device(&HOST)) {
            let host_if_name = Text(device_of(interface).unwrap_or_default().to_owned());
            send(&AfPacketDetails { sw_if_index: InterfaceIndex(interface.index.0), host_if_name });
        }
    });
    handlers.run::<CreateAfXdp, _, _>(af_xdp, |_, _, made| Ok(AfXdpCreateV3Reply { retval: 0, sw_if_index: number(&made?) }));
    delete::<AfXdpDelete, AfXdpDeleteReply>(handlers, &AF_XDP, |m| &m.sw_if_index);
    handlers.run::<CreateTap, _, _>(tap, |router, m, made| {
        Ok(TapCreateV3Reply { retval: 0, sw_if_index: tagged(router, m.tag, &made?) })
    });
    handlers.run::<CreateTap, _, _>(
        |router, m| tap(router, third(m)),
        |router, m, made| Ok(TapCreateV2Reply { retval: 0, sw_if_index: tagged(router, m.tag, &made?) }),
    );
    handlers.dump::<SwInterfaceTapV2Dump>(dump_taps);
    delete::<TapDeleteV2, TapDeleteV2Reply>(handlers, &TAP, |m| &m.sw_if_index);
}

/// A MAC address, where none is to be drawn.
fn own(random: bool, mac: &MacAddress) -> Option<[u8; 6]> {
    if random { None } else { given(mac) }
}

/// Number of the interface that an operation says it has made.
fn number(made: &Value) -> InterfaceIndex {
    InterfaceIndex(made["interfaces"][0]["sw_if_index"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(ALL))
}

/// The same, for one that is to have a tag.
fn tagged(router: &mut Router, tag: String, made: &Value) -> InterfaceIndex {
    let index = number(made);
    if let Some(interface) = router.interfaces.get_mut(quiver_net::IfIndex(index.0)) {
        interface.tag = Some(tag).filter(|tag| !tag.is_empty());
    }
    index
}

fn af_xdp(_: &Router, m: AfXdpCreateV3) -> Result<CreateAfXdp, OpError> {
    for (key, text) in [("prog", m.prog.as_str()), ("netns", m.netns.as_str())] {
        if !text.is_empty() {
            return Err(OpError::new(retval::UNSUPPORTED, format!("{key} cannot be chosen")).key(key));
        }
    }
    from_message!(said, m => CreateAfXdp {
        host_if,
        name,
        rx_queues: Some(u32::from(m.rxq_num)).filter(|n| *n > 0 && *n < 0xffff),
        rx_size = rxq_size,
        tx_size = txq_size,
        mac_reuse: m.flags.0 & AfXdpFlag::AF_XDP_API_FLAGS_MAC_REUSE.0 != 0,
        zero_copy: match m.mode {
            AfXdpMode::AF_XDP_API_MODE_COPY => Some(false),
            AfXdpMode::AF_XDP_API_MODE_ZERO_COPY => Some(true),
            _ => None,
        },
    })
}

fn tap(_: &Router, m: TapCreateV3) -> Result<CreateTap, OpError> {
    let has = |flag: TapFlags| m.tap_flags.0 & flag.0 != 0;
    let four = |set: bool, prefix: &Ip4AddressWithPrefix| {
        set.then(|| HostAddressRequest { address: IpAddr::from(prefix.0.address.0), prefix_len: prefix.0.len })
    };
    let six = |set: bool, prefix: &Ip6AddressWithPrefix| {
        set.then(|| HostAddressRequest { address: IpAddr::from(prefix.0.address.0), prefix_len: prefix.0.len })
    };
    let addresses = [four(m.host_ip4_prefix_set, &m.host_ip4_prefix), six(m.host_ip6_prefix_set, &m.host_ip6_prefix)];
    let gateways =
        [m.host_ip4_gw_set.then(|| IpAddr::from(m.host_ip4_gw.0)), m.host_ip6_gw_set.then(|| IpAddr::from(m.host_ip6_gw.0))];
    let text = |set: bool, text: Text<64>| set.then_some(text.0);
    from_message!(said, m => CreateTap {
        id: Some(m.id).filter(|id| *id != ALL),
        mac: own(m.use_random_mac, &m.mac_address),
        rx_queues = num_rx_queues,
        rx_ring_size = rx_ring_sz,
        host_ns: text(m.host_namespace_set, m.host_namespace),
        host_bridge: text(m.host_bridge_set, m.host_bridge),
        host_addresses: addresses.into_iter().flatten().collect(),
        host_gateways: gateways.into_iter().flatten().map(Gateway).collect(),
        host_mac: m.host_mac_addr_set.then_some(m.host_mac_addr.0),
        host_if_name: text(m.host_if_name_set, m.host_if_name),
        host_mtu: m.host_mtu_set.then_some(m.host_mtu_size),
        gso: has(TapFlags::TAP_API_FLAG_GSO),
        csum_offload: has(TapFlags::TAP_API_FLAG_CSUM_OFFLOAD),
        persist: has(TapFlags::TAP_API_FLAG_PERSIST),
        attach: has(TapFlags::TAP_API_FLAG_ATTACH),
        tun: has(TapFlags::TAP_API_FLAG_TUN),
    })
}

/// A request of the second version as one of the third, which has another number of queues.
fn third(m: TapCreateV2) -> TapCreateV3 {
    TapCreateV3 {
        id: m.id,
        use_random_mac: m.use_random_mac,
        mac_address: m.mac_address,
        num_rx_queues: m.num_rx_queues.into(),
        num_tx_queues: 0,
        tx_ring_sz: m.tx_ring_sz,
        rx_ring_sz: m.rx_ring_sz,
        host_mtu_set: m.host_mtu_set,
        host_mtu_size: m.host_mtu_size,
        host_mac_addr_set: m.host_mac_addr_set,
        host_mac_addr: m.host_mac_addr,
        host_ip4_prefix_set: m.host_ip4_prefix_set,
        host_ip4_prefix: m.host_ip4_prefix,
        host_ip6_prefix_set: m.host_ip6_prefix_set,
        host_ip6_prefix: m.host_ip6_prefix,
        host_ip4_gw_set: m.host_ip4_gw_set,
        host_ip4_gw: m.host_ip4_gw,
        host_ip6_gw_set: m.host_ip6_gw_set,
        host_ip6_gw: m.host_ip6_gw,
        tap_flags: m.tap_flags,
        host_namespace_set: m.host_namespace_set,
        host_namespace: m.host_namespace,
        host_if_name_set: m.host_if_name_set,
        host_if_name: m.host_if_name,
        host_bridge_set: m.host_bridge_set,
        host_bridge: m.host_bridge,
        tag: m.tag,
    }
}

fn dump_taps(router: &mut Router, m: SwInterfaceTapV2Dump, send: &mut dyn FnMut(&dyn Details)) {
    for tap in router.interfaces.iter().filter(|i| [ALL, i.index.0].contains(&m.sw_if_index.0)).filter_map(TapInfo::of) {
        let on = |on: bool, flag: TapFlags| if on { flag.0 } else { 0 };
        let flags = on(tap.gso_enabled, TapFlags::TAP_API_FLAG_GSO)
            | on(tap.csum_enabled, TapFlags::TAP_API_FLAG_CSUM_OFFLOAD)
            | on(tap.persist, TapFlags::TAP_API_FLAG_PERSIST)
            | on(tap.tun, TapFlags::TAP_API_FLAG_TUN);
        let mac = tap.host_mac.as_ref().and_then(|mac| mac.parse::<quiver_wire::MacAddr>().ok());
        send(&SwInterfaceTapV2Details {
            sw_if_index: tap.sw_if_index,
            id: tap.name.strip_prefix("tap").and_then(|id| id.parse().ok()).unwrap_or(ALL),
            host_mtu_size: tap.host_mtu.unwrap_or_default(),
            host_mac_addr: MacAddress(mac.map_or([0; 6], |mac| mac.0)),
            tap_flags: TapFlags(flags),
            dev_name: Text(tap.name),
            host_if_name: Text(tap.host_if_name),
            host_namespace: Text(tap.host_ns.unwrap_or_default()),
            ..Default::default()
        });
    }
}
